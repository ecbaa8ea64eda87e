"""When a run trains with how many labels: the rounds that follow from the growth settings alone."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


@dataclass(frozen=True)
class Round:
    """Training between two queries: `labels` labels from step `begin` to step `end`."""

    index: int
    labels: int
    begin: int
    end: int
    refresh: bool  # the student is (partly) drawn anew before the first step
    origin: int  # the step at which the student was last drawn anew: Adam counts from here
    ramp_from: int  # the step from which the unlabeled weight ramps up


class Growth(BaseModel):
    """How the labeled set grows. `budget` labels in all; then training to convergence (the tail)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    start: int = Field(gt=0)  # labels before the first step
    add: int = Field(gt=0)  # labels asked for per round
    budget: int = Field(gt=0)  # labels we may buy
    first: int = Field(gt=0)  # steps with the start set
    every: int = Field(gt=0)  # steps between two queries
    final: int = Field(gt=0)  # steps at the full budget
    start_set: Literal["uniform", "proportional", "coverage"] = "uniform"
    budgets: tuple[int, ...] = ()  # budgets that share this trunk: the states they start from are kept
    # Against lock-in (guesses made early from too few labels that later labels cannot mend). The paper uses none of them.
    ramp_again: bool = False  # the unlabeled weight ramps up again after each growth
    refresh_every: int = Field(default=0, ge=0)  # rounds between two refreshes of the student; 0 = never
    refresh_final: bool = False  # refresh before the tail
    shrink: float = Field(default=0.0, ge=0.0, le=1.0)  # share of the old weights a refresh keeps; 0 = start afresh
    # What a round brings. "count": `add` labels. For money, in `purchases` rounds after the start set: "split" spends `share`
    # of it on labels and the rest on images, "buyer" decides by itself; `budget` still limits the labels.
    policy: Literal["count", "split", "buyer"] = "count"
    money: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)  # for everything bought after the start set
    label_price: float = Field(default=1.0, ge=0.0, allow_inf_nan=False)
    image_price: float = Field(default=0.05, ge=0.0, allow_inf_nan=False)
    purchases: int = Field(default=8, gt=0)  # rounds in which something may be bought
    visible: int | None = Field(default=None, gt=0)  # images in the pool before any is bought; None = all of them
    share: float = Field(default=1.0, ge=0.0, le=1.0)  # of the money, for labels (split)
    # The buyer's: labels bought at random first, to measure by, which train in the last round; what a point of accuracy is
    # worth, 0 = spend all.
    check: int = Field(default=0, ge=0)
    point: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _start_within_budget(self) -> Growth:
        if self.start > self.budget:
            raise ValueError(f"growth.start ({self.start}) is larger than growth.budget ({self.budget})")
        return self

    @model_validator(mode="after")
    def _money_fits_the_policy(self) -> Growth:
        if problem := money_problem(self):
            raise ValueError(problem)
        return self

    @property
    def for_money(self) -> bool:
        """Whether rounds are paid for, so that what they bring is only known when it was bought."""
        return self.policy != "count"

    @property
    def most_labels(self) -> int:
        """Labels there can be in the end."""
        if not self.for_money or not self.label_price:
            return self.budget
        return min(self.budget, self.start + int(self.money / self.label_price + 1e-9))

    def rounds(self, *, passive: bool = False) -> tuple[Round, ...]:
        """Every round in order. A passive run has one: the whole budget from the start, as many steps in all."""
        sizes = [*range(self.start, self.budget, self.add), self.budget]
        if self.for_money:  # the label counts are limits
            sizes = [self.start, *[self.most_labels] * self.purchases]
        steps = [self.first, *[self.every] * (len(sizes) - 2), self.final]
        if len(sizes) == 1 or passive:
            total = self.first + self.final if len(sizes) == 1 else sum(steps)
            sizes, steps = [self.budget], [total]
        rounds: list[Round] = []
        begin = 0
        for index, (labels, length) in enumerate(zip(sizes, steps, strict=True)):
            rounds.append(self._round(index, labels, begin, length, last=index == len(sizes) - 1, before=rounds))
            begin += length
        return tuple(rounds)

    def _round(self, index: int, labels: int, begin: int, length: int, *, last: bool, before: list[Round]) -> Round:
        every = self.refresh_every > 0 and index % self.refresh_every == 0
        refresh = index > 0 and (every or (last and self.refresh_final))
        origin = begin if refresh or not before else before[-1].origin
        ramp_from = begin if self.ramp_again else origin
        return Round(index, labels, begin, begin + length, refresh, origin, ramp_from)

    def kept_steps(self, *, passive: bool = False) -> frozenset[int]:
        """Steps whose state other budgets may start from: the ends of the labeling intervals next to each budget."""
        if self.for_money:
            return frozenset()  # what is bought depends on all the money: nothing is shared
        rounds = self.rounds(passive=passive)
        wanted = {self.budget, *self.budgets}
        kept = {a.end for a, b in pairwise(rounds) if a.labels in wanted or b.labels in wanted}
        last = rounds[-1]
        if len(rounds) > 1 and not self.refresh_final and last.begin + self.every < last.end:
            kept.add(last.begin + self.every)  # where a larger budget would have asked again
        return frozenset(kept)


def money_problem(growth: Growth) -> str | None:
    """Return what is wrong with the settings about money, if anything."""
    if not growth.for_money:
        if growth.money or growth.visible is not None:
            return "growth.money and growth.visible need a policy that buys: set growth.policy=buyer or growth.policy=split"
        return None
    if not growth.money:
        return f"growth.policy={growth.policy} needs money to spend: set growth.money"
    if not growth.label_price and not growth.image_price:
        return "growth.label_price and growth.image_price are both 0: there is nothing to weigh up"
    if growth.check * growth.label_price > growth.money:
        return f"growth.check: {growth.check} labels cost more than growth.money ({growth.money:g})"
    if growth.check and growth.policy != "buyer":
        return "growth.check is for growth.policy=buyer: nobody else looks at it"
    if growth.start + growth.check > growth.budget:
        return f"growth.start + growth.check are more than growth.budget ({growth.budget})"
    if growth.visible is not None and growth.start + growth.check > growth.visible:
        return f"growth.start + growth.check are more than growth.visible ({growth.visible})"
    return None

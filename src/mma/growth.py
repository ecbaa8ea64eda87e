"""When a run trains with how many labels: a schedule, and a policy that says what each round brings."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from mma.errors import UserError
from mma.settings import Settings, chosen_from


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


class Policy(Settings):
    """What each round brings."""

    name: str
    grows: ClassVar[bool] = True  # whether labels are added while it trains, so that budgets can share a trunk

    def sizes(self, growth: Growth) -> list[int]:
        """Return how many labels there are in each round; for money these are limits."""
        raise NotImplementedError

    def problem(self, growth: Growth) -> str | None:
        """Return what is wrong with these settings, if anything."""
        return None


class Count(Policy):
    """Each round adds `growth.add` labels."""

    name: Literal["count"] = "count"

    def sizes(self, growth: Growth) -> list[int]:
        """Return the start set, then `add` more each time, up to the budget."""
        return [*range(growth.start, growth.budget, growth.add), growth.budget]


class Sizes(Policy):
    """Rounds of the sizes listed, of any lengths: few labels at first, many later."""

    name: Literal["sizes"] = "sizes"
    labels: tuple[int, ...] = ()  # in all, after each query

    def sizes(self, growth: Growth) -> list[int]:
        """Return the start set, the sizes between it and the budget, and the budget."""
        between = sorted({size for size in self.labels if growth.start < size < growth.budget})
        return [growth.start, *between, *([growth.budget] if growth.budget > growth.start else [])]


class Passive(Policy):
    """The whole budget is drawn at the start: one round, as many steps in all as growing takes."""

    name: Literal["passive"] = "passive"
    grows: ClassVar[bool] = False

    def sizes(self, growth: Growth) -> list[int]:
        """Return the budget."""
        return [growth.budget]


class Money(Policy):
    """In `purchases` rounds after the start set, labels and images are bought for money; the budget limits the labels."""

    grows: ClassVar[bool] = False  # what is bought depends on all the money, so budgets share nothing
    money: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)  # for everything bought after the start set
    label_price: float = Field(default=1.0, ge=0.0, allow_inf_nan=False)
    image_price: float = Field(default=0.05, ge=0.0, allow_inf_nan=False)
    purchases: int = Field(default=8, gt=0)  # rounds in which something may be bought
    initial_pool: int | None = Field(default=None, gt=0)  # images in the pool before any is bought; None = all of them

    def sizes(self, growth: Growth) -> list[int]:
        """Return the start set, then the most labels that the money can buy."""
        affordable = int(self.money / self.label_price + 1e-9) if self.label_price else growth.budget
        return [growth.start, *[min(growth.budget, growth.start + affordable)] * self.purchases]

    def problem(self, growth: Growth) -> str | None:
        """Return what is wrong with the money."""
        held_out = growth.held_out_labels
        first = growth.start + held_out
        if not self.money:
            return f"growth.policy={self.name} needs money to spend: set growth.policy.money"
        if not self.label_price and not self.image_price:
            return "growth.policy.label_price and growth.policy.image_price are both 0: there is nothing to weigh up"
        if held_out * self.label_price > self.money:
            return f"growth.policy.held_out_labels: {held_out} labels cost more than the money ({self.money:g})"
        if first > growth.budget:
            return f"growth.start and growth.policy.held_out_labels are more than growth.budget ({growth.budget})"
        if self.initial_pool is not None and first > self.initial_pool:
            return f"the first {first} labels are more than growth.policy.initial_pool ({self.initial_pool})"
        return None


class Split(Money):
    """A fixed share of the money goes into labels, the rest into images."""

    name: Literal["split"] = "split"
    share: float = Field(default=1.0, ge=0.0, le=1.0)  # of the money, for labels


class Buyer(Money):
    """Decides by itself what to buy, from what it measures."""

    name: Literal["buyer"] = "buyer"
    held_out_labels: int = Field(default=0, ge=0)  # bought at random first, to measure by; they train in the last round
    value_per_point: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)  # of accuracy, in money; 0 = spend all


POLICIES: dict[str, type[Policy]] = {"count": Count, "sizes": Sizes, "passive": Passive, "split": Split, "buyer": Buyer}
if TYPE_CHECKING:
    AnyPolicy = Policy
else:
    AnyPolicy = Annotated[SerializeAsAny[Policy], BeforeValidator(chosen_from(POLICIES))]


class Growth(Settings):
    """How the labeled set grows, and how long each part trains; then training to convergence (the tail).

    Parameters
    ----------
    start, add, budget : int
        Labels before the first step, labels asked for per round, and labels in all.
    first, every, final : int
        Steps with the start set, between two queries, and at the full budget.
    policy : settings
        count (the default), passive, split or buyer.
    start_set : str
        How the first labels are chosen: uniform (the default), proportional, coverage, or query (the run's own).
    budgets : tuple of int
        Budgets that share this trunk: the states that they start from are kept. Default: none.
    ramp_again, refresh_every, refresh_final, shrink
        Against lock-in, early guesses that later labels cannot mend; the paper uses none. The unlabeled weight ramps up
        again after each growth; the student is refreshed after so many rounds (0: never) or before the tail, and keeps
        this share of its old weights.

    Examples
    --------
    >>> growth = mma.Growth(start=20, add=10, budget=60, first=100, every=50, final=200)
    >>> [round.labels for round in growth.rounds()]
    [20, 30, 40, 50, 60]
    """

    start: int = Field(gt=0)
    add: int = Field(gt=0)
    budget: int = Field(gt=0)
    first: int = Field(gt=0)
    every: int = Field(gt=0)
    final: int = Field(gt=0)
    policy: AnyPolicy = Count()
    start_set: Literal["uniform", "proportional", "coverage", "query"] = "uniform"
    budgets: tuple[int, ...] = ()
    ramp_again: bool = False
    refresh_every: int = Field(default=0, ge=0)
    refresh_final: bool = False
    shrink: float = Field(default=0.0, ge=0.0, le=1.0)

    @model_validator(mode="after")
    def _fits_the_budget(self) -> Growth:
        if self.start > self.budget:
            raise UserError(f"growth.start ({self.start}) is larger than growth.budget ({self.budget})")
        if problem := self.policy.problem(self):
            raise UserError(problem)
        return self

    @property
    def spending(self) -> Money | None:
        """The policy where rounds are paid for, so that what they bring is only known when it was bought."""
        return self.policy if isinstance(self.policy, Money) else None

    @property
    def initial_pool(self) -> int | None:
        """Images in the pool before any is bought; None = all of them."""
        return self.spending.initial_pool if self.spending else None

    @property
    def held_out_labels(self) -> int:
        """Labels that are bought to measure by, not to train with."""
        return self.policy.held_out_labels if isinstance(self.policy, Buyer) else 0

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.rounds()[-1].end

    def rounds(self) -> tuple[Round, ...]:
        """Every round in order. A single round takes as many steps as growing to the same budget."""
        sizes = self.policy.sizes(self)
        lengths = [self.first, *[self.every] * (len(sizes) - 2), self.final]
        if len(sizes) == 1:
            lengths = [self.first + self.every * max(len(Count().sizes(self)) - 2, 0) + self.final]
        rounds: list[Round] = []
        begin = origin = 0
        for index, (labels, length) in enumerate(zip(sizes, lengths, strict=True)):
            due = self.refresh_every > 0 and index % self.refresh_every == 0
            refresh = index > 0 and (due or (index == len(sizes) - 1 and self.refresh_final))
            origin = begin if refresh else origin
            ramp_from = begin if self.ramp_again else origin
            rounds.append(Round(index, labels, begin, begin + length, refresh, origin, ramp_from))
            begin += length
        return tuple(rounds)

    def kept_steps(self) -> frozenset[int]:
        """Steps whose state other budgets may start from: the ends of the labeling intervals next to each budget."""
        if not self.policy.grows:
            return frozenset()
        rounds = self.rounds()
        wanted = {self.budget, *self.budgets}
        kept = {a.end for a, b in pairwise(rounds) if a.labels in wanted or b.labels in wanted}
        last = rounds[-1]
        if len(rounds) > 1 and not self.refresh_final and last.begin + self.every < last.end:
            kept.add(last.begin + self.every)  # where a larger budget would have asked again
        return frozenset(kept)

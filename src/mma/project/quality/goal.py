"""What a person wants of a model, whether it is good enough by that, and the one thing to do next. No torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mma.errors import UserError
from mma.project.models import ModelReport
from mma.project.quality.accuracy import LEAST_AUDIT, Quality
from mma.shares import Share, exact_interval
from mma.text import did_you_mean, printable

ASSUMED = 90.0  # percent of all photos, where nobody has set a goal
FIRST = 10  # labels of two classes make a first model
HELPS = 20  # labels of one class that are asked for at a time
MISSED = 2  # audit photos of one class that must be missed before it is named
Answer = Literal["too early", "no", "probably", "yes"]
HEADLINES: dict[Answer, str] = {
    "too early": "Too early to say",
    "no": "Not good enough yet",
    "probably": "Probably good enough",
    "yes": "Yes, it is good enough",
}


@dataclass(frozen=True)
class Goals:
    """What the person wants; each may be left out."""

    target: float | None = None  # percent
    of_class: str | None = None  # whose recall the target is about; None = the accuracy on all photos
    label_price: float | None = None
    point_value: float | None = None  # money that a point of accuracy is worth
    budget: int | None = None  # labels

    @property
    def percent(self) -> float:
        """The share to reach, in percent."""
        return ASSUMED if self.target is None else self.target

    @property
    def words(self) -> str:
        """The goal as a person says it."""
        what = "of all photos right" if self.of_class is None else f"of the photos of {self.of_class} found"
        return f"{self.percent:g} % {what}"


@dataclass(frozen=True)
class NextStep:
    """The one thing to do next, and the button that does it."""

    words: str
    button: Literal["label", "measure", "likely", "deeper", "take"] | None = None
    class_id: int | None = None  # whose likely photos the button asks for


@dataclass(frozen=True)
class Verdict:
    """Whether the model is good enough, why, and what to do next."""

    answer: Answer
    headline: str
    why: str
    goal: str
    assumed: bool  # nobody has set a goal
    percent: float  # of the goal
    reached: Share | None  # what is compared with the goal; None before it is measured
    next: NextStep


@dataclass(frozen=True)
class GoalSituation:
    """What a verdict looks at, besides the goals."""

    labels: int
    per_class: dict[str, int]
    class_ids: dict[str, int]
    report: ModelReport | None
    left: int  # photos without an answer
    flat: bool = False  # a forecast says that more labels bring little


def check_goal(target: float, of_class: str | None = None, classes: Sequence[str] = ()) -> None:
    """Refuse a goal that no model can reach, and one about a class that there is not."""
    if not (math.isfinite(target) and 0 < target <= 100):
        raise UserError(f"a goal is a share of photos, above 0 and up to 100 %; {target:g} is not. Try 90 or 95.")
    if of_class is not None and of_class not in classes:
        raise UserError(f"there is no class '{printable(of_class)}'.{did_you_mean(of_class, classes)}")


def recall_of(quality: Quality | None, name: str) -> Share | None:
    """Return the measured recall of a class; None without a photo to tell by."""
    return next((each.recall for each in quality.classes if each.name == name), None) if quality else None


def judge_goal(goals: Goals, now: GoalSituation) -> Verdict:
    """Compare what was measured with the goal. *Yes* takes the whole 95 % interval, *probably* its middle."""
    quality = now.report.quality if now.report else None
    reached = quality.accuracy if quality and goals.of_class is None else recall_of(quality, goals.of_class or "")
    answer: Answer = "too early"
    if reached is not None:
        above = [100 * value >= goals.percent for value in (reached.high, reached.value, reached.low)]
        answer = "yes" if all(above) else "probably" if all(above[:2]) else "no"
        what = "all photos are right" if goals.of_class is None else f"the photos of {goals.of_class} are found"
        low, high = 100 * reached.low, 100 * reached.high
        why = (
            f"{100 * reached.value:.0f} % of {what}. With 95 % certainty it is between {low:.0f} and {high:.0f} %. "
            f"The goal is {goals.percent:g} %."
        )
    elif quality is not None:
        drawn = f"{quality.accuracy.of:,} photo{'' if quality.accuracy.of == 1 else 's'}"
        why = f"None of the {drawn} that were drawn at random is {goals.of_class}, so nothing is measured."
    elif now.report is not None:
        why = f"Nothing is measured yet: that takes {LEAST_AUDIT} answers about random photos, and there are "
        why += f"{now.report.audit}."
    else:
        named = [name for name, count in now.per_class.items() if count]
        why = "The first model comes after ten labels of two classes."
        if len(named) == 1 and now.labels >= FIRST:
            why = f"All {now.labels:,} labels are {named[0]}: a model needs a second class."
    step = next_step(goals, now, answer, quality)
    return Verdict(answer, HEADLINES[answer], why, goals.words, goals.target is None, goals.percent, reached, step)


def next_step(goals: Goals, now: GoalSituation, answer: Answer, quality: Quality | None) -> NextStep:
    """Return the one thing that helps most."""
    if now.report is None:
        return NextStep("Label some photos of each class.", "label")
    if answer == "yes":
        return NextStep("You can stop labeling and take the model with you.", "take")
    if not now.left:
        return NextStep("Every photo has an answer. Training deeper may still help.", "deeper")
    if quality is None:
        few = max(LEAST_AUDIT - now.report.audit, 1)
        return NextStep(
            f"Answer {few} photo{'' if few == 1 else 's'} drawn at random, to measure the model.", "measure"
        )
    name = goals.of_class
    if name is None:
        if answer == "probably":
            return NextStep("Answer 30 more photos drawn at random, to be surer that the goal is reached.", "measure")
        missed = {each.name: each.recall.of - each.recall.right for each in quality.classes if each.recall}
        worst = max(missed, key=lambda name: missed[name], default="")
        if not worst or missed[worst] < MISSED or worst not in now.class_ids:
            if now.flat:
                return NextStep("More labels bring little now. Train deeper.", "deeper")
            return NextStep("Label the photos that the model asks about.", "label")
        name = worst
    recall = recall_of(quality, name)
    share = "Nobody knows how many" if recall is None else f"{100 * recall.value:.0f} %"
    found = f"{share} of the photos of {name} are found"
    return NextStep(f"{found}: {HELPS} more labels of it would help most.", "likely", now.class_ids.get(name))


def how_common(quality: Quality | None) -> dict[str, Share]:
    """Return how common each class is, from photos that were drawn at random, with 95 % intervals."""
    total = sum(map(sum, quality.confusion)) if quality else 0
    if quality is None or not total:
        return {}
    counts = {each.name: sum(row) for each, row in zip(quality.classes, quality.confusion, strict=True)}
    return {name: Share(count / total, *exact_interval(count, total), count, total) for name, count in counts.items()}

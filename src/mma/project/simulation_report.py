"""What simulated projects came to: a table of asking against random order, and how often the audit was right. No torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mma.experiments.report.statistics import interval
from mma.files import write_atomically
from mma.shares import Share
from mma.text import printable

if TYPE_CHECKING:
    from mma.project.simulate import Plan


@dataclass(frozen=True)
class TruePoint:
    """The true accuracy, in percent, of the model with so many answers, audit ones included."""

    answers: int
    accuracy: float


@dataclass(frozen=True)
class Cleaned:
    """Wrong labels that the review found, and the true accuracy in percent before and after they were corrected."""

    labels: int  # trained with
    wrong: int  # of these
    suspects: int  # labels that the review names
    found: int  # wrong ones among them
    found_by_margin: int  # wrong ones among as many labels with the lowest margin
    before: float
    after: float  # suspects corrected
    ceiling: float  # every wrong label corrected


@dataclass(frozen=True)
class SimulatedProject:
    """What one scripted project came to."""

    seed: int
    asks: bool
    points: tuple[TruePoint, ...]
    audit: Share | None  # what the project itself says at the end
    wrong: int  # answers that were wrong on purpose
    helping: str
    stop: str | None
    cleaned: Cleaned | None = None  # what the review brought, where answers were wrong

    @property
    def inside(self) -> bool | None:
        """Whether the audit's interval holds the true accuracy; None without an audit."""
        if self.audit is None:
            return None
        return self.audit.low <= self.points[-1].accuracy / 100 <= self.audit.high


def describe(one: SimulatedProject) -> str:
    """Return in one line how a project ended."""
    audit = "no audit"
    if one.audit is not None:
        low, high = 100 * one.audit.low, 100 * one.audit.high
        verdict = "inside" if one.inside else "OUTSIDE"
        audit = f"audit {100 * one.audit.value:.1f} % ({low:.1f}-{high:.1f}, {one.audit.of} labels): {verdict}"
    way = "asking" if one.asks else "random order"
    last = one.points[-1]
    words = f"seed {one.seed}, {way}: {last.answers} labels, truly {last.accuracy:.1f} %; {audit}"
    if (review := one.cleaned) is None:
        return words
    return (
        f"{words}; {review.found} of {review.wrong} wrong labels among {review.suspects} suspects ({review.found_by_margin} by "
        f"margin), accuracy {review.before:.1f} -> {review.after:.1f} % (all right: {review.ceiling:.1f})"
    )


@dataclass(frozen=True)
class ComparedAt:
    """Asking against random order after so many answers: means in percent, and the paired difference in points."""

    answers: int
    asking: float
    random: float | None = None
    difference: float | None = None
    low: float | None = None  # 95 % interval of the difference
    high: float | None = None


@dataclass(frozen=True)
class CleaningSummary(Cleaned):
    """What the review found in all projects together, mean accuracies, and the paired gain in points."""

    gain: float
    low: float | None  # 95 % interval of the gain
    high: float | None

    @property
    def precision(self) -> float:
        """The share of the suspects that are wrong."""
        return self.found / max(self.suspects, 1)

    @property
    def recall(self) -> float:
        """The share of the wrong labels that are suspects."""
        return self.found / max(self.wrong, 1)


@dataclass(frozen=True)
class SimulationSummary:
    """All seeds together."""

    rows: tuple[ComparedAt, ...]
    projects: int
    inside: int  # audits whose interval holds the true accuracy
    audited: int
    cleaning: CleaningSummary | None = None  # None: no answer was wrong


def summarise(projects: Sequence[SimulatedProject]) -> SimulationSummary:
    """Compare asking with random order seed by seed, and add up what audits and reviews came to."""
    audits = [one.inside for one in projects if one.inside is not None]
    counts = sorted({point.answers for one in projects if one.asks for point in one.points})
    rows = tuple(row for count in counts if (row := compare_at(projects, count)) is not None)
    cleaned = [one.cleaned for one in projects if one.cleaned is not None]
    cleaning = None
    if cleaned:
        cleaning = CleaningSummary(
            sum(one.labels for one in cleaned),
            sum(one.wrong for one in cleaned),
            sum(one.suspects for one in cleaned),
            sum(one.found for one in cleaned),
            sum(one.found_by_margin for one in cleaned),
            float(np.mean([one.before for one in cleaned])),
            float(np.mean([one.after for one in cleaned])),
            float(np.mean([one.ceiling for one in cleaned])),
            *_mean_interval([one.after - one.before for one in cleaned]),
        )
    return SimulationSummary(rows, len(projects), sum(audits), len(audits), cleaning)


def compare_at(projects: Sequence[SimulatedProject], answers: int) -> ComparedAt | None:
    """Compare after so many answers; None unless every seed has a model with as many."""
    values: dict[bool, dict[int, float]] = {True: {}, False: {}}
    for one in projects:
        for point in one.points:
            if point.answers == answers:
                values[one.asks][one.seed] = point.accuracy
    asking, random = values[True], values[False]
    if set(asking) != {one.seed for one in projects if one.asks}:
        return None
    mean = float(np.mean(list(asking.values())))
    both = sorted(asking.keys() & random.keys())
    if not both:
        return ComparedAt(answers, mean)
    gaps = _mean_interval([asking[seed] - random[seed] for seed in both])
    return ComparedAt(answers, mean, float(np.mean(list(random.values()))), *gaps)


def _mean_interval(differences: Sequence[float]) -> tuple[float, float | None, float | None]:
    low, high = interval(np.array(differences)) if len(differences) > 1 else (None, None)
    return float(np.mean(differences)), low, high


def result_page(folder: Path, plan: Plan, projects: Sequence[SimulatedProject]) -> str:
    """Return the result as Markdown."""
    summary = summarise(projects)
    lines = [
        f"# {printable(folder.resolve().name)}: would asking have helped?",
        "",
        f"{len({one.seed for one in projects})} seeds, {plan.budget} answers each (audit ones included), {plan.noise:.0%} of "
        "them wrong. True accuracy in %, on 30 % of the photos, which the projects never see.",
        "",
        "| answers | asking | random order | difference (95 %) |",
        "|---|---|---|---|",
    ]
    for row in summary.rows:
        compared = "- | -"
        if row.random is not None:
            compared = f"{row.random:.1f} | {row.difference:+.1f}{_band(row.low, row.high)}"
        lines.append(f"| {row.answers} | {row.asking:.1f} | {compared} |")
    lines += [
        "",
        verdict(summary),
        f"The audit's interval holds the true accuracy in {summary.inside} of {summary.audited} projects.",
        *cleaning_lines(summary.cleaning),
        "",
        "| seed | way | true accuracy | audit (95 %) | audit labels | inside | is asking helping? |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in projects:
        audit = "- | - | -"
        if (share := one.audit) is not None:
            audit = f"{100 * share.value:.1f} ({100 * share.low:.1f}-{100 * share.high:.1f}) | {share.of}"
            audit += f" | {'yes' if one.inside else 'no'}"
        way = "asking" if one.asks else "random"
        lines.append(f"| {one.seed} | {way} | {one.points[-1].accuracy:.1f} | {audit} | {one.helping} |")
    return "\n".join(lines) + "\n"


def _band(low: float | None, high: float | None) -> str:
    return "" if low is None else f" ({low:+.1f} to {high:+.1f})"


def cleaning_lines(review: CleaningSummary | None) -> list[str]:
    """Return how many wrong labels were found, and what correcting them brought."""
    if review is None:
        return []
    by_margin = review.found_by_margin / max(review.suspects, 1), review.found_by_margin / max(review.wrong, 1)
    return [
        "",
        f"Wrong labels: {review.wrong} of {review.labels}. The review names {review.suspects} labels, and {review.found} of "
        f"them are wrong: precision {review.precision:.0%}, recall {review.recall:.0%}. As many by the lowest margin: "
        f"{by_margin[0]:.0%} and {by_margin[1]:.0%}.",
        f"True accuracy: {review.before:.1f} % before, {review.after:.1f} % after these were looked at, {review.gain:+.1f} "
        f"points{_band(review.low, review.high)}; {review.ceiling:.1f} % with every label right.",
    ]


def verdict(summary: SimulationSummary) -> str:
    """Return in one sentence whether asking would have helped."""
    compared = [row for row in summary.rows if row.random is not None]
    if not compared:
        return "There was nothing to compare with."
    last = compared[-1]
    after = f"{last.difference:+.1f} points after {last.answers} answers."
    if last.low is not None and last.low > 0:
        enough = next((row.answers for row in compared if row.asking >= (last.random or 0.0)), last.answers)
        saved = f" It reaches with {enough} answers what random order reaches with {last.answers}."
        return f"Asking would have helped: {after}{saved if enough < last.answers else ''}"
    if last.high is not None and last.high < 0:
        return f"Asking would have been worse: {after}"
    return f"No difference is shown after {last.answers} answers ({last.difference:+.1f} points)."


def as_json(projects: Sequence[SimulatedProject]) -> dict[str, Any]:
    """Return everything as plain values."""
    rows = [{**asdict(one), "inside": one.inside} for one in projects]
    return {"summary": asdict(summarise(projects)), "projects": rows}


def write_result(out: Path, folder: Path, plan: Plan, projects: Sequence[SimulatedProject]) -> None:
    """Keep the page and the numbers beside the projects."""
    write_atomically(out / "README.md", result_page(folder, plan, projects))
    write_atomically(out / "projects.json", json.dumps(as_json(projects), indent=1) + "\n")

"""What simulated projects say: a table of asking against random order, and how often the audit was right. No torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mma.experiments.report.statistics import interval
from mma.files import write_atomically
from mma.text import printable

if TYPE_CHECKING:
    from mma.project.simulate import Plan, SimulatedProject


@dataclass(frozen=True)
class ComparedAt:
    """Asking against random order after so many answers: means in percent, and the paired difference in points."""

    answers: int
    asking: float
    random: float | None
    difference: float | None
    low: float | None  # 95 % interval of the difference
    high: float | None


@dataclass(frozen=True)
class CleaningSummary:
    """What the review found in all projects together, and the true accuracy in percent before and after."""

    labels: int
    wrong: int
    suspects: int
    found: int
    found_by_margin: int
    before: float
    after: float
    ceiling: float  # every wrong label corrected
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


def summarise(found: Sequence[SimulatedProject]) -> SimulationSummary:
    """Compare asking with random order, seed by seed."""
    audits = [one.inside for one in found if one.inside is not None]
    counts = sorted({point.answers for one in found if one.asks for point in one.points})
    rows = tuple(row for count in counts if (row := compare_at(found, count)) is not None)
    return SimulationSummary(rows, len(found), sum(audits), len(audits), summarise_cleaning(found))


def summarise_cleaning(found: Sequence[SimulatedProject]) -> CleaningSummary | None:
    """Add up what the review found, and compare the accuracy before and after it, project by project."""
    cleaned = [one.cleaned for one in found if one.cleaned is not None]
    if not cleaned:
        return None
    gains = np.array([one.after - one.before for one in cleaned])
    low, high = interval(gains) if len(gains) > 1 else (None, None)
    return CleaningSummary(
        labels=sum(one.labels for one in cleaned),
        wrong=sum(one.wrong for one in cleaned),
        suspects=sum(one.suspects for one in cleaned),
        found=sum(one.found for one in cleaned),
        found_by_margin=sum(one.found_by_margin for one in cleaned),
        before=float(np.mean([one.before for one in cleaned])),
        after=float(np.mean([one.after for one in cleaned])),
        ceiling=float(np.mean([one.ceiling for one in cleaned])),
        gain=float(gains.mean()),
        low=low,
        high=high,
    )


def compare_at(found: Sequence[SimulatedProject], answers: int) -> ComparedAt | None:
    """Compare after so many answers; None unless every seed has a model with as many."""
    values: dict[bool, dict[int, float]] = {True: {}, False: {}}
    for one in found:
        for point in one.points:
            if point.answers == answers:
                values[one.asks][one.seed] = point.accuracy
    if set(values[True]) != {one.seed for one in found if one.asks}:
        return None
    asking = float(np.mean(list(values[True].values())))
    both = sorted(values[True].keys() & values[False].keys())
    if not both:
        return ComparedAt(answers, asking, None, None, None, None)
    gaps = np.array([values[True][seed] - values[False][seed] for seed in both])
    low, high = interval(gaps) if len(gaps) > 1 else (None, None)
    return ComparedAt(answers, asking, float(np.mean(list(values[False].values()))), float(gaps.mean()), low, high)


def result_page(folder: Path, plan: Plan, found: Sequence[SimulatedProject]) -> str:
    """Return the result as a page of text."""
    summary = summarise(found)
    seeds = len({one.seed for one in found})
    lines = [
        f"# {printable(folder.resolve().name)}: would asking have helped?",
        "",
        f"{seeds} seeds, {plan.budget} answers each (audit ones included), {plan.noise:.0%} of them wrong. True accuracy in "
        "%, on 30 % of the photos, which the projects never see.",
        "",
        "| answers | asking | random order | difference (95 %) |",
        "|---|---|---|---|",
        *map(_row, summary.rows),
        "",
        verdict(summary),
        f"The audit's interval holds the true accuracy in {summary.inside} of {summary.audited} projects.",
        *cleaning_lines(summary.cleaning),
        "",
        "| seed | way | true accuracy | audit (95 %) | audit labels | inside | is asking helping? |",
        "|---|---|---|---|---|---|---|",
        *map(_project_row, found),
    ]
    return "\n".join(lines) + "\n"


def cleaning_lines(found: CleaningSummary | None) -> list[str]:
    """Say how many wrong labels were found, and what correcting them brought."""
    if found is None:
        return []
    by_margin = found.found_by_margin / max(found.suspects, 1), found.found_by_margin / max(found.wrong, 1)
    band = "" if found.low is None else f" ({found.low:+.1f} to {found.high:+.1f})"
    return [
        "",
        f"Wrong labels: {found.wrong} of {found.labels}. The review names {found.suspects} labels, and {found.found} of them "
        f"are wrong: precision {found.precision:.0%}, recall {found.recall:.0%}. As many by the lowest margin: "
        f"{by_margin[0]:.0%} and {by_margin[1]:.0%}.",
        f"True accuracy: {found.before:.1f} % before, {found.after:.1f} % after these were looked at, {found.gain:+.1f} points"
        f"{band}; {found.ceiling:.1f} % with every label right.",
    ]


def _row(row: ComparedAt) -> str:
    if row.random is None or row.difference is None:
        return f"| {row.answers} | {row.asking:.1f} | - | - |"
    band = "" if row.low is None else f" ({row.low:+.1f} to {row.high:+.1f})"
    return f"| {row.answers} | {row.asking:.1f} | {row.random:.1f} | {row.difference:+.1f}{band} |"


def _project_row(one: SimulatedProject) -> str:
    audit, count, inside = "-", "-", "-"
    if one.audit is not None:
        audit = f"{100 * one.audit.value:.1f} ({100 * one.audit.low:.1f}-{100 * one.audit.high:.1f})"
        count, inside = str(one.audit.of), "yes" if one.inside else "no"
    way = "asking" if one.asks else "random"
    return f"| {one.seed} | {way} | {one.points[-1].accuracy:.1f} | {audit} | {count} | {inside} | {one.helping} |"


def verdict(summary: SimulationSummary) -> str:
    """Say in one sentence whether asking would have helped."""
    compared = [row for row in summary.rows if row.random is not None]
    if not compared:
        return "There was nothing to compare with."
    last = compared[-1]
    assert last.difference is not None
    if last.low is not None and last.low > 0:
        return (
            f"Asking would have helped: {last.difference:+.1f} points after {last.answers} answers.{_saved(compared)}"
        )
    if last.high is not None and last.high < 0:
        return f"Asking would have been worse: {last.difference:+.1f} points after {last.answers} answers."
    return f"No difference is shown after {last.answers} answers ({last.difference:+.1f} points)."


def _saved(rows: Sequence[ComparedAt]) -> str:
    """Say how many answers fewer reach what random order reaches at the end."""
    goal = rows[-1].random
    enough = next((row.answers for row in rows if goal is not None and row.asking >= goal), rows[-1].answers)
    saved = rows[-1].answers - enough
    return f" It reaches with {enough} answers what random order reaches with {rows[-1].answers}." if saved else ""


def as_json(found: Sequence[SimulatedProject]) -> dict[str, Any]:
    """Return everything as plain values."""
    return {"summary": asdict(summarise(found)), "projects": [{**asdict(one), "inside": one.inside} for one in found]}


def write_result(out: Path, folder: Path, plan: Plan, found: Sequence[SimulatedProject]) -> None:
    """Keep the page and the numbers beside the projects."""
    write_atomically(out / "README.md", result_page(folder, plan, found))
    write_atomically(out / "projects.json", json.dumps(as_json(found), indent=1) + "\n")

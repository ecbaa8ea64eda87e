"""The statistics in words and tables: what is compared, what it shows, and what it cannot show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mma.experiments.report import statistics as st
from mma.experiments.report.numbers import interval_text, plus_minus
from mma.experiments.report.results import Results
from mma.experiments.report.tables import align, escape


class Section(NamedTuple):
    """One part of the statistics: a table, if there is one, and remarks in Markdown."""

    title: str
    heading: list[str]
    rows: list[list[str]]
    remarks: list[str]


def sections(found: Results) -> list[Section]:
    """Return every part of the statistics."""
    parts = [against(found, reference) for reference in st.REFERENCES]
    return [*parts, curve_areas(found), reaching(found), below_random(found)]


def against(found: Results, reference: str) -> Section:
    """Return paired differences to one reference."""
    title = f"Difference to {reference}, paired by seed"
    if reference not in found.methods:
        return Section(title, [], [], [f"{reference} is not in this grid."])
    rows = st.differences(found, reference)
    if not rows:
        return Section(title, [], [], [f"No seed has both {reference} and another method finished."])
    heading = ["method", "labels", "n", "difference", "95 % interval", "p", "p (Holm)", "shows"]
    return Section(title, heading, [difference_row(row) for row in rows], remarks_on(rows, reference))


def difference_row(row: st.Difference) -> list[str]:
    """Write one difference as a line of the table."""
    return [
        row.method,
        f"{row.budget:,}",
        str(row.n),
        f"{row.mean:+.2f}",
        interval_text(row.low, row.high),
        f"{row.p:.3g}",
        f"{row.holm:.3g}",
        row.verdict,
    ]


def remarks_on(rows: Sequence[st.Difference], reference: str) -> list[str]:
    """Say how the differences were tested, and what that cannot show."""
    remarks = [
        "Points of accuracy; interval from the paired t distribution, p from the Wilcoxon signed-rank test, corrected "
        f"by Holm's method for all {len(rows)} comparisons. `not confirmed`: the interval leaves out 0, but the "
        "corrected test does not reach 0.05. Mean and ranks must agree in sign.",
        st.what_wilcoxon_can_show(rows),
    ]
    if all(row.verdict == "no difference shown" for row in rows):
        remarks.append(f"No difference to {reference} is shown for any method.")
    return remarks


def curve_areas(found: Results) -> Section:
    """Return the area under the budget curve."""
    title = "Area under the budget curve"
    rows = st.areas(found)
    if not rows:
        return Section(
            title, [], [], ["It takes at least two budgets at one total, and seeds that finished all of them."]
        )
    lines = [[row.method, str(row.n), plus_minus(row.mean, row.std)] for row in rows]
    return Section(title, ["method", "n", "mean accuracy over log labels"], lines, [])


def reaching(found: Results) -> Section:
    """Return the labels each method needs for what the references reach with all of theirs."""
    title = "Labels needed to reach a target"
    targets = reference_targets(found)
    if len(found.budgets) < 2 or found.by_total or not targets:
        return Section(title, [], [], ["It takes at least two budgets, and random or MixMatch among the methods."])
    heading = ["method", *(f"{target:.2f} % ({name})" for name, target in targets.items())]
    columns = [{need.method: labels_text(need) for need in st.needs(found, target)} for target in targets.values()]
    lines = [[method, *(column.get(method, "-") for column in columns)] for method in found.methods]
    return Section(title, heading, lines, ["Read from the mean curve, linear in log labels between budgets."])


def reference_targets(found: Results) -> dict[str, float]:
    """Return what each reference reaches at its largest budget."""
    targets = {}
    for name in st.REFERENCES:
        reached = {b: values for b in found.budgets if (values := found.accuracies(name, b))}
        if reached:
            last = max(reached)
            targets[f"{name} with {last:,}"] = float(np.mean(list(reached[last].values())))
    return targets


def labels_text(need: st.LabelsNeeded) -> str:
    """Write a number of labels."""
    if need.labels is None:
        return "not reached"
    return f"{'at most ' if need.at_most else ''}{need.labels:,.0f}"


def below_random(found: Results) -> Section:
    """Return how often a growing method was below random while growing."""
    title = "Rounds worse than random"
    rows = st.rounds_worse(found)
    if not rows:
        return Section(title, [], [], ["It takes random and another growing method with the same rounds."])
    heading = ["method", "seeds", "rounds below random", "of those in the last round"]
    lines = [[r.method, str(r.seeds), f"{r.worse} of {r.compared}", f"{r.last_worse} of {r.seeds}"] for r in rows]
    remark = "The last evaluation of each round after the first query, against random's with the same seed and labels."
    return Section(title, heading, lines, [remark])


def as_markdown(parts: Sequence[Section]) -> str:
    """Write the statistics as Markdown."""
    blocks = []
    for title, heading, rows, remarks in parts:
        body = [align([heading, *([escape(cell) for cell in row] for row in rows)]) + "\n"] if rows else []
        blocks.append("\n".join([f"### {title}\n", *body, *(f"{remark}  " for remark in remarks)]))
    return "\n\n".join(blocks) + "\n"

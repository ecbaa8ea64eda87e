"""The statistics in words and tables: what was compared, what it shows, and what it cannot show."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mma.experiments.report import statistics as st
from mma.experiments.report.collect import Results
from mma.experiments.report.tables import aligned, escaped

Section = tuple[str, list[str], list[list[str]], list[str]]  # title, heading, rows, remarks


def sections(found: Results) -> list[Section]:
    """Return every part of the statistics."""
    parts = [against(found, reference) for reference in st.REFERENCES]
    return [*parts, curve_areas(found), reaching(found), below_random(found)]


def against(found: Results, reference: str) -> Section:
    """Return paired differences to one reference."""
    title = f"Difference to {reference}, paired by seed"
    if reference not in found.methods:
        return title, [], [], [f"{reference} is not in this grid."]
    rows = st.differences(found, reference)
    if not rows:
        return title, [], [], [f"No seed has both {reference} and another method finished."]
    heading = ["method", "labels", "n", "difference", "95 % interval", "p", "p (Holm)", "shows"]
    return title, heading, [compared(row) for row in rows], how_compared(rows, reference)


def compared(row: st.Difference) -> list[str]:
    """Write one difference as a line of the table."""
    return [
        row.method,
        f"{row.budget:,}",
        str(row.n),
        f"{row.mean:+.2f}",
        f"{row.low:+.2f} to {row.high:+.2f}" if math.isfinite(row.low) else "-",
        f"{row.p:.3g}",
        f"{row.holm:.3g}",
        row.verdict,
    ]


def how_compared(rows: Sequence[st.Difference], reference: str) -> list[str]:
    """Say how the differences were tested, and what that cannot show."""
    remarks = [
        "Points of accuracy; interval from the paired t distribution, p from the Wilcoxon signed-rank test, corrected "
        f"by Holm's method for all {len(rows)} comparisons. `not confirmed`: the interval leaves out 0, the corrected test "
        "does not agree.",
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
        return title, [], [], ["It takes at least two budgets at one total, and seeds that finished all of them."]
    lines = [[row.method, str(row.n), f"{row.mean:.2f}" + deviation(row.std)] for row in rows]
    return title, ["method", "n", "mean accuracy over log labels"], lines, []


def reaching(found: Results) -> Section:
    """Return the labels each method needs for what the references reach with all of theirs."""
    title = "Labels needed to reach a target"
    targets = reference_targets(found)
    if len(found.budgets) < 2 or found.by_total or not targets:
        return title, [], [], ["It takes at least two budgets, and random or MixMatch among the methods."]
    heading = ["method", *(f"{target:.2f} % ({name})" for name, target in targets.items())]
    columns = [{need.method: said(need) for need in st.needs(found, target)} for target in targets.values()]
    lines = [[method, *(column.get(method, "-") for column in columns)] for method in found.methods]
    return title, heading, lines, ["Read from the mean curve, linear in log labels between budgets."]


def reference_targets(found: Results) -> dict[str, float]:
    """Return what each reference reaches at its largest budget."""
    targets = {}
    for name in st.REFERENCES:
        reached = {b: values for b in found.budgets if (values := found.accuracies(name, b))}
        if reached:
            last = max(reached)
            targets[f"{name} with {last:,}"] = float(np.mean(list(reached[last].values())))
    return targets


def said(need: st.Need) -> str:
    """Say a number of labels."""
    if need.labels is None:
        return "not reached"
    return f"{'at most ' if need.at_most else ''}{need.labels:,.0f}"


def below_random(found: Results) -> Section:
    """Return how often a growing method was below random while growing."""
    title = "Rounds worse than random"
    rows = st.rounds_worse(found)
    if not rows:
        return title, [], [], ["It takes random and another growing method with the same rounds."]
    heading = ["method", "seeds", "rounds below random", "of those in the last round"]
    lines = [[r.method, str(r.seeds), f"{r.worse} of {r.compared}", f"{r.last_worse} of {r.seeds}"] for r in rows]
    remark = "The last evaluation of each round after the first query, against random's with the same seed and labels."
    return title, heading, lines, [remark]


def deviation(std: float) -> str:
    """Write a standard deviation, if there is one."""
    return "" if math.isnan(std) else f" ± {std:.2f}"


def as_markdown(parts: Sequence[Section]) -> str:
    """Write the statistics as Markdown."""
    blocks = []
    for title, heading, rows, remarks in parts:
        body = [aligned([heading, *([escaped(cell) for cell in row] for row in rows)]) + "\n"] if rows else []
        blocks.append("\n".join([f"### {title}\n", *body, *(f"{remark}  " for remark in remarks)]))
    return "\n\n".join(blocks) + "\n"

"""The statistics in words and tables: what is compared, what it shows, and what it cannot show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from mma.experiments.report import statistics as st
from mma.experiments.report.results import Results, SpendingPolicy
from mma.experiments.report.tables import escape, interval_text, markdown_table, mean_and_deviation, paired_text
from mma.text import plural


class Section(NamedTuple):
    """One part of the statistics: a table, if there is one, and remarks in Markdown."""

    title: str
    heading: list[str]
    rows: list[list[str]]
    remarks: list[str]


def sections(found: Results) -> list[Section]:
    """Return the comparisons that fit: networks at equal compute, policies at equal money, or methods at equal labels."""
    if found.compute:
        return compute_sections(found)
    if found.spending:
        return money_sections(found)
    none = "Every class has a label in every round, or it is not known."
    nobody = "Every image that was asked about got a label, or it is not known."
    wasted = st.mean_by_labels(found, lambda row: None if row.asked is None else row.asked - row.labels)
    return [
        *(against(found, reference) for reference in st.references(found)),
        curve_areas(found),
        reaching(found),
        saved(found),
        counted("Classes without a label", st.mean_by_labels(found, lambda row: row.missed), none),
        counted("Images asked about that nobody could tell", wasted, nobody),
        below_random(found),
    ]


def against(found: Results, reference: str) -> Section:
    """Return paired differences to one reference."""
    title = f"Difference to {reference}, paired by seed"
    rows = st.differences(found, reference)
    if not rows:
        return Section(title, [], [], [f"No seed has both {reference} and another method finished."])
    heading = ["method", "labels", "n", "difference", "95 % interval", "p", "p (Holm)", "shows"]
    lines = [
        [
            *(found.line(row.method, row.total), f"{row.budget:,}", str(row.n), f"{row.mean:+.2f}"),
            *(interval_text(row.low, row.high), f"{row.p:.3g}", f"{row.holm:.3g}", row.verdict),
        ]
        for row in rows
    ]
    compared = "the one comparison" if len(rows) == 1 else f"all {len(rows)} comparisons"
    remarks = [
        "Points of accuracy; interval from the paired t distribution, p from the Wilcoxon signed-rank test, corrected "
        f"by Holm's method for {compared}. `not confirmed`: the interval leaves out 0, but the "
        "corrected test does not reach 0.05. Mean and ranks must agree in sign.",
        st.what_wilcoxon_can_show(rows),
    ]
    if all(row.verdict == "no difference shown" for row in rows):
        remarks.append(f"No difference to {reference} is shown for any method.")
    return Section(title, heading, lines, remarks)


def curve_areas(found: Results) -> Section:
    """Return the area under the budget curve, and its paired difference to the reference's."""
    title, areas, reference = "Area under the budget curve", st.areas(found), found.reference or "random"
    if not areas:
        return Section(
            title, [], [], ["It takes at least two budgets at one total, and seeds that finished all of them."]
        )
    heading = ["method", "n", "mean accuracy over log labels"]
    lines = [[method, str(len(each)), mean_and_deviation(list(each.values()))] for method, each in areas.items()]
    apart = {m: st.pair_by_seed(each, areas.get(reference, {})) for m, each in areas.items() if m != reference}
    if not any(map(len, apart.values())):
        return Section(title, heading, lines, [])
    lines = [[*line, paired_text(apart.get(line[0], np.empty(0)))] for line in lines]
    remark = "Differences are paired by seed, with 95 % intervals (t). They are not corrected for being several."
    return Section(title, [*heading, f"difference to {reference}"], lines, [remark])


def saved(found: Results) -> Section:
    """Return the labels saved, for what the reference reaches with each budget between the smallest and the largest."""
    reference = found.reference or "random"
    title = f"Labels saved against {reference}"
    between = st.common_budgets(found)[1:-1]
    if reference not in found.methods or not between or found.by_total:
        return Section(title, [], [], [f"It takes {reference} and at least three budgets."])
    columns = [st.labels_saved(found, reference, budget) for budget in between]
    heading = ["method", *(f"of {budget:,}" for budget in between)]
    methods = [method for method in found.methods if any(method in column for column in columns)]
    lines = [[m, *(paired_text(column.get(m, np.empty(0)), 0) for column in columns)] for m in methods]
    remark = (
        f"Labels that a method needs fewer than {reference} for the accuracy that {reference} reaches with so many, paired by "
        "seed, with 95 % intervals (t). A curve that never gets there counts as the largest budget."
    )
    return Section(title, heading, lines, [remark])


def counted(title: str, counts: dict[str, dict[int, float]], none: str) -> Section:
    """Return means by method and labels; `none` is said where all are zero."""
    sizes = sorted({labels for each in counts.values() for labels, mean in each.items() if mean})
    if not sizes:
        return Section(title, [], [], [none])
    lines = [[m, *(f"{each[s]:.1f}" if s in each else "-" for s in sizes)] for m, each in counts.items()]
    return Section(title, ["method", *(plural(size, "label") for size in sizes)], lines, ["Mean over seeds."])


def reaching(found: Results) -> Section:
    """Return the labels each method needs for what the references reach with all of theirs, read from its mean curve."""
    title, curves = "Labels needed to reach a target", {}
    for method in found.methods:
        means = {b: float(np.mean(list(v.values()))) for b in found.budgets if (v := found.accuracies(method, b))}
        if means:
            curves[method] = list(means), list(means.values())
    targets = {name: curves[name] for name in st.references(found) if name in curves}
    if len(found.budgets) < 2 or found.by_total or not targets:
        return Section(title, [], [], ["It takes at least two budgets and two methods."])

    def needed(method: str, target: float) -> str:
        if method not in curves:
            return "-"
        budgets, means = curves[method]
        labels = st.labels_needed(budgets, means, target)
        return "not reached" if labels is None else f"{'at most ' * (labels == budgets[0])}{labels:,.0f}"

    heading = ["method", *(f"{means[-1]:.2f} % ({name} with {b[-1]:,})" for name, (b, means) in targets.items())]
    lines = [[method, *(needed(method, means[-1]) for _, means in targets.values())] for method in found.methods]
    return Section(title, heading, lines, ["Read from the mean curve, linear in log labels between budgets."])


def below_random(found: Results) -> Section:
    """Return how often a growing method was below random of the same seed and labels, after the first query."""
    title, largest = (
        "Rounds worse than random",
        max((r.budget for r in found.rounds if r.method == "random"), default=0),
    )
    grown: dict[str, dict[tuple[int, int, int], float]] = {}
    for row in found.rounds:
        if row.budget == largest:
            grown.setdefault(row.method, {})[row.labels, row.total, row.seed] = row.accuracy
    theirs = grown.pop("random", {})
    start, lines = min(theirs, default=(0,))[0], []
    for method, values in grown.items():
        shared = [key for key in values.keys() & theirs.keys() if key[0] > start]
        if len({labels for labels, *_ in values}) > 1 and shared:
            below = [key for key in shared if values[key] < theirs[key]]
            seeds, last = len({key[1:] for key in shared}), sum(labels == largest for labels, *_ in below)
            lines.append([method, str(seeds), f"{len(below)} of {len(shared)}", f"{last} of {seeds}"])
    if not lines:
        return Section(title, [], [], ["It takes random and another growing method with the same rounds."])
    heading = ["method", "seeds", "rounds below random", "of those in the last round"]
    remark = "The last evaluation of each round after the first query, against random's with the same seed and labels."
    return Section(title, heading, lines, [remark])


def as_markdown(parts: Sequence[Section]) -> str:
    """Write the statistics as Markdown."""
    blocks = []
    for title, heading, rows, remarks in parts:
        body = [markdown_table([heading, *([escape(cell) for cell in row] for row in rows)]) + "\n"] if rows else []
        blocks.append("\n".join([f"### {title}\n", *body, *(f"{remark}  " for remark in remarks)]))
    return "\n\n".join(blocks) + "\n"


# Methods that differ in what they cost: accuracy over arithmetic, and over money spent.

NEAR = 0.2  # runs within a fifth of each other's FLOP compute as much
Points = list[tuple[float, dict[int, float]]]  # (FLOP of a run, seed -> accuracy), from short to long


class Line(NamedTuple):
    """What the runs of one line have in common; they differ in length."""

    family: str
    budget: int
    total: int


def lines_of(found: Results) -> dict[Line, Points]:
    """Return the finished runs by family, labels and images."""
    lines: dict[Line, Points] = {}
    for row in found.compute:
        reached = found.accuracies(row.method, row.budget, row.total)
        if reached:
            line = Line(found.description.families.get(row.method, row.method), row.budget, row.total)
            lines.setdefault(line, []).append((row.flop, reached))
    return {line: sorted(points, key=lambda point: point[0]) for line, points in lines.items()}


def names(lines: Iterable[Line]) -> dict[Line, str]:
    """Name lines by their family, and by labels and images where these differ between lines."""
    lines = list(lines)
    budgets, totals = {line.budget for line in lines}, {line.total for line in lines}
    return {
        line: line.family
        + (f", {line.budget:,} labels" if len(budgets) > 1 else "")
        + (f", {line.total:,} images" if len(totals) > 1 else "")
        for line in lines
    }


def compute_sections(found: Results) -> list[Section]:
    """Return one table: what each family reaches with how much arithmetic, and how far the others are at as much."""
    lines = lines_of(found)
    families, titles = list(dict.fromkeys(line.family for line in lines)), names(lines)
    heading = ["family", "FLOP", "n", "accuracy", *(f"minus {family} at as much" for family in families)]
    rows = []
    for line, flop, reached in ((line, *point) for line, points in lines.items() for point in points):
        rows.append([titles[line], f"{flop:.2g}", str(len(reached)), mean_and_deviation(list(reached.values()))])
        for other in (line._replace(family=family) for family in families):  # its run of as much arithmetic, if any
            points = lines[other] if other in lines and other != line else []
            there, theirs = min(points, key=lambda point: abs(np.log(point[0] / flop)), default=(np.inf, {}))
            rows[-1].append(paired_text(st.pair_by_seed(reached, theirs)) if abs(there / flop - 1) <= NEAR else "-")
    remarks = [
        "FLOP: convolutions and matrix products of training steps, evaluations and queries, counted as `mma flop` does. "
        "As much: within a fifth. Differences are paired by seed; intervals of 95 % from the paired t distribution."
    ]
    return [Section("Accuracy over compute", heading, rows, remarks)]


def deals(found: Results) -> dict[SpendingPolicy, dict[str, SpendingPolicy]]:
    """Return the methods that spend money, by their deal (prices, money and images at the start), in the table's order."""
    groups: dict[SpendingPolicy, dict[str, SpendingPolicy]] = {}
    for method in found.methods:
        if policy := found.description.policies.get(method):
            groups.setdefault(policy.model_copy(update={"policy": "", "share": None}), {})[method] = policy
    return groups


def money_sections(found: Results) -> list[Section]:
    """Return one table per deal: final accuracy, what was bought, regret, and the buyer against each fixed policy."""
    sections = []
    ends = {(row.method, row.budget, row.total, row.seed): row for row in found.spending}  # the last round of every run
    for deal, policies in deals(found).items():
        prices = f"a label costs {deal.label_price:g}, an image {deal.image_price:g}"
        title = f"At equal money: {prices}, {deal.money:g} to spend"
        reached = {name: found.accuracies(name, found.budgets[-1]) for name in policies}
        fixed = [name for name in policies if policies[name].share is not None and reached[name]]
        if not fixed:
            sections.append(Section(title, [], [], ["No policy with a fixed share has finished yet."]))
            continue
        best = max(fixed, key=lambda name: float(np.mean(list(reached[name].values()))))
        buyers = [name for name in policies if policies[name].share is None]
        heading = ["policy", "n", "labels", "images", "accuracy", f"regret against {best}"]
        rows = []
        for name in (name for name in policies if reached[name]):
            values, last = list(reached[name].values()), [end for end in ends.values() if end.method == name]
            bought = [f"{np.mean([getattr(end, what) for end in last]):,.0f}" for what in ("labels", "images")]
            apart = [
                "-" if name == other else paired_text(st.pair_by_seed(reached[other], reached[name]))
                for other in (best, *buyers)
            ]
            rows.append([name, str(len(values)), *bought, mean_and_deviation(values), *apart])
        remark = (
            "Labels and images: what there is in the end, on average. Regret: how far below the best fixed policy in "
            "hindsight, paired by seed; intervals of 95 % from the paired t distribution."
        )
        sections.append(Section(title, [*heading, *(f"{buyer} minus it" for buyer in buyers)], rows, [remark]))
    return sections

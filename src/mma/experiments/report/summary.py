"""The statistics in words and tables: what is compared, what it shows, and what it cannot show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mma.experiments.report import statistics as st
from mma.experiments.report.results import Results, SpendingPolicy
from mma.experiments.report.tables import (
    difference_text,
    escape,
    interval_text,
    markdown_table,
    mean_and_deviation,
    plus_minus,
)


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
    """Return the area under the budget curve, and its paired difference to random's."""
    title = "Area under the budget curve"
    rows = st.areas(found)
    if not rows:
        return Section(
            title, [], [], ["It takes at least two budgets at one total, and seeds that finished all of them."]
        )
    reference = found.reference or "random"
    apart = {row.method: row for row in st.area_differences(found, reference)}
    heading = ["method", "n", "mean accuracy over log labels"]
    lines = [[row.method, str(row.n), plus_minus(row.mean, row.std)] for row in rows]
    if not apart:
        return Section(title, heading, lines, [])
    lines = [[*line, saving_text(apart.get(line[0]), 2)] for line in lines]
    remark = "Differences are paired by seed, with 95 % intervals (t). They are not corrected for being several."
    return Section(title, [*heading, f"difference to {reference}"], lines, [remark])


def saving_text(found: st.Saving | None, digits: int) -> str:
    """Write a paired mean with its interval."""
    if found is None:
        return "-"
    low, high = (f"{end:+,.{digits}f}" for end in (found.low, found.high))
    return f"{found.mean:+,.{digits}f} ({low} to {high})" if found.n > 1 else f"{found.mean:+,.{digits}f}"


def saved(found: Results) -> Section:
    """Return the labels saved, for what the reference reaches with each budget between the smallest and the largest."""
    reference = found.reference or "random"
    title = f"Labels saved against {reference}"
    between = st.common_budgets(found)[1:-1]
    if reference not in found.methods or not between or found.by_total:
        return Section(title, [], [], [f"It takes {reference} and at least three budgets."])
    columns = [{row.method: row for row in st.labels_saved(found, reference, budget)} for budget in between]
    heading = ["method", *(f"of {budget:,}" for budget in between)]
    methods = [method for method in found.methods if any(method in column for column in columns)]
    lines = [[method, *(saving_text(column.get(method), 0) for column in columns)] for method in methods]
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
    return Section(title, ["method", *(f"{size:,} labels" for size in sizes)], lines, ["Mean over seeds."])


def reaching(found: Results) -> Section:
    """Return the labels each method needs for what the references reach with all of theirs."""
    title = "Labels needed to reach a target"
    targets = {}  # what each reference reaches at its largest budget
    for name in st.references(found):
        reached = {budget: values for budget in found.budgets if (values := found.accuracies(name, budget))}
        if reached:
            targets[f"{name} with {max(reached):,}"] = float(np.mean(list(reached[max(reached)].values())))
    if len(found.budgets) < 2 or found.by_total or not targets:
        return Section(title, [], [], ["It takes at least two budgets and two methods."])
    heading = ["method", *(f"{target:.2f} % ({name})" for name, target in targets.items())]
    columns = [
        {
            need.method: "not reached" if need.labels is None else f"{'at most ' * need.at_most}{need.labels:,.0f}"
            for need in st.needs(found, target)
        }
        for target in targets.values()
    ]
    lines = [[method, *(column.get(method, "-") for column in columns)] for method in found.methods]
    return Section(title, heading, lines, ["Read from the mean curve, linear in log labels between budgets."])


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
            rows[-1].append(difference_text(reached, theirs) if abs(there / flop - 1) <= NEAR else "-")
    remarks = [
        "FLOP: convolutions and matrix products of training steps, evaluations and queries, counted as `mma flop` does. "
        "As much: within a fifth. Differences are paired by seed; intervals of 95 % from the paired t distribution."
    ]
    return [Section("Accuracy over compute", heading, rows, remarks)]


@dataclass(frozen=True)
class Deal:
    """What policies have in common when they are compared: prices, money, and the images at the start."""

    label_price: float
    image_price: float
    money: float
    initial_pool: int | None

    def __str__(self) -> str:
        prices = f"a label costs {self.label_price:g}, an image {self.image_price:g}"
        return f"{prices}, {self.money:g} to spend"


def deals(found: Results) -> dict[Deal, dict[str, SpendingPolicy]]:
    """Return the methods that spend money, by deal, in the order of the table."""
    groups: dict[Deal, dict[str, SpendingPolicy]] = {}
    for method in found.methods:
        policy = found.description.policies.get(method)
        if policy is not None:
            deal = Deal(policy.label_price, policy.image_price, policy.money, policy.initial_pool)
            groups.setdefault(deal, {})[method] = policy
    return groups


def money_sections(found: Results) -> list[Section]:
    """Return one table per deal: final accuracy, what was bought, regret, and the buyer against each fixed policy."""
    sections = []
    ends = {(row.method, row.budget, row.total, row.seed): row for row in found.spending}  # the last round of every run
    for deal, policies in deals(found).items():
        title = f"At equal money: {deal}"
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
            regret = "-" if name == best else difference_text(reached[best], reached[name])
            apart = ["-" if name == buyer else difference_text(reached[buyer], reached[name]) for buyer in buyers]
            rows.append([name, str(len(values)), *bought, mean_and_deviation(values), regret, *apart])
        remark = (
            "Labels and images: what there is in the end, on average. Regret: how far below the best fixed policy in "
            "hindsight, paired by seed; intervals of 95 % from the paired t distribution."
        )
        sections.append(Section(title, [*heading, *(f"{buyer} minus it" for buyer in buyers)], rows, [remark]))
    return sections

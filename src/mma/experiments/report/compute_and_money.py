"""Tables and figures of methods that differ in what they cost: accuracy over arithmetic, and over money spent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mma.experiments.report.figures import (
    in_house_style,
    legend_below,
    new_figure,
    seeds_text,
    style,
    subtitle,
    whiskers,
)
from mma.experiments.report.results import Results, RoundSpending, SpendingPolicy
from mma.experiments.report.summary import Section
from mma.experiments.report.tables import difference_text, mean_and_deviation

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
    rows = [
        [
            *(titles[line], f"{flop:.2g}", str(len(reached)), mean_and_deviation(list(reached.values()))),
            *against(flop, line, reached, lines),
        ]
        for line, points in lines.items()
        for flop, reached in points
    ]
    remarks = [
        "FLOP: convolutions and matrix products of training steps, evaluations and queries, counted as `mma flop` does. "
        "As much: within a fifth. Differences are paired by seed; intervals of 95 % from the paired t distribution."
    ]
    return [Section("Accuracy over compute", heading, rows, remarks)]


def against(flop: float, line: Line, reached: Mapping[int, float], lines: Mapping[Line, Points]) -> list[str]:
    """Compare with every family's run of as much arithmetic with the same labels and images, where it has one."""
    texts = []
    for other in (line._replace(family=family) for family in dict.fromkeys(other.family for other in lines)):
        points = lines[other] if other in lines and other != line else []
        there, theirs = min(points, key=lambda point: abs(np.log(point[0] / flop)), default=(np.inf, {}))
        texts.append(difference_text(reached, theirs) if abs(there / flop - 1) <= NEAR else "-")
    return texts


def power_of_ten(value: float, _: object = None) -> str:
    """Write a number like 2·10^13 for an axis."""
    exponent = int(np.floor(np.log10(value) + 1e-9))
    return f"${round(value / 10**exponent)}\\cdot10^{{{exponent}}}$"


@in_house_style
def accuracy_over_compute(found: Results) -> Any | None:
    """Draw accuracy over FLOP (log x), a line per family: every seed as a dot, the mean as a line."""
    from matplotlib.ticker import LogLocator

    lines = lines_of(found)
    if not lines:
        return None
    figure, (axes,) = new_figure(f"{found.title}: accuracy over compute", 4.6)
    for line, title in names(lines).items():
        look, points = style(title), lines[line]
        for flop, reached in points:
            axes.plot([flop] * len(reached), list(reached.values()), ".", color=look.colour, alpha=0.5, markersize=8)
        means = [float(np.mean(list(reached.values()))) for _, reached in points]
        label = f"{title} ({seeds_text(len(reached) for _, reached in points)})"
        axes.plot([flop for flop, _ in points], means, linestyle=look.line, label=label, **look.marks())
    axes.set_xscale("log", subs=[])
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(power_of_ten)
    axes.set(xlabel="FLOP of one run", ylabel="accuracy, %")
    subtitle(
        axes, "A small dot for each seed, a large mark for their mean; a line for runs that differ in length alone"
    )
    legend_below(figure, axes)
    return figure


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


@in_house_style
def accuracy_over_money(found: Results) -> Any | None:
    """Draw accuracy over money spent, one panel per deal."""
    groups = {deal: names for deal, names in deals(found).items() if any(r.method in names for r in found.spending)}
    if not groups:
        return None
    columns = min(len(groups), 2)
    lines = -(-len(groups) // columns)
    figure, panels = new_figure(f"{found.title}: accuracy over money", 1.6 + 2.6 * lines, lines, columns)
    for panel, (deal, policies) in zip(panels, groups.items(), strict=False):
        for method in policies:
            name = found.description.families.get(method, method)
            draw_policy(panel, name, [r for r in found.spending if r.method == method])
        panel.set(xlabel="money spent", title=f"Label {deal.label_price:g}, image {deal.image_price:g}")
    for panel in panels[len(groups) :]:
        panel.set_visible(False)
    counts = [len({r.seed for r in found.spending if r.method == method}) for method in found.methods]
    figure.supylabel("accuracy, % (mean and 95 % interval, " + seeds_text(n for n in counts if n) + ")", fontsize=10)
    legend_below(figure, panels[0])
    return figure


def draw_policy(axes: Any, name: str, rows: Sequence[RoundSpending]) -> None:
    """Draw the rounds of one policy; the last point is the run's result."""
    rounds = sorted({row.round for row in rows})
    groups = [[row.accuracy for row in rows if row.round == n] for n in rounds]
    x = [np.mean([row.spent for row in rows if row.round == n]) for n in rounds]
    look = style(name)
    axes.errorbar(
        x, [np.mean(group) for group in groups], yerr=whiskers(groups), linestyle=look.line, label=name,
        elinewidth=0.8, capsize=2, **{**look.marks(), "markersize": 4.5},
    )  # fmt: skip

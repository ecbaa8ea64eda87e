"""Policies that spend the same money: what each bought, what it reached, and what the best fixed one would have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mma.experiments.grid import Grid
from mma.experiments.report import plots
from mma.experiments.report.collect import Results, Spending
from mma.experiments.report.statistics import interval, paired, spread
from mma.experiments.report.summary import Section
from mma.growth import Growth


@dataclass(frozen=True)
class Deal:
    """What policies have in common when they are compared: prices, money, and what is there at the start."""

    label_price: float
    image_price: float
    money: float
    visible: int | None

    def __str__(self) -> str:
        prices = f"a label costs {self.label_price:g}, an image {self.image_price:g}"
        return f"{prices}, {self.money:g} to spend"


def deals(found: Results) -> dict[Deal, dict[str, Growth]]:
    """Return the methods that spend money, by deal, each with its growth settings."""
    groups: dict[Deal, dict[str, Growth]] = {}
    if found.grid is None:
        return groups
    for method in found.methods:
        growth = growth_of(found.grid, method)
        if growth.for_money:
            deal = Deal(growth.label_price, growth.image_price, growth.money, growth.visible)
            groups.setdefault(deal, {})[method] = growth
    return groups


def growth_of(grid: Grid, method: str) -> Growth:
    """Return the growth settings of a method's runs."""
    from mma.experiments.make import config_of  # with torch, which results without money do not need

    return config_of(grid, next(cell for cell in grid.cells() if cell.method == method)).growth


def sections(found: Results) -> list[Section]:
    """Return one table per deal: accuracy at the end, what was bought, regret, and the buyer against each fixed policy."""
    return [section(found, deal, list(methods), methods) for deal, methods in deals(found).items()]


def section(found: Results, deal: Deal, names: Sequence[str], growths: Mapping[str, Growth]) -> Section:
    """Return the table of one deal."""
    title = f"At equal money: {deal}"
    reached = {name: found.accuracies(name, found.budgets[-1]) for name in names}
    fixed = [name for name in names if growths[name].policy == "split" and reached[name]]
    if not fixed:
        return title, [], [], ["No policy with a fixed share has finished yet."]
    best = max(fixed, key=lambda name: float(np.mean(list(reached[name].values()))))
    buyers = [name for name in names if growths[name].policy == "buyer"]
    heading = [
        "policy",
        "n",
        "labels",
        "images",
        "accuracy",
        f"regret against {best}",
        *(f"{b} minus it" for b in buyers),
    ]
    rows = [row(found, name, reached, best, buyers) for name in names if reached[name]]
    remarks = [
        "Labels and images: what there is in the end, on average. Regret: how far below the best fixed policy in hindsight, "
        "paired by seed; intervals of 95 % from the paired t distribution.",
    ]
    return title, heading, rows, remarks


def row(
    found: Results, name: str, reached: Mapping[str, Mapping[int, float]], best: str, buyers: Sequence[str]
) -> list[str]:
    """Return one line of a deal's table."""
    values = list(reached[name].values())
    ends = [end for end in last_rounds(found.spending) if end.method == name]
    have = [f"{np.mean([getattr(end, what) for end in ends]):,.0f}" for what in ("labels", "images")]
    accuracy = f"{np.mean(values):.2f} ± {spread(values):.2f}" if len(values) > 1 else f"{values[0]:.2f}"
    regret = "-" if name == best else difference(reached[best], reached[name])
    against = ["-" if name == buyer else difference(reached[buyer], reached[name]) for buyer in buyers]
    return [name, str(len(values)), *have, accuracy, regret, *against]


def difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> str:
    """Write a paired difference with its interval."""
    values = paired(ours, theirs)
    if not len(values):
        return "-"
    low, high = interval(values)
    return f"{values.mean():+.2f}" + (f" ({low:+.2f} to {high:+.2f})" if len(values) > 1 else "")


def last_rounds(rows: Iterable[Spending]) -> list[Spending]:
    """Return the last round of every run."""
    last = {(row.method, row.budget, row.total, row.seed): row for row in rows}
    return list(last.values())


def accuracy_over_money(found: Results) -> bytes | None:
    """Draw accuracy over money spent, one panel per deal: mean and one standard deviation over seeds."""
    groups = {deal: names for deal, names in deals(found).items() if any(r.method in names for r in found.spending)}
    if not groups:
        return None
    drawn, axes = plots.figure(4.6 * len(groups) + 0.4, 4.6, len(groups))
    for one, (deal, methods) in zip(axes, groups.items(), strict=True):
        for method, growth in methods.items():
            draw_policy(one, method, growth, [r for r in found.spending if r.method == method])
        one.set_title(f"label {deal.label_price:g}, image {deal.image_price:g}", fontsize=11)
        one.set_xlabel("money spent")
        one.legend(loc="lower right", frameon=False, fontsize=8.5)
    axes[0].set_ylabel("accuracy, %")
    return plots.png(drawn)


def draw_policy(axes: Any, name: str, growth: Growth, rows: Sequence[Spending]) -> None:
    """Draw the rounds of one policy; the last point is the run's result."""
    if not rows:
        return
    rounds = sorted({row.round for row in rows})
    x = [np.mean([row.spent for row in rows if row.round == n]) for n in rounds]
    y = [[row.accuracy for row in rows if row.round == n] for n in rounds]
    mean, std = np.array([np.mean(v) for v in y]), np.nan_to_num(np.array([spread(v) for v in y]))
    shades = {1.0: plots.COLORS[1], 0.0: plots.COLORS[2]}
    colour = plots.COLORS[4] if growth.policy == "buyer" else shades.get(growth.share, plots.COLORS[3])
    axes.plot(x, mean, "o-", color=colour, label=name, linewidth=2.2 if growth.policy == "buyer" else 1.5, markersize=4)
    axes.fill_between(x, mean - std, mean + std, color=colour, alpha=0.12, linewidth=0)

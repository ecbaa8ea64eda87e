"""Policies that spend the same money: what each bought, what it reached, and what the best fixed one would have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mma.experiments.report.numbers import difference_text, mean_and_deviation
from mma.experiments.report.plots import seeds_text, whiskers
from mma.experiments.report.results import Results, SpendingPolicy
from mma.experiments.report.rows import RoundSpending
from mma.experiments.report.style import in_house_style, legend_below, new_figure, style
from mma.experiments.report.summary import Section

Policies = Mapping[str, SpendingPolicy]  # by method


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


def sections(found: Results) -> list[Section]:
    """Return one table per deal: final accuracy, what was bought, regret, and the buyer against each fixed policy."""
    return [section(found, deal, policies) for deal, policies in deals(found).items()]


def section(found: Results, deal: Deal, policies: Policies) -> Section:
    """Return the table of one deal."""
    title = f"At equal money: {deal}"
    reached = {name: found.accuracies(name, found.budgets[-1]) for name in policies}
    fixed = [name for name in policies if policies[name].share is not None and reached[name]]
    if not fixed:
        return Section(title, [], [], ["No policy with a fixed share has finished yet."])
    best = max(fixed, key=lambda name: float(np.mean(list(reached[name].values()))))
    buyers = [name for name in policies if policies[name].share is None]
    heading = ["policy", "n", "labels", "images", "accuracy", f"regret against {best}"]
    heading += [f"{buyer} minus it" for buyer in buyers]
    rows = [row(found, name, reached, best, buyers) for name in policies if reached[name]]
    remarks = [
        "Labels and images: what there is in the end, on average. Regret: how far below the best fixed policy in hindsight, "
        "paired by seed; intervals of 95 % from the paired t distribution.",
    ]
    return Section(title, heading, rows, remarks)


def row(
    found: Results, name: str, reached: Mapping[str, Mapping[int, float]], best: str, buyers: Sequence[str]
) -> list[str]:
    """Return one line of a deal's table."""
    values = list(reached[name].values())
    ends = [end for end in last_rounds(found.spending) if end.method == name]
    bought = [f"{np.mean([getattr(end, what) for end in ends]):,.0f}" for what in ("labels", "images")]
    regret = "-" if name == best else difference_text(reached[best], reached[name])
    against = ["-" if name == buyer else difference_text(reached[buyer], reached[name]) for buyer in buyers]
    return [name, str(len(values)), *bought, mean_and_deviation(values), regret, *against]


def last_rounds(rows: Iterable[RoundSpending]) -> list[RoundSpending]:
    """Return the last round of every run."""
    last = {(row.method, row.budget, row.total, row.seed): row for row in rows}
    return list(last.values())


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

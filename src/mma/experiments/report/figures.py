"""Figures made from results alone, in the look of figures.toml. Whiskers are 95 % intervals of the t distribution."""

from __future__ import annotations

import io
import math
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from importlib.resources import files
from textwrap import fill
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import LogLocator

from mma.errors import UserError
from mma.experiments.report.results import Results, RoundEnd
from mma.experiments.report.statistics import Difference, differences, interval, reference_of
from mma.experiments.report.summary import deals, lines_of, names
from mma.query import DIVERSITY, Query
from mma.text import plural

WIDTH = 6.4  # inches: with letters of 11 points it can be read on a phone
PALE, INK = "#c4c4c4", "#333333"
LOOKS = tomllib.loads(files(__package__).joinpath("figures.toml").read_text("utf-8"))
NO_DATES: dict[str, dict[str, None]] = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


@dataclass(frozen=True)
class Style:
    """How a method is drawn."""

    colour: str
    marker: str = "o"
    line: str = "-"
    hollow: bool = False

    def marks(self) -> dict[str, Any]:
        """Return matplotlib's names for colour and marker."""
        face = "white" if self.hollow else self.colour
        return {"color": self.colour, "marker": self.marker, "markerfacecolor": face, "markeredgecolor": self.colour}


PICK_MARKERS = ("D", "^", "P", "h")
# For methods without a place above: none of these is the colour of a named method.
COLOURS = ("#4db6e2", "#d6619f", "#a6761d", "#8a8a00", "#7b4173", "#3f7d20", "#1b3a6b", "#ff8c69")
MARKERS = ("o", "s", "^", "v", "D", "P", "X", "p", "h", "<", ">", "*")
LINES = ("-", "--", "-.")
SALT = b"mma3"  # with it, no two methods of one experiment share colour and marker


def style(method: str) -> Style:
    """Return the style of a method: by its name, by what its query measures, or drawn from the name alone."""
    if method in LOOKS["methods"]:
        return Style(**LOOKS["methods"][method])

    def hashed(name: str) -> Style:
        number = int.from_bytes(blake2b(name.encode(), digest_size=8, salt=SALT).digest(), "big")
        number, colour = divmod(number, len(COLOURS))
        line, marker = divmod(number, len(MARKERS))
        return Style(COLOURS[colour], MARKERS[marker], LINES[line % len(LINES)])

    try:
        query = Query.parse(method)
    except UserError:
        return hashed(method)
    # Colour by measure, shade and marker by how it picks, hollow and dashed without .aug.
    pick = list(DIVERSITY).index(query.diversity)
    shades = LOOKS["shades"].get(query.uncertainty, [hashed(str(query)).colour])
    marker = PICK_MARKERS[pick % len(PICK_MARKERS)]
    return Style(shades[pick % len(shades)], marker, "-" if query.aug else "--", hollow=not query.aug)


in_house_style = mpl.rc_context(LOOKS["matplotlib"])  # a decorator: draws so, whatever matplotlib was set to


def new_figure(title: str, height: float, rows: int = 1, columns: int = 1) -> tuple[Any, list[Any]]:
    """Return an empty figure with its title, and its axes in reading order."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained", dpi=150)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    figure.suptitle(fill(title, 60), x=0.01, ha="left", color=INK)
    return figure, axes


def subtitle(axes: Any, text: str, letters: int = 76) -> None:
    """Write what the marks are above the plot, in lines that fit."""
    axes.set_title(fill(text, letters))


def legend_below(figure: Any, axes: Any) -> None:
    """Put the legend under the plot, where it covers nothing."""
    handles, labels = axes.get_legend_handles_labels()
    longest = max(map(len, labels), default=0)
    columns = 3 if longest < 20 else 2 if longest < 34 else 1
    figure.set_figheight(figure.get_figheight() + 0.22 * -(-len(labels) // columns))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


@in_house_style
def render(figure: Any, kind: str) -> bytes:
    """Return a figure as png, svg or pdf, the same bytes every time and whatever was rendered before."""
    if isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine):
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out once: every format looks alike
    data = io.BytesIO()
    figure.savefig(data, format=kind, metadata=NO_DATES[kind])
    return data.getvalue()


FEW = 7  # methods drawn in colour; the others are pale behind these
NO_BREAK = "\u00a0"
FIRST = ("Supervised", "MixMatch", "random")  # always in colour
Curve = dict[int, list[float]]  # labels or steps -> accuracies over seeds


def highlights(found: Results, methods: Sequence[str], budget: int | None = None) -> dict[str, Style]:
    """Return the styles of the methods to draw in colour: the references, and the best at a budget, else at the largest."""
    reached = {(m, b): v for m in methods for b in found.budgets if (v := list(found.accuracies(m, b).values()))}
    means = {m: sum(v) / len(v) for (m, b), v in reached.items() if budget in (None, b)}  # the largest comes last
    best = sorted((m for m in methods if m not in FIRST), key=lambda m: -means.get(m, 0.0))
    first = [m for m in FIRST if m in methods]
    chosen = {*first, *best[: FEW - len(first)]}
    return {method: style(method) for method in methods if method in chosen}


def seeds_text(counts: Iterable[int]) -> str:
    """Say how many seeds there are: n = 5 seeds, or n = 3 to 5 seeds. No line is broken inside."""
    counts = sorted(set(counts))
    several = "" if len(counts) == 1 else f"{counts[0]} to "
    return f"n = {several}{plural(counts[-1], 'seed')}".replace(" ", NO_BREAK)


def draw_means(axes: Any, x: Sequence[float], groups: Sequence[Sequence[float]], look: Style, **more: Any) -> None:
    """Draw the mean of each group of seeds with its interval."""
    means = [float(np.mean(group)) for group in groups]
    axes.errorbar(x, means, yerr=whiskers(groups), **{"elinewidth": 1.0, "capsize": 2.5, **look.marks(), **more})


@in_house_style
def accuracy_over_labels(found: Results) -> Any | None:
    """Draw mean accuracy over labels (log x) with intervals. With one budget: while growing."""
    growing = len(found.budgets) < 2
    curves = accuracy_by_labels(found, growing=growing)
    if not curves or not any(len(curve) > 1 for curve in curves.values()):
        return None
    styles = highlights(found, list(curves))
    if found.by_total:  # totals have an order: colours from dark to light
        shades = [mpl.colormaps["viridis"](0.92 * k / max(len(curves) - 1, 1)) for k in range(len(curves))]
        styles = {name: Style(to_hex(shades[k]), MARKERS[k % 12]) for k, name in enumerate(curves)}
    figure, (axes,) = new_figure(f"{found.title}: accuracy over labels", 4.6)
    for name in (name for name in curves if name not in styles):  # the pale ones first, behind
        x = sorted(curves[name])
        axes.plot(x, [np.mean(curves[name][labels]) for labels in x], ".-", color=PALE, linewidth=0.8, markersize=4)
    for number, (name, look) in enumerate(styles.items()):  # side by side, so that whiskers do not hide each other
        shift = 1 + 0.05 * (number - (len(styles) - 1) / 2) / max(len(styles), 1)
        counts, groups = zip(*sorted(curves[name].items()), strict=True)
        draw_means(axes, [shift * at for at in counts], groups, look, linestyle=look.line, label=name)
    name_others(axes, len(curves) - len(styles))
    log_ticks(axes, sorted({labels for curve in curves.values() for labels in curve}))
    seeds = seeds_text(len(values) for curve in curves.values() for values in curve.values())
    where = "At the end of each round" if growing else "At the end of each run"
    means = [float(np.mean(values)) for name in styles for values in curves[name].values()]
    axes.set(xlabel="labels", ylabel="accuracy, %", ylim=view(means))
    subtitle(axes, f"{where}: mean and 95 % interval (t), {seeds}")
    legend_below(figure, axes)
    return figure


def name_others(axes: Any, count: int) -> None:
    """Name the pale lines in the legend, if there are any."""
    if count:
        axes.plot([], [], color=PALE, linewidth=0.8, label=plural(count, "other"))


def whiskers(groups: Sequence[Sequence[float]]) -> np.ndarray:
    """Return how far each group's 95 % interval reaches below and above its mean, (2, n); 0 where one value has none.

    No accuracy is below 0 or above 100 %, whatever the interval of two seeds says.
    """
    reach = np.zeros((2, len(groups)))
    for place, group in enumerate(groups):
        mean, (low, high) = float(np.mean(group)), interval(np.array(group))
        if math.isfinite(low):
            reach[:, place] = mean - max(low, 0.0), min(high, 100.0) - mean
    return np.maximum(reach, 0.0)


def view(values: Iterable[float]) -> tuple[float, float]:
    """Return limits that show all values and some room around them; the interval of two seeds may reach out of the picture."""
    values = list(values)
    low, high = min(values), max(values)
    room = max(0.35 * (high - low), 1.0)
    return max(0.0, low - room), min(100.5, high + room)


def log_ticks(axes: Any, values: Sequence[int]) -> None:
    """Set a logarithmic axis with ticks at the values, leaving out those whose numbers would overlap."""
    axes.set_xscale("log")
    span = math.log(values[-1] / values[0]) or 1.0
    ticks: list[int] = []
    for value in values:
        if not ticks or math.log(value / ticks[-1]) / span > 0.1:
            ticks.append(value)
    axes.set_xticks(ticks, minor=False)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.minorticks_off()


def accuracy_by_labels(found: Results, *, growing: bool) -> dict[str, Curve]:
    """Return accuracies by line and labels: of finished runs by their budgets, or of the ends of rounds while growing."""
    curves: dict[str, Curve] = {}
    done = [run for run in found.runs if run.status == "done"]
    for row in found.rounds if growing else done:
        labels = row.labels if isinstance(row, RoundEnd) else row.budget
        if row.accuracy is not None:
            curves.setdefault(found.line(row.method, row.total), {}).setdefault(labels, []).append(row.accuracy)
    return curves


def comparable_budget(found: Results) -> int:
    """Return the largest budget that several methods have curves for; 0 without curves."""
    shared = [b for b in found.budgets if len({p.method for p in found.curves if p.budget == b}) > 1]
    return max(shared or [p.budget for p in found.curves], default=0)


@in_house_style
def learning_curves(found: Results, title: str = "") -> Any | None:
    """Draw mean accuracy over steps; intervals stand where a round ends."""
    budget = comparable_budget(found)
    points = [p for p in found.curves if p.budget == budget]
    if not points or found.by_total:
        return None
    methods = list(dict.fromkeys(p.method for p in points))
    styles = highlights(found, methods, budget)
    figure, (axes,) = new_figure(title or f"{found.title}: {plural(budget, 'label')}", 4.6)
    for step in found.description.label_steps:
        axes.axvline(step, color="#999999", linewidth=0.8, linestyle=":")
    for method in sorted(methods, key=lambda m: m in styles):  # pale ones first, behind
        line = [(p.step, p.mean) for p in points if p.method == method]
        if look := styles.get(method):
            axes.plot(*zip(*line, strict=True), color=look.colour, linestyle=look.line)
            axes.plot([], [], linestyle=look.line, label=method, **look.marks())
        else:
            axes.plot(*zip(*line, strict=True), color=PALE, linewidth=0.8)
    counts, ends, width = list[int](), list[float](), max((row.step for row in found.rounds), default=0) / 150
    for number, (method, look) in enumerate(styles.items()):  # mean and interval where a round ends, side by side
        groups: Curve = {}
        for row in found.rounds:
            if (row.method, row.budget) == (method, budget):
                groups.setdefault(row.step, []).append(row.accuracy)
        values = [groups[step] for step in sorted(groups)]
        x = [step + width * (number - len(styles) / 2) for step in sorted(groups)]
        draw_means(axes, x, values, look, linestyle="none")
        counts += map(len, values)
        ends += [float(np.mean(group)) for group in values]
    name_others(axes, len(methods) - len(styles))
    note = "; dotted: labels are added" if found.description.label_steps else ""
    means = [p.mean for p in points if p.method in styles]
    axes.set(xlabel="step", ylabel="accuracy, %", ylim=limits(means, ends, axes.dataLim.y1))
    subtitle(axes, f"Mean while training; 95 % interval (t) where rounds end, {seeds_text(counts)}{note}")
    legend_below(figure, axes)
    return figure


def limits(means: Sequence[float], ends: Sequence[float], top: float) -> tuple[float, float]:
    """Return limits that show the end of every round, but not the first evaluations, which would squeeze all others."""
    low, high = min([float(np.percentile(means, 8)), *ends]), max(means)
    margin = 0.12 * (high - low) + 1.0
    return max(0.0, low - margin), min(100.5, max(high, top) + 0.1 * margin)


@in_house_style
def accuracy_by_seed(found: Results) -> Any | None:
    """Draw every run's result, and each method's mean with its interval, at the largest comparable budget."""
    budget = comparable_budget(found)
    groups = {m: list(reached.values()) for m in found.methods if (reached := found.accuracies(m, budget))}
    if not groups or found.by_total:
        return None
    figure, (axes,) = new_figure(f"{found.title}: {plural(budget, 'label')}", 1.5 + 0.28 * len(groups))
    for row, (method, values) in enumerate(groups.items()):
        look = style(method)
        axes.plot(values, [row - 0.18] * len(values), ".", color=look.colour, alpha=0.45, markersize=7)
        mean, reach = float(np.mean(values)), whiskers([values])
        axes.errorbar(mean, row + 0.12, xerr=reach, elinewidth=1.6, capsize=3, linestyle="none", **look.marks())
    name_rows(axes, list(groups))
    seeds = seeds_text(len(values) for values in groups.values())
    axes.set(xlabel="accuracy, %", xlim=view(value for values in groups.values() for value in values))
    subtitle(axes, f"Each seed; mean and 95 % interval (t), {seeds}", 46)
    return figure


@in_house_style
def paired_differences(found: Results) -> Any | None:
    """Draw every method's paired difference to the reference with its interval: what the verdicts are about."""
    reference = reference_of(found)
    rows = [] if reference is None or found.by_total else differences(found, reference)
    if not rows or len({row.budget for row in rows}) > 6:
        return None
    figure, (axes,) = new_figure(f"{found.title}: difference to {reference}", 1.6 + 0.28 * len(rows))
    axes.axvline(0, color=INK, linewidth=1.0)
    for number, row in enumerate(rows):
        draw_difference(axes, number, row)
    several = len({row.budget for row in rows}) > 1
    name_rows(axes, [f"{row.method}, {row.budget:,}" if several else row.method for row in rows])
    says = "filled: shown by the corrected test" if any(row.shown for row in rows) else "no difference is shown"
    axes.set(xlabel=f"points of accuracy above {reference}", xlim=view_of_differences(rows))
    subtitle(axes, f"Mean and 95 % interval (paired t), {seeds_text(row.n for row in rows)}; {says}", 46)
    return figure


def draw_difference(axes: Any, number: int, row: Difference) -> None:
    """Draw one mean with its interval; filled where the corrected test shows a difference."""
    half = (row.high - row.low) / 2 if math.isfinite(row.low) else 0.0
    look = style(row.method)
    marks = {**look.marks(), "markerfacecolor": look.colour if row.shown else "white"}
    axes.errorbar(row.mean, number, xerr=half, elinewidth=1.6, capsize=3, linestyle="none", **marks)


def view_of_differences(rows: Sequence[Difference]) -> tuple[float, float]:
    """Return limits that show zero, all means and all intervals, but for those of two seeds, which reach out of the picture."""
    ends = [end for row in rows if row.n > 2 for end in (row.low, row.high)]
    shown = [0.0, *(row.mean for row in rows), *ends]
    room = max(0.05 * (max(shown) - min(shown)), 0.5)
    return max(min(shown) - room, -100.0), min(max(shown) + room, 100.0)


def name_rows(axes: Any, names: Sequence[str]) -> None:
    """Name the rows of a plot, the first on top."""
    longest = max(map(len, names))
    axes.set_yticks(range(len(names)), [fill(name, 28) for name in names], fontsize=11 if longest <= 28 else 9)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


@in_house_style
def accuracy_over_compute(found: Results) -> Any | None:
    """Draw accuracy over FLOP (log x), a line per family: every seed as a dot, the mean as a line."""

    def power_of_ten(value: float, _: object) -> str:
        exponent = int(np.floor(np.log10(value) + 1e-9))
        return f"${round(value / 10**exponent)}\\cdot10^{{{exponent}}}$"

    lines = lines_of(found)
    if not lines:
        return None
    figure, (axes,) = new_figure(f"{found.title}: accuracy over compute", 4.6)
    for line, title in names(lines).items():
        look, flop, groups = style(title), [x for x, _ in lines[line]], [list(y.values()) for _, y in lines[line]]
        for x, reached in zip(flop, groups, strict=True):
            axes.plot([x] * len(reached), reached, ".", color=look.colour, alpha=0.5, markersize=8)
        label = f"{title} ({seeds_text(map(len, groups))})"
        axes.plot(flop, [float(np.mean(y)) for y in groups], linestyle=look.line, label=label, **look.marks())
    axes.set_xscale("log", subs=[])
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(power_of_ten)
    axes.set(xlabel="FLOP of one run", ylabel="accuracy, %")
    says = "A small dot for each seed, a large mark for their mean; a line for runs that differ in length alone"
    subtitle(axes, says)
    legend_below(figure, axes)
    return figure


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
            mine = [r for r in found.spending if r.method == method]
            rounds = [
                [r for r in mine if r.round == k] for k in sorted({r.round for r in mine})
            ]  # the last: its result
            name = found.description.families.get(method, method)
            x = [float(np.mean([r.spent for r in rows])) for rows in rounds]
            accuracies = [[r.accuracy for r in rows] for rows in rounds]
            more = {"label": name, "elinewidth": 0.8, "capsize": 2, "markersize": 4.5}
            draw_means(panel, x, accuracies, style(name), linestyle=style(name).line, **more)
        panel.set(xlabel="money spent", title=f"Label {deal.label_price:g}, image {deal.image_price:g}")
    for panel in panels[len(groups) :]:
        panel.set_visible(False)
    counts = [len({r.seed for r in found.spending if r.method == method}) for method in found.methods]
    figure.supylabel("accuracy, % (mean and 95 % interval, " + seeds_text(n for n in counts if n) + ")", fontsize=10)
    legend_below(figure, panels[0])
    return figure

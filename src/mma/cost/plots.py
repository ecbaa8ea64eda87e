"""Pictures: what a label is worth over the labels one has, and the mixes that reach a target against what they cost.

matplotlib is imported only when something is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mma.cost.advice import Prices, cheapest
from mma.cost.columns import totals_needed
from mma.cost.exchange import DRAWS, Exchange, default_targets, exchange
from mma.cost.sources import open_table
from mma.cost.table import AccuracyTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
# Paper: figure "Plot of c_ratio", for these two data sets. Targets spread over what at least two label counts reach.
PAPER_PANELS = (
    ("CIFAR-10", "paper:cifar10", (80.0, 85.0, 88.0, 90.0, 91.69)),
    ("SVHN+Extra", "paper:svhn-extra", (92.0, 94.0, 95.5, 96.4, 97.0)),
)


def paper_figure(path: str | Path, *, draws: int = DRAWS) -> None:
    """The paper's figure: c_ratio over labels for CIFAR-10 and SVHN+Extra at several targets, with intervals."""
    figure = _figure(len(PAPER_PANELS))
    for axes, (title, source, targets) in zip(figure.axes, PAPER_PANELS, strict=True):
        table = open_table(source)
        draw_ratios(axes, [exchange(table, target, draws=draws) for target in targets])
        axes.set_title(title, loc="left", fontweight="bold")
    _save(figure, Path(path))


def cost_figure(
    path: str | Path,
    table: AccuracyTable,
    found: Sequence[Exchange],
    prices: Prices | None = None,
    *,
    smooth: bool = False,
) -> None:
    """Two panels: the exchange rate at each target, and the mixes that reach it; with prices, lines of equal cost."""
    check_path(path)
    figure = _figure(2)
    draw_ratios(figure.axes[0], found, prices)
    draw_mixes(figure.axes[1], table, [each.target for each in found], prices, smooth=smooth)
    figure.suptitle(table.name, x=0.01, ha="left", fontweight="bold")
    _save(figure, Path(path))


def check_path(path: str | Path) -> None:
    """Refuse a file that could not be written, before any work is done."""
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"Cannot draw into {path.name or path}: end the name in {', '.join(FORMATS)}.")
    if not path.parent.is_dir():
        raise ValueError(f"Cannot draw into {path}: the folder {path.parent} does not exist. Make it first.")


def draw_ratios(axes: Axes, found: Sequence[Exchange], prices: Prices | None = None) -> None:
    """Images saved per label, over the labels one has; bars are the intervals, cut at the frame where they are open."""
    colors = _colors(len(found))
    for k, (each, color) in enumerate(zip(found, colors, strict=True)):
        known = [r for r in each.ratios if r.totals is not None]
        shift = 1.05 ** (k - (len(found) - 1) / 2)  # side by side, so that bars do not hide each other
        x = np.array([r.fewer * shift for r in known])
        axes.plot(x, [r.totals or 0.0 for r in known], "o-", color=color, label=f"{each.target:g} %", zorder=3)
        for at, ratio in zip(x, known, strict=True):
            if ratio.totals_interval is not None:
                ends = np.clip([ratio.totals_interval.low, ratio.totals_interval.high], -1e6, 1e6)
                axes.plot([at, at], ends, color=color, alpha=0.35, linewidth=3, solid_capstyle="butt", zorder=2)
    axes.axhline(0, color="0.3", linewidth=0.8)
    if prices is not None and prices.image > 0:
        axes.axhline(prices.label / prices.image, color="black", linestyle="--", linewidth=1)
        axes.annotate(
            "a label costs this many images",
            (1, prices.label / prices.image),
            (-4, 4),
            ha="right",
            fontsize=8,
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
        )
    _frame_ratios(axes, found)


def _frame_ratios(axes: Axes, found: Sequence[Exchange]) -> None:
    """A scale that is linear around 0 and logarithmic far from it: ratios go from below 0 to hundreds."""
    values = [r.totals for each in found for r in each.ratios if r.totals is not None] or [0.0]
    axes.set_yscale("asinh", linear_width=2)
    axes.set_ylim(min(-2.2, 2.5 * min(values)), max(10.0, 2.5 * max(values)))
    axes.set_xlabel("labels one has")
    axes.set_ylabel("images that one more label saves")
    _counts(axes.xaxis, sorted({r.fewer for each in found for r in each.ratios}))
    ticks = [
        tick
        for tick in (-100, -10, -5, -2, -1, 0, 1, 2, 3, 5, 10, 20, 50, 100, 500, 2000)
        if axes.get_ylim()[0] <= tick <= axes.get_ylim()[1]
    ]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.axhspan(-1e6, 0, color="tab:red", alpha=0.06, zorder=0)
    axes.text(0.01, 0.01, "below 0: more labels made it worse", transform=axes.transAxes, fontsize=8, color="tab:red")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncol=6, frameon=False, fontsize=8, title="target")


def draw_mixes(
    axes: Axes, table: AccuracyTable, targets: Sequence[float], prices: Prices | None = None, *, smooth: bool = False
) -> None:
    """Lines of equal accuracy over (labels, total); with prices lines of equal cost, and a star at the cheapest mix."""
    for target in set(default_targets(table)) - set(targets):  # the lie of the land, faintly
        _line_of_accuracy(axes, table, target, smooth=smooth, color="0.8", linewidth=1, zorder=1)
    for target, color in zip(targets, _colors(len(targets)), strict=True):
        _line_of_accuracy(axes, table, target, smooth=smooth, color=color, marker="o", zorder=3)
        if prices is not None:
            best = cheapest(table, target, prices, smooth=smooth, draws=1)[0]
            axes.plot(best.labels, best.total, "*", color=color, markersize=16, markeredgecolor="black", zorder=4)
            _line_of_cost(axes, table, prices, best.cost)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(table.labels[0] / 1.3, table.labels[-1] * 1.5)
    axes.set_ylim(table.totals[0] / 1.3, table.totals[-1] * 1.3)
    _counts(axes.xaxis, table.labels.tolist())
    _counts(axes.yaxis, [t for t in table.totals.tolist() if t in _spread(table.totals.tolist())])
    axes.set_xlabel("labels")
    axes.set_ylabel("images in total")
    axes.set_title(
        "mixes that reach a target" + (" (star: cheapest, dotted: equal cost)" if prices else ""), fontsize=9
    )


def _line_of_accuracy(axes: Axes, table: AccuracyTable, target: float, *, smooth: bool, **style: Any) -> None:
    """All mixes that reach the target."""
    needed = totals_needed(table, table.accuracy, target, smooth=smooth)
    known = np.isfinite(needed)
    axes.plot(table.labels[known], needed[known], **style)
    if known.any():
        end = table.labels[known][-1], needed[known][-1]
        axes.annotate(f"{target:g} %", end, (9, -3), textcoords="offset points", fontsize=8, color=style["color"])


def _line_of_cost(axes: Axes, table: AccuracyTable, prices: Prices, cost: float) -> None:
    """All mixes that cost the same, with the sum written at the left end."""
    if prices.image == 0:
        axes.axvline(cost / prices.label, color="0.6", linewidth=0.8, linestyle=":")
        return
    labels = np.geomspace(table.labels[0] / 1.3, table.labels[-1] * 1.3, 100)
    totals = (cost - prices.label * labels) / prices.image
    axes.plot(labels[totals > 0], totals[totals > 0], color="0.4", linewidth=1, linestyle=":", zorder=1)
    axes.annotate(f"{cost:,.0f}", (labels[0], totals[0]), (3, 3), textcoords="offset points", fontsize=8, color="0.4")


def _spread(values: list[int], apart: float = 1.25) -> list[int]:
    """Those that are far enough from each other to be written on a logarithmic axis."""
    kept: list[int] = []
    for value in sorted(values, reverse=True):
        if not kept or kept[-1] / value >= apart:
            kept.append(value)
    return kept


def _counts(axis: object, values: Sequence[int]) -> None:
    """Ticks at what was measured, written out."""
    from matplotlib.axis import XAxis, YAxis

    assert isinstance(axis, XAxis | YAxis)
    if isinstance(axis, XAxis):
        axis.axes.set_xscale("log")
    axis.set_ticks(list(values), [f"{value:,}" for value in values])
    axis.set_ticks([], minor=True)


def _figure(panels: int) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5 * panels, 4.4), layout="constrained")
    for axes in np.atleast_1d(figure.subplots(1, panels)):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="0.93", zorder=0)
    return figure


def _colors(n: int) -> list[tuple[float, float, float, float]]:
    """From pale to dark as the target rises."""
    from matplotlib import colormaps

    return [colormaps["viridis_r"](x) for x in np.linspace(0.15, 0.95, n)]


def _save(figure: Figure, path: Path) -> None:
    check_path(path)
    figure.savefig(path, dpi=130)

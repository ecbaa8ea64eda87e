"""Figures: the exchange rate over the number of labels, and the mixes that reach a target with their costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.axis import XAxis, YAxis
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation

from mma.cost.advice import Prices, cheapest
from mma.cost.exchange import LEVEL, Exchange, default_targets, totals_needed
from mma.cost.table import CostTable
from mma.errors import UserError
from mma.text import printable

FORMATS = (".png", ".svg", ".pdf")
MARKERS = "osD^vPX*"
SMALL = 8.5  # points, of annotations
HALO = [withStroke(linewidth=3, foreground="white")]  # around text, so that lines behind it do not make it unreadable


def cost_figure(
    path: str | Path,
    table: CostTable,
    found: Sequence[Exchange],
    prices: Prices | None = None,
    *,
    at: tuple[int, int] | None = None,
    smooth: bool = False,
) -> None:
    """Draw two panels: the exchange rate at each target, and the mixes that reach it; with prices, lines of equal cost."""
    check_path(path)
    figure = new_figure(2)
    draw_ratios(figure.axes[0], found, prices)
    figure.axes[0].set_title("images that one more label saves", loc="left", fontsize=10.5)
    draw_mixes(figure.axes[1], table, [each.target for each in found], prices, at=at, smooth=smooth)
    # A name from a file may hold a dollar sign, which is no formula.
    figure.suptitle(f"What is a label worth? {table.name}", x=0.01, ha="left", fontweight="bold", parse_math=False)
    save(figure, Path(path))


def check_path(path: str | Path) -> None:
    """Refuse a file name that cannot be written, before any work is done."""
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"Cannot draw into {printable(path.name or str(path))}: end the name in {', '.join(FORMATS)}.")
    if not path.parent.is_dir():
        raise UserError(
            f"Cannot draw into {printable(str(path))}: the folder {printable(str(path.parent))} does not exist. Make it first."
        )


def draw_ratios(axes: Axes, found: Sequence[Exchange], prices: Prices | None = None) -> None:
    """Draw images saved per label over the number of labels; open intervals end at the frame."""
    for k, (each, color) in enumerate(zip(found, _colors(len(found)), strict=True)):
        known = [(r.fewer, r.totals, r.totals_interval) for r in each.ratios if r.totals is not None]
        shift = 1.03 ** (k - (len(found) - 1) / 2)  # side by side, so that bars do not hide each other
        x, y = [fewer * shift for fewer, *_ in known], [saved for _, saved, _ in known]
        axes.plot(x, y, marker=MARKERS[k % len(MARKERS)], color=color, label=f"{each.target:g} %", zorder=3)
        for at, (*_, spread) in zip(x, known, strict=True):
            if spread is not None:
                ends = np.clip([spread.low, spread.high], -1e6, 1e6)
                axes.plot([at, at], ends, color=color, alpha=0.35, linewidth=3, solid_capstyle="butt", zorder=2)
    axes.axhline(0, color="0.3", linewidth=0.8)
    look: dict[str, Any] = {"fontsize": SMALL, "path_effects": HALO}
    if prices is not None and prices.image > 0:
        rate = prices.label / prices.image
        axes.axhline(rate, color="black", linestyle="--", linewidth=1)
        place: dict[str, Any] = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "ha": "right"}
        axes.annotate("a label costs this many images", (1, rate), (-4, 4), **place, **look)
    # The scale is linear around 0 and logarithmic far from it: ratios reach hundreds.
    values = [r.totals for each in found for r in each.ratios if r.totals is not None] or [0.0]
    counts = sorted({r.fewer for each in found for r in each.ratios})
    axes.set_yscale("asinh", linear_width=2)
    axes.set_xscale("log")
    axes.set(
        xlabel=f"labels (bars: {LEVEL:.0%} intervals)",
        ylabel="images that one more label saves",
        xlim=(counts[0] / 1.15, counts[-1] * 1.15),
        ylim=(min(-2.2, 2.5 * min(values)), max(10.0, 2.5 * max(values))),
    )
    _counts(axes.xaxis, counts)
    # Ticks in order of preference: those inside the frame, and 6 % of its height away from the others.
    kept: dict[int, float] = {}
    for tick in (0, 10, 100, 1000, -10, -100, 1, -1, 5, 2, 20, 50, 500, 200, 2000, 3, -2, -5, -20, -50):
        height = _place(axes, (counts[0], tick))[1]
        if 0 <= height <= 1 and all(abs(height - other) >= 0.06 for other in kept.values()):
            kept[tick] = height
    axes.set_yticks(list(kept), [f"{tick:,}" for tick in kept])
    axes.minorticks_off()
    axes.axhspan(-1e6, 0, color="tab:red", alpha=0.06, zorder=0)
    axes.text(0.01, 0.01, "below 0: more labels, more images", transform=axes.transAxes, color="tab:red", **look)
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.14), ncol=6, frameon=False, fontsize=SMALL, title="target accuracy"
    )


def draw_mixes(
    axes: Axes,
    table: CostTable,
    targets: Sequence[float],
    prices: Prices | None = None,
    *,
    at: tuple[int, int] | None = None,
    smooth: bool = False,
) -> None:
    """Draw lines of equal accuracy over (labels, total); with prices lines of equal cost and a star at the cheapest mix.

    With a starting point `at` (labels, total) a cross marks it, and only what is bought on top is paid.
    """
    counts, totals = table.labels.tolist(), table.totals.tolist()
    x, y = (counts, totals) if at is None else ([*counts, max(at[0], 1)], [*totals, max(at[1], 1)])
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set(xlim=(min(x) / 1.3, max(x) * 1.5), ylim=(min(y) / 1.3, max(y) * 1.3))
    _counts(axes.xaxis, counts)
    _counts(axes.yaxis, totals)
    axes.set(xlabel="labels (cross: what you have)" if at else "labels", ylabel="images in total")
    if at:
        axes.plot(*at, "x", color="black", markersize=8, markeredgewidth=2, zorder=5)
    have, stars = at or (0, 0), False  # what one has cannot be sold: the line of mixes that cost the same ends there
    for k, (target, color) in enumerate(zip(targets, _colors(len(targets)), strict=True)):
        _line_of_accuracy(axes, table, target, smooth=smooth, color=color, marker=MARKERS[k % len(MARKERS)], zorder=3)
        if prices is None or have[0] > table.labels[-1]:
            continue
        best = next(iter(cheapest(table, target, prices, at=at, smooth=smooth, draws=1)), None)
        if best is None:  # no mix measured reaches the target
            continue
        axes.plot(best.labels, best.total, "*", color=color, markersize=16, markeredgecolor="black", zorder=4)
        stars = True
        if prices.image == 0:
            axes.axvline(have[0] + best.cost / prices.label, color="0.6", linewidth=0.8, linestyle=":")
            continue
        labels = np.geomspace(max(axes.get_xlim()[0], have[0]), table.labels[-1] * 1.3, 100)
        line = have[1] + (best.cost - prices.label * (labels - have[0])) / prices.image
        bought = line > have[1]
        axes.plot(labels[bought], line[bought], color="0.4", linewidth=1, linestyle=":", zorder=1)
        if bought.any() and line[0] < 0.9 * axes.get_ylim()[1]:  # higher up is the title
            _write(axes, f"{best.cost:,.0f}{' more' if at else ''}", (labels[0], line[0]), (3, 3), "0.4")
    for target in sorted(set(default_targets(table)) - set(targets)):  # faintly, for orientation
        _line_of_accuracy(axes, table, target, smooth=smooth, color="0.75", linewidth=1, zorder=1)
    legend = " (star: cheapest, dotted: equal cost)" if stars else ""
    axes.set_title(f"mixes that reach a target{legend}", loc="left", fontsize=10.5)


def _line_of_accuracy(axes: Axes, table: CostTable, target: float, *, smooth: bool, **style: Any) -> None:
    """Draw the mixes that reach the target."""
    needed = totals_needed(table, table.accuracy, target, smooth=smooth)
    known = np.isfinite(needed)
    axes.plot(table.labels[known], needed[known], **style)
    if known.any():
        end = table.labels[known][-1], needed[known][-1]
        _write(axes, f"{target:g} %", end, (9, -3), style["color"])


def _write(axes: Axes, text: str, at: tuple[float, float], offset: tuple[float, float], color: Any) -> None:
    """Write beside a point, unless another text is in the way: the legend names the line too."""
    x, y = _place(axes, at)
    there = [_place(axes, other.xy) for other in axes.texts if isinstance(other, Annotation)]
    if not any(abs(x - left) < 0.12 and abs(y - low) < 0.045 for left, low in there):
        axes.annotate(text, at, offset, textcoords="offset points", fontsize=SMALL, color=color, path_effects=HALO)


def _place(axes: Axes, point: tuple[float, float]) -> tuple[float, float]:
    """Return where a point of the data lies in the frame, from 0 to 1."""
    x, y = (axes.transData + axes.transAxes.inverted()).transform(point)
    return float(x), float(y)


def _counts(axis: XAxis | YAxis, values: Sequence[int]) -> None:
    """Set a logarithmic axis with ticks at measured values, written in full; those too close to a larger one are left out."""
    apart = 0.12 if axis.axis_name == "x" else 0.05  # of the axis: room for one label
    low, high = np.log(axis.get_view_interval())
    kept: list[int] = []
    for value in sorted(values, reverse=True):
        if not kept or np.log(kept[-1] / value) >= apart * (high - low):
            kept.append(value)
    axis.set_ticks(kept, [f"{value:,}" for value in kept])
    axis.set_ticks([], minor=True)


def new_figure(panels: int) -> Figure:
    """Return a figure with panels side by side."""
    figure = Figure(figsize=(5.5 * panels, 4.8), layout="constrained")
    for axes in np.atleast_1d(figure.subplots(1, panels)):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="0.93", zorder=0)
    return figure


def _colors(n: int) -> list[tuple[float, float, float, float]]:
    """Return colours from pale to dark, for rising targets."""
    return [colormaps["viridis_r"](x) for x in np.linspace(0.15, 0.95, n)]


def save(figure: Figure, path: Path) -> None:
    """Write the figure; a PNG gets an SVG and a PDF beside it."""
    kinds = (path.suffix, ".svg", ".pdf") if path.suffix.lower() == ".png" else (path.suffix,)
    with rc_context({"svg.hashsalt": "mma", "svg.fonttype": "none"}):  # repeatable files, with text as text
        for kind in kinds:
            undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(kind.lower())
            figure.savefig(path.with_suffix(kind), dpi=130, metadata=undated)

"""The look of every figure: one colour, marker and line per method, wherever the method appears."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from hashlib import blake2b
from textwrap import fill
from typing import Any, ParamSpec, TypeVar

from mma.query import DIVERSITY, Query

P = ParamSpec("P")
T = TypeVar("T")
WIDTH = 6.4  # inches: with letters of 11 points it can be read on a phone
PALE, INK = "#c4c4c4", "#333333"
HOUSE_STYLE: dict[Any, Any] = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titlecolor": "#555555",
    "figure.titlesize": 12.5,
    "figure.titleweight": "bold",
    "grid.color": "#e6e6e6",
    "legend.frameon": False,
    "legend.fontsize": 10,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
    "svg.fonttype": "path",
    "svg.hashsalt": "mma",  # element ids, and so bytes, that do not change
}
NO_DATES: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}


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


NAMED = {
    "Supervised": Style("#6b6b6b", "X"),
    "MeanTeacher": Style("#8c6d31", "v"),
    "VAT": Style("#b5651d", "<"),
    "PiModel": Style("#a08a5b", ">"),
    "PseudoLabel": Style("#c49c94", "p"),
    "MixMatch": Style("#0072b2", "s"),
    "random": Style("#e69f00", "o"),
    "random growth": Style("#e69f00", "o"),
    "MMA": Style("#c0172b", "D"),
    "herding": Style("#2a9d5c", "^"),
    "typiclust": Style("#7b4173", "v"),
    "uherding": Style("#1b3a6b", "P"),
    "auto": Style("#111111", "*"),
    "cluster-margin": Style("#a6761d", "h"),
    "badge": Style("#d6619f", "p"),
    "coverage, then diff2.aug-kmeans": Style("#009e9e", "<"),
    "labels only": Style("#0072b2", "s"),
    "images only": Style("#2a9d5c", "^"),
    "half and half": Style("#e69f00", "o"),
    "buyer": Style("#c0172b", "D"),
    "fast": Style("#c0172b", "D"),
    "fast in bfloat16": Style("#e69f00", "P"),
    "fast without strong labels": Style("#d6619f", "h", "--", hollow=True),
    "fast with 16 filters": Style("#7b4173", "*", "--"),
    "fast by Adam": Style("#8a8a00", "X"),
    "WRN-28-2 MixMatch": Style("#0072b2", "s"),
}
SHADES = {  # of an uncertainty measure, by how images are picked: a query's colour says what it measures
    "diff2": ("#c0172b", "#e8665a", "#f0a58f"),
    "max": ("#5e3c99", "#8e6cc0", "#b9a2db"),
    "entropy": ("#00695c", "#2f9e8a", "#80c7b8"),
}
PICK_MARKERS = ("D", "^", "P", "h")
# For methods without a place above: none of these is the colour of a named method.
COLOURS = ("#4db6e2", "#d6619f", "#a6761d", "#8a8a00", "#7b4173", "#3f7d20", "#1b3a6b", "#ff8c69")
MARKERS = ("o", "s", "^", "v", "D", "P", "X", "p", "h", "<", ">", "*")
LINES = ("-", "--", "-.")
SALT = b"mma3"  # with it, no two methods of one experiment share colour and marker


def style(method: str) -> Style:
    """Return the style of a method: by its name, by what its query measures, or drawn from the name."""
    if method in NAMED:
        return NAMED[method]
    try:
        return query_style(Query.parse(method))
    except ValueError:
        return hashed_style(method)


def query_style(query: Query) -> Style:
    """Return a query's style: colour by measure, shade and marker by how it picks, hollow and dashed without .aug."""
    pick = list(DIVERSITY).index(query.diversity)
    shades = SHADES.get(query.uncertainty or "", (hashed_style(str(query)).colour,))
    marker = PICK_MARKERS[pick % len(PICK_MARKERS)]
    return Style(shades[pick % len(shades)], marker, "-" if query.aug else "--", hollow=not query.aug)


def hashed_style(name: str) -> Style:
    """Return a style that depends on the name alone, so that it is the same in every figure."""
    number = int.from_bytes(blake2b(name.encode(), digest_size=8, salt=SALT).digest(), "big")
    number, colour = divmod(number, len(COLOURS))
    line, marker = divmod(number, len(MARKERS))
    return Style(COLOURS[colour], MARKERS[marker], LINES[line % len(LINES)])


def graded_styles(names: Sequence[str]) -> dict[str, Style]:
    """Return styles for names that have an order: colours from dark to light."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    last = max(len(names) - 1, 1)
    return {name: Style(to_hex(colormaps["viridis"](0.92 * k / last)), MARKERS[k % 12]) for k, name in enumerate(names)}


def in_house_style(draw: Callable[P, T]) -> Callable[P, T]:
    """Draw with the house style, whatever matplotlib was set to; without a display."""

    @wraps(draw)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        import matplotlib as mpl

        with mpl.rc_context(HOUSE_STYLE):
            return draw(*args, **kwargs)

    return wrapped


def new_figure(title: str, height: float, rows: int = 1, columns: int = 1) -> tuple[Any, list[Any]]:
    """Return an empty figure with its title, and its axes in reading order."""
    from matplotlib.figure import Figure

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
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    if isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine):
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out once: every format looks alike
    data = io.BytesIO()
    figure.savefig(data, format=kind, metadata=NO_DATES[kind])
    return data.getvalue()

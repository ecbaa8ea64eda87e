"""Talk, warnings and progress on stderr, tables on stdout. What is not a terminal gets plain, whole lines.

One message is one line: names from data may hold escape codes and newlines, and are shown as `\\x1b` and `\\n`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Sequence
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from mma.text import printable

if TYPE_CHECKING:
    from rich.console import Console

FIRST, EVERY = 5.0, 30.0  # seconds to the first plain progress line, and between later ones
REDRAW = 0.2  # seconds between two drawings of the bar


def is_terminal(stream: TextIO) -> bool:
    """Tell whether a person looks at this stream. Unlike rich, do not let FORCE_COLOR decide it."""
    return not stream.closed and stream.isatty()


@cache
def console() -> Console:
    """Return the console of stderr: one for all, so that lines appear above a bar and not inside it."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def talk(message: str) -> None:
    """Print one line to stderr."""
    _print_line("", message)


def warn(message: str) -> None:
    """Print one line to stderr that stands out on a terminal."""
    _print_line("warning: ", message)


def _print_line(head: str, message: str) -> None:
    if not is_terminal(sys.stderr):
        print(head + printable(message), file=sys.stderr, flush=True)
        return
    from rich.text import Text

    # Text, not markup: a bracket in a message is a bracket.
    console().print(Text.assemble((head, "yellow"), printable(message)), soft_wrap=True)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[str] = ()) -> None:
    """Print a table to stdout; the columns named in `right` are aligned there. Cells need no escaping."""
    cells = [[printable(cell) for cell in row] for row in rows]
    if not is_terminal(sys.stdout):
        print("\n".join(align([list(headings), *cells], [heading in right for heading in headings])))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(Text(heading), justify="right" if heading in right else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)


def align(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """Return rows as lines of equal columns, two spaces apart, as wide as their cells."""
    from rich.cells import cell_len  # a Chinese character is two columns wide

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]

    def pad(cell: str, width: int, to_right: bool) -> str:
        space = " " * (width - cell_len(cell))
        return space + cell if to_right else cell + space

    return ["  ".join(map(pad, row, widths, right)).rstrip() for row in rows]


class Progress:
    """A bar on a terminal; elsewhere a plain line after 5 s and then every 30 s. All on stderr."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.due, self.bar = clock, 0.0, None
        if is_terminal(sys.stderr):
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Bar

            text = TextColumn("{task.fields[text]}", markup=False)
            self.bar = Bar(BarColumn(bar_width=12), text, console=console())

    def __enter__(self) -> Self:
        self.due = self.clock() + (FIRST if self.bar is None else 0.0)
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.bar is not None:
            self.bar.stop()

    def update(self, done: int, total: int, describe: Callable[[], str]) -> None:
        """Show how far the work is. `describe` is called only when something is shown."""
        now = self.clock()
        if now < self.due:
            return
        self.due = now + (EVERY if self.bar is None else REDRAW)
        if self.bar is None:
            talk(describe())
            return
        if not self.bar.task_ids:
            self.bar.add_task("", total=total, text="")
        self.bar.update(self.bar.task_ids[0], completed=done, total=total, text=printable(describe()))

"""Tables on stdout: with colours on a terminal; elsewhere plain, whole lines. Talk and progress are those of `mma.text`."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from mma.text import Progress as Progress
from mma.text import console as console
from mma.text import is_terminal as is_terminal
from mma.text import (
    printable,
)
from mma.text import talk as talk
from mma.text import warn as warn


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

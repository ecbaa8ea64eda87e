"""A progress bar on a terminal's stderr; silence everywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]


@contextmanager
def bar(title: str, total: int, *, done: int = 0, in_bytes: bool = False) -> Iterator[Advance]:
    """Show how far a task of `total` parts is; call what you are given with the number of parts just finished."""
    if not sys.stderr.isatty():
        yield lambda parts: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    amount = DownloadColumn() if in_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(escape(title), total=total, completed=done)
        yield lambda parts: progress.advance(task, parts)

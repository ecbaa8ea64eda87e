"""What a grid showed: tables, statistics, plots, and one page with all of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mma.experiments.report.results import Results


def report(folder: str | Path, out: str | Path | None = None) -> Results:
    """Return the results of a grid.

    Parameters
    ----------
    folder : path
        A grid folder, or an exported report.
    out : path, optional
        Write the whole report there: tables, statistics, plots and a page.

    Examples
    --------
    >>> found = mma.report("grids/tiny")
    >>> [run.status for run in found.runs]
    ['done']
    """
    from mma.experiments.report.results import collect

    found = collect(Path(folder))
    if out is not None:
        found.write(out, f"mma report {folder} --out {out}")
    return found

"""`mma report`: tables, statistics, plots and one page about a grid or about exported results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A grid folder, or a folder of results with runs.csv.")],
    format: Annotated[str, typer.Option("--format", help="md (with statistics), csv, latex or json.")] = "md",
    plots: Annotated[bool, typer.Option("--plots", help="Draw the plots into DIR/report.")] = False,
    html: Annotated[bool, typer.Option("--html", help="Write plots and the page DIR/report/report.html.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write everything into this folder.")] = None,
) -> None:
    """Print the table and statistics; write plots and a page that needs nothing else."""
    from mma.cli.grid import command
    from mma.experiments.report.collect import collect
    from mma.experiments.report.tables import FORMATS
    from mma.experiments.report.write import as_text, write_all, write_pictures

    if format not in FORMATS:
        raise ValueError(f"no format '{format}'. There are: {', '.join(FORMATS)}.")
    found = collect(folder)
    paths: list[Path] = []
    if out is not None:
        paths = write_all(found, out, command())
    elif plots or html:
        paths = write_pictures(found, folder / "report", page_too=html)
    print(as_text(found) if format == "md" else FORMATS[format](found.table()), end="")
    for path in paths:
        print(f"wrote {path}", file=sys.stderr)

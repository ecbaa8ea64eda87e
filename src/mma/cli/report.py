"""`mma report`: tables, statistics, plots and one page about a grid or about results that were committed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mma.experiments.report.collect import Results


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A grid folder, or a folder of results with runs.csv.")],
    format: Annotated[str, typer.Option("--format", help="md (with statistics), csv, latex or json.")] = "md",
    plots: Annotated[bool, typer.Option("--plots", help="Draw the plots into DIR/report.")] = False,
    html: Annotated[bool, typer.Option("--html", help="Write the page DIR/report/report.html, plots inside.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write everything into this folder.")] = None,
) -> None:
    """Print the table and honest statistics; write plots and a page that needs nothing else."""
    import sys

    from mma.cli.grid import command
    from mma.experiments.report.collect import collect
    from mma.experiments.report.write import write_all
    from mma.run import explained

    show = formats()
    if format not in show:
        raise ValueError(f"no format '{format}'. There are: {', '.join(show)}.")
    found = collect(folder)
    written: list[Path] = []
    if out is not None:
        with explained(out):
            written = write_all(found, out, command())
    elif plots or html:
        written = write_pictures(found, folder / "report", plots=plots, html=html)
    print(show[format](found), end="")
    for path in written:
        print(f"written: {path}", file=sys.stderr)


def write_pictures(found: Results, place: Path, *, plots: bool, html: bool) -> list[Path]:
    """Write the plots, the page that has them inside, or both, and return the files."""
    from mma.experiments.report.write import draw, page_of
    from mma.run import explained, write_whole

    drawn = draw(found)
    files: dict[str, str | bytes] = {
        **(drawn if plots else {}),
        **({"report.html": page_of(found, drawn)} if html else {}),
    }
    with explained(place):
        place.mkdir(exist_ok=True)
        for name, data in files.items():
            write_whole(place / name, data)
    return [place / name for name in files]


def formats() -> dict[str, Callable[[Results], str]]:
    """Return what each format prints."""
    from mma.experiments.report import tables
    from mma.experiments.report.write import as_text

    def printed(write: Callable[[tables.Table], str]) -> Callable[[Results], str]:
        return lambda found: write(tables.table(found))

    return {**{name: printed(write) for name, write in tables.FORMATS.items()}, "md": as_text}

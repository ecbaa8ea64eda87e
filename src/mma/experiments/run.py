"""Do what is missing of a grid: plan it, train it, write its report."""

from __future__ import annotations

from pathlib import Path

from mma.data import load_data
from mma.errors import UserError
from mma.experiments import grids
from mma.experiments.catalogue import EXPERIMENTS
from mma.experiments.engines import EngineOptions, create_engine, train_all
from mma.experiments.grids import Grid, GridCell
from mma.experiments.options import OWN, GridOptions
from mma.experiments.plan import GridPlan, plan
from mma.experiments.progress import GridProgress
from mma.experiments.report.results import Results, from_grid
from mma.experiments.report.write import LABELED_VS_UNLABELED, for_cost
from mma.files import write_atomically


def find_or_open(options: GridOptions, out: Path | None = None) -> tuple[Grid, Path]:
    """Return the grid that the options describe, or the one in the folder `target`, and its folder. Nothing is written."""
    target = options.target
    if options.own or target in EXPERIMENTS or not Path(target).is_dir():
        grid = Grid.from_options(options)
        name = grid.experiment if grid.scale == OWN else f"{grid.experiment}-{grid.scale}"
        return grid, out or Path("grids") / name
    if out is not None or options != GridOptions(target):
        raise UserError(
            f"{target} is a grid, and a grid goes on as it is. Add to it with the command that made it and --out {target}."
        )
    return grids.read(Path(target)), Path(target)


def plan_request(new: Grid, folder: Path) -> GridPlan:
    """Plan what a request asks for, together with what the folder holds. Nothing is written."""
    merged = grids.merge(grids.read(folder), new, folder) if (folder / grids.FILE).exists() else new
    return plan(merged, folder, requested_cells(merged, new))


def requested_cells(merged: Grid, new: Grid) -> list[GridCell]:
    """Return the cells of a new request, in the order of the table."""
    requested = {cell for request in new.requests for cell in merged.cells(request)}
    return [cell for cell in merged.cells() if cell in requested]


def train_missing(
    new: Grid, folder: Path, engine: str, options: EngineOptions, progress: GridProgress, command: str = ""
) -> None:
    """Train every run of the request that is not done. The folder is locked meanwhile."""
    load_data(new.base["data"]["name"])  # says how to get the data, before a hundred runs fail to find it
    with grids.locked(folder):
        merged = grids.create_or_extend(folder, new)
        if command:
            grids.add_command(folder, command)
        planned = plan(merged, folder, requested_cells(merged, new))
        failures = grids.read_failures(folder)

        def end_run(place: Path, why: str | None) -> None:
            key = str(place.relative_to(folder))
            failures.pop(key, None)
            if why is not None:
                failures[key] = why
            grids.write_failures(folder, failures)
            progress.end_run(place, why)

        progress.begin(planned)
        try:
            if planned.todo:
                tasks = [run.task for run in planned.todo]
                train_all(tasks, create_engine(engine, options), progress.update, end_run)
        finally:
            progress.close()


def write_report(folder: Path) -> Results:
    """Write the report of a grid into its folder, and return the results."""
    found = from_grid(folder)
    found.write(folder / "report", f"mma report {folder}")
    if found.weighs_images:
        write_atomically(folder / LABELED_VS_UNLABELED, for_cost(found))
    return found

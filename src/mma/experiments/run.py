"""Do what is missing of a grid: plan it, train it, write its report."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import ValidationError

from mma.data import load_data
from mma.errors import UserError
from mma.experiments import grids
from mma.experiments.catalogue import EXPERIMENTS
from mma.experiments.engines import ENGINES, EngineOptions, check_engine, train_all
from mma.experiments.grids import Grid, Request
from mma.experiments.options import OWN, GridOptions, grid_from_options
from mma.experiments.plan import GridPlan, plan
from mma.experiments.progress import GridProgress
from mma.experiments.report.results import ABOUT, ROUND, Results, collect, from_grid
from mma.experiments.report.write import LABELED_VS_UNLABELED, for_cost, hosts
from mma.files import write_atomically
from mma.text import plural


def find_or_open(options: GridOptions, out: Path | None = None) -> tuple[Grid, Path]:
    """Return the grid that the options describe, or the one in the folder `target`, and its folder. Nothing is written."""
    target = options.target
    if options.own or target in EXPERIMENTS or not Path(target).is_dir():
        grid = grid_from_options(options)
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
    requested = {cell for request in new.requests for cell in merged.cells(request)}
    return plan(merged, folder, [cell for cell in merged.cells() if cell in requested])


def train_missing(
    new: Grid, folder: Path, engine: str, options: EngineOptions, progress: GridProgress, command: str = ""
) -> None:
    """Train every run of the request that is not done. The folder is locked meanwhile."""
    check_engine(engine)
    load_data(new.base["data"]["name"])  # says how to get the data, before a hundred runs fail to find it
    with grids.locked(folder):
        grids.create_or_extend(folder, new)
        known = grids.read_commands(folder)
        if command and command not in known:  # each once, in order
            write_atomically(folder / grids.COMMANDS, "".join(f"{line}\n" for line in [*known, command]))
        planned = plan_request(new, folder)
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
            if tasks := [run.task for run in planned.todo]:
                train_all(tasks, ENGINES[engine](options), progress.update, end_run)
        finally:
            progress.close()


def write_report(folder: Path) -> Results:
    """Write the report of a grid into its folder, and return the results."""
    found = from_grid(folder)
    found.write(folder / "report", f"mma report {folder}")
    if found.weighs_images:
        write_atomically(folder / LABELED_VS_UNLABELED, for_cost(found))
    return found


@dataclass(frozen=True)
class Checked:
    """A run of a table, and the same run trained again here: accuracies in percent, and what both were trained with."""

    run: str
    stored: float
    again: float
    there: tuple[str, ...]
    here: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether both accuracies are the same to the last digit."""
        return self.stored == self.again

    def __str__(self) -> str:
        if self.equal:
            return f"{self.run}: {self.again:.2f} %, equal to the digit ({self.here[0]})"
        why = (
            "the same processor kind and versions: the code has changed its numbers since, see CHANGELOG, Numbers"
            if self.here[0] in self.there
            else f"there: {' or '.join(self.there) or 'not recorded'}; here: {self.here[0]}. Numbers are equal to the digit "
            "where all of this is the same. Elsewhere rounding differs, and a single seed may end points apart"
        )
        return f"{self.run}: {self.stored:.2f} % in the table, {self.again:.2f} % here ({why})"


def check(folder: Path, seed: int, method: str | None = None) -> Checked:
    """Train one run of a table again, in a folder of its own, and compare: the first row's unless a method is named."""
    found, about = collect(folder), folder / ABOUT
    data: dict[str, Any] = {"trained with": hosts(found)}
    if about.is_file():
        data = json.loads(about.read_text("utf-8"))
    old, note = data.get("grid") or {}, ""
    name, scale = str(old.get("experiment")), old.get("scale")
    if old.get("format", grids.FORMAT) < grids.FORMAT and scale in EXPERIMENTS.get(name, ()):
        old = grid_from_options(GridOptions(name, scale=scale, seeds=[seed])).model_dump(mode="json")
        note = ", with today's settings: those of the table are in an older format"
    try:
        grid = grids.read(folder) if (folder / grids.FILE).is_file() else grids.from_json(old, str(folder))
    except ValidationError:
        raise UserError(f"{about} has no settings of a grid, so no run of it can be trained again here.") from None
    mine = [run for run in found.runs if run.seed == seed and run.accuracy is not None and run.note != ROUND]
    run = next((run for run in mine if method in (None, run.method)), None)
    place = None if run is None else (run.method, run.budget)
    cell = next((cell for cell in grid.cells() if (cell.method, cell.budget) == place and cell.seed == seed), None)
    if run is None or cell is None or run.accuracy is None:
        named, seeds = f"of {method}" if method else "of any method", sorted({run.seed for run in found.runs})
        raise UserError(f"{folder} has no finished run {named} with seed {seed}. It has seeds {seeds}.")
    one = Request(methods=(cell.method,), totals=(cell.total,), budgets=(cell.budget,), seeds=(seed,))
    with TemporaryDirectory() as temporary:
        again = Path(temporary) / "grid"
        alone = grid.model_copy(update={"requests": (one,)})
        train_missing(alone, again, "local", EngineOptions(workers=1), GridProgress(quiet=True))
        new = from_grid(again)
        # What numbers depend on: the processor and its widest instructions, versions and threads.
        there, here = (
            tuple(f"{h['cpu']}, torch {h['torch']}, numpy {h['numpy']}, {plural(h['threads'], 'thread')}" for h in each)
            for each in (data["trained with"], hosts(new))
        )
    accuracy = new.accuracies(cell.method, cell.budget).get(seed)
    if accuracy is None:
        raise UserError(f"{cell} failed: {new.runs[0].note}")
    return Checked(f"{cell}{note}", run.accuracy, accuracy, there, here)

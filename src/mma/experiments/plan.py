"""What is left to do: which runs, from which stored state each starts, and what sharing trunks saves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from mma.config import Config, from_json
from mma.experiments.grids import Grid, GridCell, differences, refuse_changes
from mma.experiments.options import config_of
from mma.run import Run, Status
from mma.training.checkpoint import shared_end, shared_states

Role = Literal["alone", "trunk", "tail"]


@dataclass(frozen=True)
class RunTask:
    """One run folder to train to its end. It can be sent to another machine as it is."""

    folder: Path
    config: dict[str, Any]
    sources: tuple[Path, ...] = ()  # runs of the same family whose stored states it may start from
    trunk: Path | None = None  # the run it waits for
    state: int = 0  # until that run has stored the state after this step


@dataclass(frozen=True)
class PlannedRun:
    """One line of the plan."""

    cell: GridCell
    config: Config
    task: RunTask
    role: Role
    status: Status
    begin: int  # the step it starts from or goes on from
    end: int

    @property
    def steps(self) -> int:
        """Steps still to make."""
        return self.end - self.begin


@dataclass(frozen=True)
class GridPlan:
    """Every run of a request, finished or not."""

    grid: Grid
    folder: Path
    runs: tuple[PlannedRun, ...]

    @property
    def todo(self) -> list[PlannedRun]:
        """Return the runs that are not done, seed by seed: an interrupted grid has complete pairs."""
        left = [run for run in self.runs if run.status != "done"]
        return sorted(left, key=lambda run: (run.cell.seed, run.role == "tail"))

    @property
    def steps_alone(self) -> int:
        """Steps of all runs if each were trained by itself from nothing."""
        return sum(run.end for run in self.runs)

    @property
    def steps_shared(self) -> int:
        """Steps of all runs when budgets share their trunk, also from nothing."""
        trunks = {run.cell.family: run for run in sorted(self.runs, key=lambda run: run.cell.budget)}
        tails = [(trunks[run.cell.family], run) for run in self.runs if run.config.growth.policy.grows]
        # A tail leaves its trunk at the end of what they share.
        return self.steps_alone - sum(shared_end(a.config, b.config) for a, b in tails if a.cell != b.cell)

    @property
    def steps_left(self) -> int:
        """Steps still to make."""
        return sum(run.steps for run in self.todo)


def plan(grid: Grid, folder: Path, cells: Sequence[GridCell] | None = None) -> GridPlan:
    """Look at the folder and list what every cell still needs; without `cells`, for the whole grid."""
    cells = grid.cells() if cells is None else cells
    families: dict[tuple[str, int | None, int], list[GridCell]] = {}
    for cell in cells:
        families.setdefault(cell.family, []).append(cell)
    runs = {run.cell: run for family in families.values() for run in plan_family(grid, folder, family)}
    return GridPlan(grid, folder, tuple(runs[cell] for cell in cells))


def plan_family(grid: Grid, folder: Path, cells: list[GridCell]) -> list[PlannedRun]:
    """Plan the budgets of one method and seed. Existing runs go on; the largest missing budget is the trunk."""
    relatives = [cell for cell in grid.cells() if cell.family == cells[0].family]
    begun = {c: folder / c.place for c in relatives if (folder / c.place / "config.json").exists()}
    runs: list[PlannedRun] = []
    for cell in (cell for cell in cells if cell in begun):  # it goes on by itself
        config, run = config_of(grid, cell), Run.open(begun[cell])
        task, end = RunTask(run.folder, config.model_dump(mode="json")), config.growth.steps
        refuse_changes(run.folder, differences(run.config(), task.config))
        done = min(max(run.checkpoint_steps(), default=0), end)
        runs.append(PlannedRun(cell, config, task, "alone", run.status(), done, end))
    missing = sorted((cell for cell in cells if cell not in begun), key=lambda cell: -cell.budget)
    shares = grid.methods[cells[0].method].grows
    unfinished = [run for run in runs if run.status != "done"]
    for cell in missing:
        config = config_of(grid, cell)
        sources = tuple(begun.values()) if shares else ()
        task = RunTask(folder / cell.place, config.model_dump(mode="json"), sources)
        role: Role = "alone" if not shares or len(cells) == 1 else "trunk" if cell == missing[0] else "tail"
        stored = max([0, *(step for step, _ in shared_sources(task))])  # the latest state that it could start from
        # It waits for the unfinished run that will share most with it, if that is more than what is stored.
        shared = [(shared_end(other.config, config), other.task.folder) for other in unfinished] if shares else []
        state, trunk = max(shared, default=(0, task.folder))
        if state > stored:
            sources = tuple(dict.fromkeys((*sources, trunk)))
            task, stored = replace(task, sources=sources, trunk=trunk, state=state), state
        runs.append(PlannedRun(cell, config, task, role, "new", stored, config.growth.steps))
        unfinished += runs[-1:] if cell == missing[0] else []
    return runs


def shared_sources(task: RunTask) -> list[tuple[int, Path]]:
    """Return the sources that share a stored state with the task, each with the step of the latest one."""
    config, found = from_json(task.config), []
    for source in task.sources:
        if (source / "config.json").exists():
            found += [(step, source) for step in shared_states(Run.open(source), config)[-1:]]
    return sorted(found)

"""What is left to do: which runs, from which stored state each starts, and what sharing trunks saves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from mma.config import Config, from_json
from mma.experiments.grid import Cell, Grid, differences, whole
from mma.experiments.make import config_of
from mma.run import Run, Status
from mma.training.fork import shared_end, shared_states

Role = Literal["alone", "trunk", "tail"]


@dataclass(frozen=True)
class Job:
    """One run folder to bring to its end. What it holds can travel to another machine as it is."""

    folder: Path
    config: dict[str, Any]
    sources: tuple[Path, ...] = ()  # runs of the same family whose stored states it may start from
    after: Path | None = None  # the trunk it waits for
    state: int = 0  # until the trunk has stored the state after this step


@dataclass(frozen=True)
class Entry:
    """One line of the plan."""

    cell: Cell
    config: Config
    job: Job
    role: Role
    status: Status
    begin: int  # the step it starts from or goes on from
    end: int

    @property
    def steps(self) -> int:
        """Steps still to make."""
        return self.end - self.begin


@dataclass(frozen=True)
class Plan:
    """Every run that was asked for, finished or not."""

    grid: Grid
    folder: Path
    entries: tuple[Entry, ...]

    @property
    def todo(self) -> list[Entry]:
        """Return the runs that are not done, seed by seed: an interrupted grid has whole pairs."""
        left = [entry for entry in self.entries if entry.status != "done"]
        return sorted(left, key=lambda entry: (entry.cell.seed, entry.role == "tail"))

    @property
    def alone(self) -> int:
        """Steps of all runs if each were trained by itself from nothing."""
        return sum(entry.end for entry in self.entries)

    @property
    def shared(self) -> int:
        """Steps of all runs when budgets share their trunk, also from nothing."""
        return sum(entry.end - shared_from(entry, self.entries) for entry in self.entries)

    @property
    def left(self) -> int:
        """Steps still to make."""
        return sum(entry.steps for entry in self.todo)


def shared_from(entry: Entry, entries: Sequence[Entry]) -> int:
    """Return the step at which a run leaves the trunk of its family; 0 for trunks and runs that share nothing."""
    if entry.config.passive or entry.config.growth.for_money:
        return 0
    family = [other for other in entries if other.cell.family == entry.cell.family]
    trunk = max(family, key=lambda other: other.cell.budget)
    return 0 if trunk.cell == entry.cell else shared_end(trunk.config, entry.config)


def plan(grid: Grid, folder: Path, cells: Sequence[Cell]) -> Plan:
    """Look at the folder and say what every cell still needs."""
    entries: list[Entry] = []
    for _, family in groupby(sorted(cells, key=family_key), family_key):
        entries += plan_family(grid, folder, list(family))
    order = {cell: number for number, cell in enumerate(cells)}
    return Plan(grid, folder, tuple(sorted(entries, key=lambda entry: order[entry.cell])))


def family_key(cell: Cell) -> tuple[str, int, int]:
    """Sort cells that differ only in budget next to each other."""
    return cell.method, cell.total or 0, cell.seed


def plan_family(grid: Grid, folder: Path, cells: list[Cell]) -> list[Entry]:
    """Plan the budgets of one method and seed. Runs that are there go on; the largest missing budget is the trunk."""
    relatives = [cell for cell in grid.cells() if cell.family == cells[0].family]
    begun = {c: folder / c.place for c in relatives if (folder / c.place / "config.json").exists()}
    entries = [entry_begun(cell, config_of(grid, cell), begun[cell]) for cell in cells if cell in begun]
    missing = sorted((cell for cell in cells if cell not in begun), key=lambda cell: -cell.budget)
    shares = grid.methods[cells[0].method].grows and not config_of(grid, cells[0]).growth.for_money
    coming = [entry for entry in entries if entry.status != "done"]
    for cell in missing:
        config = config_of(grid, cell)
        job = Job(folder / cell.place, dump(config), tuple(begun.values()) if shares else ())
        role: Role = "alone" if not shares or len(cells) == 1 else "trunk" if cell == missing[0] else "tail"
        entry = after_best(Entry(cell, config, job, role, "new", stored(job), end_of(config)), coming if shares else [])
        entries.append(entry)
        coming += [entry] if cell == missing[0] else []
    return entries


def after_best(entry: Entry, coming: Sequence[Entry]) -> Entry:
    """Let a new run wait for the run under way that will share most with it, if that is more than what is stored."""
    shared = [(shared_end(other.config, entry.config), other.job.folder) for other in coming]
    state, trunk = max(shared, default=(0, entry.job.folder))
    if state <= entry.begin:
        return entry
    sources = tuple(dict.fromkeys((*entry.job.sources, trunk)))
    return replace(entry, begin=state, job=replace(entry.job, sources=sources, after=trunk, state=state))


def entry_begun(cell: Cell, config: Config, folder: Path) -> Entry:
    """Plan a run whose folder is there: it goes on by itself, whatever it was made from."""
    run = Run.open(folder)
    changed = differences(whole(run.config()), dump(config))
    if changed:
        raise ValueError(
            f"{folder} holds a run with other settings: {changed[0]}. Move it away, or choose another --out."
        )
    steps, end = run.checkpoint_steps(), end_of(config)
    done = min(steps[-1], end) if steps else 0
    return Entry(cell, config, Job(folder, dump(config)), "alone", run.status(), done, end)


def stored(job: Job) -> int:
    """Return the latest stored state among the sources that a new run could start from; 0 = none."""
    return max((step for step, _ in usable(job)), default=0)


def usable(job: Job) -> list[tuple[int, Path]]:
    """Return, for each source that has one, the latest stored state it shares with the job."""
    config, found = from_json(job.config), []
    for source in job.sources:
        if (source / "config.json").exists():
            found += [(step, source) for step in shared_states(Run.open(source), config)[-1:]]
    return sorted(found)


def dump(config: Config) -> dict[str, Any]:
    """Return a config as it is stored."""
    return config.model_dump(mode="json")


def end_of(config: Config) -> int:
    """Return the last step of a run."""
    return config.growth.rounds(passive=config.passive)[-1].end

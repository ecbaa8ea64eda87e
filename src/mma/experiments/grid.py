"""A grid: a folder with grid.json and one run folder per method, total, budget and seed. It only ever grows."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mma.experiments.catalogue import suggestion
from mma.experiments.methods import Method
from mma.run import explained, write_whole
from mma.text import printable

FORMAT = 1
FILE = "grid.json"
FAILURES = "failures.json"


@dataclass(frozen=True, order=True)
class Cell:
    """Where a run stands in the grid."""

    method: str
    total: int | None  # images in the pool; None = what the base config says
    budget: int
    seed: int

    @property
    def family(self) -> tuple[str, int | None, int]:
        """Cells of one family differ only in budget."""
        return self.method, self.total, self.seed

    @property
    def place(self) -> Path:
        """The run's folder, below the grid's."""
        total = "" if self.total is None else f"total{self.total}-"
        return Path("runs") / slug(self.method) / f"{total}budget{self.budget}-seed{self.seed}"


class Closed(BaseModel):
    """Strict about types, closed to unknown names, frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Request(Closed):
    """What was asked for at one time: every combination of these."""

    methods: tuple[str, ...]
    totals: tuple[int | None, ...]
    budgets: tuple[int, ...]
    seeds: tuple[int, ...]


class Grid(Closed):
    """What grid.json says. `base` and `methods` are frozen when the grid begins; requests are added."""

    format: int = FORMAT
    experiment: str
    scale: str
    paper: str | None = None
    pool: int = Field(gt=0)  # images of the whole data set, for cells without a total of their own
    base: dict[str, Any]
    methods: dict[str, Method]
    only: dict[int, tuple[str, ...]] = Field(default_factory=dict)  # budgets that only some methods have
    requests: tuple[Request, ...]

    def cells(self, request: Request | None = None) -> list[Cell]:
        """Return the cells of one request, or of all, in the order of the tables."""
        asked = self.requests if request is None else (request,)
        found = {cell for one in asked for cell in self._product(one)}
        order = {name: number for number, name in enumerate(self.methods)}
        return sorted(found, key=lambda cell: (order[cell.method], cell.total or 0, cell.budget, cell.seed))

    def _product(self, request: Request) -> Iterator[Cell]:
        for method in request.methods:
            for total in request.totals:
                for budget in request.budgets:
                    if self._has(method, total, budget):
                        yield from (Cell(method, total, budget, seed) for seed in request.seeds)

    def _has(self, method: str, total: int | None, budget: int) -> bool:
        size = total or self.base["data"]["total"] or self.pool
        fits = {"always": budget <= size, "unlabeled": budget < size, "labeled": budget == size}
        return fits[self.methods[method].where] and method in self.only.get(budget, self.methods)

    def total_of(self, cell: Cell) -> int:
        """Return how many images a method can see: Supervised only its labeled ones."""
        if "algorithm=supervised" in self.methods[cell.method].settings:
            return cell.budget
        return int(cell.total or self.base["data"]["total"] or self.pool)


def slug(name: str) -> str:
    """Turn a method's name into a folder's; different names never share one."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in ".-=") else "-" for c in name).strip("-.")
    return plain if plain == name else f"{plain[:60]}-{blake2b(name.encode(), digest_size=3).hexdigest()}"


def read(folder: Path) -> Grid:
    """Open a grid, or say why the folder is none."""
    path = folder / FILE
    if not path.is_file():
        raise ValueError(
            f"{printable(str(folder))} is not a grid (it has no {FILE}). Start one with  mma grid EXPERIMENT --out DIR"
        )
    try:
        data = json.loads(path.read_text("utf-8"))
        found = data.get("format") if isinstance(data, dict) else None
        if isinstance(found, int) and found > FORMAT:
            raise ValueError(f"{folder} has grid format {found}; this mma reads up to {FORMAT}. Install a newer mma.")
        return Grid.model_validate_json(path.read_bytes())
    except (json.JSONDecodeError, UnicodeDecodeError, ValidationError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise ValueError(f"{path} is damaged ({reason}). Restore it from a copy.") from None


def merged(old: Grid, new: Grid, folder: Path) -> Grid:
    """Return the grid in `folder` with a new request added. What has begun is never changed under its name."""
    other = [name for name in ("experiment", "scale") if getattr(old, name) != getattr(new, name)]
    if other:
        raise ValueError(
            f"{folder} holds the grid {old.experiment} at scale {old.scale}, not {new.experiment} at {new.scale}. "
            "Choose another --out."
        )
    changed = differences(whole(old.base), new.base) + [
        f"method {name}" for name in new.methods if name in old.methods and new.methods[name] != old.methods[name]
    ]
    if changed:
        raise ValueError(
            f"{folder} was begun with other settings: {'; '.join(changed[:3])}. Its runs would not be comparable with "
            f"new ones. Go on as it was with  mma grid {folder}  or choose another --out."
        )
    request = new.requests[0]
    requests = old.requests if request in old.requests else (*old.requests, request)
    methods, only = {**old.methods, **new.methods}, {**old.only, **new.only}
    return old.model_copy(update={"methods": methods, "only": only, "requests": requests})


def whole(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored config with the settings that were added since, at the values that change nothing."""
    from mma.config import from_json  # loads torch, which a report can do without

    return from_json(dict(config)).model_dump(mode="json")


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Name the settings that differ. `growth.budgets` may: it only says which states are kept.

    Compare configs that were read (`from_json`): a setting that came later then stands at its default in both.
    """
    found: list[str] = []
    for key in sorted({*old, *new}):
        path, a, b = f"{prefix}{key}", old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            found += differences(a, b, f"{path}.")
        elif a != b and path != "growth.budgets":
            found.append(f"{path} was {json.dumps(a)} and is {json.dumps(b)}")
    return found


def write(folder: Path, grid: Grid) -> None:
    """Store grid.json, whole or not at all."""
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / FILE, grid.model_dump_json(indent=1) + "\n")


def adopt(folder: Path, new: Grid) -> Grid:
    """Make the grid in `folder`, or add the new request to the one that is there. The caller holds the lock."""
    if (folder / FILE).exists():
        grid = merged(read(folder), new, folder)
    elif folder.exists() and {path.name for path in folder.iterdir()} - {"lock", f".{FILE}.tmp"}:
        raise ValueError(f"{printable(str(folder))} is not empty and not a grid. Choose another --out.")
    else:
        grid = new
    write(folder, grid)
    return grid


def chosen(given: Sequence[str] | None, methods: Mapping[str, Method], experiment: str) -> tuple[str, ...]:
    """Return the methods to run: those named, or all."""
    for name in given or ():
        if name not in methods:
            hint = suggestion(name, list(methods))
            raise ValueError(f"{experiment} has no method '{printable(name)}'.{hint} It has: {', '.join(methods)}.")
    return tuple(methods) if not given else tuple(name for name in methods if name in given)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the grid for this process. The lock dies with the process, so it is never stale."""
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("a+")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise ValueError(
                f"{folder} is being worked on by another mma grid (process {file.read().strip() or 'unknown'}). "
                "Wait for it, or stop it."
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def read_failures(folder: Path) -> dict[str, str]:
    """Return why runs failed, by their place in the grid."""
    path = folder / FAILURES
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}). Delete it: it only says why runs failed.") from None
    return {str(place): str(why) for place, why in found.items()} if isinstance(found, dict) else {}


def write_failures(folder: Path, failures: Mapping[str, str]) -> None:
    """Remember why runs failed; no failures, no file."""
    path = folder / FAILURES
    if failures:
        write_whole(path, json.dumps(dict(sorted(failures.items())), indent=1) + "\n")
    else:
        path.unlink(missing_ok=True)

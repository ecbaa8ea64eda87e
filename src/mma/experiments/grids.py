"""A grid: methods by totals, budgets and seeds. Its folder holds grid.json, a run folder per cell, failures and a lock."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from mma.errors import UserError
from mma.experiments.methods import Method
from mma.files import explain_write_errors, write_atomically
from mma.files import locked as lock_file
from mma.settings import Settings
from mma.text import printable

FORMAT = 2


@dataclass(frozen=True, order=True)
class GridCell:
    """The place of one run in the grid."""

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
        """The run's folder, relative to the grid's."""
        total = "" if self.total is None else f"total{self.total}-"
        return Path("runs") / slug(self.method) / f"{total}budget{self.budget}-seed{self.seed}"

    def __str__(self) -> str:
        total = "" if self.total is None else f"{self.total:,} images, "
        return f"{self.method}, {total}{self.budget:,} labels, seed {self.seed}"


class Request(Settings):
    """What one command asked for: every combination of these."""

    methods: tuple[str, ...]
    totals: tuple[int | None, ...]
    budgets: tuple[int, ...]
    seeds: tuple[int, ...]


class Grid(Settings):
    """The content of grid.json. `base` and `methods` are frozen when the grid begins; requests are added."""

    format: int = FORMAT
    experiment: str
    scale: str
    paper: str | None = None
    pool: int = Field(gt=0)  # images of the whole data set, for cells without a total of their own
    base: dict[str, Any]
    methods: dict[str, Method]
    only: dict[int, tuple[str, ...]] = Field(default_factory=dict)  # budgets that only some methods have
    requests: tuple[Request, ...]

    def cells(self, request: Request | None = None) -> list[GridCell]:
        """Return the cells of one request, or of all, in the order of the tables."""
        requests = self.requests if request is None else (request,)
        chosen = {
            GridCell(method, total, budget, seed)
            for one in requests
            for method, total, budget, seed in product(one.methods, one.totals, one.budgets, one.seeds)
            if method in self.only.get(budget, self.methods) and self._fits(method, total, budget)
        }
        order = {name: number for number, name in enumerate(self.methods)}
        return sorted(chosen, key=lambda cell: (order[cell.method], cell.total or 0, cell.budget, cell.seed))

    def _fits(self, method: str, total: int | None, budget: int) -> bool:
        size, where = self._size(total), self.methods[method].where
        return {"always": budget <= size, "unlabeled": budget < size, "labeled": budget == size}[where]

    def _size(self, total: int | None) -> int:
        return int(total or self.base["data"]["total"] or self.pool)

    def total_of(self, cell: GridCell) -> int:
        """Return how many images a method can use: a supervised one only its labeled images."""
        return cell.budget if self.methods[cell.method].supervised else self._size(cell.total)


def slug(name: str) -> str:
    """Turn a method's name into a folder's; different names never share one."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in ".-=") else "-" for c in name).strip("-.")
    return plain if plain == name else f"{plain[:60]}-{blake2b(name.encode(), digest_size=3).hexdigest()}"


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Name the settings that differ. `growth.budgets` may: it only says which states are kept."""
    found: list[str] = []
    for key in sorted({*old, *new} - {"format"}):
        path, a, b = f"{prefix}{key}", old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            found += differences(a, b, f"{path}.")
        elif a != b and path != "growth.budgets":
            found.append(f"{path} was {json.dumps(a)} and is {json.dumps(b)}")
    return found


def compare_algorithms(configs: Iterable[Mapping[str, Any]]) -> str:
    """Say in which settings the algorithms of some configs differ; nothing where there is one algorithm."""
    algorithms = {config["algorithm"]["name"]: config["algorithm"] for config in configs}
    if len(algorithms) < 2:
        return ""
    names = dict.fromkeys(name for each in algorithms.values() for name in each if name != "name")
    unlike = [name for name in names if len({json.dumps(each.get(name)) for each in algorithms.values()}) > 1]
    said = [f"{title} {', '.join(f'{n}={a[n]}' for n in unlike if n in a) or '-'}" for title, a in algorithms.items()]
    return (
        f"Settings that differ between algorithms: {'; '.join(said)}."
        if unlike
        else "All algorithms have equal settings."
    )


def refuse_changes(where: Path, changes: list[str]) -> None:
    """Refuse settings that differ from those a grid or a run began with: the runs would not be comparable."""
    if changes:
        raise UserError(
            f"{where} was begun with other settings: {'; '.join(changes[:3])}. Its runs would not be comparable with new "
            "ones. Choose another --out, or leave the settings as they were."
        )


FILE = "grid.json"
FAILURES = "failures.json"
COMMANDS = "commands.txt"


def read(folder: Path) -> Grid:
    """Open a grid, or say why the folder is none."""
    path = folder / FILE
    if not path.is_file():
        raise UserError(
            f"{printable(str(folder))} is not a grid (it has no {FILE}). Start one with  mma grid EXPERIMENT --out DIR"
        )
    try:
        return from_json(json.loads(path.read_text("utf-8")), str(folder))
    except (json.JSONDecodeError, UnicodeDecodeError, ValidationError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise UserError(f"{path} is damaged ({reason}). Restore it from a copy.") from None


def from_json(data: object, where: str) -> Grid:
    """Read a grid from what its file holds, or say that it has another format."""
    found = data.get("format") if isinstance(data, dict) else None
    if isinstance(found, int) and found != FORMAT:
        raise UserError(
            f"{where} has grid format {found}; this mma reads format {FORMAT}. Use the version that made it, "
            "or start again in another --out."
        )
    return Grid.model_validate_json(json.dumps(data))


def merge(old: Grid, new: Grid, folder: Path) -> Grid:
    """Return the grid in `folder` with a new request added. What has begun never changes."""
    if (old.experiment, old.scale) != (new.experiment, new.scale):
        raise UserError(
            f"{folder} holds the grid {old.experiment} at scale {old.scale}, not {new.experiment} at {new.scale}. "
            "Choose another --out."
        )
    common = [name for name in new.methods if name in old.methods]
    changed = [f"method {name}" for name in common if new.methods[name] != old.methods[name]]
    refuse_changes(folder, differences(old.base, new.base) + changed)
    requests = tuple(dict.fromkeys((*old.requests, *new.requests)))
    methods, only = {**old.methods, **new.methods}, {**old.only, **new.only}
    return old.model_copy(update={"methods": methods, "only": only, "requests": requests})


def create_or_extend(folder: Path, new: Grid) -> Grid:
    """Make the grid in `folder`, or add the new request to the one that is there. The caller holds the lock."""
    if (folder / FILE).exists():
        grid = merge(read(folder), new, folder)
    elif folder.exists() and {path.name for path in folder.iterdir()} - {"lock", f".{FILE}.tmp"}:
        raise UserError(f"{printable(str(folder))} is not empty and not a grid. Choose another --out.")
    else:
        grid = new
    with explain_write_errors(folder, f"mma grid {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / FILE, grid.model_dump_json(indent=1) + "\n")
    return grid


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the grid for this process. The lock dies with the process, so it is never stale."""
    with explain_write_errors(folder, f"mma grid {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "lock").touch()  # says why when we may not write here
    with lock_file(folder / "lock", f"{folder} is in use by another mma grid. Wait for it, or stop it."):
        yield


def read_failures(folder: Path) -> dict[str, str]:
    """Return why runs failed, by their place in the grid."""
    path = folder / FAILURES
    try:
        found = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is damaged ({error}). Delete it: it only says why runs failed.") from None
    return {str(place): str(why) for place, why in found.items()} if isinstance(found, dict) else {}


def write_failures(folder: Path, failures: Mapping[str, str]) -> None:
    """Store why runs failed; without failures there is no file."""
    if failures:
        write_atomically(folder / FAILURES, json.dumps(dict(sorted(failures.items())), indent=1) + "\n")
    else:
        (folder / FAILURES).unlink(missing_ok=True)


def read_commands(folder: Path) -> list[str]:
    """Return the commands that worked on a grid."""
    path = folder / COMMANDS
    return path.read_text("utf-8").splitlines() if path.is_file() else []

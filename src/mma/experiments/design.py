"""What a grid is: methods by totals, budgets and seeds. It says which runs there are and where each of them lies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pydantic import Field

from mma.experiments.methods import Method
from mma.settings import Settings

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
        found = {cell for one in requests for cell in self._product(one)}
        order = {name: number for number, name in enumerate(self.methods)}
        return sorted(found, key=lambda cell: (order[cell.method], cell.total or 0, cell.budget, cell.seed))

    def _product(self, request: Request) -> Iterator[GridCell]:
        for method in request.methods:
            for total in request.totals:
                for budget in request.budgets:
                    if self._has(method, total, budget):
                        yield from (GridCell(method, total, budget, seed) for seed in request.seeds)

    def _has(self, method: str, total: int | None, budget: int) -> bool:
        size = total or self.base["data"]["total"] or self.pool
        fits = {"always": budget <= size, "unlabeled": budget < size, "labeled": budget == size}
        return fits[self.methods[method].where] and method in self.only.get(budget, self.methods)

    def total_of(self, cell: GridCell) -> int:
        """Return how many images a method can use: a supervised one only its labeled images."""
        if self.methods[cell.method].supervised:
            return cell.budget
        return int(cell.total or self.base["data"]["total"] or self.pool)


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


def refuse_changes(where: Path, changes: list[str]) -> None:
    """Refuse settings that differ from those a grid or a run began with: the runs would not be comparable."""
    if changes:
        raise ValueError(
            f"{where} was begun with other settings: {'; '.join(changes[:3])}. Its runs would not be comparable with new "
            "ones. Choose another --out, or leave the settings as they were."
        )

"""A tiny grid on real digits, trained once per session, and the pieces to make others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mma.experiments import grids
from mma.experiments.engines import ENGINES, EngineOptions, TrainingOptions, finish, train_all
from mma.experiments.grids import Grid
from mma.experiments.options import GridOptions, grid_from_options, read_axes
from mma.experiments.plan import plan


@pytest.fixture
def small(tiny_settings: list[str]) -> Callable[..., Grid]:
    """A grid whose runs take a fifth of a second: methods by name, axes as for --axis, more settings as for --set."""

    def make(methods: str, *axes: str, settings: Sequence[str] = ()) -> Grid:
        return grid_from_options(
            GridOptions("digits", read_axes(axes), [*tiny_settings, *settings], methods=named(methods))
        )

    return make


def named(methods: str) -> dict[str, dict[str, object]]:
    """Settings of methods by name: MixMatch is passive, every other name is a query."""
    return {
        name: {"growth.policy": "passive"} if name == "MixMatch" else {"query": name} for name in methods.split(",")
    }


@pytest.fixture
def settings(tiny_settings: list[str]) -> list[str]:
    """The settings of such runs, as words of a command line."""
    return [word for setting in tiny_settings for word in ("--set", setting)]


def here(grid: Grid, folder: Path) -> Grid:
    """Train everything that is missing in this very process, trunks before tails."""
    grid = grids.create_or_extend(folder, grid)
    for run in plan(grid, folder).todo:
        finish(run.task, TrainingOptions())
    return grid


@pytest.fixture
def train_here() -> Callable[[Grid, Path], Grid]:
    return here


@pytest.fixture
def train_with() -> Callable[..., dict[Path, str]]:
    """Train with an engine; returns why runs failed."""

    def train(grid: Grid, folder: Path) -> dict[Path, str]:
        failed: dict[Path, str] = {}
        todo = plan(grids.create_or_extend(folder, grid), folder).todo
        train_all(
            [run.task for run in todo],
            ENGINES["local"](EngineOptions(workers=2)),
            on_end=lambda place, why: failed.update({place: why}) if why else None,
        )
        return failed

    return train


@pytest.fixture(scope="session")
def finished(tmp_path_factory, tiny_settings) -> Path:
    """A finished grid: three methods, two budgets, three seeds."""
    folder = tmp_path_factory.mktemp("grids") / "finished"
    axes = {"growth.budget": [15, 20], "seed": "1..3"}
    here(
        grid_from_options(
            GridOptions("digits", axes, tiny_settings, methods=named("MixMatch,random,diff2.aug-direct"))
        ),
        folder,
    )
    return folder


def run_files(folder: Path) -> dict[str, bytes]:
    """Every byte of every run that may not differ: all but clock values, locks, and states only a trunk passed by."""
    found: dict[str, bytes] = {}
    for run in sorted((folder / "runs").glob("*/*")):
        last = max((run / "checkpoints").glob("*.safetensors"))
        names = (
            "config.json",
            "host.json",
            "queries.jsonl",
            "labels.jsonl",
            "metrics.jsonl",
            f"checkpoints/{last.name}",
        )
        found |= {f"{run.relative_to(folder)}/{name}": (run / name).read_bytes() for name in names}
    return found


@pytest.fixture
def bytes_of() -> Callable[[Path], dict[str, bytes]]:
    return run_files

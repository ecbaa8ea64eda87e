"""Many runs: train them, compare them, show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mma.experiments.report.results import Results


def grid(
    target: str,
    *,
    axes: Mapping[str, str | int | Iterable[object]] | None = None,
    methods: str | Iterable[str] | Mapping[str, Mapping[str, object]] | None = None,
    settings: Mapping[str, object] | Sequence[str] = (),
    seeds: int | str | Iterable[int] | None = None,
    budgets: int | str | Iterable[int] | None = None,
    scale: str | None = None,
    features: str | None = None,
    out: str | Path | None = None,
    workers: int | None = None,
    engine: str = "local",
    device: str | None = None,
    threads: int = 1,
    inexact: bool = False,
    ray_address: str | None = None,
    ray_cpus: float = 1.0,
    ray_gpus: float = 0.0,
    ray_retries: int = 10,
    progress: bool = True,
) -> Results:
    """Train many runs and return what they reached. Called again, it goes on where it was, or does nothing.

    `target` is an experiment of the catalogue ("digits"), a preset with `axes` or named `methods`, or a grid folder:

        found = mma.grid("digits", axes={"query": ["random", "diff2.aug-direct"]}, seeds=3, out="grids/x", workers=2)
        found = mma.grid("digits", methods={"A": {"optim.lr": 0.002}, "B": {"optim.lr": 0.004}}, out="grids/rates")
        print(found.table(), found.statistics())
        found.plot("curves.svg", "learning-curves")

    `features` names a backbone: the paper's table on its features. `settings` change all runs. A run that fails stops no
    other; its row has the status "failed" and a note.
    """
    from mma.children import cores
    from mma.experiments.engines import EngineOptions
    from mma.experiments.options import GridOptions
    from mma.experiments.progress import GridProgress, PlainProgress
    from mma.experiments.run import find_or_open, train_missing, write_report
    from mma.experiments.worker import TrainingOptions

    wanted = GridOptions(target, axes or {}, settings or (), seeds, methods, budgets, scale, features)
    new, folder = find_or_open(wanted, None if out is None else Path(out))
    training = TrainingOptions(device, threads, inexact)
    options = EngineOptions(training, workers or cores(), ray_address, ray_cpus, ray_gpus, ray_retries)
    train_missing(new, folder, engine, options, PlainProgress() if progress else GridProgress())
    return write_report(folder)

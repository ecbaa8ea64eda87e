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

    A run that fails stops no other; its row has the status "failed" and a note.

    Parameters
    ----------
    target : str
        An experiment of the catalogue ("digits"), a preset with `axes` or `methods`, or a grid folder.
    axes : mapping, optional
        Setting -> values; every combination is a row, for example {"query": ["random", "auto"]}.
    methods : mapping, optional
        Name of a row -> its settings, for example {"A": {"optim.lr": 0.002}}; or names of the experiment's rows.
    settings, seeds, budgets : optional
        Settings of all runs; a number of seeds or seeds ("1..5"); label budgets.
    scale, features : str, optional
        An experiment's scale, and a backbone: the paper's table on its features.
    out, progress : optional
        The grid's folder (default: grids/NAME), and whether to print what happens (default: True).
    workers, device, threads, inexact : optional
        Processes (default: the cores there are); device, threads and inexact as in `train`, for each.
    engine, ray_address, ray_cpus, ray_gpus, ray_retries : optional
        "local" (the default) or "ray", its address, what a task takes and how often it is tried.

    Returns
    -------
    Results
        With table(), statistics(), differences(), plot(path, kind) and rows.

    Examples
    --------
    >>> rows = {"slow": {"optim.lr": 0.001}, "fast": {"optim.lr": 0.004}}
    >>> found = mma.grid("digits", methods=rows, settings=tiny, seeds=1, workers=1, progress=False)
    >>> len(found.runs)
    2
    """
    from mma.children import cores
    from mma.experiments.engines import EngineOptions, TrainingOptions
    from mma.experiments.options import GridOptions
    from mma.experiments.progress import GridProgress
    from mma.experiments.run import find_or_open, train_missing, write_report

    wanted = GridOptions(target, axes or {}, settings or (), seeds, methods, budgets, scale, features)
    new, folder = find_or_open(wanted, None if out is None else Path(out))
    training = TrainingOptions(device, threads, inexact)
    options = EngineOptions(training, workers or cores(), ray_address, ray_cpus, ray_gpus, ray_retries)
    train_missing(new, folder, engine, options, GridProgress(quiet=not progress))
    return write_report(folder)

"""A small comparison: several methods, several seeds, one table and one plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mma.config import Config, change, from_json
from mma.run import Run


@dataclass(frozen=True)
class Outcome:
    """What one method reached: one accuracy per seed."""

    method: str
    labels: int
    accuracies: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return float(np.mean(self.accuracies))

    @property
    def std(self) -> float:
        """Standard deviation over seeds (of the sample, so it needs two)."""
        return float(np.std(self.accuracies, ddof=1)) if len(self.accuracies) > 1 else float("nan")


def prepare(
    base: Config, methods: Mapping[str, Sequence[str]], seeds: Sequence[int], out: Path
) -> dict[str, list[Run]]:
    """Make (or find again) one run folder per method and seed. Same seed, same start set, weights and batch order."""
    return {
        method: [at(out / slug(method) / f"seed{seed}", change(base, [*settings, f"seed={seed}"])) for seed in seeds]
        for method, settings in methods.items()
    }


def at(folder: Path, config: Config) -> Run:
    """Open the run in `folder` if it is this very run; make it if there is none."""
    if not (folder / "config.json").exists():
        return Run.create(folder, config.model_dump(mode="json"))
    run = Run.open(folder)
    if from_json(run.config()) != config:
        raise ValueError(f"{folder} holds a run with other settings. Choose another --out, or remove the folder.")
    return run


def slug(method: str) -> str:
    """Turn a method's name into a folder's."""
    return "".join(c if c.isalnum() or c in ".-" else "-" for c in method.lower()).strip("-")


def outcomes(runs: Mapping[str, Sequence[Run]]) -> list[Outcome]:
    """Read what every method reached."""
    found = []
    for method, each in runs.items():
        results = [run.result() for run in each]
        labels = max(run.summary()["labels"] for run in each)
        found.append(Outcome(method, labels, tuple(result[0] for result in results if result)))
    return found


def curves(runs: Sequence[Run]) -> tuple[np.ndarray, np.ndarray]:
    """Return steps (T,) and accuracies (seeds, T) of runs of one method."""
    rows = [run.read("metrics") for run in runs]
    count = min(len(each) for each in rows)
    steps = np.array([row["step"] for row in rows[0][:count]])
    return steps, np.array([[row["accuracy"] for row in each[:count]] for each in rows])

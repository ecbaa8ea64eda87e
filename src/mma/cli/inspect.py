"""`mma show`, `eval`, `query`, `runs`: look at presets and runs. Nothing is changed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mma.cli.train import Json, Settings

if TYPE_CHECKING:
    from mma.config import Config
    from mma.train.job import Job

RunFolder = Annotated[Path, typer.Argument(help="A run folder.")]


def show(
    name: Annotated[str, typer.Argument(metavar="PRESET", help="A preset or a run folder.")], settings: Settings = None
) -> None:
    """Print a preset's (or a run's) whole config as JSON."""
    print(described(name, settings or []).model_dump_json(indent=2))


def described(name: str, settings: list[str]) -> Config:
    """Return the config of a preset or a run, with some settings changed."""
    from mma.config import change, from_json
    from mma.presets import PRESETS, preset
    from mma.run import Run

    is_run = name not in PRESETS and Path(name).exists()
    config = from_json(Run.open(Path(name)).config()) if is_run else preset(name)
    return change(config, settings)


def flop(
    name: Annotated[str, typer.Argument(metavar="PRESET", help="A preset or a run folder.")],
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Count the floating-point operations of a preset or a run: one image, one step, the whole."""
    from dataclasses import asdict

    from mma.experiments.flops import flop as count

    found = count(described(name, settings or []))
    if as_json:
        print(json.dumps({**asdict(found), "total": found.total}))
        return
    lines = {
        "forward of one image": found.image,
        "training step": found.step,
        "all training steps": found.training,
        "evaluations": found.evaluating,
        "queries": found.asking,
        "the whole run": found.total,
    }
    for what, count_ in lines.items():
        print(f"{count_:9.2e} FLOP  {what}")


def opened(folder: Path) -> Job:
    """Bring a run's latest state into memory, changing nothing."""
    from mma.run import Run
    from mma.train.job import look_at

    return look_at(Run.open(folder))


def evaluate(folder: RunFolder, as_json: Json = False) -> None:
    """Test a run's latest model: accuracy in all and per class."""
    import numpy as np

    from mma.train.evaluate import percent_correct, probabilities
    from mma.train.stream import seen

    job = opened(folder)
    labels = job.data.test.labels
    known = np.flatnonzero(labels >= 0)
    if not len(known):
        raise ValueError(f"{job.data.name} has no labeled test images, so there is nothing to test on.")
    test = seen(job.test, job.config, job.state.step - 1)  # of the size it was trained with
    probs, truth = probabilities(job.state.teacher, test, known), labels[known]
    each = {
        c: percent_correct(probs[truth == k], truth[truth == k])
        for k, c in enumerate(job.data.test.classes)
        if (truth == k).any()
    }
    found = {
        "run": str(folder),
        "step": job.state.step,
        "images": len(known),
        "accuracy": percent_correct(probs, truth),
        "per_class": each,
    }
    if as_json:
        print(json.dumps(found))
        return
    from mma.text import printable

    print(f"{folder}, step {job.state.step:,}: {found['accuracy']:.2f} % of {len(known):,} test images")
    for name, value in each.items():
        print(f"  {value:6.2f} %  {printable(name)}")


def query(
    folder: RunFolder,
    n: Annotated[int, typer.Option("--n", min=1, help="How many images.")] = 10,
    strategy: Annotated[str | None, typer.Option("--strategy", help="Default: the run's own.")] = None,
    as_json: Json = False,
) -> None:
    """Print which unlabeled images the run's latest model would ask about, and their scores."""
    from mma.query import Query
    from mma.rng import rng
    from mma.train.ask import free_images, look

    job = opened(folder)
    chosen = Query.parse(strategy or ("random" if job.config.passive else job.config.query))
    free = free_images(job)
    if not len(free):
        raise ValueError(
            f"every image of {job.data.name} has a label or was asked about, so there is nothing to choose from."
        )
    found = look(job, free, chosen, job.state.step)
    picked = chosen.selection(found, n, rng(job.config.seed, "look", job.state.step))
    names = job.data.train.names
    rows = [
        {"index": int(i), "score": float(s), **({"name": names[i]} if names else {})}
        for i, s in zip(picked.index, picked.scores, strict=True)
    ]
    if as_json:
        print(json.dumps({"run": str(folder), "step": job.state.step, "strategy": str(chosen), "picks": rows}))
        return
    from mma.text import printable

    print("index\tscore" + ("\tname" if names else ""))
    for row in rows:
        print(f"{row['index']}\t{row['score']:.6g}" + (f"\t{printable(row['name'])}" if names else ""))


def runs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to look for runs.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List the runs below a folder, with their status."""
    from mma.run import Run

    found = [Run.open(path.parent) for path in sorted(folder.rglob("config.json"))] if folder.is_dir() else []
    if not found:
        raise ValueError(f"no runs below {folder}. Start one with  mma train digits")
    rows = [run.summary() for run in found]
    if as_json:
        print(json.dumps(rows))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        "run", "algorithm", "query", "seed", "labels", "step", "status", "accuracy", box=None, header_style="bold"
    )
    for row in rows:
        done = "-" if row["accuracy"] is None else f"{row['accuracy']:.2f}"
        cells = (
            row["algorithm"],
            row["query"],
            str(row["seed"]),
            str(row["labels"]),
            f"{row['step']:,}/{row['steps']:,}",
        )
        table.add_row(escape(row["run"]), *cells, row["status"] + (" (running)" if row["busy"] else ""), done)
    Console(width=None if sys.stdout.isatty() else 200).print(table)

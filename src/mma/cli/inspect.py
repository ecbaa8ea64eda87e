"""`mma show`, `eval`, `query`, `runs`: look at presets and runs. Nothing is changed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mma.cli.train import Json, Settings
from mma.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mma.config import Config
    from mma.query import Query
    from mma.run import Row
    from mma.training.job import Job

RunFolder = Annotated[Path, typer.Argument(help="A run folder.")]
# What `Run.summary` says of a run.
SUMMARY = (
    *("run", "preset", "algorithm", "query", "seed", "labels"),
    *("step", "steps", "status", "busy", "accuracy"),
)


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
    from mma.training.job import look_at

    return look_at(Run.open(folder))


def evaluate(folder: RunFolder, as_json: Json = False) -> None:
    """Test a run's latest model: accuracy in all and per class."""
    job = opened(folder)
    found = {"run": str(folder), "step": job.state.step, **tested(job)}
    if as_json:
        print(json.dumps(found))
        return
    print(f"{folder}, step {found['step']:,}: {found['accuracy']:.2f} % of {found['images']:,} test images")
    for name, value in found["per_class"].items():
        print(f"  {value:6.2f} %  {printable(name)}")


def tested(job: Job) -> dict[str, Any]:
    """Return how many test images have a label, and the accuracy on them in all and per class."""
    import numpy as np

    from mma.training.evaluate import percent_correct, probabilities
    from mma.training.stream import seen

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
    return {"images": len(known), "accuracy": percent_correct(probs, truth), "per_class": each}


def query(
    folder: RunFolder,
    n: Annotated[int, typer.Option("--n", min=1, help="How many images.")] = 10,
    strategy: Annotated[str | None, typer.Option("--strategy", help="Default: the run's own.")] = None,
    as_json: Json = False,
) -> None:
    """Print which unlabeled images the run's latest model would ask about, and their scores."""
    from mma.query import Query

    job = opened(folder)
    chosen = Query.parse(strategy or ("random" if job.config.passive else job.config.query))
    rows = picks(job, chosen, n)
    if as_json:
        print(json.dumps({"run": str(folder), "step": job.state.step, "strategy": str(chosen), "picks": rows}))
        return
    named = bool(job.data.train.names)
    print("index\tscore" + ("\tname" if named else ""))
    for row in rows:
        print(f"{row['index']}\t{row['score']:.6g}" + (f"\t{printable(row['name'])}" if named else ""))


def picks(job: Job, chosen: Query, n: int) -> list[dict[str, Any]]:
    """Return the images that a query would choose by now: number, score, and name where images have one."""
    from mma.rng import rng
    from mma.training.ask import free_images, look

    free = free_images(job)
    if not len(free):
        raise ValueError(
            f"every image of {job.data.name} has a label or was asked about, so there is nothing to choose from."
        )
    found = look(job, free, chosen, job.state.step)
    picked = chosen.selection(found, n, rng(job.config.seed, "look", job.state.step))
    names = job.data.train.names
    return [
        {"index": int(i), "score": float(s), **({"name": names[i]} if names else {})}
        for i, s in zip(picked.index, picked.scores, strict=True)
    ]


def runs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to look for runs.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List the runs below a folder, with their status."""
    found = (
        [path.parent for path in sorted(folder.rglob("config.json")) if may_be_a_run(path)] if folder.is_dir() else []
    )
    if not found:
        raise ValueError(f"no runs below {folder}. Start one with  mma train digits")
    rows = [summarised(place) for place in found]
    if as_json:
        print(json.dumps(rows))
    else:
        show_runs(rows)


def may_be_a_run(path: Path) -> bool:
    """Tell whether a config.json could be a run's, as a damaged one could: other programs have files of that name too."""
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return path.is_file()
    return isinstance(config, dict) and isinstance(config.get("format"), int)


def summarised(place: Path) -> Row:
    """Return what the table shows of one run; of one that cannot be read, that it is there, and say why on stderr."""
    from mma.run import Run

    try:
        return Run.open(place).summary()
    except Exception as error:  # whatever is wrong with one run, the others are listed
        why = str(error) if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: {error}"
        print(f"unreadable: {place}: {printable(' '.join(why.split()))}", file=sys.stderr)
        return {**dict.fromkeys(SUMMARY), "run": str(place), "status": "unreadable", "busy": False}


def show_runs(rows: Sequence[Row]) -> None:
    """Print one line per run."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    heading = ("run", "algorithm", "query", "seed", "labels", "step", "status", "accuracy")
    table = Table(*heading, box=None, header_style="bold")
    for row in rows:
        known = [row["algorithm"], row["query"], row["seed"], row["labels"]]
        cells = ["-" if value is None else str(value) for value in known]
        far = "-" if row["step"] is None else f"{row['step']:,}/{row['steps']:,}"
        done = "-" if row["accuracy"] is None else f"{row['accuracy']:.2f}"
        table.add_row(escape(row["run"]), *cells, far, row["status"] + (" (running)" if row["busy"] else ""), done)
    Console(width=None if sys.stdout.isatty() else 200).print(table)

"""The run folder: paths, append-only logs, and what state they say the run is in. One writer per file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, Literal

from pydantic import ValidationError

from mma.errors import UserError
from mma.files import (
    Row,
    append_lines,
    cut_lines,
    explain_write_errors,
    is_locked,
    locked,
    read_json,
    read_lines,
    write_atomically,
)
from mma.growth import Growth, Round
from mma.settings import explain

FORMAT = 2
Status = Literal["new", "training", "waiting", "done"]
HELD_OUT = "held-out"  # the strategy of a query for labels to measure by, not to train with
# The logs that are compared byte for byte between runs, with what every row of them must hold.
LOGS: dict[str, dict[str, type]] = {
    "queries": {"round": int, "step": int, "strategy": str, "indices": list, "keys": list, "scores": list},
    "labels": {"round": int, "index": int, "key": str, "label": int},
    "purchases": {"round": int, "step": int, "labels": int, "images": int, "had": dict},
    "guesses": {"index": int, "key": str, "probs": dict},  # of another model, where the run starts from one
    "starts": {"round": int, "step": int},  # how a network started from the labels, where it does
    "metrics": {"step": int, "round": int, "labels": int, "loss": dict},
}
TIMINGS: dict[str, type] = {"step": int}  # clock values, in a file of their own


@dataclass(frozen=True)
class Run:
    """A folder that holds one run. Whatever is known about the run is read from it, never kept beside it.

    Examples
    --------
    >>> run = mma.Run.open("runs/digits")
    >>> run.status()
    'done'
    """

    folder: Path

    @classmethod
    def create(
        cls, folder: Path, config: Mapping[str, Any], logs: Mapping[str, Sequence[Row]] = MappingProxyType({})
    ) -> Run:
        """Make a new run folder, perhaps with rows in its logs. It is a run from the moment config.json is there."""
        check_vacant(folder)
        run = cls(folder)
        with run.explain_errors():
            (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
            for log, rows in logs.items():
                append_lines(run.path(log), rows)
            write_atomically(folder / "config.json", json.dumps({"format": FORMAT, **config}, indent=2) + "\n")
        return run

    @classmethod
    def open(cls, folder: Path | str) -> Run:
        """Open an existing run, or say why it is none."""
        folder = Path(folder)
        if not (folder / "config.json").is_file():
            raise UserError(f"{folder} is not a run (it has no config.json).   mma runs DIR  lists the runs below DIR.")
        run = cls(folder)
        found = run.config().get("format")
        if found != FORMAT:
            newer = isinstance(found, int) and found > FORMAT
            remedy = "Install a newer mma." if newer else "Start a new run:  mma train PRESET --out NEW"
            raise UserError(f"{folder} has run format {found}, and this mma reads format {FORMAT}. {remedy}")
        return run

    def config(self) -> Row:
        """Return config.json as it is on disk; `mma.config` gives it meaning."""
        return read_json(self.folder / "config.json")

    def host(self) -> Row | None:
        """Return host.json: what the numbers depend on beside the config. None before the first step."""
        path = self.folder / "host.json"
        return read_json(path) if path.exists() else None

    def write_host(self, host: Row) -> None:
        """Write host.json."""
        with self.explain_errors():
            write_atomically(self.folder / "host.json", json.dumps(host, indent=2) + "\n")

    def growth(self) -> Growth:
        """Return the growth settings alone: enough to know the rounds without loading torch."""
        try:
            return Growth.model_validate_json(json.dumps(self.config().get("growth")))
        except ValidationError as error:
            raise UserError(f"{self.folder}/config.json: growth: {explain(error)}. Restore it from a copy.") from None

    def explain_errors(self) -> Any:
        """Return a context that turns a failed write into a sentence."""
        return explain_write_errors(self.folder, f"mma train {self.folder}")

    # Logs

    def path(self, log: str) -> Path:
        """Return the path of one of the append-only files."""
        return self.folder / f"{log}.jsonl"

    def read(self, log: str) -> list[Row]:
        """Return the whole rows of a log. A torn last row (killed while writing) is not a row."""
        path, kind = self.path(log), LOGS.get(log, TIMINGS)
        rows = read_lines(path)
        for number, row in enumerate(rows, 1):
            for name, column in kind.items():
                if not isinstance(row.get(name), column) or isinstance(row.get(name), bool):
                    raise UserError(
                        f"{path}: line {number} has no {name} of type {column.__name__}. Restore the file from a copy."
                    )
        return rows

    def append(self, log: str, rows: Sequence[Row] | Callable[[], Sequence[Row]]) -> None:
        """Append rows; they are on disk when this returns.

        A function that makes the rows is called once, also where several processes train the run: by the one that writes.
        """
        with self.explain_errors():
            append_lines(self.path(log), rows() if callable(rows) else rows)

    def cut(self, log: str, keep: Callable[[Row], bool]) -> None:
        """Drop the rows from the first that is not kept on, and a torn last one."""
        count = next((number for number, row in enumerate(self.read(log)) if not keep(row)), None)
        with self.explain_errors():
            cut_lines(self.path(log), count)

    # Stored states

    def checkpoint_path(self, step: int) -> Path:
        """Return where the state after `step` steps is stored."""
        return self.folder / "checkpoints" / f"{step:09d}.safetensors"

    def checkpoint_steps(self) -> list[int]:
        """Return the steps that have a stored state, in order."""
        found = (self.folder / "checkpoints").glob("*.safetensors")
        return sorted(int(path.stem) for path in found if path.stem.isdigit())

    def store(self, step: int, encode: Callable[[], bytes]) -> None:
        """Store the state after `step` steps, whole or not at all."""
        with self.explain_errors():
            write_atomically(self.checkpoint_path(step), encode())

    def prune(self, keep: set[int], before: int) -> None:
        """Remove the stored states of steps before `before` that are not kept."""
        with self.explain_errors():
            for step in self.checkpoint_steps():
                if step < before and step not in keep:
                    self.checkpoint_path(step).unlink()

    def remove_unfinished(self) -> None:
        """Remove what a kill left of a write."""
        with self.explain_errors():
            for left in self.folder.rglob(".*.tmp"):
                left.unlink()

    # What the logs say

    def answers(self, upto: int | None = None) -> dict[int, int]:
        """Return index -> label for rounds up to `upto`, in the order they were asked for (not answered). -1 = declined."""
        given = {row["index"]: row["label"] for row in self.read("labels")}
        asked = [i for row in self.read("queries") if upto is None or row["round"] <= upto for i in row["indices"]]
        return {i: given[i] for i in asked if i in given}

    def purchases(self, upto: int | None = None) -> list[Row]:
        """Return what was bought in rounds up to `upto`."""
        return [row for row in self.read("purchases") if upto is None or row["round"] <= upto]

    def held_out(self) -> set[int]:
        """Return the images whose labels were bought to measure by."""
        return {i for row in self.read("queries") if row["strategy"] == HELD_OUT for i in row["indices"]}

    def unanswered(self) -> list[int]:
        """Return the indices that were asked for and have no answer yet."""
        given = {row["index"] for row in self.read("labels")}
        return [i for row in self.read("queries") for i in row["indices"] if i not in given]

    def status(self) -> Status:
        """Derive where the run stands; nothing stores it."""
        steps = self.checkpoint_steps()
        if steps and steps[-1] >= self.growth().steps:
            return "done"
        if self.unanswered():
            return "waiting"
        return "training" if self.read("labels") else "new"

    def accuracy(self) -> float | None:
        """Return the accuracy, in percent, of the model that the run hands out: that of its latest stored state.

        None where that state was stored between two evaluations; `mma eval` tests it then.
        """
        steps = self.checkpoint_steps()
        rows = [row for row in self.read("metrics") if steps and row["step"] == steps[-1]]
        return rows[-1].get("accuracy") if rows else None

    def median_accuracy(self) -> tuple[float, int] | None:
        """Return the median of the last evaluations made with the final label count, and how many there were.

        A short run has fewer than asked for in its last phase. One that never grew is measured over as many steps, or its
        slow start would count.
        """
        # Paper: the result is the median of the last 20 evaluations, never a checkpoint selected by its test accuracy.
        rows = [row for row in self.read("metrics") if row.get("accuracy") is not None]
        begin = rows[-1]["step"] - self.growth().final if rows else 0
        rows = [row for row in rows if row["labels"] == rows[-1]["labels"] and row["step"] > begin]
        last = [row["accuracy"] for row in rows[-self.config()["log"]["last"] :]]
        return (round(median(last), 6), len(last)) if last else None

    def summary(self) -> Row:
        """Return what a table of runs shows of this one; `status` tells a run that is trained from one that was stopped."""
        config, growth, steps, ending = self.config(), self.growth(), self.checkpoint_steps(), self.median_accuracy()
        status, busy = self.status(), self.busy()
        return {
            "run": str(self.folder),
            "preset": config["preset"],
            "algorithm": config["algorithm"]["name"],
            "query": growth.policy.name if growth.policy.name == "passive" else config["query"],
            "seed": config["seed"],
            "labels": sum(row["label"] >= 0 for row in self.read("labels")),
            "step": steps[-1] if steps else 0,
            "steps": growth.steps,
            "status": "running" if busy and status != "done" else {"training": "interrupted"}.get(status, status),
            "busy": busy,
            "accuracy": self.accuracy(),
            "median_accuracy": ending[0] if ending else None,
            "median_of": ending[1] if ending else 0,
        }

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for this process."""
        busy = f"{self.folder} is being trained by another process. Wait for it, or stop it."
        with ExitStack() as held:
            with self.explain_errors():  # where we may not write
                held.enter_context(locked(self.folder / "lock", busy))
            yield

    def busy(self) -> bool:
        """Tell whether some process is training this run right now."""
        return is_locked(self.folder / "lock")


def check_vacant(folder: Path) -> None:
    """Refuse a place for a new run that holds something else."""
    if (folder / "config.json").exists():
        raise UserError(f"{folder} already holds a run. Continue it with  mma train {folder}  or choose another --out.")
    left_by_a_kill = {"checkpoints", ".config.json.tmp"}
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file, and a run is a folder. Choose another --out.")
    if folder.exists() and any(path.name not in left_by_a_kill for path in folder.iterdir()):
        raise UserError(f"{folder} is not empty and not a run. Choose another --out.")


class Watch:
    """Says nothing and never stops. The command line's watcher draws a live line; tests use this one."""

    stop: bool = False  # set it, and the run stores its state after the current step and returns

    def begin(self, *, step: int, end: int, rounds: tuple[Round, ...]) -> None:
        """Training is about to go from `step` towards `end`."""

    def stepped(self, step: int, labels: int) -> None:
        """A step was made."""

    def evaluated(self, row: dict[str, Any]) -> None:
        """A row was added to the metrics."""

    def say(self, message: str) -> None:
        """Something a person should read."""

    def warn(self, message: str) -> None:
        """Something a person should act on."""

"""The run folder: paths, append-only files, and what state they say the run is in. One writer per file."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from mma.growth import Growth

FORMAT = 1
Row = dict[str, Any]
Status = Literal["new", "training", "waiting", "done"]
CHECK = "check"  # the strategy of a query for labels to measure by, not to train with
LOGS = (
    "queries",
    "labels",
    "purchases",
    "metrics",
)  # compared byte for byte between runs; timings go to a file of their own


@dataclass(frozen=True)
class Run:
    """A folder that holds one run. Whatever is known about the run is read from it, never kept beside it."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, config: Mapping[str, Any]) -> Run:
        """Make a new run folder. It is a run from the moment config.json is there, and not before."""
        if (folder / "config.json").exists():
            raise ValueError(
                f"{folder} already holds a run. Continue it with  mma train {folder}  or choose another --out."
            )
        left_by_a_kill = {"checkpoints", ".config.json.tmp"}
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder} is a file, and a run is a folder. Choose another --out.")
        if folder.exists() and any(path.name not in left_by_a_kill for path in folder.iterdir()):
            raise ValueError(f"{folder} is not empty and not a run. Choose another --out.")
        with explained(folder):
            (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
            write_whole(folder / "config.json", json.dumps({"format": FORMAT, **config}, indent=2) + "\n")
        return cls(folder)

    @classmethod
    def open(cls, folder: Path) -> Run:
        """Open an existing run, or say why it is none."""
        if not (folder / "config.json").is_file():
            raise ValueError(
                f"{folder} is not a run (it has no config.json).   mma runs DIR  lists the runs below DIR."
            )
        run = cls(folder)
        found = run.config().get("format")
        if not isinstance(found, int) or found > FORMAT:
            raise ValueError(f"{folder} has run format {found}; this mma reads up to {FORMAT}. Install a newer mma.")
        return run

    def config(self) -> Row:
        """Return config.json as it is on disk; `mma.config` gives it meaning."""
        try:
            config: Row = json.loads((self.folder / "config.json").read_text("utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{self.folder}/config.json is damaged ({error}). Restore it from a copy.") from error
        return config

    def growth(self) -> Growth:
        """Return the growth settings alone: enough to know the rounds without loading torch."""
        return Growth.model_validate_json(json.dumps(self.config()["growth"]))

    @property
    def passive(self) -> bool:
        """Whether the whole budget is drawn at the start."""
        return bool(self.config().get("query") == "passive")

    def path(self, log: str) -> Path:
        """Return the path of one of the append-only files."""
        return self.folder / f"{log}.jsonl"

    def checkpoint_path(self, step: int) -> Path:
        """Return where the state after `step` steps is stored."""
        return self.folder / "checkpoints" / f"{step:09d}.safetensors"

    def checkpoint_steps(self) -> list[int]:
        """Return the steps that have a stored state, in order."""
        found = (self.folder / "checkpoints").glob("*.safetensors")
        return sorted(int(path.stem) for path in found if path.stem.isdigit())

    def read(self, log: str) -> list[Row]:
        """Return the whole rows of a log. A torn last row (killed while writing) is not a row."""
        path = self.path(log)
        if not path.exists():
            return []
        lines = path.read_bytes().split(b"\n")
        return [parse_row(path, number, line) for number, line in enumerate(lines[:-1], 1)]

    def append(self, log: str, rows: Sequence[Row]) -> None:
        """Append rows; they are on disk when this returns. A kill may leave a torn row, which `cut` removes."""
        data = "".join(json.dumps(row, separators=(",", ":"), allow_nan=False) + "\n" for row in rows)
        with explained(self.folder), self.path(log).open("ab") as file:
            file.write(data.encode())
            file.flush()
            os.fsync(file.fileno())

    def cut(self, log: str, keep: Callable[[Row], bool]) -> None:
        """Drop the rows from the first that is not kept on, and a torn last one."""
        path = self.path(log)
        if not path.exists():
            return
        rows = self.read(log)
        count = next((i for i, row in enumerate(rows) if not keep(row)), len(rows))
        whole = path.read_bytes()
        end = sum(len(line) + 1 for line in whole.split(b"\n")[:count])
        if end != len(whole):
            with explained(self.folder), path.open("r+b") as file:
                file.truncate(end)
                os.fsync(file.fileno())

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
        return {i for row in self.read("queries") if row["strategy"] == CHECK for i in row["indices"]}

    def unanswered(self) -> list[int]:
        """Return the indices that were asked for and have no answer yet."""
        given = {row["index"] for row in self.read("labels")}
        return [i for row in self.read("queries") for i in row["indices"] if i not in given]

    def status(self) -> Status:
        """Derive where the run stands; nothing stores it."""
        steps = self.checkpoint_steps()
        if steps and steps[-1] >= self.growth().rounds(passive=self.passive)[-1].end:
            return "done"
        if self.unanswered():
            return "waiting"
        return "training" if self.read("labels") else "new"

    def result(self) -> tuple[float, int] | None:
        """Return the median of the last evaluations made with the final label count, and how many there were.

        A short run has fewer than asked for in its last phase. One that never grew is measured over as many steps, or its
        slow start would count.
        """
        # Paper: the result is the median of the last 20 evaluations, never a checkpoint selected by its test accuracy.
        rows = [row for row in self.read("metrics") if row["accuracy"] is not None]
        begin = rows[-1]["step"] - self.growth().final if rows else 0
        rows = [row for row in rows if row["labels"] == rows[-1]["labels"] and row["step"] > begin]
        last = sorted(row["accuracy"] for row in rows[-self.config()["log"]["last"] :])
        if not last:
            return None
        return round((last[(len(last) - 1) // 2] + last[len(last) // 2]) / 2, 6), len(last)

    def summary(self) -> Row:
        """Return what a table of runs shows of this one."""
        config, steps, labels, result = self.config(), self.checkpoint_steps(), self.read("labels"), self.result()
        return {
            "run": str(self.folder),
            "preset": config["preset"],
            "algorithm": config["algorithm"]["name"],
            "query": config["query"],
            "seed": config["seed"],
            "labels": sum(row["label"] >= 0 for row in labels),
            "step": steps[-1] if steps else 0,
            "steps": self.growth().rounds(passive=self.passive)[-1].end,
            "status": self.status(),
            "busy": self.busy(),
            "accuracy": result[0] if result else None,
        }

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for this process. The lock dies with the process, so it is never stale."""
        with explained(self.folder):
            file = (self.folder / "lock").open("a")
        with file:
            if not taken(file, fcntl.LOCK_EX):
                raise ValueError(f"{self.folder} is being trained by another process. Wait for it, or stop it.")
            yield

    def busy(self) -> bool:
        """Tell whether some process is training this run right now."""
        path = self.folder / "lock"
        if not path.exists():
            return False
        with path.open("r") as file:
            return not taken(file, fcntl.LOCK_SH, tries=1)


def taken(file: IO[str], kind: int, tries: int = 20) -> bool:
    """Try to lock a file for about a second: whoever only looks (`busy`) holds it for an instant."""
    for left in reversed(range(tries)):
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if left:
                time.sleep(0.05)
        else:
            return True
    return False


def parse_row(path: Path, number: int, line: bytes) -> Row:
    """Parse one line of a log, or say which line is damaged."""
    try:
        row: Row = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{path}: line {number} is damaged ({error}). Restore the file from a copy.") from error
    return row


def write_whole(path: Path, data: str | bytes) -> None:
    """Write a file so that it is there whole or not at all, also after a power cut."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn a failed write below `folder` into a sentence that says what to do. What was stored before is untouched."""
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"cannot write to {folder}: {error.strerror or error}. Make room, or allow writing there; everything stored so far "
            f"is whole. Then go on with  mma train {folder}"
        ) from error

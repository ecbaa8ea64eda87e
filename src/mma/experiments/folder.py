"""A grid's folder: grid.json, one run folder per cell, why runs failed, and the lock. It only ever grows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from pydantic import ValidationError

from mma.experiments.design import FORMAT, Grid, differences, refuse_changes
from mma.files import explain_write_errors, write_atomically
from mma.files import locked as lock_file
from mma.text import printable

FILE = "grid.json"
FAILURES = "failures.json"
COMMANDS = "commands.txt"


def read(folder: Path) -> Grid:
    """Open a grid, or say why the folder is none."""
    path = folder / FILE
    if not path.is_file():
        raise ValueError(
            f"{printable(str(folder))} is not a grid (it has no {FILE}). Start one with  mma grid EXPERIMENT --out DIR"
        )
    try:
        data = json.loads(path.read_text("utf-8"))
        found = data.get("format") if isinstance(data, dict) else None
        if isinstance(found, int) and found != FORMAT:
            raise ValueError(
                f"{folder} has grid format {found}; this mma reads format {FORMAT}. Use the version that made it, "
                "or start again in another --out."
            )
        return Grid.model_validate_json(path.read_bytes())
    except (json.JSONDecodeError, UnicodeDecodeError, ValidationError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise ValueError(f"{path} is damaged ({reason}). Restore it from a copy.") from None


def write(folder: Path, grid: Grid) -> None:
    """Store grid.json atomically."""
    with explain_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / FILE, grid.model_dump_json(indent=1) + "\n")


def merge(old: Grid, new: Grid, folder: Path) -> Grid:
    """Return the grid in `folder` with a new request added. What has begun never changes."""
    if (old.experiment, old.scale) != (new.experiment, new.scale):
        raise ValueError(
            f"{folder} holds the grid {old.experiment} at scale {old.scale}, not {new.experiment} at {new.scale}. "
            "Choose another --out."
        )
    common = [name for name in new.methods if name in old.methods]
    changed = [f"method {name}" for name in common if new.methods[name] != old.methods[name]]
    refuse_changes(folder, differences(old.base, new.base) + changed)
    requests = tuple(dict.fromkeys((*old.requests, *new.requests)))
    methods, only = {**old.methods, **new.methods}, {**old.only, **new.only}
    return old.model_copy(update={"methods": methods, "only": only, "requests": requests})


def adopt(folder: Path, new: Grid) -> Grid:
    """Make the grid in `folder`, or add the new request to the one that is there. The caller holds the lock."""
    if (folder / FILE).exists():
        grid = merge(read(folder), new, folder)
    elif folder.exists() and {path.name for path in folder.iterdir()} - {"lock", f".{FILE}.tmp"}:
        raise ValueError(f"{printable(str(folder))} is not empty and not a grid. Choose another --out.")
    else:
        grid = new
    write(folder, grid)
    return grid


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the grid for this process. The lock dies with the process, so it is never stale."""
    with explain_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "lock").touch()  # says why when we may not write here
    with lock_file(folder / "lock", f"{folder} is in use by another mma grid. Wait for it, or stop it."):
        yield


def explain_errors(folder: Path) -> AbstractContextManager[None]:
    """Return a context that turns a failed write into a sentence."""
    return explain_write_errors(folder, f"mma grid {folder}")


def read_failures(folder: Path) -> dict[str, str]:
    """Return why runs failed, by their place in the grid."""
    path = folder / FAILURES
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}). Delete it: it only says why runs failed.") from None
    return {str(place): str(why) for place, why in found.items()} if isinstance(found, dict) else {}


def write_failures(folder: Path, failures: Mapping[str, str]) -> None:
    """Store why runs failed; without failures there is no file."""
    path = folder / FAILURES
    if failures:
        write_atomically(path, json.dumps(dict(sorted(failures.items())), indent=1) + "\n")
    else:
        path.unlink(missing_ok=True)


def read_commands(folder: Path) -> list[str]:
    """Return the commands that worked on a grid."""
    path = folder / COMMANDS
    return path.read_text("utf-8").splitlines() if path.is_file() else []


def add_command(folder: Path, command: str) -> None:
    """Note a command that works on a grid, each once, in order."""
    known = read_commands(folder)
    if command not in known:
        write_atomically(folder / COMMANDS, "".join(f"{line}\n" for line in [*known, command]))

"""Careful files: whole or absent, on disk when a call returns, one writer at a time. Every room writes through here."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

from mma.errors import TemporarilyUnavailable, UserError

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

Row = dict[str, Any]
POLL = 0.002  # seconds between two tries, where a lock cannot be waited for
PATIENCE = 1.0  # seconds: whoever only looks at a lock (`is_locked`) holds it for an instant


def write_atomically(path: Path, data: str | bytes, *, private: bool = False) -> None:
    """Write a file so that it is there whole or not at all, also after a power cut. A private one is its owner's alone."""
    with open_atomically(path, private=private) as file:
        file.write(data.encode() if isinstance(data, str) else data)


@contextmanager
def open_atomically(path: Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """Open a file to write to that is there whole when the context ends, or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        with open_synced(temporary) as file:
            if private:
                temporary.chmod(0o600)
            yield file
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def create_atomically(folder: Path, make: Callable[[Path], object]) -> None:
    """Create a folder whole: `make` fills one beside it, which is then moved there. A kill leaves nothing half made."""
    beside = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        make(beside)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    if folder.exists():
        shutil.rmtree(folder)
    beside.replace(folder)
    sync_folder(folder.parent)


def append_bytes(path: Path, data: bytes) -> None:
    """Append to a file; the bytes are on disk when this returns. A kill may leave a part of them."""
    with path.open("ab") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def append_lines(path: Path, rows: Sequence[Row]) -> None:
    """Append rows of JSON; they are on disk when this returns. A kill may leave a torn last line, which is not a row."""
    data = "".join(json.dumps(row, separators=(",", ":"), allow_nan=False) + "\n" for row in rows)
    append_bytes(path, data.encode())


def read_lines(path: Path) -> list[Row]:
    """Return the whole rows of a file of JSON lines; none where there is no file."""
    if not path.exists():
        return []
    rows = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            rows.append(json.loads(line))
        except (ValueError, RecursionError) as error:  # also undecodable bytes, and brackets nested too deeply
            raise UserError(f"{path}: line {number} is damaged ({error}). Restore the file from a copy.") from error
        if not isinstance(rows[-1], dict):
            raise UserError(f"{path}: line {number} is not a row of names and values. Restore the file from a copy.")
    return rows


def cut_lines(path: Path, count: int | None = None) -> None:
    """Keep the first `count` rows, by default all; a torn last line goes."""
    if not path.exists():
        return
    whole = path.read_bytes()
    lines = whole.split(b"\n")[:-1]
    end = sum(len(line) + 1 for line in lines[:count])
    if end != len(whole):
        with path.open("r+b") as file:
            file.truncate(end)
            os.fsync(file.fileno())


def read_json(path: Path) -> Row:
    """Return what a JSON file of names and values holds, or say that it is damaged."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:  # also undecodable bytes, and brackets nested too deeply
        raise UserError(f"{path} is damaged ({error}). Restore it from a copy.") from error
    if not isinstance(found, dict):
        raise UserError(f"{path} is damaged (it holds no names and values). Restore it from a copy.")
    return found


@contextmanager
def open_synced(path: Path) -> Iterator[IO[bytes]]:
    """Create a file to write to; its bytes are on disk when the context ends."""
    with path.open("xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def sync_file(path: Path) -> None:
    """Make what was written to a file durable."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` durable, on systems that can open a folder."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows cannot
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def explain_write_errors(folder: Path, command: str) -> Iterator[None]:
    """Turn a failed write below `folder` into a sentence. `command` goes on when there is room again."""
    try:
        yield
    except OSError as error:
        raise TemporarilyUnavailable(
            f"cannot write to {error.filename or folder}: {error.strerror or error}. Make room, or allow writing there; "
            f"everything stored so far is whole. Then go on with  {command}"
        ) from error


def numbered_folders(place: Path, file: str = "") -> dict[int, Path]:
    """Return the folders whose names are numbers, the lowest first, or those of them that hold a file. 1000 is after 999."""
    found = {int(path.name): path for path in place.glob("[0-9]*") if path.name.isdecimal()}
    return {number: found[number] for number in sorted(found) if (found[number] / file).exists()}


@contextmanager
def locked(path: Path, busy: str, patience: float = PATIENCE) -> Iterator[None]:
    """Hold a lock for this process, or raise `busy` after `patience` seconds. It ends with the process: it is never stale."""
    try:
        lock = FileLock(path, timeout=patience, thread_local=False).acquire()
    except Timeout:
        raise TemporarilyUnavailable(busy) from None
    with lock:
        yield


@contextmanager
def in_turn(path: Path) -> Iterator[None]:
    """Wait for other processes and threads that hold the lock for a moment each, then hold it. It ends with the process."""
    if fcntl is None:  # Windows: look again and again
        with FileLock(path, thread_local=False, poll_interval=POLL):
            yield
        return
    with path.open("ab") as file:  # closing it ends the lock
        fcntl.flock(file, fcntl.LOCK_EX)  # the system wakes the next one at once
        yield


def is_locked(path: Path) -> bool:
    """Return whether some process holds the lock right now; False where we may not look."""
    if not path.exists():
        return False
    try:
        with locked(path, "", patience=0):
            return False
    except TemporarilyUnavailable:
        return True
    except OSError:
        return False

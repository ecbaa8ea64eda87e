"""Fetch a published file: goes on where a broken download stopped, and keeps nothing that is not exactly the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from mma.data.originals import READ, Original, find_difference
from mma.data.progress import bar
from mma.files import sync_file

ATTEMPTS = 5
TIMEOUT = 30  # seconds without a byte


def fetch(original: Original, directory: Path) -> Path:
    """Download `original` into `directory` unless it is there already, whole and right."""
    path = directory / original.name
    if path.is_file() and not find_difference(path, original):
        return path
    part = path.with_name(path.name + ".part")
    problem = ""
    for _ in range(ATTEMPTS):
        have = _size(part)
        if have >= original.size:
            break
        problem = _attempt(original, part, have)
        if problem and _size(part) <= have:  # not a byte further: asking at once again would not help
            break
    _finish(original, part, path, problem)
    return path


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _attempt(original: Original, part: Path, have: int) -> str:
    """Ask for the bytes from `have` on and append them; return what went wrong, "" if nothing did."""
    headers = {"Accept-Encoding": "identity", "User-Agent": "mma"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        with urlopen(Request(original.url, headers=headers), timeout=TIMEOUT) as response:
            have = _offset(response, have)
            part.parent.mkdir(parents=True, exist_ok=True)  # not before a server has answered
            with part.open("ab") as file, bar(original.name, original.size, done=have, in_bytes=True) as advance:
                file.truncate(have)
                for piece in _pieces(response):
                    _append(file, piece, original)
                    advance(len(piece))
        return ""
    except HTTPError as error:
        error.close()
        if error.code == 416:  # the server has no such range: what lies here is not the beginning of its file
            part.unlink(missing_ok=True)
        return f"the server answered {error.code} {error.reason}"
    except (URLError, HTTPException, ConnectionError, TimeoutError) as error:
        return str(getattr(error, "reason", error)) or type(error).__name__


def _pieces(response: HTTPResponse) -> Iterator[bytes]:
    while piece := response.read1(READ):
        yield piece


def _offset(response: HTTPResponse, have: int) -> int:
    """Read from the answer which byte it begins at: the one asked for, or 0 from a server that cannot resume."""
    if response.status != 206:
        return 0
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    if match is None or int(match[1]) != have:
        raise HTTPException("the server sent another part of the file than it was asked for")
    return have


def _append(file: IO[bytes], piece: bytes, original: Original) -> None:
    file.write(piece)
    if file.tell() > original.size:
        file.truncate(0)
        raise ValueError(
            f"{original.url} sends more than the {original.size:,} bytes of the official file, so it is not that file. "
            f"Get {original.name} elsewhere and give its folder with --from DIR."
        )


def _finish(original: Original, part: Path, path: Path, problem: str) -> None:
    """Let the finished file take its name, if it is the right one."""
    have = _size(part)
    if have < original.size:
        raise ValueError(
            f"{original.name} could not be downloaded from {original.url}: {problem or 'the connection was closed'} "
            f"({have:,} of {original.size:,} bytes are here). Run the same command again: it goes on from there; "
            "or give the folder where the file lies with --from DIR."
        )
    if difference := find_difference(part, original):
        part.unlink()
        raise ValueError(
            f"{original.url} did not send the official file: {difference}. The download was deleted. Get "
            f"{original.name} elsewhere and give its folder with --from DIR."
        )
    sync_file(part)
    part.replace(path)

"""The original files of published data sets: where they come from, how long they are, and what they must hash to.

A download resumes where a broken one stopped, and keeps nothing that is not exactly the file.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import tarfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from mma.errors import UserError
from mma.files import sync_file
from mma.text import Progress, printable

READ = 1 << 20  # bytes read at a time
ATTEMPTS = 5  # of a download, each from where the one before stopped
TIMEOUT = 30  # seconds without a byte
MAX_MEMBERS = 1_000  # files in an archive
BLOCK = 512  # bytes of a header in an archive; files are padded to multiples
MAX_RATIO = 100  # bytes out of an archive for each byte in it; real images do not even reach 2
SLACK = 16 << 20  # bytes of an archive besides twice the files that are wanted


@dataclass(frozen=True)
class Original:
    """One official file. `digest` is ALGORITHM:HEX."""

    name: str
    size: int
    digest: str
    url: str = ""


def find_difference(content: Path | bytes, original: Original) -> str:
    """Say how a file, or the bytes read out of one, differ from the official one in length or hash; "" if they do not."""
    size = len(content) if isinstance(content, bytes) else content.stat().st_size
    if size != original.size:
        return f"it has {size:,} bytes, the official one {original.size:,}"
    algorithm, expected = original.digest.split(":")
    with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
    return "" if found == expected else f"its {algorithm} is {found}, the official one {expected}"


def is_official(name: str, content: Path | bytes, original: Original, *, accept: bool) -> bool:
    """Tell whether a file is the official one; one that differs is an error unless `accept`."""
    if (difference := find_difference(content, original)) and not accept:
        raise UserError(
            f"{printable(name)} is not the official file: {difference}. Replace it with the official "
            "one, or add --accept-hash-mismatch to use it as it is."
        )
    return not difference


def refusal(name: str, why: str) -> UserError:
    """Make the error for a file that cannot be used whatever one accepts."""
    return UserError(
        f"{printable(name)} {printable(why)}. Replace it with a whole copy of the official file and run the same command "
        "again, or leave out --from to download it."
    )


def not_there(directory: Path, names: Sequence[str], what: str) -> UserError:
    """Make the error for a file that is in a folder under none of its names."""
    has = f"neither {' nor '.join(names)}" if len(names) > 1 else f"no {names[0]}"
    return UserError(f"{printable(str(directory))} has {has}. Put {what} there, or download it by leaving out --from.")


def find(directory: Path, names: Iterable[str], *folders: str) -> Path | None:
    """Look for a file under one of its names, in `directory` or one of the sub-folders it is usually unpacked into."""
    places = (directory / folder / name for folder in ("", *folders) for name in names)
    return next((place for place in places if place.is_file()), None)


def read_members(archive: Path, limits: Mapping[str, int]) -> dict[str, bytes]:
    """Read the files named in `limits` out of a .tar.gz, by base name and up to that many bytes each.

    Nothing is unpacked to disk, and no archive can fill the memory or go on for ever: the headers are read here, since
    tarfile believes what they say of lengths.
    """
    found = dict[str, bytes]()
    left = min(SLACK + 2 * sum(limits.values()), READ + MAX_RATIO * archive.stat().st_size)  # bytes to unpack
    try:
        with gzip.open(archive) as stream:
            for count in itertools.count():
                header = stream.read(BLOCK)
                if not header.strip(b"\0"):
                    break
                if count >= MAX_MEMBERS:
                    raise refusal(archive.name, f"holds more than {MAX_MEMBERS:,} files")
                try:
                    member = tarfile.TarInfo.frombuf(header, "utf-8", "replace")
                    if (size := member.size) < 0:
                        raise tarfile.HeaderError
                except tarfile.HeaderError as error:
                    why = "cannot be read as a .tar.gz (a header in it is damaged)"
                    raise refusal(archive.name, why) from error
                padded = -(-size // BLOCK) * BLOCK
                left -= BLOCK + padded
                name = member.name.rsplit("/", 1)[-1]
                if member.isreg() and name in limits:
                    if size > limits[name]:
                        why = f"holds {member.name} with {size:,} bytes, more than {limits[name]:,}"
                        raise refusal(archive.name, why)
                    found[name] = stream.read(padded)[:size]
                    if len(found[name]) < size:
                        raise EOFError
                elif left >= 0:
                    stream.seek(padded, io.SEEK_CUR)
                if left < 0:
                    raise refusal(archive.name, "unpacks to far more than the official archive")
            while piece := stream.read(READ):  # to the end: a cut archive is found after the wanted files too
                left -= len(piece)
                if left < 0:
                    raise refusal(archive.name, "unpacks to far more than the official archive")
    except EOFError as error:
        raise refusal(archive.name, "is cut short: its end is missing") from error
    except (OSError, zlib.error) as error:
        raise refusal(archive.name, f"cannot be read as a .tar.gz ({error})") from error
    return found


def unzip(path: Path, limit: int) -> bytes:
    """Read a .gz file (or a plain one) of at most `limit` bytes of content."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content: bytes = file.read(limit + 1)
    except EOFError as error:
        raise refusal(path.name, "is cut short: its end is missing") from error
    except (OSError, zlib.error) as error:
        raise refusal(path.name, f"cannot be read ({error})") from error
    if len(content) > limit:
        raise refusal(path.name, f"holds more than {limit:,} bytes")
    return content


def fetch(original: Original, directory: Path) -> Path:
    """Download `original` into `directory` unless it is there already, whole and right."""
    path = directory / original.name
    if path.is_file() and not find_difference(path, original):
        return path
    part = path.with_name(path.name + ".part")
    problem, have, before = "", part.stat().st_size if part.exists() else 0, -1
    for _ in range(ATTEMPTS):
        if have >= original.size or (problem and have <= before):  # not a byte further: asking again would not help
            break
        problem, before = _attempt(original, part, have), have
        have = part.stat().st_size if part.exists() else 0
    if have < original.size:
        raise UserError(
            f"{original.name} could not be downloaded from {original.url}: {problem or 'the connection was closed'} "
            f"({have:,} of {original.size:,} bytes are here). Run the same command again: it goes on from there; "
            "or give the folder where the file lies with --from DIR."
        )
    if difference := find_difference(part, original):
        part.unlink()
        raise UserError(
            f"{original.url} did not send the official file: {difference}. The download was deleted. Get "
            f"{original.name} elsewhere and give its folder with --from DIR."
        )
    sync_file(part)
    part.replace(path)
    return path


def _attempt(original: Original, part: Path, have: int) -> str:
    """Ask for the bytes from `have` on and append them; return what went wrong, "" if nothing did."""
    headers = {"Accept-Encoding": "identity", "User-Agent": "mma"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        with urlopen(Request(original.url, headers=headers), timeout=TIMEOUT) as response:
            if response.status != 206:  # the server cannot resume, or was not asked to
                have = 0
            elif not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
                raise HTTPException("the server sent another part of the file than it was asked for")
            part.parent.mkdir(parents=True, exist_ok=True)  # not before a server has answered
            with part.open("ab") as file, Progress() as progress:
                file.truncate(have)
                while piece := response.read1(READ):
                    file.write(piece)
                    if file.tell() > original.size:
                        file.truncate(0)
                        raise UserError(
                            f"{original.url} sends more than the {original.size:,} bytes of the official file, so it is "
                            f"not that file. Get {original.name} elsewhere and give its folder with --from DIR."
                        )
                    here = f"{original.name}: {file.tell() / 1e6:,.1f} of {original.size / 1e6:,.1f} MB"
                    progress.update(file.tell(), original.size, here.__str__)
        return ""
    except HTTPError as error:
        error.close()
        if error.code == 416:  # the server has no such range: what lies here is not the beginning of its file
            part.unlink(missing_ok=True)
        return f"the server answered {error.code} {error.reason}"
    except (URLError, HTTPException, ConnectionError, TimeoutError) as error:
        return str(getattr(error, "reason", error)) or type(error).__name__

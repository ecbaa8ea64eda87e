"""The original files of published data sets: where they come from, how long they are, and what they must hash to."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mma.text import printable

READ = 1 << 20  # bytes read at a time
MAX_MEMBERS = 1_000  # files in an archive
MAX_RATIO = 100  # bytes out of an archive for each byte in it; real images do not even reach 2


@dataclass(frozen=True)
class Original:
    """One official file. `digest` is ALGORITHM:HEX, empty where none is published for it."""

    name: str
    size: int
    digest: str
    url: str = ""


@dataclass(frozen=True)
class Checked:
    """The bytes of one original file, and whether they are the official ones."""

    name: str
    content: bytes
    official: bool


def hash_of(path: Path, algorithm: str) -> str:
    """Hash a file a piece at a time."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(READ):
            digest.update(piece)
    return digest.hexdigest()


def is_official(path: Path, original: Original, *, accept: bool) -> bool:
    """Check length and hash of a file. A file that differs is an error, unless `accept`: then the answer is False."""
    size = path.stat().st_size
    if accept and size != original.size:
        return False
    check_size(original.name, size, original.size)
    if not original.digest:
        return _no_digest(original.name, accept=accept)
    algorithm, expected = original.digest.split(":")
    return _same(original.name, algorithm, hash_of(path, algorithm), expected, accept=accept)


def is_official_content(content: bytes, original: Original, *, accept: bool) -> bool:
    """Check length and hash of what was read out of a file, as `is_official` does for the file itself."""
    if accept and len(content) != original.size:
        return False
    check_size(original.name, len(content), original.size)
    algorithm, expected = original.digest.split(":")
    found = hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()
    return _same(original.name, algorithm, found, expected, accept=accept)


def check_size(name: str, size: int, expected: int) -> None:
    """Refuse a file that is shorter or longer than it must be."""
    if size < expected:
        raise ValueError(
            f"{printable(name)} is cut short ({size:,} of {expected:,} bytes). "
            "Delete it and run the same command again."
        )
    if size > expected:
        raise ValueError(
            f"{printable(name)} is too long ({size:,} bytes, where the official file has {expected:,}), so it is "
            "another file. Replace it with the official one and run the same command again."
        )


def _same(name: str, algorithm: str, found: str, expected: str, *, accept: bool) -> bool:
    if found == expected or accept:
        return found == expected
    raise ValueError(
        f"{printable(name)} is not the official file: its {algorithm} is {found}, the official one {expected}. "
        "Replace the file, or add --accept-hash-mismatch to use it as it is."
    )


def _no_digest(name: str, *, accept: bool) -> bool:
    if accept:
        return False
    raise ValueError(
        f"no official hash is known for a loose {printable(name)}, so it cannot be checked. Put the official archive "
        "there instead, or add --accept-hash-mismatch to use the file as it is."
    )


def find(directory: Path, names: Iterable[str], *folders: str) -> Path | None:
    """Look for a file under one of its names, in `directory` or one of the sub-folders it is usually unpacked into."""
    places = (directory / folder / name for folder in ("", *folders) for name in names)
    return next((place for place in places if place.is_file()), None)


def read_members(archive: Path, wanted: Iterable[str]) -> dict[str, bytes]:
    """Read the wanted files of a .tar.gz, by base name; nothing is unpacked to disk, no archive can fill the memory."""
    wanted, found = set(wanted), dict[str, bytes]()
    try:
        with gzip.open(archive) as unzipped, tarfile.open(fileobj=_Bounded(unzipped, archive), mode="r|") as tar:
            for count, member in enumerate(tar):
                if count >= MAX_MEMBERS:
                    raise _refused(archive, f"it holds more than {MAX_MEMBERS:,} files")
                name = member.name.rsplit("/", 1)[-1]
                content = tar.extractfile(member) if member.isreg() and name in wanted else None
                if content is not None:
                    found[name] = content.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise _refused(archive, f"it cannot be read ({error})") from error
    return found


def unzip(path: Path, limit: int) -> bytes:
    """Read a .gz file (or a plain one) of at most `limit` bytes of content."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content: bytes = file.read(limit + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise _refused(path, f"it cannot be read ({error})") from error
    if len(content) > limit:
        raise _refused(path, f"it holds more than {limit:,} bytes")
    return content


class _Bounded(io.RawIOBase):
    """A stream that refuses to give more bytes than an honest archive of this size can hold."""

    def __init__(self, stream: gzip.GzipFile, archive: Path) -> None:
        self.stream, self.archive = stream, archive
        self.left = READ + MAX_RATIO * archive.stat().st_size

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        piece = self.stream.read(min(size, self.left + 1) if size >= 0 else self.left + 1)
        self.left -= len(piece)
        if self.left < 0:
            raise _refused(self.archive, f"it unpacks to more than {MAX_RATIO} times its size")
        return piece


def _refused(path: Path, why: str) -> ValueError:
    return ValueError(f"{printable(path.name)} is not used: {why}. Replace it and run the same command again.")

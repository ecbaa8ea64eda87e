"""Try the model on a new picture, and take model and labels away as a zip."""

from __future__ import annotations

import base64
import io
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

from mma import children
from mma.data.photos import bounded_photo, explain_bad_file, open_image, quiet_decoders
from mma.errors import TemporarilyUnavailable, UserError
from mma.project import Project

TRY_SIDE = 1_024  # pixels of a photo that is tried
TRY_SECONDS = 120.0
TOP = 3  # classes that an answer names
PART = 1 << 20  # bytes of a zip sent at a time


def try_photo(project: Project, encoded: str, stop: Callable[[], bool]) -> dict[str, Any]:
    """Classify one picture, sent in base64, with the model in use. It takes torch, so a process of its own does it."""
    try:
        data = base64.b64decode(encoded, validate=True)
        with quiet_decoders(), open_image(data) as image:
            small = bounded_photo(image, TRY_SIDE)
    except Exception as error:  # decoders raise anything at all on broken bytes
        raise UserError(f"the picture cannot be read: {explain_bad_file(error)}.") from error
    with tempfile.TemporaryDirectory(prefix="mma-try-") as scratch:
        place = Path(scratch)
        (place / "photo").mkdir()
        small.save(place / "photo" / "photo.png")
        options = ("-o", str(place / "answer.jsonl"), "--top", str(TOP), "--json")
        command = ("predict", str(project.folder), str(place / "photo"), *options)
        done = children.run("mma.cli", *command, timeout=TRY_SECONDS, stop=stop)
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise TemporarilyUnavailable(why.removeprefix("mma predict: "))
        row = json.loads((place / "answer.jsonl").read_text("utf-8").splitlines()[0])
    ranks = [f"_{rank}" if rank > 1 else "" for rank in range(1, TOP + 1)]
    answers = [[row[f"label{rank}"], row[f"confidence{rank}"]] for rank in ranks if row.get(f"label{rank}")]
    # What else a prediction says, for example that nothing like the picture was labeled.
    more = {name: value for name, value in row.items() if not name.startswith(("label", "confidence", "file"))}
    return {"answers": answers, "more": more}


def files_to_take(project: Project) -> dict[str, Path]:
    """Return what a person takes home: the newest exported model, if any, and the labels; by their names in the zip."""
    project.mirror.finish()
    files = {"labels.csv": project.layout.mirror} if project.layout.mirror.is_file() else {}
    exported = [
        each for each in (project.folder / "export").iterdir() if each.is_dir() and not each.name.startswith(".")
    ]
    if exported:
        newest = max(exported, key=lambda each: (each.stat().st_mtime_ns, each.name))
        found = [each for each in sorted(newest.rglob("*")) if each.is_file() and not each.is_symlink()]
        files |= {f"{newest.name}/{each.relative_to(newest).as_posix()}": each for each in found}
    return files


class _Pipe(io.RawIOBase):
    """Where a zip is written to, and read from at once."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.parts.append(bytes(data))
        return len(self.parts[-1])

    def take(self) -> bytes:
        """Return what was written since the last time."""
        data, self.parts = b"".join(self.parts), []
        return data


def zipped(files: Mapping[str, Path]) -> Iterator[bytes]:
    """Yield a zip of files, a part at a time: no copy of it is made on disk or in memory."""
    pipe = _Pipe()
    with ZipFile(pipe, "w") as archive:
        for name, path in files.items():
            with (
                path.open("rb") as source,
                archive.open(ZipInfo.from_file(path, name), "w", force_zip64=True) as target,
            ):
                while part := source.read(PART):
                    target.write(part)
                    yield pipe.take()
    yield pipe.take()

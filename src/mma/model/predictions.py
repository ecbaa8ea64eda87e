"""`mma.predict_folder`: predictions of a whole folder as CSV, JSON lines or Parquet. A kill costs the last rows.

Rows are appended to OUT.part, JSON lines, and are on disk before the next ones are. The first line says which model and which
files they are about. When all rows are there, OUT is made of them in the format its name asks for, and the part is removed.
"""

from __future__ import annotations

import base64
import hashlib
import heapq
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from shlex import quote
from typing import IO, Any

from PIL import Image

from mma.data.folder import list_files
from mma.data.images import BadFile
from mma.data.parquet import import_arrow
from mma.data.photos import quiet_decoders, read_unscaled_photo
from mma.data.tables import csv_line
from mma.errors import UserError
from mma.files import append_bytes, explain_write_errors, locked, open_atomically, write_atomically
from mma.model.loader import model_digest
from mma.model.model import Model
from mma.shares import Promise
from mma.text import did_you_mean, printable, render_template

BLOCK = 256  # rows that are made durable at a time
LAYOUT = 1  # of the part
FORMATS = (".csv", ".jsonl", ".parquet")
SHOWN = 5  # bad files that a summary names
GROUP = 65_536  # rows of a group in a Parquet file: what is in memory at a time
SHEET, SIDE = 60, 200  # photos of a contact sheet; pixels of each
ASK, UNLIKE = "ask", "yes"  # in the columns promise and unlike
Prediction = Mapping[str, Any]  # column -> value; None where there is none
Tell = Callable[[int, int], None]  # files done, files there are


def json_line(row: Prediction) -> bytes:
    """Return one line of JSON."""
    return (json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n").encode()


def write_rows(kind: str, file: IO[bytes], names: Sequence[str], rows: Iterable[Prediction]) -> None:
    """Write CSV, one JSON object per line, or Parquet, a group of rows at a time."""
    if kind == ".csv":
        file.writelines(map(csv_line, chain([names], ([row.get(name) for name in names] for row in rows))))
        return
    if kind == ".jsonl":
        file.writelines(json_line({name: row.get(name) for name in names}) for row in rows)
        return
    arrow, parquet = import_arrow()
    kinds = {name: arrow.float32() if name.startswith("confidence") else arrow.string() for name in names}
    schema = arrow.schema(list(kinds.items()))
    with parquet.ParquetWriter(file, schema) as writer:
        remaining = iter(rows)
        while group := list(islice(remaining, GROUP)):
            table = {name: [row.get(name) for row in group] for name in names}
            writer.write_table(arrow.table(table, schema=schema))


@dataclass(frozen=True)
class Summary:
    """What was written."""

    out: Path
    files: int
    bad: int  # files that could not be read
    first_bad: tuple[BadFile, ...]
    resumed: int  # rows that an earlier call had written
    unlike: int = 0  # images unlike anything labeled
    asked: int = 0  # images that are left to a person, where a promise was made


@dataclass(frozen=True)
class FolderTask:
    """A model, the files to classify, and how many classes to write of each."""

    model: Model
    root: Path
    names: Sequence[str]  # below root
    left_out: Sequence[BadFile]  # what is there but is not even opened
    top: int
    promise: Promise | None = None  # what is less sure, or unlike anything labeled, gets no label

    @property
    def columns(self) -> list[str]:
        """The file, the most likely classes with their probabilities, and what was wrong with a file."""
        ranks = ["", *(f"_{rank}" for rank in range(2, self.top + 1))]
        more = ["unlike"] * self.model.can_refuse + ["promise"] * bool(self.promise)
        return ["file", *(f"{name}{rank}" for rank in ranks for name in ("label", "confidence")), *more, "problem"]

    @property
    def files(self) -> list[str]:
        """The file of each row of the result."""
        return [*self.names, *(bad.file for bad in self.left_out)]

    def header(self) -> bytes:
        """Return the first line of the part: what all others are about."""
        digest = hashlib.sha256("\0".join(self.files).encode())
        about = {"layout": LAYOUT, "model": model_digest(self.model), "files": digest.hexdigest(), "top": self.top}
        return json_line({**about, "promise": asdict(self.promise)} if self.promise else about)

    def rows(self, start: int) -> Iterator[Prediction]:
        """Yield the predictions from a row on; probabilities with six digits."""
        blank = dict.fromkeys(self.columns)
        done = start
        for found in self.model.stream((self.root / name for name in self.names[start:]), root=self.root):
            for best, why, unlike in zip(found.top(self.top), found.reasons, found.unlike.tolist(), strict=True):
                row = {**blank, "file": self.names[done], "problem": why or None}
                values = [value for label, share in best or () for value in (label, round(share, 6))]
                row |= dict(zip(list(blank)[1:], values, strict=False))
                if unlike:
                    row["unlike"] = UNLIKE
                if best and self.promise:
                    mine, error = best[0][1] >= self.promise.threshold and not unlike, 100 * self.promise.max_error
                    row |= {"promise": f"at most {error:g} % wrong"} if mine else {"label": None, "promise": ASK}
                yield row
                done += 1
        for bad in self.left_out[max(start - len(self.names), 0) :]:
            yield {**blank, "file": bad.file, "problem": bad.reason}


def predict_folder(
    model: Model,
    images: Path | str,
    out: Path | str,
    *,
    top: int = 1,
    progress: Tell = lambda done, total: None,
    sort_into: Path | None = None,
    copy: bool = False,
    sheet: Path | None = None,
    promise: Promise | None = None,
) -> Summary:
    """Classify every image of a folder, or one file, and write OUT: a .csv, .jsonl or .parquet file.

    OUT has one row per file; those that cannot be read say why in the column `problem`. Call it again after a kill.

    Parameters
    ----------
    model : Model
        From `mma.load`.
    images, out : path
        What to classify, and the file to write.
    top : int
        How many classes to write for each image. Default: 1.
    progress : callable, optional
        Hears how many of how many are done.
    sort_into, copy : path and bool, optional
        A new folder that gets a sub-folder per class with links to the images, or with copies of them.
    sheet : path, optional
        A page to write, NAME.html: the photos that the model is least sure of.
    promise : mma.shares.Promise, optional
        Only images that it covers get a label. The column `promise` of the others, and their sub-folder, is "ask".

    Examples
    --------
    >>> from PIL import Image
    >>> Image.new("L", (8, 8)).save("blank.png")
    >>> summary = mma.predict_folder(mma.load("runs/digits"), "blank.png", "answers.csv")
    """
    if sort_into is not None:
        check_sorted(Path(images), sort_into)
    if sheet is not None:
        check_sheet(sheet)
    out = Path(out).absolute()
    check_output(out)
    root, names, left_out = list_images(Path(images), out)
    task = FolderTask(model, root, names, left_out, min(max(top, 1), len(model.classes)), promise)
    busy = f"{printable(str(out))} is being written by another process. Wait for it, or choose another -o"
    lock = out.with_name(f".{out.name}.lock")
    with explain_write_errors(out.parent, "the same command"):
        out.parent.mkdir(parents=True, exist_ok=True)
        with locked(lock, busy):
            part = out.with_name(f"{out.name}.part")
            resumed, total, waiting = resume(part, task), len(task.files), list[bytes]()
            progress(resumed, total)
            for done, row in enumerate(task.rows(resumed), resumed + 1):
                waiting.append(json_line(row))
                if len(waiting) == BLOCK or done == total:
                    append_bytes(part, b"".join(waiting))
                    waiting = []
                progress(done, total)
            with open_atomically(out) as file:
                write_rows(out.suffix.lower(), file, task.columns, read_rows(part))
            unlike = sum(row.get("unlike") is not None for row in read_rows(part))
            asked = sum(row.get("promise") == ASK for row in read_rows(part))
            bad = [BadFile(row["file"], row["problem"]) for row in read_rows(part) if row["problem"] is not None]
            if sort_into is not None:
                sort_images(root, read_rows(part), sort_into, copy=copy)
            if sheet is not None:
                write_sheet(root, read_rows(part), sheet)
            part.unlink()
            lock.unlink(missing_ok=True)
    return Summary(out, total, len(bad), tuple(bad[:SHOWN]), resumed, unlike, asked)


def check_sorted(images: Path, folder: Path) -> None:
    """Refuse to sort into a folder that holds something, or that lies in the images, which are never changed."""
    place = printable(str(folder))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"--sort-into {place}: there is something already. Name a new folder.")
    if folder.resolve().is_relative_to(images.resolve()):
        raise UserError(
            f"--sort-into {place} lies inside the images, which are never changed. Name a folder elsewhere."
        )


def sort_images(root: Path, rows: Iterable[Prediction], folder: Path, *, copy: bool) -> int:
    """Link or copy each image into a sub-folder of its class, below the folders it lies in; return how many."""
    done = 0
    for row in rows:
        if row["problem"] is not None:
            continue
        # A class is one folder, whatever its name.
        name = re.sub(r"[/\\\x00-\x1f]", "_", row["label"] or ASK).strip(". ")
        target = folder / (name or "_") / row["file"]
        target.parent.mkdir(parents=True, exist_ok=True)
        if copy:
            shutil.copyfile(root / row["file"], target)
        else:
            target.symlink_to((root / row["file"]).resolve())
        done += 1
    return done


def check_sheet(sheet: Path) -> None:
    """Refuse a place for a contact sheet that is no page, or is taken."""
    if sheet.suffix.lower() != ".html" or sheet.exists():
        raise UserError(f"--sheet {printable(str(sheet))}: name a page that is not there yet:  --sheet least-sure.html")


def write_sheet(root: Path, rows: Iterable[Prediction], sheet: Path) -> None:
    """Write a page with the photos that the model is least sure of. It holds all it shows, made from their pixels alone."""
    least = heapq.nsmallest(SHEET, (row for row in rows if row["problem"] is None), key=lambda row: row["confidence"])
    photos = []
    with quiet_decoders():
        for row in least:
            data, small = io.BytesIO(), Image.fromarray(read_unscaled_photo(root, row["file"], SIDE)[0])
            small.thumbnail((SIDE, SIDE))
            small.save(data, "JPEG", quality=80)
            photos.append((row, base64.b64encode(data.getvalue()).decode("ascii")))
    sheet.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(sheet, render_template("least_sure.html", photos=photos, side=SIDE))


def resume(part: Path, task: FolderTask) -> int:
    """Return how many rows are there already, after checking that they are about the same; a torn last one is cut off."""
    header = task.header()
    if not part.exists():
        write_atomically(part, header)
        return 0
    remedy = f"Start over with  rm {quote(str(part))}  and the same command, or choose another -o"
    files = task.files
    with part.open("rb") as file:
        if file.readline() != header:
            raise UserError(
                f"{printable(str(part))} was begun with another model, other files or another --top. {remedy}"
            )
        end, rows = file.tell(), 0
        for line in file:
            if not line.endswith(b"\n"):
                break
            try:
                name = json.loads(line)["file"]
            except (ValueError, LookupError, TypeError, RecursionError):
                name = None
            if rows >= len(files) or name != files[rows]:
                raise UserError(f"{printable(str(part))}: line {rows + 2} is damaged. {remedy}")
            end, rows = end + len(line), rows + 1
    os.truncate(part, end)
    return rows


def read_rows(part: Path) -> Iterator[Prediction]:
    """Yield the rows of a part, one at a time."""
    with part.open("rb") as file:
        file.readline()
        yield from (json.loads(line) for line in file)


def check_output(out: Path) -> None:
    """Refuse a format that is not there, and a file that is."""
    kind = out.suffix.lower()
    if kind not in FORMATS:
        hint = did_you_mean(kind, FORMATS) if kind else ""
        raise UserError(
            f"-o {printable(out.name)}: there is no format '{printable(kind)}'.{hint} Use {', '.join(FORMATS)}."
        )
    if kind == ".parquet":
        import_arrow()
    if out.exists():
        raise UserError(f"{printable(str(out))} is there already. Delete it, or choose another -o")


def check_input(images: Path) -> None:
    """Refuse a folder or file that is not there."""
    if not images.is_file() and not images.is_dir():
        raise UserError(f"there is no {printable(str(images))}. Give a folder of images, or one image.")


def list_images(images: Path, out: Path) -> tuple[Path, list[str], list[BadFile]]:
    """Return a folder, its files in natural order, and what is left out of it. The result itself is none of them."""
    check_input(images)
    if images.is_file():
        return images.resolve().parent, [images.resolve().name], []
    names, bad = list_files(images)
    root, home = images.resolve(), out.parent.resolve()
    ours = {home / out.name, home / f"{out.name}.part"}
    names = [name for name in names if root / name not in ours]
    if not names and not bad:
        raise UserError(f"{printable(str(images))} holds no files. Give a folder of images, or one image.")
    return root, names, bad

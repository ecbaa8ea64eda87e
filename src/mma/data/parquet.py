"""Data sets of Hugging Face: images and ClassLabel in Parquet or Arrow files, unpacked to files once; and written.

An image is a struct of `bytes` and `path`, a label a number whose names stand in the schema's metadata.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from mma.data.photos import MAX_BYTES, explain_bad_file, read_file
from mma.data.tables import DEFAULT, render_csv
from mma.errors import UserError
from mma.files import create_atomically, explain_write_errors
from mma.text import Progress, install_hint, printable

FILES = ("*.parquet", "*.arrow")
SPLITS = ("train", "test", "validation")  # of a name or a folder; anything else is train
GROUP = 256  # rows that are in memory at a time
MOST = 10_000_000  # rows
ENDINGS = {
    b"\xff\xd8": ".jpg",
    b"\x89P": ".png",
    b"RI": ".webp",
    b"BM": ".bmp",
    b"GI": ".gif",
    b"II": ".tif",
    b"MM": ".tif",
}


@dataclass(frozen=True)
class PackedImage:
    """One row: the bytes of an image, the name it had, and its label; "" where nobody knows."""

    data: bytes
    name: str
    label: str
    more: dict[str, str]  # other columns of text


def import_arrow() -> tuple[Any, Any]:
    """Return pyarrow and its part for Parquet, or say how to get it."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UserError(f"Parquet and Arrow files need pyarrow:  {install_hint('parquet')}") from None


def packed_files(place: Path) -> list[Path]:
    """Return the Parquet and Arrow files that a file or folder holds, in order; none for a folder of photos."""
    if place.is_file():
        return [place] if any(place.match(pattern) for pattern in FILES) else []
    return sorted(path for pattern in FILES for path in place.rglob(pattern) if path.is_file())


def unpack(place: Path, store: Path) -> tuple[Path, Path | None]:
    """Write the images of a data set as files with a table of labels, once; return the folders of pool and test set.

    The test set is the split `test`, or `validation` where there is none.
    """
    files = packed_files(place)
    listed = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    folder = store / hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:16]
    if not folder.is_dir():
        parts = {split: [path for path in files if split_of(path, place) == split] for split in SPLITS}

        def fill(beside: Path) -> None:
            for split, paths in parts.items():
                if not paths:
                    continue
                (beside / split).mkdir(parents=True)
                rows = [("file_name", "label")]
                with Progress() as progress:
                    for number, path in enumerate(paths, 1):
                        for image in read_packed([path]):
                            name = f"{len(rows) - 1:08d}{ENDINGS.get(image.data[:2], '.img')}"
                            (beside / split / name).write_bytes(image.data)
                            rows.append((name, image.label))
                        progress.update(number, len(paths), f"unpacking: {number:,} of {len(paths):,} files".__str__)
                (beside / split / DEFAULT).write_bytes(render_csv(rows))

        with explain_write_errors(folder, "the same command"):
            folder.parent.mkdir(parents=True, exist_ok=True)
            create_atomically(folder, fill)
    tests = [folder / split for split in SPLITS[1:] if (folder / split).is_dir()]
    pool = folder / SPLITS[0]
    if not pool.is_dir():
        raise UserError(f"{printable(str(place))} holds {tests[0].name} images alone. Add those of the split train.")
    return pool, tests[0] if tests else None


def split_of(path: Path, place: Path) -> str:
    """Return the split that a file belongs to by its name, or by the folder that it lies in."""
    inside = path.relative_to(place).parts if place.is_dir() else (path.name,)
    for part in reversed(inside):
        for split in SPLITS:
            if part.lower().startswith(split):
                return split
    return SPLITS[0]


def read_packed(paths: Sequence[Path]) -> Iterator[PackedImage]:
    """Go through the rows of Parquet and Arrow files, a few in memory at a time."""
    arrow, parquet = import_arrow()
    count = 0
    for path in paths:
        try:
            with path.open("rb") as file:
                begins = file.read(4)
            if path.suffix == ".parquet" or begins == b"PAR1":
                source = parquet.ParquetFile(path)
                schema, batches = source.schema_arrow, source.iter_batches(batch_size=GROUP)
            else:
                source = arrow.ipc.open_stream(arrow.memory_map(str(path)))
                schema, batches = source.schema, iter(source)
            image, label, names = _columns(arrow, schema, path)
            for batch in batches:
                texts = [n for n in schema.names if n not in (image, label) and schema.field(n).type == arrow.string()]
                for row in batch.select([image, *([label] if label else []), *texts]).to_pylist():
                    count += 1
                    if count > MOST:
                        raise UserError(f"{printable(str(path))} has more than {MOST:,} rows. Split it.")
                    data, name = _read_image(row[image], path)
                    more = {text: row[text] or "" for text in texts}
                    yield PackedImage(data, name, _name_label(row[label] if label else None, names, path), more)
        except (arrow.ArrowException, OSError) as error:
            raise UserError(
                f"{printable(str(path))} cannot be read: {printable(str(error))[:200].rstrip('.')}. Fetch it again."
            ) from None


def _columns(arrow: Any, schema: Any, path: Path) -> tuple[str, str | None, list[str] | None]:
    """Find the column of images and that of labels, and the names of the classes."""
    about = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    features = about.get("info", {}).get("features", {})
    kinds = {name: part.get("_type") for name, part in features.items() if isinstance(part, dict)}
    structs = [
        each.name for each in schema if arrow.types.is_struct(each.type) and each.type.get_field_index("bytes") >= 0
    ]
    images = [name for name in schema.names if kinds.get(name) == "Image"] or structs
    if not images:
        listed = ", ".join(schema.names[:8])
        raise UserError(
            f"{printable(str(path))} has no column of images (columns: {printable(listed)}). An image is a struct of "
            "bytes and path, as the library datasets writes it."
        )
    labels = [name for name in schema.names if kinds.get(name) == "ClassLabel"]
    labels += [name for name in ("label", "labels", "fine_label", "class") if name in schema.names]
    label = labels[0] if labels else None
    return images[0], label, features.get(label, {}).get("names") if label else None


def _read_image(value: dict[str, Any] | bytes | None, path: Path) -> tuple[bytes, str]:
    """Return the bytes of an image and the name it had; one that lies in a file of its own is read from beside `path`."""
    image: dict[str, Any] = value if isinstance(value, dict) else {"bytes": value}
    data, name = image.get("bytes"), image.get("path") or ""
    if data is None and name:
        root = path.parent.resolve()
        try:
            data = read_file(root / name, root)
        except (UserError, OSError) as error:
            raise UserError(
                f"{printable(str(path))} names the image {printable(name)}: {explain_bad_file(error)}."
            ) from None
    if not data or len(data) > MAX_BYTES:
        raise UserError(f"{printable(str(path))} has an image of {len(data or b''):,} bytes. Remove that row.")
    return bytes(data), PurePosixPath(name).name


def _name_label(value: Any, names: list[str] | None, path: Path) -> str:
    """Return the name of a label; a number is a place in `names` where there are any."""
    if value is None or value == -1:
        return ""
    if names is None or isinstance(value, str):
        return str(value)
    if not 0 <= value < len(names):
        raise UserError(f"{printable(str(path))} has the label {value}, but {len(names)} classes. Write it again.")
    return str(names[value])


def write_images(path: Path, images: Sequence[tuple[Path, str, str]], more: dict[str, list[str]]) -> None:
    """Write (file, name, label) and more columns of text as `datasets` reads them: images whole, ClassLabel, "" as none."""
    arrow, parquet = import_arrow()
    classes = sorted({label for _, _, label in images if label})
    features: dict[str, Any] = {"image": {"_type": "Image"}, "label": {"names": classes, "_type": "ClassLabel"}}
    features |= {name: {"dtype": "string", "_type": "Value"} for name in more}
    about = json.dumps({"info": {"features": features}}, ensure_ascii=False)
    pair = arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
    fields = [("image", pair), ("label", arrow.int64()), *((name, arrow.string()) for name in more)]
    schema = arrow.schema(fields, metadata={"huggingface": about})
    number = {name: place for place, name in enumerate(classes)}
    with parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, len(images), GROUP):
            part = images[start : start + GROUP]
            columns: dict[str, Any] = {
                "image": [{"bytes": file.read_bytes(), "path": name} for file, name, _ in part],
                "label": [number.get(label) for _, _, label in part],
            }
            columns |= {name: values[start : start + GROUP] for name, values in more.items()}
            writer.write_table(arrow.table(columns, schema=schema))

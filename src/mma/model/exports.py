"""`mma.export`: a folder that somebody else can use. It is whole and compared with the model, or it is not there."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mma.files import create_atomically, explain_write_errors, write_atomically
from mma.model.card import write_card
from mma.model.description import DESCRIPTION
from mma.model.find import Origin, find_model, load
from mma.model.folder import files_at, model_files
from mma.model.from_run import model_of_run
from mma.model.labels import labels_of
from mma.model.model import Model
from mma.model.onnx_file import import_runtime
from mma.model.verify import Agreement, Photo, compare, real_images
from mma.model.write_onnx import import_onnx, onnx_bytes
from mma.run import Run
from mma.text import did_you_mean, printable

KINDS = ("onnx", "safetensors", "labels")
ONNX, SNIPPET, CARD, SUMS = "model.onnx", "use.py", "MODEL.md", "SHA256SUMS"


@dataclass(frozen=True)
class Exported:
    """What was written, and how well the ONNX file agrees with the model; None without one."""

    folder: Path
    files: tuple[str, ...]
    agreement: Agreement | None


def export(
    path: Run | Path | str,
    out: Path | str | None = None,
    to: Sequence[str] | None = None,
    *,
    photos: Sequence[Photo] | None = None,
) -> Exported:
    """Export the model of a run, a project or a model folder; `to` names some of KINDS, None is all that there is.

    The ONNX file is compared with the model on `photos`, (H, W, 3) uint8 each; None takes some of the model's own kind.
    """
    origin = find_model(path)
    folder = default_folder(origin) if out is None else Path(out)
    kinds = check_request(origin, folder, to)
    model = model_of_run(origin.place, tested=True) if origin.is_run else load(path)
    labels = {"labels.csv": labels_of(origin)} if "labels" in kinds else {}
    tensors = model_files(model) if "safetensors" in kinds else {}
    tested = (real_images(origin) if photos is None else photos) if "onnx" in kinds else []
    agreements: list[Agreement] = []

    def fill(place: Path) -> None:
        place.mkdir(parents=True)
        if tested:
            agreements.append(write_onnx(place, model, tested))
        write_files(place, {**tensors, **labels})
        write_about(place, model, agreements[0] if agreements else None)

    with explain_write_errors(folder, "the same command"):
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        create_atomically(folder.absolute(), fill)
    return Exported(folder, tuple(sorted(files_at(folder))), agreements[0] if agreements else None)


def write_onnx(place: Path, model: Model, photos: Sequence[Photo]) -> Agreement:
    """Write the ONNX file and how to use it; refuse it if it computes something else."""
    write_files(place, {ONNX: onnx_bytes(model), SNIPPET: Path(__file__).with_name(SNIPPET).read_bytes()})
    return compare(place / ONNX, model, photos)


def write_about(place: Path, model: Model, agreement: Agreement | None) -> None:
    """Write the model card and the checksums of all files."""
    names = sorted([*files_at(place), CARD, SUMS])
    write_files(place, {CARD: write_card(model, agreement, names).encode()})
    lines = [f"{hashlib.sha256((place / name).read_bytes()).hexdigest()}  {name}\n" for name in names if name != SUMS]
    write_files(place, {SUMS: "".join(lines).encode()})


def write_files(place: Path, files: dict[str, bytes]) -> None:
    """Write some files into a folder."""
    for name, data in files.items():
        (place / name).parent.mkdir(exist_ok=True)
        write_atomically(place / name, data)


def default_folder(origin: Origin) -> Path:
    """Return where an export goes: into the project, or into the current folder."""
    if origin.project is not None:
        members = origin.serving.members if origin.serving else ()
        name = "-".join(f"{member.number:03d}" for member in members) or origin.place.name
        return origin.project / "export" / f"model-{name}"
    return Path(f"{origin.place.resolve().stem}-export")


def check_request(origin: Origin, folder: Path, to: Sequence[str] | None) -> tuple[str, ...]:
    """Return the kinds to export, after everything cheap was checked."""
    for kind in to or ():
        if kind not in KINDS:
            hint = did_you_mean(kind, KINDS)
            raise ValueError(f"there is no export to '{printable(kind)}'.{hint} Choose from: {', '.join(KINDS)}.")
    if origin.place.is_file():
        raise ValueError(f"{printable(str(origin.place))} is an export already: copy it.")
    has_labels = origin.is_run or origin.project is not None
    if to is not None and "labels" in to and not has_labels:
        raise ValueError(f"{printable(str(origin.place))} is a model alone, without labels. Leave out  labels")
    kinds = tuple(kind for kind in KINDS if kind in (to or KINDS) and (kind != "labels" or has_labels))
    if "onnx" in kinds:
        import_onnx()
        import_runtime()
    check_folder(origin, folder)
    return kinds


def check_folder(origin: Origin, folder: Path) -> None:
    """Refuse a folder that holds anything but an earlier export: it is replaced as a whole."""
    listed = listed_files(folder)
    odd = next((name for name in files_at(folder) if name not in listed), None)
    if odd is not None:
        raise ValueError(
            f"{printable(str(folder))} holds something else than an export: {printable(odd)}. Choose another folder with "
            "-o DIR"
        )
    if (folder / DESCRIPTION).is_file() and folder.resolve() == origin.place.resolve():
        raise ValueError(f"{printable(str(folder))} is the model itself. Choose another folder with -o DIR")


def listed_files(folder: Path) -> list[str]:
    """Return the files of an earlier export, as its checksums name them; none where the folder is no export."""
    lines = (folder / SUMS).read_text("utf-8", "replace").splitlines() if (folder / SUMS).is_file() else []
    names = [line.partition("  ")[2] for line in lines]
    return [SUMS, *names] if CARD in names else []

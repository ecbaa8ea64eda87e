"""`mma predict` and `mma export`: use a trained model, and hand it on."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mma.cli.train import Json
from mma.text import printable

if TYPE_CHECKING:
    from mma.model.exports import Exported
    from mma.model.output import Summary


def predict(
    model: Annotated[Path, typer.Argument(help="A run, a project, a model folder or an .onnx file.")],
    images: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of images, or one image.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write: NAME.csv, NAME.jsonl or NAME.parquet.")],
    top: Annotated[int, typer.Option("--top", min=1, help="How many classes to write for each image.")] = 1,
    as_json: Json = False,
) -> None:
    """Classify every image of a folder with calibrated confidence. The same command goes on where it stopped."""
    from mma.cli.terminal import Progress
    from mma.model import load
    from mma.model.output import check_input, check_output, predict_folder

    check_output(out)  # before a model is loaded
    check_input(images)
    loaded = load(model)
    with Progress() as bar:
        found = predict_folder(
            loaded,
            images,
            out,
            top=top,
            progress=lambda done, of: bar.update(done, of, lambda: f"{done:,} of {of:,} images"),
        )
    print(json.dumps(asdict(found), default=str) if as_json else printable(describe_predictions(found)))


def describe_predictions(found: Summary) -> str:
    """Say what was written, and which files could not be read."""
    text = f"{found.out}: {found.files - found.bad:,} images classified"
    if found.resumed:
        text += f" ({found.resumed:,} of them before)"
    if not found.bad:
        return f"{text}."
    first = ", ".join(f"{each.file} ({each.reason})" for each in found.first_bad)
    more = f" and {found.bad - len(found.first_bad):,} more" if found.bad > len(found.first_bad) else ""
    return f"{text}; {found.bad:,} files could not be read, see the column problem: {first}{more}"


def export(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A project, a run or a model folder. Default: the project here.")
    ] = Path("."),
    to: Annotated[
        str | None, typer.Option("--to", help="Some of onnx,safetensors,labels. Default: all that there is.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A new folder. Default: in the project, or SOURCE-export in this folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a model for others: ONNX compared with the model, safetensors, labels, a model card, checksums."""
    from mma.model.exports import export as write

    kinds = None if to is None else [kind.strip() for kind in to.split(",") if kind.strip()]
    found = write(source, out, kinds)
    print(json.dumps(asdict(found), default=str) if as_json else printable(describe_export(found)))


def describe_export(found: Exported) -> str:
    """Say what was exported and how well it agrees."""
    text = f"{found.folder}: exported {', '.join(found.files)}."
    if found.agreement is None:
        return text
    same = found.agreement
    return f"{text} model.onnx agrees with the model to {same.largest:.0e} on {same.images} real images of {same.sizes} sizes."

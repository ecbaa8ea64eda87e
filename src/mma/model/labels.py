"""The labels that a model was trained with, as a CSV file."""

from __future__ import annotations

import csv
import io

from mma.config import config_of
from mma.data import load_data
from mma.model.find import Origin
from mma.model.formats import cell
from mma.run import Run
from mma.text import printable, quote_path


def labels_of(origin: Origin) -> bytes:
    """Return the labels of a run, or the mirror of a project's labels."""
    if origin.project is None:
        return run_labels(Run.open(origin.place))
    mirror = origin.project / "labels.csv"
    if not mirror.is_file():
        command = f"mma labels export {quote_path(origin.project)} {quote_path(mirror)}"
        raise ValueError(f"{printable(str(mirror))} is not there. Write it with  {command}")
    return mirror.read_bytes()


def run_labels(run: Run) -> bytes:
    """Return the answers of a run: file (where images are files), class, and the sha256 of the image."""
    images = load_data(config_of(run).data.name).train
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*(["file_name"] if images.names else []), "label", "sha256"])
    for index, label in run.answers().items():
        name = [cell(images.names[index])] if images.names else []
        writer.writerow([*name, cell(images.classes[label]) if label >= 0 else "", images.key(index)])
    return text.getvalue().encode()

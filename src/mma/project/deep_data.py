"""What a deep training is made of: labels and images of one moment, and the photos at the network's size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mma.config import Config
from mma.data import UNKNOWN, DataSet, Images
from mma.data.images import no_images
from mma.data.photos import decode_all
from mma.files import open_synced
from mma.project.project import Project
from mma.project.records import ProjectImage
from mma.project.training_set import TrainingSet
from mma.text import printable, quote_path

SIDE = 32  # pixels, for networks that do not say what they see


@dataclass(frozen=True, eq=False)
class DeepTask:
    """A deep training: its number, the labels and images that it is made of, and its settings."""

    number: int
    folder: Path
    training: TrainingSet
    images: list[ProjectImage]  # to learn from, then the audit images with a label
    audit: int  # how many of them are audit images
    config: Config


def load_data(project: Project, task: DeepTask) -> DataSet:
    """Return the images at the network's size. They are decoded once and kept in the cache until the training ends."""
    path = project.folder / "cache" / f"deep-{task.number:03d}.npy"
    if not path.is_file():
        decode(project, task.images, path, side_of(task.config))
    pixels = np.load(path, mmap_mode="c", allow_pickle=False)
    keys = np.frombuffer(bytes.fromhex("".join(image.id for image in task.images)), np.uint8).reshape(-1, 32)
    known = {**task.training.train, **task.training.audit}
    labels = np.array([known.get(image.id, UNKNOWN) for image in task.images], np.int64)
    end = len(task.images) - task.audit
    names = task.training.names
    train_ = Images(pixels[:end], labels[:end], names, stored_keys=keys[:end])
    test = (
        Images(pixels[end:], labels[end:], names, stored_keys=keys[end:])
        if task.audit
        else no_images(train_.shape, names)
    )
    return DataSet(f"project {project.root.name}", train_, test)


def decode(project: Project, images: Sequence[ProjectImage], path: Path, side: int) -> None:
    """Decode photos to one array on disk. One that cannot be read any more stops the training with its name."""
    found = decode_all(project.root, [image.name for image in images], side, grey=False)
    if found.bad:
        first = found.bad[0]
        raise ValueError(
            f"{len(found.bad)} photos cannot be read any more, such as {printable(first.file)}: {first.reason}. Restore them, "
            f"or look at the folder again:  mma start {quote_path(project.root)}"
        )
    temporary = path.with_suffix(".tmp")
    temporary.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    with open_synced(temporary) as file:
        np.save(file, found.pixels, allow_pickle=False)
    temporary.replace(path)


def side_of(config: Config) -> int:
    """Return the pixels on each side that a network wants to see."""
    return config.net.photo_side() or SIDE

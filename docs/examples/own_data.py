"""A data source of your own: a function that reads a folder, and one entry in the table. Here: one .npz file.

mma --use docs/examples/own_data.py data get npz --from FOLDER
mma --use docs/examples/own_data.py train digits --set data.name=npz
"""

from pathlib import Path

import numpy as np

from mma.data import SOURCES, Images, Source

CLASSES = tuple("0123456789")


def read(directory: Path, *, accept: bool) -> tuple[Images, Images, bool]:
    """Return the pool, the test set, and whether the files are the official ones (there are none, so True)."""
    with np.load(directory / "images.npz") as file:
        train = Images(file["x_train"], file["y_train"], CLASSES)  # (N, H, W, C) uint8; whole numbers, -1 = unknown
        test = Images(file["x_test"], file["y_test"], CLASSES)
    return train, test, True


SOURCES["npz"] = Source(
    "digits in one .npz file", pool=600, test=200, shape=(8, 8, 1), classes=10, mirror=False, read=read
)

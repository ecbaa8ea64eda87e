import numpy as np
import pytest
from PIL import Image

from mma.data import get


@pytest.fixture(autouse=True)
def no_downloads(monkeypatch):
    """Tests never reach for the network."""
    monkeypatch.setattr("mma.data.sources.fetch", lambda original, directory: pytest.fail(f"downloads {original.name}"))


@pytest.fixture
def accepted():
    """Make a data set out of files that are not the official ones."""
    return lambda name, folder, root: get(name, root, directory=folder, accept_hash_mismatch=True)


def save_picture(path, size=(40, 30), seed=0, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, **options)


@pytest.fixture
def picture():
    """Write an image of random pixels."""
    return save_picture


@pytest.fixture
def photo_folder(tmp_path):
    """Ten cats, ten dogs."""
    folder = tmp_path / "photos"
    for i in range(20):
        save_picture(folder / ("cat", "dog")[i % 2] / f"{i}.png", seed=i)
    return folder

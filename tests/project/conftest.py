"""Projects on both databases. A project's images are noise of many colours, so that none looks like another."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from PIL import Image

from mma.project import Answer, Event, Project, create_project


def load_neighbour(name: str):
    """Import a file that lies beside this one."""
    spec = importlib.util.spec_from_file_location(f"project_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


postgres = load_neighbour("postgres")


def save_picture(path: Path, seed: int, size: tuple[int, int] = (24, 18)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    blocks = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(blocks).resize(size, Image.Resampling.BICUBIC).save(path)


@pytest.fixture
def picture() -> Callable[..., None]:
    """Write an image that looks like no other with another seed."""
    return save_picture


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twenty images in one folder."""
    for number in range(20):
        save_picture(tmp_path / "photos" / f"{number}.png", number)
    return tmp_path / "photos"


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    if postgres.binaries() is None:
        pytest.skip(postgres.MISSING)
    with postgres.server() as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest) -> str | None:
    """What --store gets: nothing for SQLite, or the URL of a server."""
    return None if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def project(photos: Path, store: str | None) -> Iterator[Project]:
    """Twenty images indexed, classes cat and dog."""
    made = create_project(photos, classes=["cat", "dog"], store=store)
    made.index()
    yield made
    made.close()


@pytest.fixture
def label() -> Callable[..., Event]:
    """Label one image."""

    def give(project: Project, image: str, class_id: int = 0, by: str = "ann", **values) -> Event:
        kind = values.pop("kind", "label")
        answer = Answer(
            id=uuid4(), images=[image], kind=kind, class_id=class_id if kind == "label" else None, by=by, **values
        )
        return project.answer(answer)[0]

    return give

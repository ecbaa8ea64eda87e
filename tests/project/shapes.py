"""Photos of four kinds that a gradient histogram tells apart, and a person who knows them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from uuid import uuid4

import numpy as np
from PIL import Image

from mma.project import Answer, Project, create_project
from mma.project.project import change_settings

KINDS = ("bars", "columns", "rings", "slopes")
SIDE = 40


def draw_shape(kind: str, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    y, x = np.mgrid[:SIDE, :SIDE].astype(float)
    phase, pitch = draw.uniform(0, 6), draw.uniform(0.5, 0.8)
    waves = {
        "bars": y,
        "columns": x,
        "rings": np.hypot(x - SIDE / 2 - draw.uniform(-6, 6), y - SIDE / 2 - draw.uniform(-6, 6)),
        "slopes": (x + y) / 1.4,
    }
    grey = 128 + 70 * np.sin(pitch * waves[kind] + phase)
    colour = grey[..., None] * draw.uniform(0.6, 1.0, 3) + draw.normal(0, 25, (SIDE, SIDE, 3))
    return np.clip(colour, 0, 255).astype(np.uint8)


def write_shapes(folder: Path, count: int, first: int = 0) -> dict[str, str]:
    """Write photos into one folder under names that say nothing; return the kind of each by its id."""
    folder.mkdir(parents=True, exist_ok=True)
    kinds = {}
    for number in range(first, first + count):
        path = folder / f"{number:04d}.png"
        Image.fromarray(draw_shape(KINDS[number % len(KINDS)], number)).save(path)
        kinds[hashlib.sha256(path.read_bytes()).hexdigest()] = KINDS[number % len(KINDS)]
    return kinds


def shape_project(folder: Path, count: int = 120, seed: int = 3, **settings) -> tuple[Project, dict[str, str]]:
    """Return an indexed project that learns from gradient histograms alone: quick on any machine."""
    kinds = write_shapes(folder / "photos", count)
    project = create_project(folder / "photos", folder / "project", classes=KINDS, seed=seed)
    project.index()
    return change_settings(project, backbone="hog@32", deep_when_idle=False, **settings), kinds


def answer_next(project: Project, kinds: dict[str, str], count: int, by: str = "ann") -> list[str]:
    """Answer what is asked next; return the images."""
    ids = {each.name: each.id for each in project.classes()}
    answered = []
    for _ in range(count):
        image = project.next(by, 1)[0].image
        answer = Answer(id=uuid4(), images=[image], kind="label", class_id=ids[kinds[image]], by=by, seconds=2.0)
        project.answer(answer)
        answered.append(image)
    return answered


def settle(worker) -> None:
    """Let a worker do everything that is due."""
    while worker.step():
        pass

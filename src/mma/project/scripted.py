"""A scripted person at a project: labeled photos, and answers that are right but for a share of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import UUID

from mma.project import Answer
from mma.project.project import Project
from mma.rng import rng

PERSON = "person"
SECONDS = 3.0  # that the scripted person takes for a label


@dataclass(frozen=True)
class LabeledPhotos:
    """Photos by content, and the class of each: a sub-folder for every class."""

    root: Path
    paths: dict[str, Path]  # sha256 -> file
    classes: dict[str, str]

    @property
    def names(self) -> list[str]:
        """The classes, sorted."""
        return sorted(set(self.classes.values()))


class ScriptedPerson:
    """Answers with the true class, and sometimes with another one: always the same answer for the same photo."""

    def __init__(self, project: Project, photos: LabeledPhotos, noise: float, seed: int) -> None:
        self.project, self.photos, self.noise, self.seed = project, photos, noise, seed
        self.ids = {each.name: each.id for each in project.classes()}
        self.wrong = 0

    def label_next(self) -> None:
        """Answer one question."""
        item = self.project.next(PERSON, 1)[0]
        self.project.answer(self._label(item.image, self.answer_to(item.image), "label"))

    def look_again(self, image: str) -> None:
        """Look at a label in the review: keep it if it is right, else correct it."""
        self.project.answer(self._label(image, self.ids[self.photos.classes[image]], "review"))

    def _label(self, image: str, class_id: int, source: Literal["label", "review"]) -> Answer:
        draw = rng(self.seed, "answer", image, "id" if source == "label" else source).bytes(16)
        return Answer(
            id=UUID(bytes=draw, version=4),
            images=[image],
            kind="label",
            class_id=class_id,
            by=PERSON,
            seconds=SECONDS,
            source=source,
        )

    def answer_to(self, image: str) -> int:
        """Return the class that this person says."""
        draw = rng(self.seed, "answer", image)
        true = self.photos.classes[image]
        if draw.uniform() >= self.noise:
            return self.ids[true]
        self.wrong += 1
        others = [name for name in self.photos.names if name != true]
        return self.ids[others[int(draw.integers(len(others)))]]

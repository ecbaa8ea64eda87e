"""The first minute: a sheet of images that differ from each other, and class names that lie at hand."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from mma.data.label_csv import DEFAULT, read_labels
from mma.project import Project
from mma.project.listing import list_images

SHEET = 24


class Setup:
    """What a person sees who has no classes yet."""

    def __init__(self, project: Project) -> None:
        self.project = project

    def sheet(self) -> list[dict[str, str]]:
        """Return images that look unlike each other."""
        return [{"image": each.id, "name": each.name} for each in self.project.spread(SHEET)]

    @cached_property
    def offers(self) -> list[dict[str, Any]]:
        """Return class names from sub-folders and from a labels file, with where they come from. Looked for once."""
        hints = self.project.hints()
        found: list[dict[str, Any]] = []
        if hints.folders:
            found.append({"from": "The sub-folders are called", "names": list(hints.folders)})
        if hints.question:
            found.append({"from": hints.question, "names": []})
        if DEFAULT in hints.label_files:
            found.append(self._of_file())
        return found

    def _of_file(self) -> dict[str, Any]:
        names, _, _ = list_images(self.project.root)
        try:
            labels = read_labels(self.project.root / DEFAULT, names)
        except ValueError as error:
            return {"from": str(error).splitlines()[0], "names": []}
        return {"from": f"{DEFAULT} lies beside the images and names", "names": sorted(set(labels.values()) - {""})}

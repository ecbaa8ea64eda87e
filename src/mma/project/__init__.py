"""A person's project: index, label store, queue, and the training behind the page.

Names are loaded on first use: importing this loads neither torch nor the database.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mma.project.exchange.import_labels import TakeIn as TakeIn
    from mma.project.photos import IndexReport as IndexReport
    from mma.project.project import Project as Project
    from mma.project.project import create_project as create_project
    from mma.project.project import find_project as find_project
    from mma.project.project import open_project as open_project
    from mma.project.project import relink as relink
    from mma.project.records import Answer as Answer
    from mma.project.records import Counts as Counts
    from mma.project.records import Event as Event
    from mma.project.records import Item as Item
    from mma.project.records import Klass as Klass
    from mma.project.records import Labels as Labels
    from mma.project.records import ModelRow as ModelRow
    from mma.project.records import Pick as Pick
    from mma.project.records import ProjectImage as ProjectImage

RECORDS = ("Answer", "Counts", "Event", "Item", "Klass", "Labels", "ModelRow", "Pick", "ProjectImage")
PLACES = {
    **dict.fromkeys(RECORDS, "records"),
    **dict.fromkeys(("create_project", "find_project", "open_project", "relink"), "project"),
    "IndexReport": "photos",
    "Project": "project",
    "TakeIn": "exchange.import_labels",
}


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"module 'mma.project' has no attribute {name!r}")
    return getattr(import_module(f"mma.project.{PLACES[name]}"), name)

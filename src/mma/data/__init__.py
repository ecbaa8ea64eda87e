"""Data: any source becomes `Images`, one uint8 array with labels and class names. Nothing here imports torch.

Names are loaded on first use: a process that only decodes photos starts in half the time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mma.data.cache import data_root as data_root
    from mma.data.folder import FolderOptions as FolderOptions
    from mma.data.images import UNKNOWN as UNKNOWN
    from mma.data.images import BadFile as BadFile
    from mma.data.images import DataSet as DataSet
    from mma.data.images import Images as Images
    from mma.data.images import OwnData as OwnData
    from mma.data.images import as_data_set as as_data_set
    from mma.data.sources import SOURCES as SOURCES
    from mma.data.sources import DataSetInfo as DataSetInfo
    from mma.data.sources import Source as Source
    from mma.data.sources import catalogue as catalogue
    from mma.data.sources import get as get
    from mma.data.sources import get_folder as get_folder
    from mma.data.sources import load_data as load_data
    from mma.data.sources import names as names
    from mma.data.sources import photo_options as photo_options
    from mma.data.sources import verify as verify
    from mma.data.subsets import START_SETS as START_SETS
    from mma.data.subsets import nested_order as nested_order
    from mma.data.subsets import start_set as start_set

NAMES = {
    "cache": "data_root",
    "folder": "FolderOptions",
    "images": "UNKNOWN BadFile DataSet Images OwnData as_data_set",
    "sources": "SOURCES DataSetInfo Source catalogue get get_folder load_data names photo_options verify",
    "subsets": "START_SETS nested_order start_set",
}
PLACES = {name: place for place, names in NAMES.items() for name in names.split()}
__all__ = list(PLACES)


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"module 'mma.data' has no attribute {name!r}")
    return getattr(import_module(f"mma.data.{PLACES[name]}"), name)

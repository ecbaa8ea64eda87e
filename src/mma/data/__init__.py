"""Data: any source becomes `Images`, one uint8 array with labels and class names. Nothing here imports torch."""

from mma.data.cache import data_root, verify
from mma.data.folder import FolderOptions
from mma.data.images import UNKNOWN, DataSet, Images, Quarantined
from mma.data.sources import SOURCES, Entry, Source, catalogue, get, get_folder, load, names
from mma.data.subsets import START_SETS, nested_order, start_set, subset

__all__ = [
    "SOURCES",
    "START_SETS",
    "UNKNOWN",
    "DataSet",
    "Entry",
    "FolderOptions",
    "Images",
    "Quarantined",
    "Source",
    "catalogue",
    "data_root",
    "get",
    "get_folder",
    "load",
    "names",
    "nested_order",
    "start_set",
    "subset",
    "verify",
]

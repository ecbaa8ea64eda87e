"""Data: any source becomes `Images`, one uint8 array with labels and class names. Nothing here imports torch."""

from mma.data.cache import data_root
from mma.data.folder import FolderOptions
from mma.data.images import UNKNOWN, BadFile, DataSet, Images
from mma.data.sources import (
    SOURCES,
    DataSetInfo,
    Source,
    catalogue,
    get,
    get_folder,
    load_data,
    names,
    photo_options,
    verify,
)
from mma.data.subsets import START_SETS, nested_order, start_set, subset

__all__ = [
    "SOURCES",
    "START_SETS",
    "UNKNOWN",
    "BadFile",
    "DataSet",
    "DataSetInfo",
    "FolderOptions",
    "Images",
    "Source",
    "catalogue",
    "data_root",
    "get",
    "get_folder",
    "load_data",
    "names",
    "nested_order",
    "photo_options",
    "start_set",
    "subset",
    "verify",
]

"""The files of an image folder, and the classes that their folders may stand for: offered, never taken."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from mma.data.folder import list_files
from mma.data.images import BadFile
from mma.text import printable

# Files that lie beside photos and are none; anything else is looked at, whatever its name says.
TEXTS = (".txt", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".md", ".toml", ".yaml", ".yml", ".html", ".htm", ".log")
OTHERS = (".pdf", ".doc", ".docx", ".xls", ".xlsx", ".zip", ".tar", ".gz", ".db", ".ini", ".py", ".sh", ".aae", ".xmp")
HEAVY = (".mp4", ".mov", ".avi", ".mkv", ".mp3", ".wav", ".parquet", ".npy", ".safetensors", ".onnx")
PASSED_BY = frozenset((*TEXTS, *OTHERS, *HEAVY))
LABEL_FILES = ("labels.csv", "metadata.csv", "metadata.jsonl")  # offered when they lie in the image folder
MOST_CLASSES = 0.5  # classes per image above which folders are no classes
SHOWN = 5

Level = Literal["first", "last"]


def list_images(root: Path) -> tuple[list[str], list[BadFile], int]:
    """List the files that may be images, what is left out for its name, and how many are no images by their name."""
    names, bad = list_files(root)
    found = [name for name in names if os.path.splitext(name)[1].lower() not in PASSED_BY]
    return found, bad, len(names) - len(found)


@dataclass(frozen=True)
class ClassHints:
    """What the image folder suggests. `question` says what cannot be told without a person."""

    folders: tuple[str, ...]
    label_files: tuple[str, ...]
    question: str


def folder_of(name: str, level: Level) -> str:
    """Return the first or the last folder on the way to a file, "" for a file that lies in none."""
    folders = PurePosixPath(name).parts[:-1]
    return "" if not folders else folders[0] if level == "first" else folders[-1]


def class_hints(root: Path, names: Sequence[str]) -> ClassHints:
    """Offer sub-folders and label files as sources of classes."""
    files = tuple(name for name in LABEL_FILES if (root / name).is_file())
    first, last = _names(names, "first"), _names(names, "last")
    if len(first) < 2 and len(last) < 2:
        return ClassHints((), files, "")
    if len(last) > MOST_CLASSES * len(names):
        question = f"there are {len(last):,} sub-folders for {len(names):,} images, so they hardly stand for classes."
        return ClassHints((), files, f"{question} What are the classes?")
    if first != last:
        question = (
            f"the sub-folders lie in each other: classes could be the first ones ({_some(first)}) or the last ones "
            f"({_some(last)}). Which are they, if any?"
        )
        return ClassHints((), files, question)
    return ClassHints(tuple(first), files, "")


def _names(names: Sequence[str], level: Level) -> list[str]:
    return sorted({folder_of(name, level) for name in names} - {""})


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(f"'{printable(name)}'" for name in names[:SHOWN]) + more

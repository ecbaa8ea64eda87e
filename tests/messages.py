"""What mma says when it refuses: every message that a test meets is in messages.json, to be read as a whole.

    pytest --messages        write it anew, for the tests that are run; then read the difference

What differs from machine to machine is replaced: folders, addresses, process numbers, digests, dates.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
GOLDEN = Path(__file__).with_name("messages.json")
VARYING = {
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}": "UUID",
    r"\b[0-9a-f]{16,}\b": "DIGEST",
    r"\b20\d\d-\d\d-\d\d([ T]\d\d:\d\d(:\d\d)?(\.\d+)?(\+00:00|Z| UTC)?)?": "DATE",
    r"\b(process|pid) \d+( on \S+)?": r"\1 PID",
    r"\bport \d+": "port PORT",
    r"\b(127\.0\.0\.1|localhost):\d+": r"\1:PORT",
}


def normalise(text: str, folder: Path) -> str:
    """Return a message without what differs between two runs of a test whose own folder this is."""
    places = {folder: "TMP", folder.parent: "TMPS", ROOT: "ROOT", Path(tempfile.gettempdir()): "TEMP"}
    places |= {Path(sys.executable): "PYTHON", Path.home(): "HOME"}
    for place, name in places.items():
        for path in {str(place.resolve()), str(place)}:
            for written in (f"'{path}'", f'"{path}"', path):  # a folder with spaces is quoted
                text = re.sub(rf"(?<!\w){re.escape(written)}(?!\w)", name, text)
    for pattern, name in VARYING.items():
        text = re.sub(pattern, name, text)
    return text


# A new entry of a table is in the lists that messages end with: which entries they name is not compared.
LISTS = re.compile(r"(Choose one of:?|Experiments:|Presets:|It has:|A query is|heading must be) [^.]*(\.aug[^.]*)*")


def without_lists(text: str) -> str:
    """Return a message without the entries of tables that it lists."""
    return LISTS.sub(r"\1 LIST", text)


def read() -> dict[str, list[str]]:
    """Return the messages of each test, in the order in which it meets them."""
    return json.loads(GOLDEN.read_text("utf-8")) if GOLDEN.exists() else {}


def is_there(test: str) -> bool:
    """Return whether a test of this id is in its file; which values it takes is not looked at."""
    path, _, name = test.partition("::")
    found = ROOT / path
    return found.is_file() and f"def {name.partition('[')[0]}(" in found.read_text("utf-8")


def write(met: Mapping[str, list[str]]) -> None:
    """Write the messages of the tests that were run; those of other tests that still exist stay."""
    kept = {test: messages for test, messages in read().items() if is_there(test)}
    text = json.dumps(dict(sorted({**kept, **met}.items())), indent=1, ensure_ascii=False)
    GOLDEN.write_text(text + "\n", "utf-8")

"""docs/security.md names the places of the tests of every line of the gate, and each of them has some."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")
LINES = [*(f"R{n}" for n in range(1, 12)), *(f"S{n}" for n in range(1, 10)), *(f"D{n}" for n in range(1, 7))]


def text_of(place: str) -> str:
    """Return the tests in a file or folder."""
    path = ROOT / place
    files = [path] if path.is_file() else sorted(path.rglob("test_*.py"))
    assert files, f"there is no {place}"
    return "\n".join(file.read_text("utf-8") for file in files)


@pytest.mark.parametrize("line", LINES)
def test_every_line_of_the_gate_has_tests_where_the_page_says(line: str):
    rows = re.findall(rf"^\| {line} \|.*$", PAGE, re.M)
    assert len(rows) == 1
    cell = rows[0].split("|")[3]
    assert f"`test_{line.lower()}_`" in cell
    places = re.findall(r"tests/[\w./]+", cell)
    assert places
    for place in places:
        assert re.search(rf"^def test_{line.lower()}_\w+\(", text_of(place), re.M), f"{line}: no test in {place}"


def test_no_test_is_named_after_a_line_that_the_gate_does_not_have():
    named = set(re.findall(r"^def test_([rsd]\d+)_", text_of("tests"), re.M))
    assert named == {line.lower() for line in LINES}

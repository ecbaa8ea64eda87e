"""docs/security.md names a test for every line of the gate, and each of them exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")
TESTS = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
LINES = [*(f"R{n}" for n in range(1, 12)), *(f"S{n}" for n in range(1, 10)), *(f"D{n}" for n in range(1, 7))]


@pytest.mark.parametrize("line", LINES)
def test_every_line_of_the_gate_has_tests(line: str):
    rows = re.findall(rf"^\| {line} \|.*$", PAGE, re.M)
    assert len(rows) == 1
    names = re.findall(r"`(test_\w+)`", rows[0])
    assert names
    for name in names:
        pattern = rf"def {name}\w+" if name.endswith("_") else rf"def {name}\("
        assert re.search(pattern, TESTS), f"{line}: there is no {name}"

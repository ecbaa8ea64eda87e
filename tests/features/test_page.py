"""The page about features: its Python runs."""

from __future__ import annotations

import re
from pathlib import Path

from mma.features import BACKBONES, parse_backbone

PAGE = (Path(__file__).parents[2] / "docs" / "features.md").read_text("utf-8")


def test_the_python_of_the_page_runs(monkeypatch):
    monkeypatch.setitem(BACKBONES, "mine", BACKBONES["hog"])  # so that the page's own entry goes with the test
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, "page", "exec", dont_inherit=True), names)
    assert len(blocks) == 3
    assert names["x"].shape == (3, 324)
    assert parse_backbone("mine").label() == "mine"


def test_every_backbone_is_on_the_page():
    assert all(re.search(rf"`{name}[:`]", PAGE) for name in BACKBONES)

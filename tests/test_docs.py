"""What the pages say is so: README's Python runs, every command and setting it names exists, links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_python_of_the_readme_runs():
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there():
    import mma

    for name in mma.__all__:
        assert getattr(mma, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        mma.nothing  # noqa: B018


def test_every_command_named_in_the_readme_exists():
    known = set(re.findall(r"^## mma (.+)$", (ROOT / "docs" / "cli.md").read_text("utf-8"), re.M))
    named = re.findall(r"(?:^|`|   )mma ((?:data )?[a-z]+)", (ROOT / "README.md").read_text("utf-8"), re.M)
    assert len(named) > 10
    assert set(named) <= known


def test_every_setting_named_in_the_pages_exists():
    from mma.config import change
    from mma.presets import preset

    for page in PAGES:
        for line in page.read_text("utf-8").replace("\\\n", " ").splitlines():  # a command's settings go together
            named = re.findall(r"--set ([\w.]+=[^\s`)]+)", line)
            change(preset("digits"), [setting for setting in named if setting != "path=value"])


def test_every_preset_is_in_the_readme():
    from mma.presets import PRESETS

    text = (ROOT / "README.md").read_text("utf-8")
    assert all(f"`{name}`" in text for name in PRESETS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target

"""What the pages say is so: README's Python runs, every command and setting it names exists, links lead somewhere."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]


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


def test_the_command_page_lists_the_exit_codes():
    from mma.cli import EXIT_CODES

    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    assert {0, 1, 2, 3, 130, 143} == set(EXIT_CODES)
    assert all(f"| {code} | {meaning} |" in page for code, meaning in EXIT_CODES.items())


def test_the_citation_names_the_version_and_the_paper():
    text = (ROOT / "CITATION.cff").read_text("utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert f"version: {project['version']}\n" in text
    assert f"license: {project['license']}\n" in text
    assert "arXiv:1912.00594" in text
    assert re.findall("family-names: (.*)", text) == ["Song", "Berthelot", "Rostamizadeh"]


@pytest.mark.parametrize("name", ["CITATION.cff", ".github/workflows/test.yml", ".pre-commit-config.yaml"])
def test_what_should_be_yaml_is_yaml(name):
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    assert isinstance(yaml.safe_load((ROOT / name).read_text("utf-8")), dict)


def test_the_workflow_runs_the_same_command_on_every_version_that_pyproject_names():
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text("utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    versions = [line.rsplit(" ", 1)[1] for line in project["classifiers"] if "Python :: 3." in line]
    assert f"python: {json.dumps(versions)}" in workflow
    assert "make test" in workflow
    assert "make test" in (ROOT / ".ci" / "run").read_text("utf-8")


def test_pytest_ends_with_what_was_not_run_and_the_seed_of_its_order(tmp_path):
    """In a folder of its own, with the conftest.py of these tests."""
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "def test_one(): pytest.skip('no GPU')\n"
        "def test_two(): pytest.skip('no GPU')\n"
        "def test_three(): pytest.skip('Fashion-MNIST (apt-get install dataset-fashion-mnist)')\n"
        "def test_four(): pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--randomly-seed=7"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    *_, order, left_out, count = done.stdout.splitlines()
    assert order == "random order; the same order again:  pytest --randomly-seed=7"
    assert left_out == "not run: 3 tests: Fashion-MNIST (apt-get install dataset-fashion-mnist): 1, no GPU: 2"
    assert count.startswith("1 passed, 3 skipped")

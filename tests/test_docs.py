"""What the pages say is so: README's Python runs, every command and setting it names exists, links lead somewhere."""

from __future__ import annotations

import json
import os
import pydoc
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from mma.extensions import GROUPS
from tests.each import each

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]
every_page = each(page={str(page.relative_to(ROOT)): page for page in PAGES})
RESULTS = sorted((ROOT / "results").rglob("*.md"))


def test_the_readme_is_read_in_a_minute():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 100


@pytest.mark.parametrize(
    "name", ["README.md", "docs/classifier.md", "docs/extend.md", "docs/label.md", "docs/methods.md"]
)
def test_the_last_python_of_a_page_runs(name):
    *_, code = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text("utf-8"), re.S)
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there():
    import mma

    for name in mma.__all__:
        assert getattr(mma, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        mma.nothing  # noqa: B018


@every_page
def test_every_python_name_on_a_page_exists(page):
    for name in re.findall(r"\bmma((?:\.[A-Za-z_]+)+)", page.read_text("utf-8")):
        if not name.endswith((".toml", ".md")) and f"mma{name}" not in GROUPS:
            pydoc.locate(f"mma{name}") or pytest.fail(f"there is no mma{name}")


def commands_in(page: Path) -> list[list[str]]:
    """Return the arguments of every `mma ...` that a page shows, in code blocks and between backticks.

    Between backticks a name alone may stand for the command (`mma train`); it is returned with a target to be complete.
    """
    text = page.read_text("utf-8").replace("\\\n", " ")
    fences = re.findall(r"^```(\w*)\n(.*?)^```", text, re.S | re.M)
    blocks = [line for language, block in fences if language in ("", "sh") for line in block.splitlines()]
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S))
    inline = [re.sub(r"^mma ((?:data )?[a-z]+)( \.\.\.|$)", r"mma \1 TARGET", line) for line in inline]
    found = [re.match(r"(?:torchrun .* -m |srun .* |python -m )?mma (.+)", line.strip()) for line in (*blocks, *inline)]
    lines = [re.split(r"\s#|\s{3,}(?=[a-z])", match[1])[0] for match in found if match]
    return [shlex.split(line) for line in lines if not line.split()[0].isupper()]


def parse(arguments: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Return the command's name and the values of its options; a command line that is wrong raises."""
    from mma.cli import commands

    command, name = typer.main.get_command(commands()), ["mma"]
    context = command.make_context("mma", list(arguments))
    while hasattr(command, "commands"):
        rest = [*context._protected_args, *context.args]
        step, command, rest = command.resolve_command(context, rest)
        context = command.make_context(step, rest, parent=context)
        name.append(step)
    return name[1:], context.params


@pytest.fixture
def examples_imported(monkeypatch):
    """Import the examples of docs/extend.md, and leave no trace of them in this process."""
    import mma
    from mma.algorithms import ALGORITHMS
    from mma.data import SOURCES
    from mma.nets import NETS
    from mma.query import DIVERSITY, UNCERTAINTY

    tables: list[dict[str, Any]] = [ALGORITHMS, NETS, SOURCES, UNCERTAINTY, DIVERSITY]
    before, modules = [dict(table) for table in tables], set(sys.modules)
    monkeypatch.setenv("MMA_USE", "")
    for name in ("own_algorithm", "own_query", "own_network", "own_data"):
        mma.use(str(ROOT / "docs" / "examples" / f"{name}.py"))
    yield
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)
    for name in {name for name in sys.modules if name.startswith("mma_use_")} - modules:
        del sys.modules[name]


@every_page
def test_every_command_on_a_page_is_understood(page, examples_imported):
    from mma.config import change
    from mma.experiments.catalogue import EXPERIMENTS
    from mma.presets import PRESETS, preset

    folders = set(re.findall(r"--out (\S+)", page.read_text("utf-8")))
    for arguments in commands_in(page):
        try:
            name, given = parse(arguments)
        except typer.Exit:  # --version prints and ends
            continue
        except Exception as error:
            pytest.fail(f"mma {' '.join(arguments)}: {getattr(error, 'message', error)!s}")
        target = str(given.get("target") or given.get("name"))
        known = {*PRESETS, *EXPERIMENTS} if name == ["grid"] else {*PRESETS, *(["plugins"] if name == ["show"] else [])}
        if name[0] in ("train", "show", "flop", "grid") and re.fullmatch(r"[a-z0-9-]+", target):
            assert target in known | folders, f"mma {' '.join(arguments)}: there is no {target}"
        base = preset(target if target in PRESETS else "digits")
        settings = [setting for setting in given.get("settings") or [] if setting.lower() != "path=value"]
        change(base, settings)  # an unknown setting or value is an error


@every_page
def test_every_setting_named_on_a_page_exists(page, examples_imported):
    from mma.config import CHOICES, paths
    from mma.presets import PRESETS, preset

    known = {path for name in PRESETS for path in paths(preset(name).model_dump(mode="json"))} | set(CHOICES)
    known |= {
        f"{group}.{field}" for group, table in CHOICES.items() for kind in table.values() for field in kind.model_fields
    }
    groups = {path.split(".")[0] for path in known if "." in path} - {"data"}  # `data.train` is also Python
    for code in re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.S)):
        named = re.fullmatch(r"([a-z_]+(?:\.[a-z_]+)+)(=\S+)?", code)
        if named and named[1].split(".")[0] in groups and not named[1].endswith((".py", ".md")):
            assert named[1] in known, f"there is no setting {code}"


def test_every_preset_is_in_the_readme():
    from mma.presets import PRESETS

    text = (ROOT / "README.md").read_text("utf-8")
    assert all(f"`{name}`" in text for name in PRESETS)


@each(page={str(page.relative_to(ROOT)): page for page in [*PAGES, *RESULTS, ROOT / "CHANGELOG.md"]})
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@each(page={str(page.relative_to(ROOT)): page for page in [*PAGES, *RESULTS]})
def test_links_within_a_page_lead_to_a_heading(page):
    for target, heading in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text("utf-8")):
        text = (page.parent / target if target else page).read_text("utf-8")
        titles = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)
        anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
        assert heading in anchors, f"{target or page.name} has no heading #{heading}"


def test_nothing_names_a_package_index_that_we_are_not_on():
    """Until it is published, `pip install mma-learn` ends with an error: pages and messages name the checkout."""
    for path in [*PAGES, *RESULTS, *(ROOT / "src").rglob("*.py")]:
        assert not re.search(r"pip install [^\n]*mma-learn", path.read_text("utf-8")), path


def test_the_index_lists_every_page():
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index, page.name


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
    """In a folder of its own, with the conftest.py of these tests and what it reads."""
    for name in ("conftest.py", "slow.txt"):
        shutil.copy(ROOT / "tests" / name, tmp_path)
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "def test_one(): pytest.skip('no GPU')\n"
        "def test_two(): pytest.skip('no GPU')\n"
        "def test_three(): pytest.skip('Fashion-MNIST (apt-get install dataset-fashion-mnist)')\n"
        "def test_four(): pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--randomly-seed=7"]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])  # for what conftest.py imports
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    *_, order, left_out, count = done.stdout.splitlines()
    assert order == "random order; the same order again:  pytest --randomly-seed=7"
    assert left_out == "not run: 3 tests: Fashion-MNIST (apt-get install dataset-fashion-mnist): 1, no GPU: 2"
    assert count.startswith("1 passed, 3 skipped")

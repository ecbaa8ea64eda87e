"""Entries that installed packages bring: listed without an import, imported when they are named, also in worker processes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mma.errors import UserError
from mma.extensions import GROUPS, load_plugin, plugins

ROOT = Path(__file__).parents[1]
SHORT = (
    *("growth.start=10", "growth.add=5", "growth.budget=20", "growth.first=4", "growth.every=4", "growth.final=4"),
    *("log.every=4", "optim.batch=4"),
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return an environment in which the example package is installed, and nothing else is new."""
    source, target = tmp_path_factory.mktemp("package") / "plugin", tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs" / "examples" / "plugin", source)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(source)], check=True, capture_output=True)
    path = os.pathsep.join([str(target), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}


def run(environment, *words, cwd=None):
    return subprocess.run(
        [sys.executable, *words], env=environment, cwd=cwd, capture_output=True, text=True, check=False
    )


def write_package(site, name, group, entry, code):
    """Install a package by hand: a module, and the folder that says what it is."""
    (site / f"{name}.py").write_text(code)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{entry} = {name}\n")


def test_plugins_are_listed_and_not_imported(installed):
    code = (
        "import sys; from mma.extensions import plugins; print(plugins()); print('mma_example_plugin' in sys.modules)"
    )
    done = run(installed, "-c", code)
    assert "entropy-minimisation" in done.stdout
    assert done.stdout.strip().endswith("False")
    shown = run(installed, "-m", "mma", "show", "plugins")
    assert [line.split()[:4] for line in shown.stdout.splitlines()] == [
        ["mma.queries", "gini", "mma-example-plugin", "0.1.0"],
        ["mma.algorithms", "entropy-minimisation", "mma-example-plugin", "0.1.0"],
    ]


def test_a_run_with_plugins_is_trained_and_opened_by_name_alone(installed, tmp_path):
    words = ("algorithm=entropy-minimisation", "query=gini.aug-kmeans", *SHORT)
    settings = [word for setting in words for word in ("--set", setting)]
    done = run(installed, "-m", "mma", "train", "digits", *settings, "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "gini.aug-kmeans" in (tmp_path / "run" / "queries.jsonl").read_text()
    assert run(installed, "-m", "mma", "eval", "run", cwd=tmp_path).returncode == 0
    without = {**installed, "PYTHONPATH": str(ROOT / "src")}
    assert "--use" in run(without, "-m", "mma", "eval", "run", cwd=tmp_path).stderr


def test_the_workers_of_a_grid_find_plugins_by_name(installed, tmp_path):
    settings = [word for setting in SHORT for word in ("--set", setting)]
    axes = ("--axis", "algorithm=entropy-minimisation", "--axis", "query=gini-direct", "--axis", "seed=1")
    done = run(installed, "-m", "mma", "grid", "digits", *axes, *settings, "--out", "grid", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "entropy-minimisation" in done.stdout


ADD = {
    "mma.queries": "from mma.query import UNCERTAINTY as T",
    "mma.backbones": "from mma.features import BACKBONES as T",
    "mma.algorithms": "from mma.algorithms import ALGORITHMS as T",
    "mma.nets": "from mma.nets import NETS as T",
    "mma.sources": "from mma.data import SOURCES as T",
}
NAMED = {
    "mma.queries": "from mma.query import Query; Query.parse('own.aug-direct')",
    "mma.backbones": "from mma.features import parse_backbone; parse_backbone('own@32')",
    "mma.algorithms": "import mma; mma.change(mma.preset('digits'), ['algorithm=own'])",
    "mma.nets": "import mma; mma.change(mma.preset('digits'), ['net=own'])",
    "mma.sources": "from mma.data.sources import check_known; check_known('own')",
}


@pytest.mark.parametrize("group", GROUPS)
def test_naming_an_entry_imports_it_in_every_group(tmp_path, group):
    code = f"{ADD[group]}\nprint('imported')\nT['own'] = next(iter(T.values()))\n"
    write_package(tmp_path, "own_package", group, "own", code)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "src")])}
    assert "imported" in run(environment, "-c", NAMED[group]).stdout
    assert "imported" not in run(environment, "-c", NAMED[group].replace("'own", "'no").replace("=own", "=no")).stdout


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import nothing_of_this_name", "cannot be imported (ModuleNotFoundError"),
        ("1 / 0", "cannot be imported (ZeroDivisionError"),
        ("", "added no such entry"),
    ],
)
def test_a_plugin_that_fails_is_a_sentence_with_the_way_out(tmp_path, monkeypatch, code, says):
    write_package(tmp_path, "broken_package", "mma.nets", "broken", code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "broken_package", raising=False)
    with pytest.raises(UserError) as refused:
        load_plugin("mma.nets", "broken", {})
    assert says in str(refused.value)
    assert "pip uninstall broken_package" in str(refused.value)


def test_a_name_that_two_packages_bring_is_refused(tmp_path, monkeypatch):
    for name in ("one_package", "other_package"):
        write_package(tmp_path, name, "mma.nets", "twice", "raise SystemExit")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [plugin.name for plugin in plugins()] == ["twice", "twice"]
    with pytest.raises(UserError) as refused:
        load_plugin("mma.nets", "twice", {})
    assert "one_package 1.0 and other_package 1.0" in str(refused.value)
    load_plugin("mma.nets", "twice", {"twice"})  # an entry that is there already wins

"""mma imports and trains where modules and calls that only Unix or Linux have are missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# Run before anything else is imported.
BLOCK = """
import os, sys
for name in ("fcntl", "resource", "pwd", "grp"):
    sys.modules[name] = None
for name in ("sched_getaffinity", "geteuid", "getuid"):
    if hasattr(os, name):
        delattr(os, name)
"""
# Windows cannot open a folder, and its rename does not replace a file.
LIKE_WINDOWS = """
real_open, real_rename = os.open, os.rename
def open_file(path, flags, *rest, **named):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", str(path))
    return real_open(path, flags, *rest, **named)
def rename(source, target, **named):
    if os.path.exists(target):
        raise FileExistsError(17, "File exists", str(source), None, str(target))
    return real_rename(source, target, **named)
os.open, os.rename = open_file, rename
"""
IMPORT_ALL = """
import importlib, pkgutil, mma
for module in pkgutil.walk_packages(mma.__path__, "mma."):
    if module.name != "mma.__main__":
        importlib.import_module(module.name)
"""
TRAIN = "from mma.cli import main; main()"


def python(code: str, *words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_module_imports_where_unix_modules_are_missing(tmp_path):
    done = python(BLOCK + IMPORT_ALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("missing", [BLOCK, BLOCK + LIKE_WINDOWS], ids=["no Unix modules", "files as on Windows"])
def test_a_run_trains_stops_and_goes_on_where_unix_calls_are_missing(tmp_path, tiny_settings, missing):
    settings = [part for setting in tiny_settings for part in ("--set", setting)]
    words = ("train", "digits", "--out", "run", "--threads", 1, *settings)
    first = python(missing + TRAIN, *words, "--until", 7, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "stopped at step 7" in first.stdout
    done = python(missing + TRAIN, *words, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "done"

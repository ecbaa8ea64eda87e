"""Entries of the tables from user code: an own algorithm, network, query or data source.

A module that is imported adds them (`ALGORITHMS["mine"] = Mine`). `use` imports it here and in the worker processes that
are started later; the command line does the same with  mma --use MODULE. Nothing is ever imported from a config file.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from shlex import quote
from types import ModuleType

from mma.errors import UserError

VARIABLE = "MMA_USE"  # modules that every process of this program imports, separated as in PATH


def use(name: str) -> ModuleType:
    """Import a user's module, by its name or the path of its file, here and in every worker process started later."""
    place = str(Path(name).resolve()) if name.endswith(".py") else name
    module = _import_file(Path(place)) if name.endswith(".py") else _import_module(name)
    os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys([*_in_use(), place]))
    return module


def _in_use() -> list[str]:
    return [name for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]


def command() -> str:
    """Return how to call mma with the same modules: `mma`, or `mma --use MODULE ...`."""
    return " ".join(["mma", *(f"--use {quote(name)}" for name in _in_use())])


def use_inherited() -> None:
    """Import what the process that started this one uses."""
    for name in _in_use():
        use(name)


def _import_module(name: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # as `python -m` does
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise  # the module is there, and what it imports is not
        raise UserError(
            f"--use {name}: there is no such module. Give the path of a file that ends in .py, or the name of a module that "
            "Python finds from here."
        ) from None


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UserError(f"--use {path}: there is no such file.")
    name = f"mma_use_{path.stem}"
    if name in sys.modules and getattr(sys.modules[name], "__file__", None) == str(path):
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module

"""Entries of the tables from user code and from installed packages: an own algorithm, network, query, backbone or data source.

A module that is imported adds them (`ALGORITHMS["mine"] = Mine`). `use` imports it here and in the worker processes that
are started later; the command line does the same with  mma --use MODULE. An installed package names such modules in its entry
points, in the groups below; one of them is imported when somebody names its entry. A config names entries, never code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from shlex import quote
from types import ModuleType
from typing import NamedTuple

from mma.errors import UserError
from mma.text import first_line, printable

GROUPS = ("mma.queries", "mma.backbones", "mma.algorithms", "mma.nets", "mma.sources")  # of entry points
VARIABLE = "MMA_USE"  # modules that every process of this program imports, separated as in PATH


def use(name: str) -> ModuleType:
    """Import a user's module here and in every worker process that is started later.

    Parameters
    ----------
    name : str
        A module that Python finds, or the path of a file. Its entries of mma's tables can be named from then on.

    Examples
    --------
    >>> mma.use("colorsys").__name__
    'colorsys'
    """
    place = name
    if name.endswith(".py"):
        place, called = str(Path(name).resolve()), f"mma_use_{Path(name).stem}"
        module = sys.modules.get(called)
        if module is None or getattr(module, "__file__", None) != place:
            if not Path(place).is_file():
                raise UserError(f"--use {place}: there is no such file.")
            spec = spec_from_file_location(called, place)
            assert spec is not None
            assert spec.loader is not None
            sys.modules[called] = module = module_from_spec(spec)
            spec.loader.exec_module(module)
    else:
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())  # as `python -m` does
        try:
            module = import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise  # the module is there, and what it imports is not
            raise UserError(
                f"--use {name}: there is no such module. Give the path of a file that ends in .py, or the name of a module "
                "that Python finds from here."
            ) from None
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


class Plugin(NamedTuple):
    """An entry that an installed package brings."""

    group: str
    name: str
    module: str  # adds the entry when it is imported
    package: str


def plugins() -> list[Plugin]:
    """List what installed packages bring, without importing any of it."""
    from importlib.metadata import entry_points

    found = {
        Plugin(group, point.name, point.value, f"{point.dist.name} {point.dist.version}" if point.dist else "unknown")
        for group in GROUPS
        for point in entry_points(group=group)
    }
    return sorted(found, key=lambda plugin: (GROUPS.index(plugin.group), plugin.name, plugin.package))


def load_plugin(group: str, name: str, *tables: Collection[str]) -> None:
    """Import the installed plugin that brings an entry of this name, unless a table has it; nothing where there is none."""
    if any(name in table for table in tables):
        return
    found = [plugin for plugin in plugins() if (plugin.group, plugin.name) == (group, name)]
    what = f"the plugin '{printable(name)}' ({group})"
    if len(found) > 1:
        packages = " and ".join(plugin.package for plugin in found)
        raise UserError(f"{what} comes from {packages}. Remove one of them:  pip uninstall PACKAGE")
    for plugin in found:
        way_out = f"Update the package, or remove it:  pip uninstall {plugin.package.split()[0]}"
        try:
            import_module(plugin.module)
        except Exception as error:
            problem = f"{type(error).__name__}: {printable(first_line(error))}"
            raise UserError(f"{what} of {plugin.package} cannot be imported ({problem}). {way_out}") from error
        if not any(name in table for table in tables):
            raise UserError(
                f"{what} of {plugin.package} was imported from {plugin.module}, and added no such entry. {way_out}"
            )

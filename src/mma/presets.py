"""Presets: whole configs by name. What they are stands in presets.toml."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

from mma.config import Config, from_json
from mma.errors import UserError
from mma.text import did_you_mean

PRESETS: dict[str, dict[str, Any]] = tomllib.loads(files("mma").joinpath("presets.toml").read_text("utf-8"))


def preset(name: str) -> Config:
    """Return a preset: the whole description of a run.

    Parameters
    ----------
    name : str
        One that `mma show` lists, for example "digits", "photos" or "cifar10".

    Examples
    --------
    >>> mma.preset("cifar10").net.filters
    32
    """
    if name not in PRESETS:
        hint = did_you_mean(name, PRESETS)
        raise UserError(f"no preset or run '{name}'.{hint} Presets: {', '.join(PRESETS)}.")
    return from_json({"preset": name, **settings(name)})


def settings(name: str) -> dict[str, Any]:
    """Return what a preset names; one with a `base` changes what that one names."""
    given = dict(PRESETS[name])
    base = settings(given.pop("base")) if "base" in given else {}
    return {
        **base,
        **{key: {**base[key], **own} if isinstance(base.get(key), dict) else own for key, own in given.items()},
    }

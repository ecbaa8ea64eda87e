"""Axes as people write them: `seed=1..5`, `query=random,diff2.aug-direct`, `growth.budget=300,500`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product

from mma.config import parse_value
from mma.experiments.methods import Method

SEED, BUDGET, TOTAL = "seed", "growth.budget", "data.total"  # these make columns and repetitions; all others make rows


def read_axes(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Read `path=values` for each axis, in the order given."""
    axes: dict[str, tuple[str, ...]] = {}
    for text in texts:
        path, equals, values = (part.strip() for part in text.partition("="))
        if not equals or not values:
            raise ValueError(f"--axis {text!r} is not path=values. Write it like  --axis query=random,diff2.aug-direct")
        if path in axes:
            raise ValueError(f"--axis {path} is given twice. List all its values in one.")
        axes[path] = values_of(values)
    return axes


def values_of(text: str) -> tuple[str, ...]:
    """Split at commas outside brackets; `1..5` is every whole number from 1 to 5. Each value once."""
    found: list[str] = []
    for part in re.split(r",(?![^\[]*\])", text):
        numbers = re.fullmatch(r"(\d+)\.\.(\d+)", part.strip())
        if numbers is None:
            found.append(part.strip())
        elif int(numbers[1]) > int(numbers[2]):
            raise ValueError(f"the range {part.strip()} is empty: write the smaller number first.")
        else:
            found += map(str, range(int(numbers[1]), int(numbers[2]) + 1))
    if "" in found:
        raise ValueError(f"'{text}' has an empty value: remove the comma too many.")
    return tuple(dict.fromkeys(found))


def whole_numbers(name: str, values: Sequence[str]) -> tuple[int, ...]:
    """Read values that must be whole numbers, in ascending order."""
    wrong = [value for value in values if not re.fullmatch(r"[0-9][0-9_]*", value)]
    if wrong:
        raise ValueError(f"{name} takes whole numbers, like 1..5 or 500,1000; '{wrong[0]}' is none.")
    return tuple(sorted({int(value) for value in values}))


def seeds_of(text: str) -> tuple[int, ...]:
    """Read --seeds: a count (5 means 1..5), a range or a list."""
    if re.fullmatch(r"[1-9][0-9]*", text.strip()):
        return tuple(range(1, int(text) + 1))
    if text.strip().isdigit():
        raise ValueError("--seeds 0 would run nothing. Give how many, or which:  --seeds 5  or  --seeds 3..7")
    return whole_numbers("--seeds", values_of(text))


def rows(axes: Mapping[str, Sequence[str]]) -> dict[str, Method]:
    """Return one method per combination of the axes that make rows."""
    varied = {path: values for path, values in axes.items() if path not in (SEED, BUDGET, TOTAL)}
    methods: dict[str, Method] = {}
    for values in product(*varied.values()):
        settings = tuple(f"{path}={value}" for path, value in zip(varied, values, strict=True))
        # An algorithm brings its own defaults, so it comes before the settings that change them.
        ordered = tuple(sorted(settings, key=lambda setting: setting.split("=")[0] not in ("algorithm", "net")))
        methods[row_name(settings)] = Method(settings=ordered)
    return methods


def row_name(settings: Sequence[str]) -> str:
    """Name a row by what sets it apart; MixMatch is the paper's word for a passive run of it."""
    words = []
    for setting in settings:
        path, _, value = setting.partition("=")
        known = isinstance(parse_value(value), str)  # a word speaks for itself, a number needs its setting's name
        words.append(value if known else f"{path.rsplit('.', 1)[-1]}={value}")
    name = ", ".join(words)
    return {"passive": "MixMatch", "": "preset"}.get(name, name)

"""Axes, seeds and settings as people write them: `seed=1..5`, `query=random,max-direct`, or Python values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from mma.config import parse_value
from mma.experiments.methods import PASSIVE, Method

SEED, BUDGET, TOTAL = "seed", "growth.budget", "data.total"  # these make columns and repetitions; all others make rows
Values = str | int | Iterable[object]
POLICY = "growth.policy"
SettingValues = Mapping[str, object] | Sequence[str]


def read_axes(texts: Sequence[str]) -> dict[str, str]:
    """Read `path=values` for each axis, in the order given."""
    axes: dict[str, str] = {}
    for text in texts:
        path, equals, values = (part.strip() for part in text.partition("="))
        if not equals or not values:
            raise ValueError(f"--axis {text!r} is not path=values. Write it like  --axis query=random,diff2.aug-direct")
        if path in axes:
            raise ValueError(f"--axis {path} is given twice. List all its values in one.")
        axes[path] = values
    return axes


def values_of(given: Values) -> tuple[str, ...]:
    """Return each value once, as text: a list of Python values, or a text like `a,b` or `1..5`."""
    if not isinstance(given, str):
        values = given if isinstance(given, Iterable) else [given]
        return tuple(dict.fromkeys(text_of(value) for value in values))
    found: list[str] = []
    for part in re.split(r",(?![^\[]*\])", given):
        found += range_of(part.strip())
    return tuple(dict.fromkeys(refuse_empty(found, given)))


def refuse_empty(values: list[str], given: str) -> list[str]:
    """Return the values, or say that there is a comma too many."""
    if "" in values:
        raise ValueError(f"'{given}' has an empty value: remove the comma too many.")
    return values


def range_of(text: str) -> list[str]:
    """Return every whole number of `1..5`, or the text itself."""
    numbers = re.fullmatch(r"(\d+)\.\.(\d+)", text)
    if numbers is None:
        return [text]
    first, last = int(numbers[1]), int(numbers[2])
    if first > last:
        raise ValueError(f"the range {text} is empty: write the smaller number first.")
    return [str(number) for number in range(first, last + 1)]


def text_of(value: object) -> str:
    """Write a Python value as --set takes it: words as they are, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def settings_of(given: SettingValues) -> list[str]:
    """Return settings as `path=value`, from such texts or from a mapping of paths to Python values."""
    if isinstance(given, Mapping):
        return [f"{path}={text_of(value)}" for path, value in given.items()]
    return list(given)


def whole_numbers(name: str, given: Values) -> tuple[int, ...]:
    """Return values that must be whole numbers, in ascending order."""
    values = values_of(given)
    wrong = [value for value in values if not re.fullmatch(r"[0-9][0-9_]*", value)]
    if wrong:
        raise ValueError(f"{name} takes whole numbers, like 1..5 or 500,1000; '{wrong[0]}' is none.")
    return tuple(sorted({int(value) for value in values}))


def seeds_of(given: Values) -> tuple[int, ...]:
    """Return seeds from a count (5 means 1..5), a range or a list."""
    count = given.strip() if isinstance(given, str) else str(given) if isinstance(given, int) else ""
    if not count.isdigit():
        return whole_numbers("--seeds", given)
    if int(count) == 0:
        raise ValueError("--seeds 0 would run nothing. Give how many, or which:  --seeds 5  or  --seeds 3..7")
    return tuple(range(1, int(count) + 1))


def rows(axes: Mapping[str, Values]) -> dict[str, Method]:
    """Return one method per combination of the axes that make rows."""
    varied = {path: values_of(values) for path, values in axes.items() if path not in (SEED, BUDGET, TOTAL)}
    methods: dict[str, Method] = {}
    for values in product(*varied.values()):
        settings = dict(zip(varied, values, strict=True))
        if settings.get(POLICY) == "passive":
            settings.pop("query", None)  # it asks for nothing: one row for all queries
        methods[row_name(settings)] = row(settings)
    return methods


def row(settings: Mapping[str, object]) -> Method:
    """Return the method with these settings. An algorithm brings its own defaults, so it comes before what changes them."""
    ordered = sorted(settings, key=lambda path: path not in ("algorithm", "net"))
    return Method(settings=tuple(settings_of({path: settings[path] for path in ordered})))


def row_name(settings: Mapping[str, str]) -> str:
    """Name a row by what sets it apart; MixMatch is the paper's word for a passive run of it."""
    if settings_of(settings) == [PASSIVE]:
        return "MixMatch"
    words = []
    for path, value in settings.items():
        if (path, value) == (POLICY, "count"):
            continue  # what every preset does
        plain = isinstance(parse_value(value), str)  # a word speaks for itself, a number needs its setting's name
        words.append(value if plain else f"{path.rsplit('.', 1)[-1]}={value}")
    return ", ".join(words) or "preset"

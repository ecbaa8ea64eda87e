"""Axes, seeds and settings as people write them: `seed=1..5`, `query=random,max-direct`, or Python values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from mma.config import Config, change, from_json, parse_value
from mma.data.hard import is_hard, parse_hard
from mma.data.sources import DataSetInfo, catalogue, load_data
from mma.errors import UserError
from mma.experiments.catalogue import EXPERIMENTS, SCALE, experiment, on_features, rows_on_features
from mma.experiments.grids import Grid, GridCell, Request
from mma.experiments.methods import PASSIVE, Experiment, Method
from mma.features import parse_backbone
from mma.presets import PRESETS, preset
from mma.text import did_you_mean, printable

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
            raise UserError(f"--axis {text!r} is not path=values. Write it like  --axis query=random,diff2.aug-direct")
        if path in axes:
            raise UserError(f"--axis {path} is given twice. List all its values in one.")
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
        raise UserError(f"'{given}' has an empty value: remove the comma too many.")
    return values


def range_of(text: str) -> list[str]:
    """Return every whole number of `1..5`, or the text itself."""
    numbers = re.fullmatch(r"(\d+)\.\.(\d+)", text)
    if numbers is None:
        return [text]
    first, last = int(numbers[1]), int(numbers[2])
    if first > last:
        raise UserError(f"the range {text} is empty: write the smaller number first.")
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
        raise UserError(f"{name} takes whole numbers, like 1..5 or 500,1000; '{wrong[0]}' is none.")
    return tuple(sorted({int(value) for value in values}))


def seeds_of(given: Values) -> tuple[int, ...]:
    """Return seeds from a count (5 means 1..5), a range or a list."""
    count = given.strip() if isinstance(given, str) else str(given) if isinstance(given, int) else ""
    if not count.isdigit():
        return whole_numbers("--seeds", given)
    if int(count) == 0:
        raise UserError("--seeds 0 would run nothing. Give how many, or which:  --seeds 5  or  --seeds 3..7")
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


# Make a grid from a name and some options: an experiment of the catalogue, or a preset with axes of one's own.

OWN = "own"  # the scale of a grid whose axes the user chose


def from_experiment(
    name: str,
    scale: str | None = None,
    *,
    seeds: Values | None = None,
    methods: Values | None = None,
    budgets: Values | None = None,
    settings: SettingValues = (),
    features: str | None = None,
) -> Grid:
    """Return the grid of an experiment, or a part of it; with `features`, of the paper's table on features of that backbone."""
    if name not in EXPERIMENTS:
        raise UserError(unknown_experiment(name))
    if features is not None and (scale is not None or "paper" not in EXPERIMENTS[name]):
        raise UserError(
            f"--features runs a table of the paper on features, so it takes no --scale. Tables: {', '.join(paper_tables())}."
        )
    known, found = experiment(name, scale)
    return from_definition(
        name, known, found, seeds=seeds, methods=methods, budgets=budgets, settings=settings, features=features
    )


def from_definition(
    name: str,
    scale: str,
    found: Experiment,
    *,
    seeds: Values | None = None,
    methods: Values | None = None,
    budgets: Values | None = None,
    settings: SettingValues = (),
    features: str | None = None,
) -> Grid:
    """Return the grid of an experiment, from the catalogue or defined elsewhere."""
    base, known = preset(found.preset), found.methods
    if features is not None:
        largest = max(budget for budget in found.budgets if budget not in found.only)
        scale, known = SCALE, rows_on_features(found)
        base = on_features(base, parse_backbone(features).label(), largest)
    base = change(base, [*found.settings, *settings_of(settings)])
    request = Request(
        methods=select_methods(methods, known, name),
        totals=found.totals,
        budgets=found.budgets if budgets is None else whole_numbers("--budgets", budgets),
        seeds=seeds_of(found.seeds if seeds is None else seeds),
    )
    return complete(name, scale, base, known, request, paper=found.paper, only=found.only)


def from_axes(
    name: str,
    axes: Mapping[str, Values],
    settings: SettingValues = (),
    seeds: Values | None = None,
    methods: Mapping[str, SettingValues] | None = None,
) -> Grid:
    """Return the grid of a preset with one's own axes, or with named methods (each a set of settings) as its rows."""
    if name not in PRESETS:
        raise UserError(
            f"--axis varies a preset, and '{printable(name)}' is none.{did_you_mean(name, PRESETS)} "
            f"Presets: {', '.join(PRESETS)}."
        )
    if seeds is not None and SEED in axes:
        raise UserError("--seeds and --axis seed=... say the same thing. Give one of them.")
    base = change(preset(name), settings_of(settings))
    made = rows(axes) if methods is None else {title: own_row(given) for title, given in methods.items()}
    request = Request(
        methods=tuple(made),
        totals=whole_numbers(TOTAL, axes[TOTAL]) if TOTAL in axes else (None,),
        budgets=whole_numbers(BUDGET, axes[BUDGET]) if BUDGET in axes else (base.growth.budget,),
        seeds=whole_numbers(SEED, axes[SEED]) if SEED in axes else seeds_of(5 if seeds is None else seeds),
    )
    return complete(name, OWN, base, made, request)


def own_row(given: SettingValues) -> Method:
    """Return a method with a user's settings."""
    return row(given) if isinstance(given, Mapping) else Method(settings=tuple(given))


def complete(
    name: str,
    scale: str,
    base: Config,
    methods: Mapping[str, Method],
    request: Request,
    *,
    paper: str | None = None,
    only: Mapping[int, tuple[str, ...]] | None = None,
) -> Grid:
    """Put a grid together. A wrong setting anywhere is refused here, before anything runs."""
    grid = Grid(
        experiment=name,
        scale=scale,
        paper=paper,
        pool=data_set(base.data.name).pool,
        base=base.model_dump(mode="json"),
        methods={title: describe(base, method) for title, method in methods.items()},
        only=dict(only or {}),
        requests=(request,),
    )
    cells = grid.cells()
    if not cells:
        raise UserError("these axes leave no run: every budget is larger than every total.")
    for cell in {(cell.method, cell.total, cell.budget): cell for cell in cells}.values():
        config_of(grid, cell)
    return grid


def describe(base: Config, method: Method) -> Method:
    """Return the method with what its config says about it."""
    config = change(base, method.settings)
    return method.model_copy(update={"grows": config.growth.policy.grows, "supervised": config.algorithm.views == 0})


def select_methods(given: Values | None, methods: Mapping[str, Method], experiment: str) -> tuple[str, ...]:
    """Return the methods to run: those named, or all."""
    if isinstance(given, str):
        given = split_names(given, methods)
    names = tuple(methods) if given is None else values_of(given)
    for name in names:
        if name not in methods:
            hint = did_you_mean(name, methods)
            raise UserError(f"{experiment} has no method '{printable(name)}'.{hint} It has: {', '.join(methods)}.")
    return tuple(name for name in methods if name in names)


def split_names(given: str, known: Iterable[str]) -> list[str]:
    """Split a text at its commas, but not inside a known name that has some."""
    marked = given
    for name in known:
        marked = marked.replace(name, name.replace(",", "\0"))
    return refuse_empty([part.strip().replace("\0", ",") for part in marked.split(",")], given)


def config_of(grid: Grid, cell: GridCell) -> Config:
    """Return the config of one cell."""
    method, base = grid.methods[cell.method], from_json(grid.base)
    place = [f"seed={cell.seed}", f"growth.budget={cell.budget}"]
    place += [] if cell.total is None else [f"data.total={cell.total}"]
    if base.growth.start > cell.budget and not method.grows:
        place.insert(0, f"growth.start={cell.budget}")  # a passive run has no start set of its own
    config = change(base, [*method.settings, *place, f"growth.budgets={budgets_kept(grid, cell)}"])
    if method.ramp is None:
        return config
    return change(config, [f"algorithm.ramp={round(method.ramp * config.growth.steps)}"])


def budgets_kept(grid: Grid, cell: GridCell) -> list[int]:
    """Return the budgets of a growing cell's family: its run keeps the states that they can start from."""
    if not grid.methods[cell.method].grows:
        return []
    return sorted({other.budget for other in grid.cells() if other.family == cell.family})


def data_set(name: str) -> DataSetInfo:
    """Return what is known of a data set, whether it is here or not."""
    if is_hard(name):
        hard = load_data(name).train
        return replace(data_set(parse_hard(name)[1]), name=name, pool=len(hard))
    for entry in catalogue():
        if entry.name == name:
            return entry
    load_data(name)  # says how to get it
    raise AssertionError(f"{name} can be opened but is not listed")


def unknown_experiment(name: str) -> str:
    """Say that there is no such experiment, grid folder or preset."""
    if name in PRESETS:
        return f"{name} is a preset: give it axes, like  mma grid {name} --axis query=random,diff2.aug-direct"
    hint = did_you_mean(name, EXPERIMENTS)
    return f"no experiment or grid folder '{printable(name)}'.{hint} Experiments: {', '.join(EXPERIMENTS)}."


def find(
    target: str,
    *,
    scale: str | None = None,
    seeds: Values | None = None,
    methods: Values | Mapping[str, SettingValues] | None = None,
    budgets: Values | None = None,
    axes: Mapping[str, Values] | None = None,
    settings: SettingValues = (),
    features: str | None = None,
) -> Grid:
    """Return the grid of an experiment, or of a preset with axes or named methods."""
    named = methods if isinstance(methods, Mapping) else None
    if named is None and not axes:
        return from_experiment(
            target, scale, seeds=seeds, methods=methods, budgets=budgets, settings=settings, features=features
        )
    options = {
        "--scale": scale, "--methods": methods if named is None else None, "--budgets": budgets, "--features": features
    }  # fmt: skip
    for option in (name for name, value in options.items() if value is not None):
        raise UserError(f"{option} belongs to an experiment's own table; with --axis every axis is yours.")
    return from_axes(target, axes or {}, settings, seeds, named)


def paper_tables() -> list[str]:
    """Return the experiments that are tables of the paper."""
    return [name for name, scales in EXPERIMENTS.items() if "paper" in scales]


def default_folder(grid: Grid) -> Path:
    """Return where a grid goes without --out."""
    return Path("grids") / (grid.experiment if grid.scale == OWN else f"{grid.experiment}-{grid.scale}")

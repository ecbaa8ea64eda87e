"""Make a grid from a name and some options: an experiment of the catalogue, or a preset with axes of one's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from mma.config import Config, change, from_json
from mma.data.hard import is_hard, parse_hard
from mma.data.sources import DataSetInfo, catalogue, load_data
from mma.experiments.axes import (
    BUDGET,
    SEED,
    TOTAL,
    SettingValues,
    Values,
    refuse_empty,
    row,
    rows,
    seeds_of,
    settings_of,
    values_of,
    whole_numbers,
)
from mma.experiments.catalogue import EXPERIMENTS, experiment
from mma.experiments.design import Grid, GridCell, Request
from mma.experiments.methods import Experiment, Method
from mma.experiments.on_features import SCALE, on_features, rows_on_features
from mma.features import parse_backbone
from mma.presets import PRESETS, preset
from mma.text import did_you_mean, printable

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
        raise ValueError(unknown_experiment(name))
    if features is not None and (scale is not None or "paper" not in EXPERIMENTS[name]):
        raise ValueError(
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
        raise ValueError(
            f"--axis varies a preset, and '{printable(name)}' is none.{did_you_mean(name, PRESETS)} "
            f"Presets: {', '.join(PRESETS)}."
        )
    if seeds is not None and SEED in axes:
        raise ValueError("--seeds and --axis seed=... say the same thing. Give one of them.")
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
        raise ValueError("these axes leave no run: every budget is larger than every total.")
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
            raise ValueError(f"{experiment} has no method '{printable(name)}'.{hint} It has: {', '.join(methods)}.")
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
        raise ValueError(f"{option} belongs to an experiment's own table; with --axis every axis is yours.")
    return from_axes(target, axes or {}, settings, seeds, named)


def paper_tables() -> list[str]:
    """Return the experiments that are tables of the paper."""
    return [name for name, scales in EXPERIMENTS.items() if "paper" in scales]


def default_folder(grid: Grid) -> Path:
    """Return where a grid goes without --out."""
    return Path("grids") / (grid.experiment if grid.scale == OWN else f"{grid.experiment}-{grid.scale}")

"""What a person asks of a grid, and the grid it makes. Axes and seeds are texts (`seed=1..5`) or Python values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from mma.algorithms import Algorithm
from mma.config import Config, change, from_json, parse_value
from mma.data.hard import split_hard
from mma.data.sources import DataSetInfo, catalogue, load_data
from mma.errors import UserError
from mma.experiments.catalogue import EXPERIMENTS, SCALE, experiment, on_features
from mma.experiments.grids import Grid, GridCell, Request
from mma.experiments.methods import PASSIVE, Experiment, Method, rows
from mma.features import parse_backbone
from mma.presets import PRESETS, preset
from mma.query.query import FOREIGN
from mma.text import did_you_mean, printable

SEED, BUDGET, TOTAL = "seed", "growth.budget", "data.total"  # these make columns and repetitions; all others make rows
POLICY = "growth.policy"
OWN = "own"  # the scale of a grid whose axes the user chose
Values = str | int | Iterable[object]
SettingValues = Mapping[str, object] | Sequence[str]


@dataclass(frozen=True)
class GridOptions:
    """What a person asks of a grid: an experiment of the catalogue, or a preset with axes or named methods of one's own."""

    target: str
    axes: Mapping[str, Values] = field(default_factory=dict)
    settings: SettingValues = ()  # of all runs
    seeds: Values | None = None
    methods: Values | Mapping[str, SettingValues] | None = None  # names of rows, or new rows with their settings
    budgets: Values | None = None
    scale: str | None = None
    features: str | None = None  # a backbone: the paper's table on its features

    @property
    def own(self) -> bool:
        """Whether the rows are the user's own, not an experiment's."""
        return bool(self.axes) or isinstance(self.methods, Mapping)


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
    texts: list[str] = []
    for text in split_list(given):
        if numbers := re.fullmatch(r"(\d+)\.\.(\d+)", text):
            first, last = int(numbers[1]), int(numbers[2])
            if first > last:
                raise UserError(f"the range {text} is empty: write the smaller number first.")
            texts += [str(number) for number in range(first, last + 1)]
        else:
            texts.append(text)
    return tuple(dict.fromkeys(texts))


def split_list(given: str) -> list[str]:
    """Split a text at its commas, but not inside brackets; an empty part is a comma too many."""
    parts = [part.strip() for part in re.split(r",(?![^\[]*\])", given)]
    if "" in parts:
        raise UserError(f"'{given}' has an empty value: remove the comma too many.")
    return parts


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


def rows_of(axes: Mapping[str, Values]) -> dict[str, dict[str, object]]:
    """Return the settings of one method per combination of the axes that make rows."""
    varied = {path: values_of(values) for path, values in axes.items() if path not in (SEED, BUDGET, TOTAL)}
    methods: dict[str, dict[str, object]] = {}
    for values in product(*varied.values()):
        settings = dict(zip(varied, values, strict=True))
        if settings.get(POLICY) == "passive":
            settings.pop("query", None)  # it asks for nothing: one row for all queries
        methods[row_name(settings)] = {**settings}
    return methods


def row(base: Config, settings: Mapping[str, object]) -> Method:
    """Return the method with these settings.

    An algorithm brings its own defaults, so it comes before what changes them. What it has inherited from where the
    preset's algorithm has it too is as in the preset: else a variant would be compared with other numbers than the original.
    """
    named, ours = {path: settings[path] for path in ("algorithm", "net") if path in settings}, base.algorithm
    inherited: dict[str, object] = {}
    if named.get("algorithm", ours.name) != ours.name:
        mine = change(base, [f"algorithm={text_of(named['algorithm'])}"]).algorithm
        common = next(kind for kind in type(mine).__mro__ if issubclass(kind, Algorithm) and isinstance(ours, kind))
        defaults = type(mine).model_fields
        shared = [n for n, field in common.model_fields.items() if n != "name" and defaults[n].default == field.default]
        inherited = {f"algorithm.{name}": getattr(ours, name) for name in shared}
    return Method(settings=tuple(settings_of({**named, **inherited, **settings})))


def row_name(settings: Mapping[str, str]) -> str:
    """Name a row by what sets it apart; MixMatch is the paper's word for a passive run of it."""
    if settings_of(settings) == [PASSIVE]:
        return "MixMatch"
    words = []
    for path, value in settings.items():
        if (path, value) != (POLICY, "count"):  # what every preset does
            plain = isinstance(parse_value(value), str)  # a word speaks for itself, a number needs its setting's name
            words.append(value if plain else f"{path.rsplit('.', 1)[-1]}={value}")
    return ", ".join(words) or "preset"


def grid_from_options(options: GridOptions) -> Grid:
    """Return the grid that the options describe. A wrong setting anywhere is refused here, before anything runs."""
    if options.own:
        return own_grid(options)
    name = options.target
    if name in PRESETS and name not in EXPERIMENTS:
        raise UserError(f"{name} is a preset: give it axes, like  mma grid {name} --axis query=random,diff2.aug-direct")
    if name not in EXPERIMENTS:
        hint, listed = did_you_mean(name, EXPERIMENTS), ", ".join(EXPERIMENTS)
        raise UserError(f"no experiment or grid folder '{printable(name)}'.{hint} Experiments: {listed}.")
    if options.features is not None and (options.scale is not None or "paper" not in EXPERIMENTS[name]):
        tables = ", ".join(table for table, scales in EXPERIMENTS.items() if "paper" in scales)
        raise UserError(f"--features runs a table of the paper on features, so it takes no --scale. Tables: {tables}.")
    return experiment_grid(*experiment(name, options.scale), options)


def experiment_grid(scale: str, definition: Experiment, options: GridOptions) -> Grid:
    """Return the grid of an experiment, from the catalogue or defined elsewhere, or of a part of it."""
    base, methods, given = preset(definition.preset), definition.methods, options.methods
    if options.features is not None:
        largest = max(budget for budget in definition.budgets if budget not in definition.only)
        base, scale = on_features(base, parse_backbone(options.features).label(), largest), SCALE
        if definition.totals == (None,):  # a table by total images keeps its one method
            methods = {**methods, **rows("auto")}
    base = change(base, [*definition.settings, *settings_of(options.settings)])
    assert not isinstance(given, Mapping)
    if given is not None:
        methods = {**methods, **rows(*re.findall(rf"{FOREIGN}\w+", ",".join(map(str, values_of(given)))))}
    if isinstance(given, str):  # cut at its commas, but not inside a name that has some
        marked = given
        for name in methods:
            marked = marked.replace(name, name.replace(",", "\0"))
        given = [part.replace("\0", ",") for part in split_list(marked)]
    wanted = tuple(methods) if given is None else values_of(given)
    for name in wanted:
        if name not in methods:
            hint, listed = did_you_mean(name, methods), ", ".join(methods)
            raise UserError(f"{options.target} has no method '{printable(name)}'.{hint} It has: {listed}.")
    request = Request(
        methods=tuple(name for name in methods if name in wanted),
        totals=definition.totals,
        budgets=definition.budgets if options.budgets is None else whole_numbers("--budgets", options.budgets),
        seeds=seeds_of(definition.seeds if options.seeds is None else options.seeds),
    )
    return build_grid(options.target, scale, base, methods, request, definition)


def own_grid(options: GridOptions) -> Grid:
    """Return the grid of a preset with one's own axes, or with named methods (each a set of settings) as its rows."""
    name, axes, named = options.target, options.axes, options.methods
    foreign = {"--scale": options.scale, "--budgets": options.budgets, "--features": options.features}
    foreign["--methods"] = None if isinstance(named, Mapping) else named
    for option in (option for option, value in foreign.items() if value is not None):
        raise UserError(f"{option} belongs to an experiment's own table; with --axis every axis is yours.")
    if name not in PRESETS:
        hint, listed = did_you_mean(name, PRESETS), ", ".join(PRESETS)
        raise UserError(f"--axis varies a preset, and '{printable(name)}' is none.{hint} Presets: {listed}.")
    if options.seeds is not None and SEED in axes:
        raise UserError("--seeds and --axis seed=... say the same thing. Give one of them.")
    base = change(preset(name), settings_of(options.settings))
    varied: Mapping[str, SettingValues] = named if isinstance(named, Mapping) else rows_of(axes)
    methods = {
        title: row(base, s) if isinstance(s, Mapping) else Method(settings=tuple(s)) for title, s in varied.items()
    }
    request = Request(
        methods=tuple(methods),
        totals=whole_numbers(TOTAL, axes[TOTAL]) if TOTAL in axes else (None,),
        budgets=whole_numbers(BUDGET, axes[BUDGET]) if BUDGET in axes else (base.growth.budget,),
        seeds=whole_numbers(SEED, axes[SEED])
        if SEED in axes
        else seeds_of(5 if options.seeds is None else options.seeds),
    )
    return build_grid(name, OWN, base, methods, request)


def build_grid(
    name: str,
    scale: str,
    base: Config,
    methods: Mapping[str, Method],
    request: Request,
    definition: Experiment | None = None,
) -> Grid:
    """Put a grid together, and make the config of every cell once: that refuses wrong settings."""
    described = {}
    for title, method in methods.items():
        config = change(base, method.settings)
        known = {"grows": config.growth.policy.grows, "supervised": config.algorithm.views == 0}
        described[title] = method.model_copy(update=known)
    grid = Grid(
        experiment=name,
        scale=scale,
        paper=definition.paper if definition else None,
        pool=data_set(base.data.name).pool,
        base=base.model_dump(mode="json"),
        methods=described,
        only=dict(definition.only) if definition else {},
        requests=(request,),
    )
    cells = grid.cells()
    if not cells:
        raise UserError("these axes leave no run: every budget is larger than every total.")
    for cell in {(cell.method, cell.total, cell.budget): cell for cell in cells}.values():
        config_of(grid, cell)
    return grid


def config_of(grid: Grid, cell: GridCell) -> Config:
    """Return the config of one cell."""
    method, base = grid.methods[cell.method], from_json(grid.base)
    place = [f"seed={cell.seed}", f"growth.budget={cell.budget}"]
    place += [] if cell.total is None else [f"data.total={cell.total}"]
    if base.growth.start > cell.budget and not method.grows:
        place.insert(0, f"growth.start={cell.budget}")  # a passive run has no start set of its own
    # A growing run keeps the states that the other budgets of its family can start from.
    kept = sorted({other.budget for other in grid.cells() if other.family == cell.family}) if method.grows else []
    config = change(base, [*method.settings, *place, f"growth.budgets={kept}"])
    if method.ramp is None:
        return config
    return change(config, [f"algorithm.ramp={round(method.ramp * config.growth.steps)}"])


def data_set(name: str) -> DataSetInfo:
    """Return what is known of a data set, whether it is here or not."""
    if (base := split_hard(name)[1]) != name:
        hard = load_data(name).train
        return replace(data_set(base), name=name, pool=len(hard))
    for entry in catalogue():
        if entry.name == name:
            return entry
    load_data(name)  # says how to get it
    raise AssertionError(f"{name} can be opened but is not listed")

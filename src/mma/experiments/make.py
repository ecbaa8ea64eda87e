"""From a name and some options to a grid: an experiment of the table, or a preset with axes of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mma.config import Config, change, from_json
from mma.data.sources import Entry, catalogue
from mma.experiments.axes import BUDGET, SEED, TOTAL, read_axes, rows, seeds_of, values_of, whole_numbers
from mma.experiments.catalogue import EXPERIMENTS, experiment, suggestion
from mma.experiments.grid import Cell, Grid, Request, chosen
from mma.experiments.methods import Experiment
from mma.presets import PRESETS, preset
from mma.text import printable

OWN = "own"  # the scale of a grid whose axes the user chose


def from_experiment(
    name: str,
    scale: str | None = None,
    *,
    seeds: str | None = None,
    methods: str | None = None,
    budgets: str | None = None,
    settings: Sequence[str] = (),
) -> Grid:
    """Return the grid of an experiment, or the part of it that was asked for."""
    if name not in EXPERIMENTS:
        raise ValueError(unknown(name))
    known, found = experiment(name, scale)
    return from_definition(name, known, found, seeds=seeds, methods=methods, budgets=budgets, settings=settings)


def from_definition(
    name: str,
    scale: str,
    found: Experiment,
    *,
    seeds: str | None = None,
    methods: str | None = None,
    budgets: str | None = None,
    settings: Sequence[str] = (),
) -> Grid:
    """Return the grid of an experiment that is described, in the table or elsewhere."""
    base = change(preset(found.preset), [*found.settings, *settings])
    request = Request(
        methods=chosen(values_of(methods) if methods else None, found.methods, name),
        totals=found.totals,
        budgets=whole_numbers("--budgets", values_of(budgets)) if budgets else found.budgets,
        seeds=seeds_of(seeds or str(found.seeds)),
    )
    return checked(
        Grid(
            experiment=name,
            scale=scale,
            paper=found.paper,
            pool=data_set(base.data.name).pool,
            base=base.model_dump(mode="json"),
            methods=dict(found.methods),
            only=dict(found.only),
            requests=(request,),
        )
    )


def from_axes(name: str, texts: Sequence[str], settings: Sequence[str] = (), seeds: str | None = None) -> Grid:
    """Return the grid of a preset with the user's own axes."""
    if name not in PRESETS:
        hint = suggestion(name, list(PRESETS))
        raise ValueError(
            f"--axis varies a preset, and '{printable(name)}' is none.{hint} Presets: {', '.join(PRESETS)}."
        )
    axes, base = read_axes(texts), change(preset(name), settings)
    if seeds and SEED in axes:
        raise ValueError("--seeds and --axis seed=... say the same thing. Give one of them.")
    methods = rows(axes)
    request = every_combination(tuple(methods), axes, base, seeds)
    return checked(
        Grid(
            experiment=name,
            scale=OWN,
            pool=data_set(base.data.name).pool,
            base=base.model_dump(mode="json"),
            methods=methods,
            requests=(request,),
        )
    )


def every_combination(
    methods: tuple[str, ...], axes: Mapping[str, Sequence[str]], base: Config, seeds: str | None
) -> Request:
    """Ask for all methods at all values of the axes; an axis that is not given has the preset's value, or five seeds."""
    return Request(
        methods=methods,
        totals=whole_numbers(TOTAL, axes[TOTAL]) if TOTAL in axes else (None,),
        budgets=whole_numbers(BUDGET, axes[BUDGET]) if BUDGET in axes else (base.growth.budget,),
        seeds=whole_numbers(SEED, axes[SEED]) if SEED in axes else seeds_of(seeds or "5"),
    )


def checked(grid: Grid) -> Grid:
    """Refuse a grid that has a wrong setting anywhere, before anything runs."""
    cells = grid.cells()
    if not cells:
        raise ValueError("these axes leave no run: every budget is larger than every total.")
    for cell in {(cell.method, cell.total, cell.budget): cell for cell in cells}.values():
        config_of(grid, cell)
    return grid


def config_of(grid: Grid, cell: Cell) -> Config:
    """Return the whole config of one cell."""
    method = grid.methods[cell.method]
    place = [f"seed={cell.seed}", f"growth.budget={cell.budget}"]
    place += [] if cell.total is None else [f"data.total={cell.total}"]
    budgets = sorted({other.budget for other in grid.cells() if other.family == cell.family}) if method.grows else []
    base = from_json(grid.base)
    if base.growth.start > cell.budget and not method.grows:
        place.insert(0, f"growth.start={cell.budget}")  # a passive run has no start set of its own
    config = change(base, [*method.settings, *place, f"growth.budgets={budgets}"])
    if method.ramp is None:
        return config
    steps = config.growth.rounds(passive=config.passive)[-1].end
    return change(config, [f"algorithm.ramp={round(method.ramp * steps)}"])


def data_set(name: str) -> Entry:
    """Return what is known of a data set, whether it is here or not."""
    for entry in catalogue():
        if entry.name == name:
            return entry
    raise ValueError(f"the data set {printable(name)} is not here. Make it with  mma data get  first.")


def unknown(name: str) -> str:
    """Say that there is no such experiment, grid folder or preset."""
    if name in PRESETS:
        return f"{name} is a preset: give it axes, like  mma grid {name} --axis query=random,diff2.aug-direct"
    hint = suggestion(name, [*EXPERIMENTS])
    return f"no experiment or grid folder '{printable(name)}'.{hint} Experiments: {', '.join(EXPERIMENTS)}."


def default_folder(grid: Grid) -> Path:
    """Return where a grid goes when nobody says."""
    return Path("grids") / (grid.experiment if grid.scale == OWN else f"{grid.experiment}-{grid.scale}")

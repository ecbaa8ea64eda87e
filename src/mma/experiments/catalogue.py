"""The experiments of catalogue.toml: the paper's tables and ours, each at the scales it can be run at."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib.resources import files
from typing import Any

from mma import paper
from mma.config import Config, change
from mma.errors import UserError
from mma.experiments.methods import RIVALS, Experiment, Method, compute, lock_in, rows, spending
from mma.presets import preset
from mma.views import FeatureViews

SCALE = "features"
ROUNDS = 16  # of a run, at most: larger queries than the paper's where it takes more
PER_CLASS = (1, 2, 5, 10, 25)  # labels per class of a low-budget table
SEEDS = 12  # of a low-budget table: with ten, no test corrected for its 35 comparisons could show anything
FOLDS = "net.folds=0"  # no temperature: it changes no answer, and finding it takes three times as long as a round


def on_features(base: Config, backbone: str, budget: int) -> Config:
    """Return a paper's preset on features: its data, start set and query; views, network and steps of the preset `photos`.

    Queries are larger where more than ROUNDS would be needed up to `budget`. A single backbone is not compared with others.
    """
    photos = preset("photos")
    rounds, add = photos.growth, base.growth.add
    enough = -(-(budget - base.growth.start) // ((ROUNDS - 1) * add))
    lengths = {"first": rounds.first, "every": rounds.every, "final": rounds.final}
    fresh = {"refresh_every": 1, "refresh_final": True, "add": add * max(enough, 1)}
    changed = photos.model_copy(
        update={
            **{name: getattr(base, name) for name in ("preset", "seed", "data", "query")},
            "views": FeatureViews.model_validate({**photos.views.model_dump(), "backbone": backbone}),
            "growth": base.growth.model_copy(update={**lengths, **fresh}),
        }
    )
    return change(changed, [FOLDS] if "+" in backbone else [FOLDS, "net.choose=false"])


def low_budget(
    data: str, backbone: str, classes: int, total: int | None = None, settings: Iterable[str] = (), duel: bool = False
) -> Experiment:
    """Return growing from one label per class to 25: random, the paper's best queries, coverage, and `auto`.

    Each round starts anew, so that its end is what a run with that budget reaches: one run fills a row of the table. Each seed
    draws another pool of `total` images: coverage depends on the pool and hardly on chance, so that with one pool all
    seeds would be one. A `duel` is against the strategies of scikit-activeml, by their own code.
    """
    sizes = [classes * count for count in PER_CLASS]
    shared = (
        *(f"data.name={data}", f"data.total={total or max(1_000, 50 * classes)}", f"views.backbone={backbone}"),
        *("growth.start_set=uniform", f"growth.start={sizes[0]}", FOLDS),
        *("growth.policy=sizes", f"growth.policy.labels={sizes}", f"growth.budget={sizes[-1]}"),
    )
    about = f"1 to 25 labels per class on features of {data} by {backbone}{', against scikit-activeml' if duel else ''}"
    papers = ("random", "diff2.aug-direct", "diff2.aug-kmeans", "coverage, then diff2.aug-kmeans", "typiclust")
    names = ("random", "herding", "auto", *RIVALS) if duel else (*papers, "herding", "uherding", "auto")
    return Experiment(about, "photos", rows(*names), (sizes[-1],), (*shared, *settings), seeds=SEEDS)


# Narrow networks and short rounds that two cores finish; everything else is the paper's preset.
LAB_NET = ("net.filters=8", "net.blocks=1", "net.bn_decay=0.99", "optim.ema_decay=0.998")
LAB_STEPS = ("growth.first=2048", "growth.every=512", "growth.final=3072", "log.every=128", "log.checkpoint=512")
SHARED = {"LAB": (*LAB_NET, *LAB_STEPS, "algorithm.ramp=1024"), "LAB_STEPS": LAB_STEPS}


def table(about: str, budgets: list[int], *, settings: Iterable[str] = (), **more: Any) -> Experiment:
    """Return an experiment as the catalogue writes it."""
    expanded = tuple(one for setting in settings for one in SHARED.get(setting, (setting,)))
    methods = rows(*more.pop("rows"))
    if totals := more.pop("totals", None):  # Supervised stands where every image is labeled, the other where not
        where = {name: "labeled" if name == "Supervised" else "unlabeled" for name in methods}
        methods = {name: method.model_copy(update={"where": where[name]}) for name, method in methods.items()}
        more["totals"] = tuple(totals)
    more["only"] = {int(budget): tuple(names) for budget, names in more.pop("only", {}).items()}
    return Experiment(about, methods=methods, budgets=tuple(budgets), settings=expanded, **more)


def ways(about: str, preset: str, budgets: list[int], ways: dict[str, dict[str, Any]]) -> Experiment:
    """Return rows that each name their settings, and say what they do."""
    methods = {name: Method(settings=tuple(way["settings"])) for name, way in ways.items()}
    return Experiment(about, preset, methods, tuple(budgets))


MAKERS: dict[str, Callable[..., Experiment]] = {"table": table, "ways": ways, "compute": compute, "spending": spending}
MAKERS |= {"lock_in": lock_in, "low_budget": low_budget}
CATALOGUE = tomllib.loads(files(__package__).joinpath("catalogue.toml").read_text("utf-8"))
EXPERIMENTS = {
    name: {scale: MAKERS[entry.pop("make", "table")](**entry) for scale, entry in scales.items()}
    for name, scales in CATALOGUE.items()
}


def experiment(name: str, scale: str | None = None) -> tuple[str, Experiment]:
    """Return an experiment at a scale; without one, at the paper's if it has that, else at lab scale."""
    scales = EXPERIMENTS[name]
    tables = {table.removeprefix("budgets-"): table for table in paper.experiments()}  # to be shown beside ours
    for known, definition in scales.items():
        if scale in (None, known):
            return known, replace(definition, paper=definition.paper or tables.get(name))
    raise UserError(f"{name} has no --scale {scale}. It can be run at: {', '.join(scales)}.")

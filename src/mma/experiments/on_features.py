"""Experiments on frozen features: a run takes seconds to a minute, so that whole tables are run to their end."""

from __future__ import annotations

from collections.abc import Mapping

from mma.config import Config, change
from mma.experiments.methods import Experiment, Method, covering, growing
from mma.presets import preset
from mma.views import FeatureViews

SCALE = "features"
ROUNDS = 16  # of a run, at most: larger queries than the paper's where it takes more
PER_CLASS = (1, 2, 5, 10, 25)  # labels per class of a low-budget table
SEEDS = 12  # of a low-budget table: with ten, no test corrected for its 35 comparisons could show anything
FOLDS = (
    "net.folds=0"  # no temperature: it changes no answer, and finding it takes three times as long as a round itself
)


def on_features(base: Config, backbone: str, budget: int) -> Config:
    """Return a paper's preset on features: its data, start set and query; views, network and steps of the preset `photos`.

    Queries are larger where more than ROUNDS would be needed up to `budget`. A single backbone is not compared with others.
    """
    photos = preset("photos")
    views = photos.views.model_dump() | {"backbone": backbone}
    rounds, add = photos.growth, base.growth.add
    enough = -(-(budget - base.growth.start) // ((ROUNDS - 1) * add))
    lengths = {"first": rounds.first, "every": rounds.every, "final": rounds.final}
    fresh = {"refresh_every": 1, "refresh_final": True, "add": add * max(enough, 1)}
    changed = base.model_copy(
        update={
            "views": FeatureViews.model_validate(views),
            "net": photos.net,
            "algorithm": photos.algorithm,
            "optim": photos.optim,
            "log": photos.log,
            "growth": base.growth.model_copy(update={**lengths, **fresh}),
        }
    )
    return change(changed, [FOLDS] if "+" in backbone else [FOLDS, "net.choose=false"])


def rows_on_features(found: Experiment) -> Mapping[str, Method]:
    """Return the rows of a paper's table, and `auto` beside them. A table by total images keeps its one method."""
    return {**found.methods, **covering("auto")} if found.totals == (None,) else found.methods


def low_budget(data: str, backbone: str, classes: int, total: int, settings: tuple[str, ...] = ()) -> Experiment:
    """Return growing from one label per class to 25: random, the paper's best queries, coverage, and `auto`.

    Each round starts anew, so that its end is what a run with that budget reaches: one run fills a row of the table. Each seed
    draws another pool of `total` images: coverage depends on the pool and hardly on chance, so that with one pool all
    seeds would be one.
    """
    sizes = [classes * count for count in PER_CLASS]
    typiclust = {"typiclust": Method(settings=("query=typiclust", "growth.start_set=query"))}
    shared = (
        *(f"data.name={data}", f"data.total={total}", f"views.backbone={backbone}"),
        *("growth.start_set=uniform", f"growth.start={sizes[0]}", FOLDS),
        *("growth.policy=sizes", f"growth.policy.labels={sizes}", f"growth.budget={sizes[-1]}"),
    )
    rows = {
        **growing("random", "diff2.aug-direct", "diff2.aug-kmeans"),
        **covering("diff2.aug-kmeans"),
        **typiclust,
        **covering("herding", "uherding", "auto"),
    }
    about = f"1 to 25 labels per class on features of {data} by {backbone}"
    return Experiment(about, "photos", rows, (sizes[-1],), (*shared, *settings), seeds=SEEDS)

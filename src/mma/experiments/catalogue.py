"""Every experiment there is: the paper's tables and ours, each at the scales it can be run at.

On frozen features a run takes seconds to a minute, so whole tables are run to their end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

from mma import paper
from mma.config import Config, change
from mma.data.hard import HARD
from mma.errors import UserError
from mma.experiments.methods import (
    MIXMATCH,
    RIVALS,
    Experiment,
    Method,
    baselines,
    compute,
    covering,
    foreign,
    growing,
    lock_in,
    queries,
    spending,
    split,
)
from mma.presets import preset
from mma.query.uncertainty import UNCERTAINTY
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


def duel(data: str, backbone: str, classes: int, total: int) -> Experiment:
    """Return a low-budget table of `auto` and `herding` against the strategies of scikit-activeml, by their own code."""
    ours = low_budget(data, backbone, classes, total)
    rows = {**growing("random"), **covering("herding", "auto"), **foreign(f"skactiveml:{name}" for name in RIVALS)}
    return replace(ours, about=f"{ours.about}, against scikit-activeml", methods=rows)


Scale = Literal["paper", "lab"]
PAPER_QUERIES = queries("diff2", "max")
DIFF2 = {**MIXMATCH, **growing("random", *queries("diff2"))}
EVERY_QUERY = growing("random", *PAPER_QUERIES, *queries(*(m for m in UNCERTAINTY if m not in ("diff2", "max"))))
FEW = growing("random", "diff2.aug-direct", "diff2.aug-kmeans", "diff2.aug-infoD")
LAB_ROWS = {**MIXMATCH, **FEW}

# Narrow networks and short rounds that two cores finish; everything else is the paper's preset.
LAB_NET = ("net.filters=8", "net.blocks=1", "net.bn_decay=0.99", "optim.ema_decay=0.998")
LAB_STEPS = ("growth.first=2048", "growth.every=512", "growth.final=3072", "log.every=128", "log.checkpoint=512")
LAB = (*LAB_NET, *LAB_STEPS, "algorithm.ramp=1024")
LOCK_IN_STEPS = (
    *("net.filters=8", "algorithm.ramp=350", "optim.ema_decay=0.985"),
    *("growth.first=350", "growth.every=90", "growth.final=700", "log.every=70", "log.last=5"),
)
# About three quarters of each pool, so that each seed draws another one.
HARD_DIGITS = {"long-tail": 300, "near-duplicates": 1_500, "wrong-5": 1_000, "wrong-20": 1_000, "no-class": 1_250}
DUELS = {
    "hog": {"digits": 10, "fashion-mnist": 10, "folder:signs": 12, "svhn": 10},
    "lite0": {"folder:objects": 20, "cifar10": 10, "cifar100": 100},
}
LAB_100 = (*LAB, "data.total=20000", "growth.start=1000", "growth.add=250")

EXPERIMENTS: dict[str, dict[Scale, Callable[[], Experiment]]] = {
    "cifar10": {
        "paper": lambda: Experiment(
            "the paper's full CIFAR-10 table",
            "cifar10",
            {**baselines(), **growing("random", *PAPER_QUERIES)},
            (500, 1_000, 2_000, 4_000, 16_000),
            only={16_000: ("MixMatch",)},
        ),
        "lab": lambda: Experiment("CIFAR-10 with a narrow network", "cifar10-lab", LAB_ROWS, (500,), seeds=3),
    },
    "cifar100": {
        "paper": lambda: Experiment(
            "the paper's full CIFAR-100 table", "cifar100", DIFF2, (4_000, 5_000, 8_000, 10_000)
        ),
        "lab": lambda: Experiment("CIFAR-100 with a narrow network", "cifar100", LAB_ROWS, (2_000,), LAB_100, seeds=3),
    },
    "cifar100-grow100": {
        "paper": lambda: Experiment(
            "the paper's CIFAR-100 table with small queries", "cifar100-grow100", DIFF2, (4_000, 5_000, 8_000, 10_000)
        ),
        "lab": lambda: Experiment(
            "CIFAR-100 with a narrow network and small queries",
            "cifar100-grow100",
            LAB_ROWS,
            (2_000,),
            (*LAB_100, "growth.add=100", "growth.every=256"),
            seeds=3,
        ),
    },
    "svhn": {
        "paper": lambda: Experiment("the paper's full SVHN table", "svhn", DIFF2, (500, 1_000, 2_000, 4_000)),
        "lab": lambda: Experiment(
            "SVHN with a narrow network", "svhn", LAB_ROWS, (500,), (*LAB, "data.total=20000"), seeds=3
        ),
    },
    "labeled-vs-unlabeled-cifar10": {
        "paper": lambda: Experiment(
            "the paper's CIFAR-10 table by labeled and total images",
            "cifar10",
            split("diff2.aug-direct", supervised=False),
            (500, 1_000, 2_000, 4_000),
            totals=tuple(range(5_000, 50_001, 5_000)),
        ),
        "lab": lambda: Experiment(
            "CIFAR-10 by labeled and total images with a narrow network",
            "cifar10-lab",
            split("diff2.aug-direct", supervised=False),
            (500, 1_000),
            LAB_STEPS,
            totals=(5_000, 20_000, 50_000),
            seeds=3,
        ),
    },
    "labeled-vs-unlabeled-cifar100": {
        "paper": lambda: Experiment(
            "the paper's CIFAR-100 table by labeled and total images",
            "cifar100",
            split("diff2.aug-kmeans", supervised=True),
            (4_000, 5_000, 8_000, 10_000),
            totals=(5_000, 10_000, 20_000, 50_000),
        ),
        "lab": lambda: Experiment(
            "CIFAR-100 by labeled and total images with a narrow network",
            "cifar100",
            split("diff2.aug-kmeans", supervised=True),
            (4_000, 5_000),
            (*LAB, "growth.add=500"),
            totals=(5_000, 10_000, 20_000),
            seeds=3,
        ),
    },
    "labeled-vs-unlabeled-svhn-extra": {
        "paper": lambda: Experiment(
            "the paper's SVHN+Extra table by labeled and total images",
            "svhn-extra",
            split("diff2.aug-kmeans", supervised=False),
            (500, 1_000, 2_000, 4_000),
            totals=(5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 604_388),
        ),
        "lab": lambda: Experiment(
            "SVHN+Extra by labeled and total images with a narrow network",
            "svhn-extra",
            split("diff2.aug-kmeans", supervised=False),
            (500, 1_000),
            LAB,
            totals=(5_000, 20_000, 100_000),
            seeds=3,
        ),
    },
    "digits": {
        "lab": lambda: Experiment(
            "every query and baseline on real 8x8 digits",
            "digits",
            {**baselines(), **EVERY_QUERY, **covering("diff2.aug-direct", "auto")},
            (60,),
            seeds=10,
        )
    },
    "fashion-mnist": {
        "lab": lambda: Experiment(
            "Supervised, MixMatch and growing on Fashion-MNIST",
            "fashion-mnist",
            {"Supervised": baselines()["Supervised"], **MIXMATCH, **FEW, **covering("auto")},
            (300,),
            seeds=10,
        )
    },
    "compute-cifar10": {
        "lab": lambda: Experiment(
            "accuracy over compute: cifar10-fast against the paper's network",
            "cifar10-fast",
            compute(
                {
                    "fast": (4_500, 18_000),
                    "fast in bfloat16": (25_200, 100_800),  # as long as 18,000 steps in float32, and four times as long
                    "fast without strong labels": (18_000,),
                    "fast with 16 filters": (1_200, 24_000),
                    "fast by Adam": (1_800, 15_000),
                    "WRN-28-2 MixMatch": (50, 362, 621, 1_060),
                }
            ),
            (500,),
            seeds=3,
        )
    },
    "buyer-digits": {
        "lab": lambda: spending("digits", 200, 120, {1: 100, 5: 250, 20: 600, 100: 1_000}, ("growth.every=75",))
    },
    "buyer-fashion-mnist": {
        "lab": lambda: spending(
            "fashion-mnist",
            1_000,
            500,
            {1: 400, 5: 1_500, 20: 4_000, 100: 9_000},
            ("net.filters=8", "growth.first=400", "growth.every=100", "growth.final=600"),
            purchases=5,
        )
    },
    "low-budget-digits": {"lab": lambda: low_budget("digits", "hog", 10, 1_000)},
    "low-budget-signs": {"lab": lambda: low_budget("folder:signs", "hog", 12, 2_000)},
    "low-budget-fashion-mnist": {"lab": lambda: low_budget("fashion-mnist", "hog", 10, 10_000)},
    "low-budget-cifar10": {"lab": lambda: low_budget("cifar10", "lite0", 10, 10_000)},
    **{
        f"duel-{name.removeprefix('folder:')}": {"lab": partial(duel, name, backbone, classes, 1_000)}
        for backbone, pools in DUELS.items()
        for name, classes in pools.items()
    },
    **{
        f"hard-{name}-{kind}": {"lab": partial(low_budget, f"hard:{kind}:{name}", "hog", 10, total)}
        for name, totals in (("digits", HARD_DIGITS), ("fashion-mnist", dict.fromkeys(HARD, 10_000)))
        for kind, total in totals.items()
    },
    "lock-in-digits": {"lab": lambda: lock_in("digits", 60, 300, ("growth.start=40", "growth.first=500"))},
    "lock-in-fashion-mnist": {
        # Half the preset's width and a third of its steps: 18 rows that two cores finish.
        "lab": lambda: lock_in("fashion-mnist", 300, 5_000, ("growth.start=200", "growth.first=530"), LOCK_IN_STEPS)
    },
}


def experiment(name: str, scale: str | None = None) -> tuple[Scale, Experiment]:
    """Return an experiment at a scale; without one, at the paper's if it has that, else at lab scale."""
    scales = EXPERIMENTS[name]
    tables = {table.removeprefix("budgets-"): table for table in paper.experiments()}  # to be shown beside ours
    for known, make in scales.items():
        if scale in (None, known):
            definition = make()
            return known, replace(definition, paper=definition.paper or tables.get(name))
    raise UserError(f"{name} has no --scale {scale}. It can be run at: {', '.join(scales)}.")

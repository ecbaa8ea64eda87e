"""Every experiment there is: the paper's tables and ours, each at the scales it can be run at.

On frozen features a run takes seconds to a minute, so whole tables are run to their end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

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
Scales = dict[Scale, Experiment]
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


def by_total(title: str, base: str, query: str, lab: Experiment, totals: tuple[int, ...], **more: Any) -> Scales:
    """Return a labeled-vs-unlabeled table: the paper's own, and that of `lab` in title, preset, budgets, totals and settings.

    Of CIFAR-100 it has other budgets, and Supervised where every image is labeled.
    """
    rows, about = split(query, supervised=bool(more)), f"{title} by labeled and total images"
    paper = Experiment(f"the paper's {title} table by labeled and total images", base, rows, BUDGETS, totals=totals)
    return {
        "paper": replace(paper, **more),
        "lab": replace(lab, about=f"{about} with a narrow network", methods=rows, seeds=3),
    }


BUDGETS, BUDGETS_100 = (500, 1_000, 2_000, 4_000), (4_000, 5_000, 8_000, 10_000)  # labels in the paper's tables
# Lengths in steps. bfloat16: as long as 18,000 steps in float32, and four times as long.
LENGTHS = {
    "fast": (4_500, 18_000),
    "fast in bfloat16": (25_200, 100_800),
    "fast without strong labels": (18_000,),
    "fast with 16 filters": (1_200, 24_000),
    "fast by Adam": (1_800, 15_000),
    "WRN-28-2 MixMatch": (50, 362, 621, 1_060),
}
DIGITS_MONEY, FASHION_MONEY = {1: 100, 5: 250, 20: 600, 100: 1_000}, {1: 400, 5: 1_500, 20: 4_000, 100: 9_000}
FASHION_STEPS = ("net.filters=8", "growth.first=400", "growth.every=100", "growth.final=600")

EXPERIMENTS: dict[str, Scales] = {
    "cifar10": {
        "paper": Experiment(
            "the paper's full CIFAR-10 table",
            "cifar10",
            {**baselines(), **growing("random", *PAPER_QUERIES)},
            (*BUDGETS, 16_000),
            only={16_000: ("MixMatch",)},
        ),
        "lab": Experiment(
            "CIFAR-10 with a narrow network", "cifar10-lab", {**LAB_ROWS, **covering("auto")}, (500,), seeds=3
        ),
    },
    "cifar100": {
        "paper": Experiment("the paper's full CIFAR-100 table", "cifar100", DIFF2, BUDGETS_100),
        "lab": Experiment("CIFAR-100 with a narrow network", "cifar100", LAB_ROWS, (2_000,), LAB_100, seeds=3),
    },
    "cifar100-grow100": {
        "paper": Experiment("the paper's CIFAR-100 table with small queries", "cifar100-grow100", DIFF2, BUDGETS_100),
        "lab": Experiment(
            "CIFAR-100 with a narrow network and small queries",
            "cifar100-grow100",
            LAB_ROWS,
            (2_000,),
            (*LAB_100, "growth.add=100", "growth.every=256"),
            seeds=3,
        ),
    },
    "svhn": {
        "paper": Experiment("the paper's full SVHN table", "svhn", DIFF2, BUDGETS),
        "lab": Experiment("SVHN with a narrow network", "svhn", LAB_ROWS, (500,), (*LAB, "data.total=20000"), seeds=3),
    },
    "labeled-vs-unlabeled-cifar10": by_total(
        *("CIFAR-10", "cifar10", "diff2.aug-direct"),
        Experiment("", "cifar10-lab", {}, (500, 1_000), LAB_STEPS, totals=(5_000, 20_000, 50_000)),
        tuple(range(5_000, 50_001, 5_000)),
    ),
    "labeled-vs-unlabeled-cifar100": by_total(
        *("CIFAR-100", "cifar100", "diff2.aug-kmeans"),
        Experiment("", "cifar100", {}, (4_000, 5_000), (*LAB, "growth.add=500"), totals=(5_000, 10_000, 20_000)),
        (5_000, 10_000, 20_000, 50_000),
        budgets=BUDGETS_100,
    ),
    "labeled-vs-unlabeled-svhn-extra": by_total(
        *("SVHN+Extra", "svhn-extra", "diff2.aug-kmeans"),
        Experiment("", "svhn-extra", {}, (500, 1_000), LAB, totals=(5_000, 20_000, 100_000)),
        (5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 604_388),
    ),
    "digits": {
        "lab": Experiment(
            "every query and baseline on real 8x8 digits",
            "digits",
            {**baselines(), **EVERY_QUERY, **covering("diff2.aug-direct", "auto")},
            (60,),
            seeds=10,
        )
    },
    "fashion-mnist": {
        "lab": Experiment(
            "Supervised, MixMatch and growing on Fashion-MNIST",
            "fashion-mnist",
            {"Supervised": baselines()["Supervised"], **MIXMATCH, **FEW, **covering("auto")},
            (300,),
            seeds=10,
        )
    },
    "compute-cifar10": {
        "lab": Experiment(
            "accuracy over compute: cifar10-fast against the paper's network",
            "cifar10-fast",
            compute(LENGTHS),
            (500,),
            seeds=3,
        )
    },
    "buyer-digits": {"lab": spending("digits", 200, 120, DIGITS_MONEY, ("growth.every=75",))},
    "buyer-fashion-mnist": {"lab": spending("fashion-mnist", 1_000, 500, FASHION_MONEY, FASHION_STEPS, purchases=5)},
    "low-budget-digits": {"lab": low_budget("digits", "hog", 10, 1_000)},
    "low-budget-signs": {"lab": low_budget("folder:signs", "hog", 12, 2_000)},
    "low-budget-fashion-mnist": {"lab": low_budget("fashion-mnist", "hog", 10, 10_000)},
    "low-budget-cifar10": {"lab": low_budget("cifar10", "lite0", 10, 10_000)},
    **{
        f"duel-{name.removeprefix('folder:')}": {"lab": duel(name, backbone, classes, max(1_000, 50 * classes))}
        for backbone, pools in DUELS.items()
        for name, classes in pools.items()
    },
    **{
        f"hard-{name}-{kind}": {"lab": low_budget(f"hard:{kind}:{name}", "hog", 10, total)}
        for name, totals in (("digits", HARD_DIGITS), ("fashion-mnist", dict.fromkeys(HARD, 10_000)))
        for kind, total in totals.items()
    },
    "lock-in-digits": {"lab": lock_in("digits", 60, 300, ("growth.start=40", "growth.first=500"))},
    # Half the preset's width and a third of its steps: 18 rows that two cores finish.
    "lock-in-fashion-mnist": {
        "lab": lock_in("fashion-mnist", 300, 5_000, ("growth.start=200", "growth.first=530"), LOCK_IN_STEPS)
    },
}


def experiment(name: str, scale: str | None = None) -> tuple[Scale, Experiment]:
    """Return an experiment at a scale; without one, at the paper's if it has that, else at lab scale."""
    scales = EXPERIMENTS[name]
    tables = {table.removeprefix("budgets-"): table for table in paper.experiments()}  # to be shown beside ours
    for known, definition in scales.items():
        if scale in (None, known):
            return known, replace(definition, paper=definition.paper or tables.get(name))
    raise UserError(f"{name} has no --scale {scale}. It can be run at: {', '.join(scales)}.")

"""What a table is made of: methods, which are its rows, and the experiments and families of rows that repeat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from mma.query.query import FOREIGN
from mma.settings import Settings

PASSIVE = "growth.policy=passive"
COVERAGE = "growth.start_set=coverage"
PAPER_PICKS = ("direct", "kmeans", "infoD")  # the diversifications of the paper
NAMES = ("DropQuery", "MaxHerding", "TypiClust", "ProbCover", "Badge", "Falcun", "CoreSet")  # of scikit-activeml
RIVALS = tuple(f"{FOREIGN}{name}" for name in NAMES)
COVERS = ("herding", "uherding", "auto")  # queries that cover the pool themselves
THEN = "coverage, then "


class Method(Settings):
    """One row of a table: what it changes in the base config."""

    settings: tuple[str, ...] = ()  # path=value, as for --set
    ramp: float | None = Field(default=None, gt=0, le=1)  # algorithm.ramp as a share of the run's own steps
    where: Literal["always", "unlabeled", "labeled"] = "always"  # only cells with (without) unlabeled images
    family: str | None = None  # what rows have in common that differ in length or in prices
    steps: int | None = None  # length of a row that is compared over compute
    # Read from the config when the grid is made, so that a report needs no torch:
    grows: bool = True  # the labeled set grows, so that budgets can share a trunk
    supervised: bool = False  # unlabeled images are never used


@dataclass(frozen=True)
class Experiment:
    """Methods x budgets x totals x seeds on one preset."""

    about: str
    preset: str
    methods: Mapping[str, Method]
    budgets: tuple[int, ...]
    settings: tuple[str, ...] = ()  # changes to the preset
    totals: tuple[int | None, ...] = (None,)  # images in the pool; None = what the preset says
    seeds: int = 5  # Paper: every cell is repeated 5 times
    paper: str | None = None  # the paper's table to show beside ours
    only: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # budgets that only some methods have


BASELINES = {  # draw the whole budget at the start; their ramps fit the length of a run
    "Supervised": Method(settings=("algorithm=supervised", PASSIVE)),
    "MeanTeacher": Method(settings=("algorithm=mean-teacher", PASSIVE)),
    "VAT": Method(settings=("algorithm=vat", PASSIVE)),
    "PiModel": Method(settings=("algorithm=pi-model", PASSIVE)),
    "PseudoLabel": Method(settings=("algorithm=pseudo-label", PASSIVE)),
    "MixMatch": Method(settings=(PASSIVE,)),
}


def rows(*names: str) -> dict[str, Method]:
    """Return the rows of these names: baselines, or MixMatch that grows by a query.

    `coverage, then QUERY` starts from images spread over the pool, as do the queries that cover it themselves and those of
    scikit-activeml; typiclust chooses its own start. `diff2*` are the paper's queries with that measure, in its order.
    """
    found: dict[str, Method] = {}
    for name in names:
        query = name.removeprefix(THEN)
        if name == "baselines":
            found |= BASELINES
        elif name.endswith("*"):
            found |= rows(*(f"{name[:-1]}{aug}-{pick}" for pick in PAPER_PICKS for aug in (".aug", "")))
        elif name in BASELINES:
            found[name] = BASELINES[name]
        elif name == "typiclust":
            found[name] = Method(settings=("query=typiclust", "growth.start_set=query"))
        elif query != name or name in COVERS or name.startswith(FOREIGN):
            found[name] = Method(settings=(f"query={query}", COVERAGE))
        else:
            found[name] = Method(settings=(f"query={name}",))
    return found


def lock_in(preset: str, budget: int, held_out: int, larger: Iterable[str], settings: Iterable[str] = ()) -> Experiment:
    """Return growing against passive at equal steps, under each setting meant against lock-in.

    It is what lab presets are chosen by, so it is scored on images held out of the pool, never on the test set.
    `larger` are the settings of a larger start set, with the steps of the rounds it spares added to the first one.
    """
    plain = (*WITHOUT_REMEDY, f"data.validation={held_out}")
    tried = {  # what may help, from how a row's name says it to its settings; nothing comes first
        "": (),
        " + ramp again": ("growth.ramp_again=true",),
        " + larger start set": tuple(larger),
        " + restart every round": ("growth.refresh_every=1",),
        " + shrink and perturb every round": ("growth.refresh_every=1", "growth.shrink=0.5"),
        " + restart before the tail": ("growth.refresh_final=true",),
        " + shrink and perturb before the tail": ("growth.refresh_final=true", "growth.shrink=0.5"),
        " + coverage start set": ("growth.start_set=coverage",),
    }
    rows = [(query, name) for name in tried for query in ("random", "diff2.aug-direct")]
    grown = {f"{query}{name}": Method(settings=(f"query={query}", *plain, *tried[name])) for query, name in rows}
    passive = {
        f"MixMatch{name}": Method(settings=(PASSIVE, *plain, *tried[name]))
        for name in ("", " + coverage start set")  # nothing else matters to a run that never grows
    }
    about = f"growing against passive at equal steps on {preset}, scored on {held_out:,} images held out of the pool"
    return Experiment(about, preset, {**passive, **grown}, (budget,), tuple(settings))


def spending(
    preset: str, initial_pool: int, budget: int, money: dict[str, int], settings: Iterable[str], purchases: int = 8
) -> Experiment:
    """Return policies that spend the same money, for each price of a label in images; part of the pool is hidden at first.

    A tenth of the buyer's money goes into labels to measure by: it pays for what it wants to know.
    """
    shares = {"labels only": 1.0, "images only": 0.0, "half and half": 0.5}
    rows: dict[str, Method] = {}
    for price, amount in ((int(price), amount) for price, amount in money.items()):
        deal = {"money": amount, "label_price": price, "image_price": 1, "initial_pool": initial_pool}
        deal["purchases"] = purchases
        for name, share in shares.items():
            rows[f"{price}:1 {name}"] = Method(settings=policy("split", **deal, share=share), family=name)
        buyer = policy("buyer", **deal, held_out_labels=amount // price // 10)
        rows[f"{price}:1 buyer"] = Method(settings=buyer, family="buyer")
    about = f"labels or images for the same money on {preset}, with {initial_pool:,} images at the start"
    return Experiment(about, preset, rows, (budget,), tuple(settings))


def policy(name: str, **settings: float) -> tuple[str, ...]:
    """Return the settings of a growth policy."""
    return (f"growth.policy={name}", *(f"growth.policy.{key}={value}" for key, value in settings.items()))


def compute(families: dict[str, dict[str, Any]]) -> Experiment:
    """Return families at several lengths in steps: `cifar10-fast`, what it was before, and the paper's network.

    `averages` fit a run far shorter than the paper's: those over a thousand steps would come too late. It has one evaluation
    (14 of its steps) and grows at random (five looks at the pool cost 355). Its unlabeled weight rises as in the paper: one
    that rose to its end within 145 steps made the guesses collapse into one class.
    """
    rows: dict[str, Method] = {}
    for family, made in families.items():
        for n in made["steps"]:
            ramp: float | None = 0.25
            settings = [*made["settings"], *phases(n, n // 3)]
            if made.get("averages"):
                horizon = min(1 - 1 / max(round(n / 20), 2), 0.999)
                averages = f"net.bn_decay={horizon:.4f}", f"optim.ema_decay={horizon:.4f}"
                settings, ramp = [*made["settings"], *averages, *phases(n, n)], None
            rows[f"{family} @ {n} steps"] = Method(settings=tuple(settings), ramp=ramp, family=family, steps=n)
    about = "accuracy over compute: cifar10-fast against the paper's network"
    return Experiment(about, "cifar10-fast", rows, (500,), seeds=3)


def phases(steps: int, evaluate: int) -> tuple[str, ...]:
    """Return a growth of five queries over so many steps: two ninths before the first, five ninths after the last."""
    every = steps // 18
    first = 4 * every
    final = steps - first - 4 * every
    return f"growth.first={first}", f"growth.every={every}", f"growth.final={final}", f"log.every={evaluate}"


WITHOUT_REMEDY = (
    *("growth.start_set=uniform", "growth.ramp_again=false", "growth.refresh_final=false"),
    *("growth.refresh_every=0", "growth.shrink=0.0"),
)

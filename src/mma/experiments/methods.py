"""What a table is made of: methods, which are its rows, and the experiments and families of rows that repeat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from mma.settings import Settings

PASSIVE = "growth.policy=passive"
COVERAGE = "growth.start_set=coverage"
PAPER_PICKS = ("direct", "kmeans", "infoD")  # the diversifications of the paper
RIVALS = ("DropQuery", "MaxHerding", "TypiClust", "ProbCover", "Badge", "Falcun", "CoreSet")  # of scikit-activeml
COVERS = ("herding", "uherding", "auto")  # queries that cover the pool themselves


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


def growing(*queries: str) -> dict[str, Method]:
    """Return MixMatch that grows its labeled set, one row per query."""
    return {query: Method(settings=(f"query={query}",)) for query in queries}


def covering(*queries: str) -> dict[str, Method]:
    """Return MixMatch that starts from images spread over the pool, one row per query.

    The name of a row says so where the query itself does not cover the pool.
    """
    rows = {query: Method(settings=(f"query={query}", COVERAGE)) for query in queries}
    return {query if query in COVERS else f"coverage, then {query}": row for query, row in rows.items()}


def foreign(names: Iterable[str]) -> dict[str, Method]:
    """Return MixMatch with strategies of scikit-activeml, all from images spread over the pool, one row per name."""
    return {name: Method(settings=(f"query={name}", COVERAGE)) for name in names}


def baselines() -> dict[str, Method]:
    """Return the methods that draw the whole budget at the start, MixMatch last. Their ramps fit the length of a run."""
    names = {"MeanTeacher": "mean-teacher", "VAT": "vat", "PiModel": "pi-model", "PseudoLabel": "pseudo-label"}
    return {
        "Supervised": Method(settings=("algorithm=supervised", PASSIVE)),
        **{row: Method(settings=(f"algorithm={name}", PASSIVE)) for row, name in names.items()},
        **MIXMATCH,
    }


def queries(*measures: str) -> tuple[str, ...]:
    """Return the queries of some uncertainty measures, in the order of the paper's appendix."""
    return tuple(f"{measure}{aug}-{pick}" for measure in measures for pick in PAPER_PICKS for aug in (".aug", ""))


def lock_in(
    preset: str, budget: int, held_out: int, larger: tuple[str, ...], settings: tuple[str, ...] = ()
) -> Experiment:
    """Return growing against passive at equal steps, under each setting meant against lock-in.

    It is what lab presets are chosen by, so it is scored on images held out of the pool, never on the test set.
    `larger` are the settings of a larger start set, with the steps of the rounds it spares added to the first one.
    """
    plain = (*WITHOUT_REMEDY, f"data.validation={held_out}")
    tried = {  # what may help, from how a row's name says it to its settings; nothing comes first
        "": (),
        " + ramp again": ("growth.ramp_again=true",),
        " + larger start set": larger,
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
    return Experiment(about, preset, {**passive, **grown}, (budget,), settings)


def spending(
    preset: str, initial_pool: int, budget: int, money: dict[int, int], settings: tuple[str, ...], purchases: int = 8
) -> Experiment:
    """Return policies that spend the same money, for each price of a label in images; part of the pool is hidden at first.

    A tenth of the buyer's money goes into labels to measure by: it pays for what it wants to know.
    """
    shares = {"labels only": 1.0, "images only": 0.0, "half and half": 0.5}
    rows: dict[str, Method] = {}
    for price, amount in money.items():
        deal = {"money": amount, "label_price": price, "image_price": 1, "initial_pool": initial_pool}
        deal["purchases"] = purchases
        for name, share in shares.items():
            rows[f"{price}:1 {name}"] = Method(settings=policy("split", **deal, share=share), family=name)
        buyer = policy("buyer", **deal, held_out_labels=amount // price // 10)
        rows[f"{price}:1 buyer"] = Method(settings=buyer, family="buyer")
    about = f"labels or images for the same money on {preset}, with {initial_pool:,} images at the start"
    return Experiment(about, preset, rows, (budget,), settings)


def policy(name: str, **settings: float) -> tuple[str, ...]:
    """Return the settings of a growth policy."""
    return (f"growth.policy={name}", *(f"growth.policy.{key}={value}" for key, value in settings.items()))


def compute(lengths: Mapping[str, Iterable[int]]) -> dict[str, Method]:
    """Return families at several lengths in steps: `cifar10-fast`, what it was before, and the paper's network."""
    rows: dict[str, Method] = {}
    for family, steps in lengths.items():
        for n in steps:
            made = FAMILIES[family](n)
            rows[f"{family} @ {n} steps"] = made.model_copy(update={"family": family, "steps": n})
    return rows


def fast(*earlier: str) -> Callable[[int], Method]:
    """Return what makes `cifar10-fast`, with some of its settings as they were, a run of so many steps."""
    return lambda steps: Method(settings=(*earlier, *phases(steps, steps // 3)), ramp=0.25)


def papers(steps: int) -> tuple[str, ...]:
    """Return the settings that make `cifar10-fast` the paper's, for a run far shorter than the paper's.

    It grows at random: its five looks at the pool would take as much as 355 steps. The unlabeled weight
    rises as in the paper: one that rose to its end within 145 steps made the guesses collapse into one class.
    """
    horizon = min(1 - 1 / max(round(steps / 20), 2), 0.999)  # averages over a thousand steps would come too late
    return (
        *(*WEAK, "net=wrn", "algorithm=mixmatch", "optim.rule=adam"),
        *("optim.lr=0.002", "optim.batch=64"),
        *("optim.warmup=0", "optim.decay=constant", "query=random"),
        *(f"net.bn_decay={horizon:.4f}", f"optim.ema_decay={horizon:.4f}"),
        *phases(steps, steps),  # an evaluation costs 14 steps, so there is one
    )


def phases(steps: int, evaluate: int) -> tuple[str, ...]:
    """Return a growth of five queries over so many steps: two ninths before the first, five ninths after the last."""
    every = steps // 18
    first = 4 * every
    final = steps - first - 4 * every
    return f"growth.first={first}", f"growth.every={every}", f"growth.final={final}", f"log.every={evaluate}"


def split(growth: str, supervised: bool) -> dict[str, Method]:
    """Return the methods of a labeled-vs-unlabeled table: one that grows, and Supervised where everything is labeled."""
    rows = {growth: Method(settings=(f"query={growth}",), where="unlabeled")}
    alone = Method(settings=("algorithm=supervised", PASSIVE), where="labeled")
    return {**rows, "Supervised": alone} if supervised else rows


WITHOUT_REMEDY = (
    *("growth.start_set=uniform", "growth.ramp_again=false", "growth.refresh_final=false"),
    *("growth.refresh_every=0", "growth.shrink=0.0"),
)
FLOAT32 = ("optim.precision=float32",)
WEAK = (*FLOAT32, "views.strong_labels=0.0")
NARROW = (*WEAK, "net.filters=16")
FAMILIES: dict[str, Callable[[int], Method]] = {
    "fast": fast(*FLOAT32),
    "fast in bfloat16": fast("optim.precision=bfloat16"),
    "fast without strong labels": fast(*WEAK),
    "fast with 16 filters": fast(*NARROW),
    "fast by Adam": fast(*NARROW, "optim.rule=adam", "net.mirrored=false"),
    "WRN-28-2 MixMatch": lambda steps: Method(settings=papers(steps)),
}

MIXMATCH = {"MixMatch": Method(settings=(PASSIVE,))}

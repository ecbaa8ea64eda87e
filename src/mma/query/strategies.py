"""Whole strategies: queries that are not an uncertainty and a way to pick, but one thing.

A new one is one function and one entry in STRATEGIES, here or from your own code. `Query.parse` and the contract suite find it
at once:

    STRATEGIES["first"] = Strategy(lambda candidates, labeled, n, rng: Picks(np.arange(n), np.zeros(n)))
    Query.parse("first")
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from numpy.random import Generator

from mma.query.auto import auto
from mma.query.candidates import Candidates, Labeled
from mma.query.coverage import herding, uncertain_herding
from mma.query.margins import badge, cluster_margin
from mma.query.picks import Picks
from mma.query.typical import typiclust

Pick = Callable[[Candidates, Labeled, int, Generator], Picks]  # n >= 1 and at most the number of candidates


@dataclass(frozen=True)
class Strategy:
    """How images are picked, and what that needs to know about them."""

    pick: Pick
    needs_probs: bool = False
    needs_features: bool = True
    needs_labeled: bool = True
    before_model: bool = False  # it also works without the probabilities, before there is a model


STRATEGIES: dict[str, Strategy] = {
    "herding": Strategy(herding),
    "typiclust": Strategy(typiclust),
    "uherding": Strategy(uncertain_herding, needs_probs=True, before_model=True),
    "cluster-margin": Strategy(cluster_margin, needs_probs=True, needs_labeled=False),
    "badge": Strategy(badge, needs_probs=True, needs_labeled=False),
    "auto": Strategy(auto, needs_probs=True, before_model=True),
}

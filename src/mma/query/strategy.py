"""A query by its name in the paper: `diff2.aug-kmeans`, `max-infoD`, `random`."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from mma.query.candidates import Candidates, Floats, Ints
from mma.query.diversity import DIVERSITY
from mma.query.uncertainty import UNCERTAINTY

AUG_VIEWS = 2  # Paper: "We choose K = 2 to stay consistent with the setting of MixMatch"
RANDOM = "random"


@dataclass(frozen=True, eq=False)
class Selection:
    """What was chosen, the most wanted first, with the scores that decided it."""

    index: Ints  # (n,) taken from candidates.index
    scores: Floats  # (n,)


@dataclass(frozen=True)
class Query:
    """Uncertainty x diversification. `uncertainty=None` is `random`: every image scores the same, ties are shuffled."""

    uncertainty: str | None
    aug: bool = False
    diversity: str = "direct"

    def __post_init__(self) -> None:
        known = self.uncertainty is None or self.uncertainty in UNCERTAINTY
        if not known or self.diversity not in DIVERSITY:
            raise ValueError(_unknown(str(self)))
        if self.uncertainty is None and (self.aug or self.diversity != "direct"):
            raise ValueError(
                "Random picks look at nothing, so they take neither .aug nor a diversification: use 'random'."
            )

    @classmethod
    def parse(cls, name: str) -> Query:
        """Read a name; `str(query)` gives it back."""
        if name == RANDOM:
            return cls(None)
        measure, _, diversity = name.partition("-")
        # Original: strips ".aug" before it tests for it, so that no .aug query ever ran. Differs: it is read first.
        aug = measure.endswith(".aug")
        uncertainty = measure.removesuffix(".aug")
        if uncertainty not in UNCERTAINTY or diversity not in DIVERSITY:
            raise ValueError(_unknown(name))
        return cls(uncertainty, aug, diversity)

    def __str__(self) -> str:
        if self.uncertainty is None and not self.aug and self.diversity == "direct":
            return RANDOM
        return f"{self.uncertainty}{'.aug' if self.aug else ''}-{self.diversity}"

    @property
    def views(self) -> int:
        """Predictions to average per image: augmented ones for .aug, else 1, the plain image."""
        return AUG_VIEWS if self.aug else 1

    @property
    def needs_probs(self) -> bool:
        """Whether the candidates must come with probabilities."""
        return self.uncertainty is not None

    @property
    def needs_features(self) -> bool:
        """Whether the candidates must come with embeddings."""
        return DIVERSITY[self.diversity].needs_features

    @property
    def looks(self) -> int:
        """How many times the network looks at each image that may be asked about."""
        return self.views + (self.aug and self.needs_features) if self.needs_probs else 0

    def scores(self, candidates: Candidates) -> Floats:
        """The score (N,) that selection goes by: the larger, the sooner asked about. All 0 for `random`."""
        if self.uncertainty is None:
            return np.zeros(len(candidates))
        uncertainty = UNCERTAINTY[self.uncertainty](self._given("probs", candidates.probs))
        return DIVERSITY[self.diversity].reweigh(uncertainty.astype(np.float64), self._features(candidates))

    def select(self, candidates: Candidates, n: int, rng: Generator) -> Ints:
        """The n images to ask about, the most wanted first; all of them when there are no more than n."""
        return self.selection(candidates, n, rng).index

    def selection(self, candidates: Candidates, n: int, rng: Generator) -> Selection:
        """As `select`, with the scores that decided it."""
        if n < 0:
            raise ValueError(f"A query for {n} images makes no sense. Ask for 0 or more.")
        scores = self.scores(candidates)
        n = min(n, len(candidates))
        rows = DIVERSITY[self.diversity].pick(scores, self._features(candidates), n, rng)
        return Selection(candidates.index[rows], scores[rows])

    def _features(self, candidates: Candidates) -> Floats:
        if not self.needs_features:
            return np.zeros((len(candidates), 0), dtype=np.float32)
        return self._given("features", candidates.features)

    def _given(self, what: str, values: Floats | None) -> Floats:
        if values is None:
            raise ValueError(
                f"The query {self} needs {what}, but the candidates have none. Pass Candidates(..., {what}=...)."
            )
        return values


def names() -> list[str]:
    """Every query there is, by name."""
    measures = [measure + aug for measure in UNCERTAINTY for aug in ("", ".aug")]
    return [f"{measure}-{diversity}" for measure in measures for diversity in DIVERSITY] + [RANDOM]


def _unknown(name: str) -> str:
    if name.lower() in ("passive", "mixmatch"):
        return (
            f"'{name}' is not a query: a passive run draws its whole budget at the start and never asks for more. "
            "Make it a setting of the run, or use 'random' for a labeled set that grows by random picks."
        )
    spelled = {known.lower(): known for known in names()}
    # A name without its second half ("diff2.aug") most likely means the plain way of picking.
    near = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=0.6)
    guess = f"{name}-direct" if f"{name}-direct" in names() else spelled[near[0]] if near else None
    hint = f" Did you mean '{guess}'?" if guess else ""
    return (
        f"No query '{name}'.{hint} A query is 'random' or one of {', '.join(UNCERTAINTY)}, then .aug or nothing, "
        f"then one of -{', -'.join(DIVERSITY)}: for example 'diff2.aug-kmeans'."
    )

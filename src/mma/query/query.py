"""A query by its name: the paper's `diff2.aug-kmeans`, `max-infoD`, `random`; and whole strategies such as `herding`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from mma.errors import UserError
from mma.extensions import load_plugin, plugins
from mma.query.candidates import Candidates, Floats, Ints, Labeled
from mma.query.diversity import DIVERSITY
from mma.query.strategies import STRATEGIES
from mma.query.uncertainty import UNCERTAINTY
from mma.rng import rng as seeded
from mma.text import did_you_mean, install_hint, printable

AUG_VIEWS = 2  # Paper: "We choose K = 2 to stay consistent with the setting of MixMatch"
RANDOM = "random"
FOREIGN = "skactiveml:"  # begins the name of a strategy that scikit-activeml brings


@dataclass(frozen=True, eq=False)
class Selection:
    """The chosen images, highest score first, and their scores."""

    index: Ints  # (n,) taken from candidates.index
    scores: Floats  # (n,)
    why: str = ""  # one sentence, where the query decides how it asks


@dataclass(frozen=True)
class Query:
    """Uncertainty x diversification, or a whole `strategy`. `Query(None)` is `random`: all scores are equal, ties are shuffled.

    Parameters
    ----------
    uncertainty : str or None
        A name of UNCERTAINTY.
    aug : bool
        Average the predictions over two augmented views. Default: False.
    diversity : str
        A name of DIVERSITY. Default: "direct", the most uncertain ones.
    strategy : str, optional
        A name of STRATEGIES, instead of all that. User code may add entries to the three tables at any time.

    Examples
    --------
    >>> Query.parse("diff2.aug-kmeans") == Query("diff2", aug=True, diversity="kmeans")
    True
    """

    uncertainty: str | None
    aug: bool = False
    diversity: str = "direct"
    strategy: str | None = None

    def __post_init__(self) -> None:
        if self.strategy is not None:
            if self.strategy not in STRATEGIES or (self.uncertainty, self.aug, self.diversity) != (
                None,
                False,
                "direct",
            ):
                raise UserError(_unknown(self.strategy))
        elif self.uncertainty not in (None, *UNCERTAINTY) or self.diversity not in DIVERSITY:
            raise UserError(_unknown(str(self)))
        elif self.uncertainty is None and (self.aug or self.diversity != "direct"):
            raise UserError(
                "Random picks look at nothing, so they take neither .aug nor a diversification: use 'random'."
            )

    @classmethod
    def parse(cls, name: str) -> Query:
        """Read a name; `str(query)` gives it back."""
        # Original: strips ".aug" before it tests for it, so that no .aug query ever ran. Differs: whole names are compared.
        if name not in names():
            for part in {plugin.name for plugin in plugins() if plugin.group == "mma.queries"}:
                if name == part or name.startswith((f"{part}-", f"{part}.aug-")) or name.endswith(f"-{part}"):
                    load_plugin("mma.queries", part, UNCERTAINTY, DIVERSITY, STRATEGIES)
        if name.startswith(FOREIGN):
            try:
                from mma.query.skactiveml import foreign_strategy
            except ImportError:
                raise UserError(f"the query {printable(name)} is scikit-activeml's:  {install_hint('duel')}") from None
            STRATEGIES.setdefault(name, foreign_strategy(name))
            return cls(None, strategy=name)
        for query in _every_query():
            if str(query) == name:
                return query
        raise UserError(_unknown(name))

    def __str__(self) -> str:
        if self.strategy is not None:
            return self.strategy
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
        return STRATEGIES[self.strategy].needs_probs if self.strategy else self.uncertainty is not None

    @property
    def needs_labeled(self) -> bool:
        """Whether the embeddings of the labeled images matter to it."""
        return self.strategy is not None and STRATEGIES[self.strategy].needs_labeled

    @property
    def needs_features(self) -> bool:
        """Whether the candidates must come with embeddings."""
        return STRATEGIES[self.strategy].needs_features if self.strategy else DIVERSITY[self.diversity].needs_features

    @property
    def before_model(self) -> bool:
        """Whether it can choose by embeddings alone, before there is a model."""
        return self.strategy is not None and (STRATEGIES[self.strategy].before_model or not self.needs_probs)

    @property
    def looks(self) -> int:
        """Forward passes per image that may be asked about."""
        return self.views + (self.aug and self.needs_features) if self.needs_probs else int(self.needs_features)

    def scores(self, candidates: Candidates) -> Floats:
        """Return the scores (N,) that selection goes by: a larger one is asked sooner. All 0 for `random`.

        A whole strategy has none: what an image is worth to it depends on the others it picks.
        """
        if self.strategy is not None:
            raise UserError(
                f"The query {self} scores images only together. Call selection(...): it returns the scores."
            )
        if self.uncertainty is None:
            return np.zeros(len(candidates))
        uncertainty = UNCERTAINTY[self.uncertainty](candidates.probabilities)
        _check_scores(f"The uncertainty '{self.uncertainty}'", uncertainty, len(candidates))
        scores = DIVERSITY[self.diversity].reweigh(uncertainty.astype(np.float64), self._features(candidates))
        _check_scores(f"The diversification '{self.diversity}'", scores, len(candidates))
        return scores

    def select(
        self, candidates: Candidates, n: int, rng: Generator | int, labeled: Labeled | Floats | None = None
    ) -> Ints:
        """Return the images to ask about.

        Parameters
        ----------
        candidates : Candidates
            The images that may be asked about.
        n : int
            How many; all candidates when there are no more.
        rng : int or numpy.random.Generator
            Breaks ties and starts k-means.
        labeled : Labeled or array of shape (L, D), optional
            The images that have a label, or their embeddings alone. Default: none.

        Returns
        -------
        array of shape (n,)
            Entries of `candidates.index`, the most wanted first.

        Examples
        --------
        >>> import numpy as np
        >>> probs = np.array([[0.9, 0.1], [0.55, 0.45], [0.7, 0.3]])
        >>> Query.parse("diff2-direct").select(Candidates(np.array([10, 11, 12]), probs), 2, rng=0)
        array([11, 12])
        """
        return self.selection(candidates, n, rng, labeled).index

    def selection(
        self, candidates: Candidates, n: int, rng: Generator | int, labeled: Labeled | Floats | None = None
    ) -> Selection:
        """Return what `select` returns, with the scores and the reason."""
        if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 0:
            raise UserError(f"A query for {n!r} images makes no sense. Ask for a whole number, 0 or more.")
        n, generator, labeled = min(int(n), len(candidates)), as_generator(rng), as_labeled(labeled)
        if candidates.probs is not None and len(labeled) and labeled.classes.max() >= candidates.probs.shape[1]:
            raise UserError(
                f"The labeled set has an image of class {labeled.classes.max()}, but the candidates' probs know the "
                f"classes 0 to {candidates.probs.shape[1] - 1}."
            )
        if self.strategy is not None:
            return self._by_strategy(self.strategy, candidates, labeled, n, generator)
        scores = self.scores(candidates)
        rows = np.asarray(DIVERSITY[self.diversity].pick(scores, self._features(candidates), n, generator))
        _check_rows(f"The diversification '{self.diversity}'", rows, n, len(scores))
        return Selection(candidates.index[rows], scores[rows])

    def _by_strategy(self, name: str, candidates: Candidates, labeled: Labeled, n: int, rng: Generator) -> Selection:
        if n == 0:
            return Selection(candidates.index[:0], np.zeros(0), "nothing was asked for")
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped, unused-ignore]

        with threadpool_limits(1):  # sums of several threads differ in the last digit, and with them the choice
            picks = STRATEGIES[name].pick(candidates, labeled, n, rng)
        rows, scores = np.asarray(picks.rows), np.asarray(picks.scores, np.float64)
        _check_rows(f"The strategy '{name}'", rows, n, len(candidates))
        _check_scores(f"The strategy '{name}'", scores, n)
        if (rises := np.diff(scores) > 0).any():
            at = int(np.argmax(rises))
            raise UserError(
                f"The strategy '{name}' must return the most wanted image first, with scores that never rise; score "
                f"{at + 2} is {scores[at + 1]:g}, after {scores[at]:g}."
            )
        return Selection(candidates.index[rows], scores, picks.why)

    def _features(self, candidates: Candidates) -> Floats:
        return candidates.embeddings if self.needs_features else np.zeros((len(candidates), 0), np.float32)


def _check_scores(who: str, scores: Floats, count: int) -> None:
    if np.shape(scores) != (count,) or not np.isfinite(scores).all():
        raise UserError(
            f"{who} must return one finite score per image, shape ({count},); it returned shape "
            f"{np.shape(scores)}{'' if np.isfinite(scores).all() else ' with NaN or infinite scores'}."
        )


def _check_rows(who: str, rows: Ints, n: int, count: int) -> None:
    whole = rows.shape == (n,) and (n == 0 or rows.dtype.kind in "iu")
    if not whole or len(set(rows.tolist())) != n or (n and not 0 <= rows.min() <= rows.max() < count):
        raise UserError(
            f"{who} must pick {n} different rows below {count}, but returned "
            f"{rows.tolist()[:5]}{'...' if rows.size > 5 else ''} of shape {rows.shape}."
        )


def as_generator(rng: Generator | int) -> Generator:
    """Return a generator for a seed; a generator is returned as it is."""
    if isinstance(rng, Generator):
        return rng
    if isinstance(rng, int | np.integer) and not isinstance(rng, bool) and rng >= 0:
        return seeded(int(rng), "query")
    raise UserError(f"rng is {rng!r}; it must be a whole number from 0 on (a seed) or a numpy Generator, like rng=0.")


def as_labeled(labeled: Labeled | Floats | None) -> Labeled:
    """Return the labeled set; embeddings alone are one whose classes nobody knows, None is an empty one."""
    if labeled is None or isinstance(labeled, Labeled):
        return Labeled() if labeled is None else labeled
    try:
        return Labeled(np.asarray(labeled, np.float64))
    except (TypeError, ValueError) as error:
        reason = f" ({error})" if isinstance(error, UserError) else ""
        raise UserError(
            f"labeled is a {type(labeled).__name__} that is no table of embeddings{reason}. Pass "
            "Labeled(features, labels), or the embeddings of the labeled images as an array of shape (L, D)."
        ) from None


def names() -> list[str]:
    """Return the name of every query there is, with entries of your own code."""
    return [str(query) for query in _every_query()]


def own_strategies() -> list[str]:
    """Return the names of the strategies, without those of scikit-activeml that somebody asked for."""
    return [name for name in STRATEGIES if not name.startswith(FOREIGN)]


def _every_query() -> Iterator[Query]:
    for uncertainty in list(UNCERTAINTY):
        for aug in (False, True):
            yield from (Query(uncertainty, aug, diversity) for diversity in list(DIVERSITY))
    yield Query(None)
    yield from (Query(None, strategy=name) for name in own_strategies())


def _unknown(name: str) -> str:
    if name.lower() in ("passive", "mixmatch"):
        return (
            f"'{name}' is not a query: a passive run draws its whole budget at the start and never asks for more. "
            "Make it a setting of the run, or use 'random' for a labeled set that grows by random picks."
        )
    # A name without its second half ("diff2.aug") most likely means the plain way of picking.
    short = f"{name}-direct"
    hint = f" Did you mean '{short}'?" if short in names() else did_you_mean(name, names())
    return (
        f"No query '{printable(name)}'.{hint} A query is 'random', one of {', '.join(own_strategies())}, or one of "
        f"{', '.join(UNCERTAINTY)}, then .aug or nothing, then one of -{', -'.join(DIVERSITY)}: for example "
        "'diff2.aug-kmeans'. One from your own code needs  mma --use MODULE"
    )

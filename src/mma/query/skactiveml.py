"""Strategies of scikit-activeml as queries of ours (`skactiveml:DropQuery`), and our queries as a strategy of theirs.

Both ways the code that chooses is its owner's, with its defaults. Their strategies see the same embeddings and the same model
as ours do. Only `mma.query` names this module, when it is asked for.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import skactiveml.pool
from numpy.random import Generator
from skactiveml.base import SingleAnnotatorPoolQueryStrategy, SkactivemlClassifier
from skactiveml.classifier import SklearnClassifier
from skactiveml.utils import is_labeled
from sklearn import clone
from sklearn.linear_model import LogisticRegression

from mma.errors import UserError
from mma.query.candidates import Candidates, Ints, Labeled, Picks
from mma.query.query import FOREIGN, Query
from mma.query.strategies import Strategy
from mma.text import did_you_mean, printable

MISSING = -1  # the label of an image that nobody has labeled, here and there


class Answers(SkactivemlClassifier):  # type: ignore[misc]
    """A fitted classifier as they pass it around: the probabilities our model gave to the candidates."""

    def __init__(self, probs: Any = None, classes: Any = None, missing_label: Any = MISSING) -> None:
        super().__init__(classes=classes, missing_label=missing_label)
        self.probs = probs

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Answers:
        """Do nothing: the probabilities are there."""
        return self

    def predict_proba(self, X: Any) -> Any:
        """Return what our model says about the candidates, who must be asked about all at once."""
        assert len(X) == len(self.probs)
        return self.probs


def foreign_strategy(name: str) -> Strategy:
    """Return the strategy behind `skactiveml:NAME`, with its defaults."""
    kinds: dict[str, Any] = {
        kind: each
        for kind, each in vars(skactiveml.pool).items()
        if inspect.isclass(each) and issubclass(each, SingleAnnotatorPoolQueryStrategy)
    }
    kind = name.removeprefix(FOREIGN)
    if kind not in kinds:
        hint = did_you_mean(kind, sorted(kinds))
        raise UserError(f"scikit-activeml has no strategy '{printable(kind)}'.{hint} Write it as its class is called.")
    asked = inspect.signature(kinds[kind].query).parameters
    own = {"X", "y", "clf", "fit_clf", "sample_weight", "candidates", "batch_size", "return_utilities", "update"}
    needed = [each for each, one in asked.items() if one.default is one.empty and each not in own | {"self"}]
    if needed:
        raise UserError(f"{name} needs more than a model and embeddings ({', '.join(needed)}), so it cannot ask here.")

    def pick(candidates: Candidates, labeled: Labeled, n: int, rng: Generator) -> Picks:
        """Call their `query` on the candidates with the labeled images behind them."""
        X = np.concatenate([candidates.embeddings, labeled.features_like(candidates.embeddings)])
        y = np.concatenate([np.full(len(candidates), MISSING), labeled.classes])
        seed, model = int(rng.integers(2**31)), dict[str, Any]()
        theirs = kinds[kind](missing_label=MISSING, random_state=seed)
        if (
            kind == "DropQuery"
        ):  # asks about images that it changes: it needs a model of embeddings. Its k-means needs a seed
            theirs.set_params(cluster_algo_dict={"random_state": seed})
            head = SklearnClassifier(LogisticRegression(C=10.0, max_iter=200), missing_label=MISSING)
            model = {"clf": head.fit(X[len(candidates) :], labeled.classes), "fit_clf": False}
        elif "clf" in asked:
            probs = candidates.probabilities
            model = {"clf": Answers(probs, np.arange(probs.shape[1])), "fit_clf": False}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of their defaults on our embeddings: nobody here can change them
            chosen = theirs.query(X, y, candidates=np.arange(len(candidates)), batch_size=n, **model)
        return Picks(np.asarray(chosen, np.int64), np.arange(n, 0, -1) / n, f"chosen by {kind} of scikit-activeml")

    return Strategy(pick, needs_probs="clf" in asked)


class MmaQuery(SingleAnnotatorPoolQueryStrategy):  # type: ignore[misc]
    """A query of ours by its name, as a strategy of scikit-activeml: `MmaQuery("auto").query(X, y, clf, batch_size=8)`."""

    def __init__(self, query_name: str = "auto", missing_label: Any = np.nan, random_state: Any = None) -> None:
        super().__init__(missing_label=missing_label, random_state=random_state)
        self.query_name = query_name

    def query(
        self,
        X: Any,
        y: Any,
        clf: Any = None,
        fit_clf: bool = True,
        candidates: Any = None,
        batch_size: int = 1,
        return_utilities: bool = False,
    ) -> Any:
        """Return rows of X to label next, the most wanted first; with `return_utilities` what each was worth when picked.

        `clf` may be left out for a query that looks at embeddings alone, and before there is a label.
        """
        X, y, candidates, batch_size, return_utilities = self._validate_data(
            X, y, candidates, batch_size, return_utilities, reset=True
        )
        points, rows = self._transform_candidates(candidates, X, y, enforce_mapping=True)
        known, query, probs = is_labeled(y, missing_label=self.missing_label_), Query.parse(self.query_name), None
        if query.needs_probs and clf is not None and known.any():
            model = clone(clf).fit(X, y) if fit_clf else clf
            probs = np.asarray(model.predict_proba(points))
        classes: Ints = np.unique(y[known], return_inverse=True)[1].astype(np.int64)
        labeled = Labeled(X[known], classes) if known.any() else Labeled()
        seed = int(self.random_state_.randint(2**31 - 1))
        found = query.selection(Candidates(rows, probs, points), batch_size, seed, labeled)
        if not return_utilities:
            return found.index
        utilities = np.full((batch_size, len(X)), np.nan)
        utilities[np.arange(batch_size), found.index] = found.scores
        return found.index, utilities

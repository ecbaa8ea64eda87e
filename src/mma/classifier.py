"""The front door for array users: scikit-learn's fit, predict and predict_proba, and query: what to label next."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import torch
from pydantic import ValidationError
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_array, check_is_fitted, check_X_y, validate_data
from torch import nn

from mma.algorithms import ALGORITHMS, Algorithm, MixMatch
from mma.config import Config, Data, Optim
from mma.data.images import UNKNOWN
from mma.errors import UserError
from mma.extensions import load_plugin
from mma.growth import Growth, Passive
from mma.nets import NETS, Head, Net, Network, Shape, without_embeddings
from mma.nets.head import HEAD_START, TESTED
from mma.query import Labeled, Query
from mma.query.coverage import predicted_by_others
from mma.rng import rng
from mma.settings import explain, no_entry
from mma.text import did_you_mean
from mma.training.head import train_in_memory
from mma.training.host import Host, training_threads
from mma.training.loop import COLLAPSE
from mma.training.predict import candidates, embeddings, probabilities
from mma.training.state import State
from mma.training.step import computing
from mma.views import FeatureViews, Pixels, PixelViews, RowViews


@dataclass(frozen=True)
class Frame:
    """How samples become pixels, learned in `fit` and the same ever after."""

    given: tuple[int, ...]  # shape of one sample: (features,) or (H, W, C)
    shape: tuple[int, int, int]  # height, width and channels of one image; plain rows are one pixel of many channels
    low: np.ndarray  # the least number seen: one for images, one per column for plain rows
    high: np.ndarray
    bytes: bool  # images of type uint8: not scaled at all
    mean: np.ndarray  # of each column of plain rows; of all numbers of images
    divisor: np.ndarray  # what each column of plain rows is divided by

    @property
    def plain_rows(self) -> bool:
        """Whether the samples are no images."""
        return self.shape[:2] == (1, 1)

    def check(self, X: np.ndarray) -> None:
        """Refuse samples of another shape than `fit` saw."""
        if sample_shape(X) != self.given:
            raise UserError(
                f"these samples have the shape {sample_shape(X)}, but fit saw {self.given}. Bring them into that shape."
            )

    def pixels(self, X: np.ndarray) -> np.ndarray:
        """Return (N, H, W, C) in 0..255: bytes where the images are bytes, float32 otherwise."""
        if not self.bytes:
            span = np.where(self.high > self.low, self.high - self.low, 1.0)
            scaled = ((np.clip(X, self.low, self.high) - self.low) * (255.0 / span)).astype(np.float32)
        elif X.dtype.kind in "iub" and X.min() >= 0 and X.max() <= 255:
            scaled = X.astype(np.uint8, copy=False)
        else:
            raise UserError(
                f"fit saw images of type uint8, but these are {X.dtype} from {X.min():.4g} to {X.max():.4g}. Convert "
                "them to the bytes 0..255, or fit with this type."
            )
        return np.require(scaled.reshape(len(X), *self.shape), requirements=["C", "W"])

    def vectors(self, X: np.ndarray) -> np.ndarray:
        """Return plain rows (N, features) with columns of mean 0, of about length one."""
        rows: np.ndarray = np.ascontiguousarray((X - self.mean) / self.divisor, np.float32)
        return rows

    def scaled_for(self, X: np.ndarray, codes: np.ndarray) -> Frame:
        """Return the same frame with one scale for all columns, or with each column's own spread.

        One scale keeps what embeddings, also projected ones, say by the spread of their columns. It is used unless the columns
        differ as if they had other units, or labels are predicted better with their own spreads.
        """
        spread = np.where(self.divisor > 0, self.divisor, np.inf)
        spread = np.where(np.isfinite(spread), spread, spread.min() if np.isfinite(spread).any() else 1.0)
        one, own = np.full(len(spread), np.sqrt((spread**2).sum())), spread * np.sqrt(len(spread))
        frames = [replace(self, divisor=each) for each in (one, own)]
        labeled = np.flatnonzero(codes != UNKNOWN)[:TESTED]
        right = [int(predicted_by_others(each.vectors(X[labeled]), codes[labeled]).sum()) for each in frames]
        right[int(spread.max() > UNITS * np.median(spread))] += HEAD_START
        return frames[int(right[1] > right[0])]


def frame_of(X: np.ndarray, image_shape: tuple[int, ...] | None) -> Frame:
    """Learn from the samples of `fit` how samples become pixels."""
    given = sample_shape(X)
    plain_rows = len(given) == 1 and image_shape is None
    axis, shape = 0 if plain_rows else None, image_of(given, image_shape)
    low, high = (np.asarray(f(X, axis=axis), np.float64) for f in (np.min, np.max))
    mean, std = (np.asarray(f(X, axis=axis, dtype=np.float64)) for f in (np.mean, np.std))
    return Frame(given, shape, low, high, bytes=X.dtype == np.uint8 and not plain_rows, mean=mean, divisor=std)


def dimensions(X: Any) -> int:
    """Return how many dimensions an array-like has; a table with column names is left as it is."""
    return int(X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim)


def sample_shape(X: np.ndarray) -> tuple[int, ...]:
    """Return (features,) for rows and (H, W, C) for images, grey ones too."""
    if X.ndim > 4:
        raise UserError(f"X has shape {X.shape}. Images are (N, height, width) or (N, height, width, channels).")
    return (*X.shape[1:], 1) if X.ndim == 3 else X.shape[1:]


def image_of(given: tuple[int, ...], image_shape: tuple[int, ...] | None) -> tuple[int, int, int]:
    """Return height, width and channels of one sample; a row that is no image is one pixel with a channel per column."""
    if image_shape is None:
        if len(given) == 3 and given[0] in (1, 3, 4) and given[2] > 4:
            raise UserError(
                f"images of shape {given} seem to have their channels first. Put them last: np.moveaxis(X, 1, -1)."
            )
        return (given[0], given[1], given[2]) if len(given) == 3 else (1, 1, given[0])
    sides = tuple(at_least("image_shape", side, 1) for side in image_shape)
    if len(sides) not in (2, 3) or np.prod(sides) != np.prod(given) or (len(given) == 3 and (*sides, 1)[:3] != given):
        raise UserError(
            f"image_shape={image_shape} does not fit samples of shape {given}. Use (height, width) or (height, width, "
            "channels) with as many numbers as a sample has, or leave it out for images."
        )
    return sides[0], sides[1], (*sides, 1)[2]


def encode_labels(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes, sorted, and for each sample the number of its class, -1 where it has no label."""
    texts = np.array([isinstance(label, str) for label in y.tolist()])
    if "-1" in y[texts].tolist():
        raise UserError(
            "y holds the text '-1'. Unlabeled samples are marked by the number -1; to have it beside text, make y an "
            "array of objects: np.array(['cat', 'dog', -1], dtype=object)."
        )
    labeled = texts | (y != -1) if y.dtype.kind == "O" else texts if y.dtype.kind == "U" else y != -1
    if not labeled.any():
        raise UserError("every label in y is -1, which means unlabeled. Label at least one sample of each class.")
    if texts.any() and not texts[labeled].all():
        raise UserError("y mixes text and numbers other than -1, so the classes have no order. Use one of the two.")
    labels = y[labeled] if texts.any() else np.asarray(y[labeled].tolist())
    check_classification_targets(labels)
    classes, numbers = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise UserError(
            f"y holds one class only, {classes[0]!r}, and nothing can be told apart by it. -1 means unlabeled: a problem with "
            "the classes -1 and 1 needs other names for them, such as 0 and 1."
        )
    codes = np.full(len(y), UNKNOWN, np.int64)
    codes[labeled] = numbers
    return classes, codes


def read_soft_labels(y: Any) -> np.ndarray:
    """Return rows of probabilities, of zeros where there is no label; given are zeros or NaN there."""  # (N, classes)
    soft = np.array(y, np.float64)
    soft[np.isnan(soft).all(1)] = 0.0
    labeled, total = soft.any(1), soft.sum(1)
    wrong = labeled & ~((soft >= 0).all(1) & (np.abs(total - 1.0) <= ROUNDING))
    if wrong.any():
        row = int(wrong.argmax())
        raise UserError(
            f"row {row} of y, {np.array2string(soft[row], threshold=6, precision=3)}, is no distribution over the classes. A "
            "row of soft labels has no number below 0 and sums to 1; zeros or NaN in the whole row mean that it has no label."
        )
    if not labeled.any():
        raise UserError("every row of y is empty, which means unlabeled. Label at least one sample.")
    soft[labeled] /= total[labeled, None]
    return soft


def at_least(name: str, value: Any, least: int) -> int:
    """Return a whole number that is large enough."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise UserError(f"{name}={value!r} must be a whole number of at least {least}.")
    return int(value)


def positive(name: str, value: Any, *, zero: bool = False) -> float:
    """Return a number above zero, or zero where that makes sense."""
    number = float(value) if isinstance(value, Real) else -1.0
    if not np.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise UserError(f"{name}={value!r} must be a number {'of at least' if zero else 'above'} 0.")
    return number


LONGEST = 0.999  # decay per step of the teacher's average and BN's statistics, for long runs
REPORTS = 10  # times that a fit looks at its losses
GENTLE = 25.0  # MixMatch's unlabeled weight where nobody chose one: the paper's 75 is for runs of a million steps
ROUNDING = 1e-3  # by which a row of soft labels may miss a sum of 1, so that half precision will do
JUDGED = 30  # unlabeled samples from which a single guess for nearly all of them is a collapse

ROWS = FeatureViews()  # how much of a plain row its views leave out
NETWORK_LR, HEAD_LR = 0.002, 0.05
NETWORK_STEPS, HEAD_STEPS = 1_000, 150
UNITS = 100.0  # times the usual spread of a column, from which on another one seems to have other units


class FromFunction(Net):
    """A network that a function of the user's makes."""

    name: Literal["function"] = "function"
    make: Callable[[int, int, int], nn.Module]

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """Call the function with channels, classes and the longer side."""
        return self.make(shape[2], classes, max(shape[:2]))


def labeled_accuracy(estimator: Any, X: Any, y: Any) -> float:
    """Score a classifier on the samples that have a label: `scoring=mma.labeled_accuracy` where y holds -1.

    Parameters
    ----------
    estimator : object with predict
        Fitted.
    X : array or table of N samples
        What it predicts.
    y : array of shape (N,)
        Labels, -1 where nobody knows.

    Returns
    -------
    float
        The share of right answers; nan where no sample has a label.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> rows, y = np.zeros((4, 2)), np.array([1, 1, 0, -1])
    >>> round(mma.labeled_accuracy(DummyClassifier().fit(rows[:3], y[:3]), rows, y), 2)
    0.67
    """
    y = np.asarray(y)
    known = np.flatnonzero(y != UNKNOWN)
    return float(np.mean(estimator.predict(_safe_indexing(X, known)) == y[known])) if len(known) else float("nan")


class MixMatchClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learn to tell images apart from a few labels and many images without one. `y == -1` marks those.

    `y` may also hold soft labels: rows (N, classes) that sum to 1, zeros or NaN where there is no label.
    X holds images, (N, H, W) or (N, H, W, C), or rows, (N, features). Rows are images when `image_shape` says so;
    otherwise their columns have no neighbours, and no view is shifted or mirrored: a weak view leaves some columns out.
    Images of type uint8 are taken as they are; all other images are scaled by the least and greatest number seen in `fit`,
    and what lies outside later is clipped. Columns of plain rows are brought to mean 0 and to one scale, or each to its own
    where columns are not alike.

    Parameters
    ----------
    algorithm : a name in `mma.algorithms.ALGORITHMS`, or an algorithm with settings of your own
    net : a name in `mma.nets.NETS`, or a function (channels, classes, side) -> nn.Module; to query, give it features() and head
        None is "small" for images and "head" for plain rows: a linear model with calibrated probabilities that starts from a
        logistic regression on the labels
    filters : width of the network at its first scale; a network of your own knows its own
    steps : optimizer steps; the averages and the ramp of the unlabeled weight follow from them. None is 1,000 for networks and
        150 for heads
    batch : labeled images per step, and as many unlabeled ones
    lr : step size of Adam; None is 0.002 for networks and 0.05 for heads
    weight : of the unlabeled term; None is the algorithm's own (25 for MixMatch). Supervised has no such term
    shift : pixels a view may move; None is an eighth of the shorter side. Without effect on plain rows
    mirror : whether a view may be its mirror image. Without effect on plain rows
    image_shape : (height, width) or (height, width, channels) of the images that the rows of X hold
    device : where to train: "auto" (cuda, mps or cpu, whatever is there first), "cpu", "cuda", "cuda:N" or "mps"
    precision : "float32", "bfloat16", or "auto": bfloat16 where the processor has it, which is faster and rounds more
    random_state : an int makes `fit` and `query` repeatable (on the same machine, with as many threads)
    verbose : print the losses ten times during `fit`

    Attributes
    ----------
    classes_ : the labels there are, sorted
    transduction_ : a label for every sample of `fit`: the given one, or what it was taken for
    net_ : the trained network (the average of the weights), in evaluation mode
    image_shape_ : (height, width, channels) as the network sees X
    n_features_in_ : columns of X, when X was rows
    feature_names_in_ : their names, when X came with names that are all strings

    Examples
    --------
    >>> digits = mma.load_data("digits").train
    >>> y = np.where(np.arange(200) < 40, digits.labels[:200], -1)
    >>> classifier = mma.MixMatchClassifier(filters=4, steps=5, random_state=0).fit(digits.pixels[:200], y)
    >>> classifier.predict_proba(digits.pixels[:3]).shape
    (3, 10)
    """

    def __init__(
        self,
        *,
        algorithm: str | Algorithm = "mixmatch",
        net: str | Callable[[int, int, int], nn.Module] | None = None,
        filters: int = 32,
        steps: int | None = None,
        batch: int = 32,
        lr: float | None = None,
        weight: float | None = None,
        shift: int | None = None,
        mirror: bool = False,
        image_shape: tuple[int, ...] | None = None,
        device: str = "auto",
        precision: str = "float32",
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.algorithm = algorithm
        self.net = net
        self.filters = filters
        self.steps = steps
        self.batch = batch
        self.lr = lr
        self.weight = weight
        self.shift = shift
        self.mirror = mirror
        self.image_shape = image_shape
        self.device = device
        self.precision = precision
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MixMatchClassifier:
        """Learn from the labels in `y` and from all of `X`; the samples with label -1 are the unlabeled ones.

        A sample of weight 2 is drawn twice as often among the labeled ones, so it counts twice in the loss; one of weight 0
        counts as unlabeled. Weights of unlabeled samples have no effect.
        """
        for name in ("n_features_in_", "feature_names_in_", "transduction_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        soft = read_soft_labels(y) if dimensions(y) == 2 and np.asarray(y).shape[1] > 1 else None
        y = y if soft is None else soft.argmax(1)
        if dimensions(X) <= 2:
            X, y = validate_data(self, X, y)
        else:  # images have no columns to be counted
            X, y = check_X_y(X, y, allow_nd=True, estimator=self)
        if soft is None:
            self.classes_, codes = encode_labels(y)
        else:
            self.classes_, codes = np.arange(soft.shape[1]), np.where(soft.any(1), y, UNKNOWN)
        labeled, learned, weights = codes != UNKNOWN, codes, None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            learned = np.where(weights > 0, codes, UNKNOWN)
            if not (learned != UNKNOWN).any():
                raise UserError("sample_weight is 0 for every labeled sample, so there is nothing to learn from.")
        self._frame = frame_of(X, self.image_shape)
        if self._on_rows():
            self._frame = self._frame.scaled_for(X, learned)
        self.image_shape_ = self._frame.shape
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._config = self._describe(labels=int((learned != UNKNOWN).sum()))
        views = self._views(X, self._shift())
        # Torch's own generators (dropout, layers being made) start from the seed, and are put back afterwards.
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.manual_seed(self._seed)
            self.net_ = self._train(views, learned, soft, weights)
        guesses = self._probabilities(views, len(codes)).argmax(1)
        self._given = X[labeled], codes[labeled]  # queries want to know what has a label
        self.transduction_ = self.classes_[np.where(labeled, codes, guesses)]
        shares = np.bincount(guesses[~labeled], minlength=len(self.classes_)) / max((~labeled).sum(), 1)
        top, share = int(shares.argmax()), float(shares.max())
        if (~labeled).sum() >= JUDGED and share > COLLAPSE and (codes[labeled] == top).mean() < COLLAPSE:
            warnings.warn(
                f"{share:.0%} of the unlabeled samples are taken for '{self.classes_[top]}': the guesses may have collapsed. "
                "Try a smaller weight, more steps or more labels.",
                stacklevel=2,
            )
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class, in the order of `classes_`. (N, classes)"""
        check_is_fitted(self)
        samples = self._samples(X)
        probs = self._probabilities(self._views(samples, shift=0), len(samples)).astype(np.float64)
        normal: np.ndarray = probs / probs.sum(1, keepdims=True)  # exactly, not only to single precision
        return normal

    def predict(self, X: Any) -> np.ndarray:
        """Return the most likely label of each sample. (N,)"""
        probs = self.predict_proba(X)
        labels: np.ndarray = self.classes_[probs.argmax(1)]
        return labels

    def query(self, X_pool: Any, n: int, strategy: str = "diff2.aug-kmeans") -> np.ndarray:
        """Return the rows of `X_pool` that are most worth a label, the most wanted first: n, or all when there are fewer.

        `strategy` is "random" or one of max, diff2, entropy, then ".aug" or nothing, then -direct, -kmeans or -infoD; or a
        whole strategy such as "auto", which may also look at the labeled samples of `fit`.
        The same call on the same fitted classifier gives the same rows.
        """
        check_is_fitted(self)
        query = Query.parse(strategy)
        # Without embeddings, .aug alone goes by the logits.
        looks = query.needs_features or query.needs_labeled or (query.needs_probs and not query.aug)
        if looks and not isinstance(self.net_, Network):
            raise UserError(without_embeddings(self.net_, str(query)))
        samples = self._samples(X_pool)
        views, labeled = self._views(samples, self._shift()), Labeled()
        with self._computing(views):
            scored = candidates(self.net_, views, np.arange(len(samples)), query, self._seed, round=0)
        if query.needs_labeled:  # the labeled samples of `fit` as the network sees them now
            given, codes = self._given
            views = self._views(given, self._shift())
            with self._computing(views):
                labeled = Labeled(embeddings(self.net_, views, np.arange(len(given))), codes)
        return query.select(scored, at_least("n", n, 0), rng(self._seed, "select"), labeled)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "transduction_")

    def _samples(self, X: Any) -> np.ndarray:
        """Check samples as scikit-learn does: rows must have as many columns as in `fit`, images are looked at later."""
        samples: np.ndarray = (
            validate_data(self, X, reset=False) if dimensions(X) <= 2 else check_array(X, allow_nd=True)
        )
        self._frame.check(samples)
        return samples

    def _views(self, X: np.ndarray, shift: int) -> Pixels | RowViews:
        """Bring samples into the form that training and evaluation read."""
        device = Host(device=str(self.device)).check()
        if self._on_rows():
            return RowViews(torch.from_numpy(self._frame.vectors(X)).to(device), ROWS)
        # `Pixels` also takes floats in 0..255: nothing is rounded to bytes that did not come as bytes.
        array = torch.from_numpy(self._frame.pixels(X))
        return Pixels(array, device, shift, bool(self.mirror) and not self._frame.plain_rows)

    def _on_rows(self) -> bool:
        """Whether a head looks at the rows themselves."""
        return self._frame.plain_rows and self.net in (None, "head")

    @contextmanager
    def _computing(self, views: Pixels | RowViews) -> Iterator[None]:
        """Compute in the precision of the training, with as many threads as a run would."""
        optim, example = self._config.optim, views.plain(np.zeros(1, np.int64))
        with training_threads(self.net_, example, optim), computing(optim, views.device):
            yield

    def _probabilities(self, views: Pixels | RowViews, count: int) -> np.ndarray:
        """Return the class probabilities of all samples of the views. (N, classes)"""
        with self._computing(views):
            return probabilities(self.net_, views, np.arange(count))

    def _shift(self) -> int:
        """Return how far a view may move."""
        side = min(self._frame.shape[:2])
        shift = side // 8 if self.shift is None else at_least("shift", self.shift, 0)
        if self._frame.plain_rows:
            return 0
        if shift >= side:
            raise UserError(f"shift={shift} moves images of side {side} out of sight. Use at most {side - 1}.")
        return shift

    def _describe(self, labels: int) -> Config:
        """Return the whole description of this training."""
        on_rows = self._on_rows()  # a head takes larger steps than a network, and fewer
        default_steps, default_lr = (HEAD_STEPS, HEAD_LR) if on_rows else (NETWORK_STEPS, NETWORK_LR)
        steps = default_steps if self.steps is None else at_least("steps", self.steps, 1)
        algorithm = self._algorithm(steps)
        if self._frame.plain_rows and not on_rows and algorithm.strong:
            raise UserError(
                f"algorithm={algorithm.name!r} learns from distorted images, and rows of numbers are none. Use net='head', or "
                "say with image_shape how the rows are images."
            )
        optim = {
            "lr": default_lr if self.lr is None else positive("lr", self.lr),
            "ema_decay": decay(steps / 10),
            "batch": at_least("batch", self.batch, 2),  # batch normalisation needs two
            "precision": self.precision,
        }
        try:
            return Config(
                preset="array",
                seed=self._seed,
                data=Data(name="array"),
                views=ROWS if on_rows else PixelViews(shift=self._shift(), mirror=bool(self.mirror)),
                net=self._net(steps),
                algorithm=algorithm,
                optim=Optim.model_validate(optim),
                growth=Growth(start=labels, add=1, budget=labels, first=steps, every=1, final=1, policy=Passive()),
                query="random",
            )
        except ValidationError as error:
            raise UserError(f"{explain(error)}.") from None

    def _net(self, steps: int) -> Net:
        """Return the settings of the network; statistics of a short training forget fast."""
        if self._on_rows():
            return Head()
        if callable(self.net):
            return FromFunction(make=self.net)
        name = "small" if self.net is None else self.net
        if isinstance(self.net, str):
            load_plugin("mma.nets", self.net, NETS)
        known = [name for name, kind in NETS.items() if kind.takes == "images"]
        if name not in known:
            rows = " net='head' is for plain rows." if name == "head" else did_you_mean(str(name), known)
            raise UserError(
                f"net={name!r} is no network for images.{rows} Use one of {', '.join(map(repr, known))}, or a function "
                "(channels, classes, side) -> nn.Module that makes your own. A name from your own code needs  mma.use(MODULE)"
            )
        kind = NETS[name]
        settings = {"filters": at_least("filters", self.filters, 1), "bn_decay": decay(steps / 50)}
        return kind.model_validate({name: value for name, value in settings.items() if name in kind.model_fields})

    def _algorithm(self, steps: int) -> Algorithm:
        """Return the algorithm; the ramp of one that came by name fits the steps."""
        if isinstance(self.algorithm, Algorithm):
            if self.weight is not None:
                raise UserError("algorithm comes with its own settings: set its weight there, and leave weight=None.")
            return self.algorithm
        load_plugin("mma.algorithms", str(self.algorithm), ALGORITHMS)
        if self.algorithm not in ALGORITHMS:
            raise UserError(f"algorithm: {no_entry(self.algorithm, ALGORITHMS)}, or  mma.use(MODULE)  in Python.")
        kind = ALGORITHMS[self.algorithm]
        # The unlabeled weight rises over 0.4 of the steps, as it does in the released code of all others but MixMatch.
        settings: dict[str, Any] = {"ramp": int(steps * 0.4)}
        if issubclass(kind, MixMatch):  # also one of the user's own, where it has kept the defaults of the paper
            gentle: dict[str, Any] = {"weight": GENTLE}
            gentle |= {"align": "shares", "temperature": 0.7} if self._on_rows() else {}  # as the preset `photos` does
            paper, own = MixMatch.model_fields, kind.model_fields
            settings |= {name: value for name, value in gentle.items() if own[name].default == paper[name].default}
        if self.weight is not None:
            settings["weight"] = positive("weight", self.weight, zero=True)
        return kind.model_validate({name: value for name, value in settings.items() if name in kind.model_fields})

    def _train(
        self, views: Pixels | RowViews, codes: np.ndarray, soft: np.ndarray | None, weights: np.ndarray | None
    ) -> nn.Module:
        """Train for `steps` steps and return the teacher."""
        known, end = np.flatnonzero(codes != UNKNOWN), self._config.growth.first
        looks = {end * part // REPORTS for part in range(1, REPORTS + 1)}
        after = lambda state: self._look(state, end) if state.step in looks else None  # noqa: E731
        answers, classes = dict(zip(known.tolist(), codes[known].tolist(), strict=True)), len(self.classes_)
        targets = None if soft is None else torch.from_numpy(soft[known]).float()
        weights = None if weights is None or np.ptp(weights[known]) == 0 else weights[known]
        labels: dict[str, Any] = {"pool": np.arange(len(codes)), "targets": targets, "weights": weights}
        state, _ = train_in_memory(self._config, views, answers, classes, after=after, **labels)
        net = copy.deepcopy(state.teacher).eval()
        for parameter in net.parameters():  # or a pickle would hold the one vector of all weights once per parameter
            parameter.data = parameter.data.clone()
        return net

    def _look(self, state: State, steps: int) -> None:
        """Stop when the losses are not finite; say where training is when asked to."""
        means = {name.removeprefix("loss/"): value for name, value in state.means().items() if name != "guesses"}
        if not all(np.isfinite(value) for value in means.values()):
            raise UserError(
                f"the training diverged before step {state.step}: a loss is not finite. Try a smaller lr (it is "
                f"{self._config.optim.lr}), or a smaller weight."
            )
        if self.verbose:
            print(f"step {state.step:,} of {steps:,}", *[f"{name} {float(value):.4f}" for name, value in means.items()])


def decay(horizon: float) -> float:
    """Return the decay per step of an average over about `horizon` steps."""
    return min(max(1.0 - 1.0 / horizon, 0.0), LONGEST)

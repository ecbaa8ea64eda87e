"""Views of stored features: a few views of each image, computed once by a frozen backbone; and views of plain rows.

Vectors are centred, of length one, and brought to a few hundred numbers. That is computed with one torch thread per block of
fixed size, so that it does not depend on the cores there are.
"""

# mypy: disable-error-code=override
# Views declare attributes, and some kinds of views compute theirs on first use.
from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from mma.children import cores
from mma.data import DataSet, Images
from mma.features import FeatureProgress, Features, ImageSource, StoredViews, features, image_source, parse_backbone
from mma.features.inputs import make_again
from mma.features.table import is_pretrained
from mma.rng import rng
from mma.views.views import Say, Views, ViewSettings, keep_quiet

SAMPLE = 1_024  # images whose principal directions are kept
BLOCK = 1_024  # images made ready at a time
FAINTEST = 1e-6  # share of the largest variance below which a direction is rounding
READY = 2_000_000_000  # bytes of vectors that are kept in memory
SCORED = 8_192  # vectors per forward when nothing is trained
PATIENCE = 4.0  # seconds between two reports
NEIGHBOUR = 10  # the nearest image but so many, by whose likeness backbones are compared
AHEAD = 1.05  # times as close images must lie in a part that is preferred
HANDMADE = 1.12  # what `hog` gets on top: nothing was trained to bring images of one kind together there


@dataclass(frozen=True, eq=False)
class Projection:
    """What is done with the stored vectors of one backbone. Frozen: a function of the pool."""

    mean: Tensor  # (D,) of the pool
    basis: Tensor | None  # (D, d) orthonormal columns; None keeps all numbers

    @property
    def width(self) -> int:
        """The numbers that are left."""
        return len(self.mean) if self.basis is None else self.basis.shape[1]

    def __call__(self, stored: np.ndarray) -> Tensor:
        """Return vectors of length one, projected."""  # (..., D) float16 -> (..., d) float16
        x = F.normalize(torch.from_numpy(stored).float().sub_(self.mean), dim=-1)
        return (x if self.basis is None else x @ self.basis).half()


def find_projection(stored: Features, width: int) -> Projection:
    """Return the projection on the `width` principal directions of a sample of the pool; 0 keeps all numbers."""
    mean = torch.from_numpy(stored.centring().mean)
    if not 0 < width < stored.width:
        return Projection(mean, None)
    rows = np.sort(rng(0, "directions").permutation(len(stored))[:SAMPLE])
    with torch_threads(1):
        sample = F.normalize(torch.from_numpy(stored.take(rows)).float().sub_(mean)).double()
        return Projection(mean, principal_directions(sample, width).float())


def principal_directions(sample: Tensor, width: int) -> Tensor:
    """Return the strongest directions of a sample, turned at random among themselves.

    Turned, so that each number carries as much as any other, and leaving some out at random disturbs all images alike.
    """  # (N, D) -> (D, d)
    variance, left = torch.linalg.eigh(sample @ sample.T)  # ascending
    kept = variance[-width:] > FAINTEST * variance[-1]
    kept[-1] = True  # also where all images are the same one
    basis = F.normalize(sample.T @ left[:, -width:][:, kept], dim=0)
    turn: Tensor = torch.linalg.qr(torch.from_numpy(rng(0, "turn").standard_normal((basis.shape[1],) * 2))).Q
    return basis @ turn


@torch.inference_mode(False)  # whoever scores images first must not make them unfit for training
def project(parts: tuple[Features, ...], projections: tuple[Projection, ...]) -> Tensor:
    """Return all views of all images, ready; every core works on blocks of its own."""  # (N, views, d) float16
    count, views = len(parts[0]), parts[0].views
    ready = torch.empty(count, views, sum(projection.width for projection in projections), dtype=torch.float16)

    def make(start: int) -> None:
        rows = np.arange(start, min(start + BLOCK, count))
        pieces = [projection(part.stored[part.rows[rows]]) for part, projection in zip(parts, projections, strict=True)]
        torch.cat(pieces, 2, out=ready[start : start + BLOCK])

    with torch_threads(1), ThreadPoolExecutor(cores(), "projection", torch.set_num_threads, (1,)) as pool:
        list(pool.map(make, range(0, count, BLOCK)))
    return ready


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use so many threads, here and in threads that start meanwhile."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class FeatureViews(ViewSettings):
    """Features of a frozen backbone; a weak view is one of the stored views with some numbers left out."""

    name: Literal["features"] = "features"
    kind: ClassVar[str] = "features"
    backbone: str = "lite0+hog"  # see docs/features.md; joined by +
    crops: int = Field(default=2, ge=0)  # stored views that are crops
    width: int = Field(default=256, ge=0)  # numbers kept of each backbone: along its principal directions; 0 = all
    dropout: float = Field(default=0.2, ge=0.0, lt=1.0)  # share of the numbers that a weak view leaves out
    strong_dropout: float = Field(default=0.5, ge=0.0, lt=1.0)  # and a strong one

    def open(self, data: DataSet, device: torch.device, steps: int, say: Say = keep_quiet) -> VectorViews:
        """Compute what is not stored yet, and centre on the pool's mean."""
        again = make_again(data)
        source, note = image_source(data.train, again)
        if note:
            say(note)
        return replace(self.open_source(source, device, say), again=again)

    def open_source(self, source: ImageSource, device: torch.device, say: Say = keep_quiet) -> VectorViews:
        """Return the views of a pool that need not be a data set: photos by their keys, say."""
        parts = self.compute(source, StoredViews(mirror=self.mirror, crops=self.crops), say)
        projections = tuple(find_projection(part, self.width) for part in parts)
        return VectorViews(parts, projections, device, self, say)

    def compute(self, source: ImageSource, views: StoredViews, say: Say) -> tuple[Features, ...]:
        """Return the features of each joined backbone, and say every few seconds how far it is."""
        last = time.monotonic()

        def report(part: str, now: FeatureProgress) -> None:
            nonlocal last
            if time.monotonic() - last >= PATIENCE and now.done < now.total:
                last = time.monotonic()
                left = "" if now.seconds_left is None else f", about {now.seconds_left:.0f} s left"
                say(f"features by {part}: {now.done:,} of {now.total:,} images{left}")

        parts = parse_backbone(self.backbone).parts
        return tuple(features(source, part, views, progress=partial(report, part.label())) for part in parts)

    def digest(self) -> str | None:
        """Name the backbone by its weights and settings."""
        return parse_backbone(self.backbone).digest()


class Vectors(Views):
    """Views of vectors: a weak one leaves some numbers out, a strong one more of them."""

    settings: FeatureViews
    stored_views: int = 1  # of each vector
    chunk = SCORED

    def plain(self, index: np.ndarray) -> Tensor:
        """Return the vectors of the images themselves."""  # (B, D)
        return self._take(index, np.zeros(len(index), np.int64))

    def weak(self, index: np.ndarray, rng: np.random.Generator) -> Tensor:
        """Return one stored view of each image, with some numbers left out."""  # (B, D)
        view = rng.integers(0, self.stored_views, len(index))
        return leave_out(self._take(index, view), self.settings.dropout, rng)

    def distort(self, inputs: Tensor, rng: np.random.Generator) -> Tensor:
        """Leave more numbers out."""
        return leave_out(inputs, self.settings.strong_dropout, rng)

    def _take(self, index: np.ndarray, view: np.ndarray) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True)
class VectorViews(Vectors):
    """Stored vectors of one or several backbones, each centred on the pool's mean, scaled to length one and projected.

    So none of the joined parts drowns the others. They are kept in memory, ready, up to READY bytes.
    """

    parts: tuple[Features, ...]
    projections: tuple[Projection, ...]
    device: torch.device
    settings: FeatureViews
    say: Say = keep_quiet
    again: str | None = None  # what to do about a photo of the data set that changed

    def __len__(self) -> int:
        return len(self.parts[0])

    @cached_property
    def shape(self) -> Sequence[int]:
        """The lengths of the joined parts."""
        return tuple(projection.width for projection in self.projections)

    @cached_property
    def stored_views(self) -> int:
        """Views of each image: itself, its mirror image, crops."""
        return self.parts[0].views

    @cached_property
    def ready(self) -> Tensor | None:
        """All vectors; None where they take too much memory, so that each batch is made ready when it is needed."""
        size = 2 * len(self) * self.stored_views * sum(self.shape)
        return project(self.parts, self.projections).to(self.device) if size <= READY else None

    @cached_property
    def names(self) -> Sequence[str]:
        """The backbones that are joined."""
        return self.settings.backbone.split("+")

    @cached_property
    def closest(self) -> int | None:
        """The part to prefer before there are labels: where images of one kind lie closest together. None: all of them.

        Compared is how alike an image and its tenth neighbour are, also for how much any two images are alike there: by the
        fourth root of the number of directions that the images differ in. Chosen so on pools of results/first-labels.
        """
        rows = np.sort(rng(0, "closest").permutation(len(self))[:SAMPLE])
        if len(self.shape) < 2 or len(rows) <= NEIGHBOUR:
            return None
        near = []
        with torch_threads(1):
            for name, part in zip(self.names, torch.split(self.plain(rows).cpu(), list(self.shape), 1), strict=True):
                x = F.normalize(part, dim=1)
                alike = x @ x.T
                directions = len(x) ** 2 / alike.square().sum()
                tenth = alike.topk(NEIGHBOUR + 1, 1).values[:, -1].mean()  # the first is the image itself
                near.append(float(tenth * directions**0.25) * (1.0 if is_pretrained(name) else HANDMADE))
        *_, second, first = np.argsort(near)
        return int(first) if near[first] > AHEAD * near[second] else None

    def where(self, index: np.ndarray) -> Tensor:
        """Return where images lie, for queries: in the part of the features to prefer before there are labels."""  # (B, D)
        ends, part = np.cumsum((0, *self.shape)), self.closest
        return self.plain(index)[:, slice(None) if part is None else slice(ends[part], ends[part + 1])]

    def for_images(self, images: Images) -> VectorViews:
        """Return views of other images with the same projections: of the images themselves, as a test set needs them."""
        source, note = image_source(images, self.again)
        if note:
            self.say(note)
        return self.of_source(source)

    def of_source(self, source: ImageSource) -> VectorViews:
        """Return views of other images that need not be a data set."""
        plain = self.settings.model_copy(update={"mirror": False, "crops": 0})
        parts = plain.compute(source, StoredViews(), self.say)
        return VectorViews(parts, self.projections, self.device, plain, self.say)

    def unproject(self, weight: Tensor) -> Tensor:
        """Turn the weights of a dense layer on these views into those on all numbers of the backbones.

        With `weight` of a head, its logits are  sum over parts of  weight @ unit(stored - mean)  plus the bias: nothing of the
        projection is left but the means.
        """  # (classes, d) -> (classes, D)
        pieces = zip(torch.split(weight, list(self.shape), 1), self.projections, strict=True)
        return torch.cat([piece if part.basis is None else piece @ part.basis.T for piece, part in pieces], 1)

    def _take(self, index: np.ndarray, view: np.ndarray) -> Tensor:
        if self.ready is not None:
            return self.ready[torch.from_numpy(index), torch.from_numpy(view)].float()
        pairs = zip(self.parts, self.projections, strict=True)
        return torch.cat([projection(part.take(index, view)) for part, projection in pairs], 1).to(self.device).float()


def leave_out(inputs: Tensor, dropout: float, rng: np.random.Generator) -> Tensor:
    """Return inputs with a share of their numbers left out, and the others made larger."""  # (B, D)
    return inputs * torch.from_numpy(draw_kept(tuple(inputs.shape), dropout, rng)).to(inputs)


def draw_kept(shape: tuple[int, ...], dropout: float, rng: np.random.Generator) -> np.ndarray:
    """Return 0 for a share `dropout` of the places, and for the others what keeps the mean.

    One random byte for each place: the share is right to 1/256, and drawing costs a fifth of drawing floats.
    """
    threshold = round(256 * dropout)
    kept = np.frombuffer(rng.bytes(int(np.prod(shape))), np.uint8).reshape(shape) >= threshold
    return kept.astype(np.float32) * np.float32(256 / (256 - threshold))


@dataclass(frozen=True)
class RowViews(Vectors):
    """Rows of numbers that are ready for a head: each about as long as one, like feature vectors."""

    rows: Tensor  # (N, D) float32
    settings: FeatureViews  # how much a view leaves out

    names = ("rows",)

    @cached_property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self.rows.device

    @cached_property
    def shape(self) -> Sequence[int]:
        """One part of all columns."""
        return (self.rows.shape[1],)

    def _take(self, index: np.ndarray, view: np.ndarray) -> Tensor:
        return self.rows[torch.from_numpy(index)]

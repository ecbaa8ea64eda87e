"""A batch is a function of the step: no loader, no workers, no sampler state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mma.algorithms import Batch
from mma.config import Config
from mma.data import Images
from mma.growth import Round
from mma.rng import rng
from mma.training.strong import strengthened


@dataclass(frozen=True)
class Pixels:
    """The images on the device that trains (or on the host when they do not fit), and how views are drawn from them."""

    array: Tensor  # (N, H, W, C) uint8
    device: torch.device
    shift: int
    mirror: bool
    side: int | None = None  # to which images are averaged down before the network sees them; None = not at all

    def plain(self, index: np.ndarray) -> Tensor:
        """Return the images themselves, as the network sees them."""
        chosen = self.array[torch.from_numpy(index).to(self.array.device)]
        return smaller(as_input(chosen.to(self.device, non_blocking=True)), self.side)

    def views(
        self, index: np.ndarray, generator: np.random.Generator, mine: slice | np.ndarray = slice(None)
    ) -> Tensor:
        """Return one weak augmentation of each image: a reflected shift, perhaps mirrored. (B, C, H, W)

        All are drawn, so that a process that makes only those at `mine` sees what one process would.
        """
        _, height, width, _ = self.array.shape
        count = len(index)
        rows = shifted(height, generator.integers(-self.shift, self.shift + 1, count))  # (B, H)
        columns = shifted(width, generator.integers(-self.shift, self.shift + 1, count))  # (B, W)
        if self.mirror:
            flip = generator.integers(0, 2, count, dtype=bool)
            columns[flip] = columns[flip, ::-1]
        home = self.array.device
        where = [torch.from_numpy(a[mine]).to(home, non_blocking=True) for a in (index, rows, columns)]
        chosen = self.array[where[0][:, None, None], where[1][:, :, None], where[2][:, None, :]]
        return smaller(as_input(chosen.to(self.device, non_blocking=True)), self.side)


def pixels_of(images: Images, device: torch.device, shift: int, *, mirror: bool) -> Pixels:
    """Bring the pool to the device once, if it takes at most half of the free memory there."""
    side = min(images.pixels.shape[1:3])
    if shift >= side:
        raise ValueError(f"data.shift={shift} moves images of side {side} out of sight. Use at most {side - 1}.")
    array = torch.from_numpy(images.pixels)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        array = array.to(device) if array.numel() < free // 2 else array
    return Pixels(array, device, shift, mirror)


def smaller(images: Tensor, side: int | None) -> Tensor:
    """Average images down to `side` pixels; smaller ones and None are left alone."""  # -> (B, C, side, side)
    return images if side is None or side >= max(images.shape[2:]) else F.adaptive_avg_pool2d(images, side)


def seen(pixels: Pixels, config: Config, step: int) -> Pixels:
    """Return the pixels at the size that the network is trained with at `step`."""
    if config.data.small_side is None:
        return pixels
    small = step < config.data.small_share * config.growth.rounds(passive=config.passive)[-1].end
    return replace(pixels, side=config.data.small_side) if small else pixels


def as_input(chosen: Tensor) -> Tensor:
    """Turn (B, H, W, C) bytes into (B, C, H, W) floats in [-1, 1]; the memory stays channels-last without a copy."""
    return chosen.to(torch.float32).mul_(1.0 / 127.5).sub_(1.0).permute(0, 3, 1, 2)


def shifted(side: int, offsets: np.ndarray) -> np.ndarray:
    """Return which pixel each position shows after a shift, reflecting at the border without repeating it. (B, side)"""
    last = max(side - 1, 1)
    positions = np.abs(np.arange(side)[None, :] + offsets[:, None])
    reflected = np.where(positions > last, np.abs(2 * last - positions), positions)
    shown: np.ndarray = np.minimum(reflected, side - 1)
    return shown


class Epochs:
    """An endless sequence that runs through shuffled copies of a set, each item once per copy; any slice on demand."""

    def __init__(self, size: int, order: Callable[[int], np.ndarray]) -> None:
        self.size, self.order = size, order
        self.ready: dict[int, np.ndarray] = {}

    def slice(self, begin: int, count: int) -> np.ndarray:
        """Return items begin .. begin + count."""
        first, last = begin // self.size, (begin + count - 1) // self.size
        wanted = range(first, last + 1)
        self.ready = {epoch: self.ready[epoch] if epoch in self.ready else self.order(epoch) for epoch in wanted}
        joined = np.concatenate([self.ready[epoch] for epoch in wanted])
        return joined[begin - first * self.size :][:count]


class Stream:
    """The batches of one round: stream[step]."""

    def __init__(
        self,
        config: Config,
        pixels: Pixels,
        pool: np.ndarray,
        answers: dict[int, int],
        round: Round,
        views: int,
        share: slice = slice(None),  # the part of each batch that this process trains on
    ) -> None:
        self.config, self.pixels, self.round, self.views, self.share = config, pixels, round, views, share
        labeled = np.array(list(answers), np.int64)
        targets = torch.tensor(list(answers.values()), dtype=torch.int64)
        self.targets = targets.to(pixels.device)
        seed, index = config.seed, round.index
        self.labeled = Epochs(len(labeled), lambda epoch: rng(seed, "labeled", index, epoch).permutation(len(labeled)))
        self.images = labeled
        # When every image has a label, all of them serve as unlabeled ones too: the mathematics go on unchanged.
        free = ~np.isin(pool, labeled)
        free = free if free.any() else ~free
        # Shuffle the whole pool, then leave out the labeled: methods that pair by seed see the same order.
        self.unlabeled = Epochs(int(free.sum()), lambda epoch: shuffled(pool, free, seed, index, epoch))

    def __getitem__(self, step: int) -> Batch:
        """Return the batch of one step."""
        size, begin = self.config.optim.batch, (step - self.round.begin) * self.config.optim.batch
        many, pixels = self.config.optim.unlabeled_ratio, seen(self.pixels, self.config, step)
        draw = rng(self.config.seed, "augment", step)
        rows = self.labeled.slice(begin, size)
        x = self.labeled_views(rows, pixels, draw, step)
        y = self.targets[torch.from_numpy(rows[self.share]).to(self.targets.device, non_blocking=True)]
        unlabeled = self.unlabeled.slice(begin * many, size * many) if self.views else np.empty(0, np.int64)
        u = pixels.views(np.tile(unlabeled, self.views), draw, self.of_each_view(self.views)) if self.views else x[:0]
        u = torch.stack(u.chunk(self.views)) if self.views else u[None][:0]
        if not (count := self.config.algorithm.strong):
            return Batch(x, y, u)
        draw = rng(self.config.seed, "strong", step)  # apart, so that the weak views are those of every other algorithm
        strong = strengthened(pixels.views(np.tile(unlabeled, count), draw), draw)[self.of_each_view(count)]
        return Batch(x, y, u, torch.stack(strong.chunk(count)))

    def labeled_views(self, rows: np.ndarray, pixels: Pixels, draw: np.random.Generator, step: int) -> Tensor:
        """Return weak views of labeled images, and strong ones of as many as asked for; the part of this process."""
        strong = evenly(self.config.data.strong_labels, len(rows))
        if not len(strong):
            return pixels.views(self.images[rows], draw, self.share)
        x, where = pixels.views(self.images[rows], draw), torch.from_numpy(strong).to(pixels.device, non_blocking=True)
        x = x.index_copy(0, where, strengthened(x[where], rng(self.config.seed, "strong labels", step)))
        return x[self.share]

    def of_each_view(self, views: int) -> slice | np.ndarray:
        """Return where the share of this process is among all views of the unlabeled images of a batch."""
        if self.share == slice(None):
            return self.share
        many = self.config.optim.unlabeled_ratio
        mine = slice(self.share.start * many, self.share.stop * many)
        return np.arange(views * many * self.config.optim.batch).reshape(views, -1)[:, mine].ravel()


def evenly(share: float, count: int) -> np.ndarray:
    """Return which of `count` places make up a share of them, evenly spread: every slice of a batch gets its part."""
    marks = np.floor(np.arange(count + 1) * share + 1e-9)
    return np.flatnonzero(np.diff(marks))


def shuffled(pool: np.ndarray, free: np.ndarray, seed: int, round: int, epoch: int) -> np.ndarray:
    """Return the unlabeled images in the order of one epoch."""
    order = rng(seed, "unlabeled", round, epoch).permutation(len(pool))
    chosen: np.ndarray = pool[order[free[order]]]
    return chosen

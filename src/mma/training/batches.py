"""A batch is a function of the step: no loader, no workers, no sampler state."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from mma.algorithms import Batch
from mma.config import Config
from mma.growth import Round
from mma.rng import rng
from mma.views import ALL, Views


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
        views: Views,
        pool: np.ndarray,
        answers: dict[int, int],
        round: Round,
        share: slice = ALL,  # the part of each batch that this process trains on
        guesses: Tensor | None = None,  # (N, classes) of another model, for every image
    ) -> None:
        self.config, self.views, self.round, self.share, self.guesses = config, views, round, share, guesses
        labeled = np.array(list(answers), np.int64)
        targets = torch.tensor(list(answers.values()), dtype=torch.int64)
        self.targets = targets.to(views.device)
        seed, index = config.seed, round.index
        self.labeled = Epochs(len(labeled), lambda epoch: rng(seed, "labeled", index, epoch).permutation(len(labeled)))
        self.images = labeled
        # When every image has a label, all of them serve as unlabeled ones too: the mathematics go on unchanged.
        free = ~np.isin(pool, labeled)
        free = free if free.any() else ~free
        # Shuffle the whole pool, then leave out the labeled: methods that pair by seed see the same order.
        self.unlabeled = Epochs(int(free.sum()), lambda epoch: shuffle(pool, free, seed, index, epoch))

    def __getitem__(self, step: int) -> Batch:
        """Return the batch of one step."""
        algorithm, seed = self.config.algorithm, self.config.seed
        size, begin = self.config.optim.batch, (step - self.round.begin) * self.config.optim.batch
        views, draw = self.views.at(step), rng(seed, "augment", step)
        rows = self.labeled.slice(begin, size)
        x = self.labeled_views(rows, views, draw, step)
        y = self.targets[torch.from_numpy(rows[self.share]).to(self.targets.device, non_blocking=True)]
        if not algorithm.views:
            return Batch(x, y, x[None][:0])
        many = self.config.optim.unlabeled_ratio
        unlabeled = self.unlabeled.slice(begin * many, size * many)
        u = views.weak(np.tile(unlabeled, algorithm.views), draw, self.of_each_view(algorithm.views))
        u = torch.stack(u.chunk(algorithm.views))
        if not (count := algorithm.strong):
            return Batch(x, y, u)
        draw = rng(seed, "strong", step)  # apart, so that the weak views are those of every other algorithm
        strong = views.strong(np.tile(unlabeled, count), draw, self.of_each_view(count))
        guesses = self.given_guesses(unlabeled[self.of_each_view(1)])
        return Batch(x, y, u, torch.stack(strong.chunk(count)), guesses=guesses)

    def given_guesses(self, rows: np.ndarray) -> Tensor | None:
        """Return what another model says about images, where the run was given that."""  # (B, classes)
        return None if self.guesses is None else self.guesses[torch.from_numpy(rows)].to(self.views.device)

    def labeled_views(self, rows: np.ndarray, views: Views, draw: np.random.Generator, step: int) -> Tensor:
        """Return weak views of labeled images, and strong ones of as many as asked for; the part of this process."""
        strong = spread_evenly(self.config.views.strong_labels, len(rows))
        if not len(strong):
            return views.weak(self.images[rows], draw, self.share)
        x, where = views.weak(self.images[rows], draw), torch.from_numpy(strong).to(views.device, non_blocking=True)
        x = x.index_copy(0, where, views.distort(x[where], rng(self.config.seed, "strong labels", step)))
        return x[self.share]

    def of_each_view(self, views: int) -> slice | np.ndarray:
        """Return where the share of this process is among all views of the unlabeled images of a batch."""
        if self.share == ALL:
            return self.share
        many = self.config.optim.unlabeled_ratio
        mine = slice(self.share.start * many, self.share.stop * many)
        return np.arange(views * many * self.config.optim.batch).reshape(views, -1)[:, mine].ravel()


def spread_evenly(share: float, count: int) -> np.ndarray:
    """Return which of `count` places make up a share of them, evenly spread: every slice of a batch gets its part."""
    marks = np.floor(np.arange(count + 1) * share + 1e-9)
    return np.flatnonzero(np.diff(marks))


def shuffle(pool: np.ndarray, free: np.ndarray, seed: int, round: int, epoch: int) -> np.ndarray:
    """Return the unlabeled images in the order of one epoch."""
    order = rng(seed, "unlabeled", round, epoch).permutation(len(pool))
    chosen: np.ndarray = pool[order[free[order]]]
    return chosen

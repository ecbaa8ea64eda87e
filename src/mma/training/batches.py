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
from mma.training.processes import group
from mma.views import Views

View = Callable[[np.ndarray, np.random.Generator], Tensor]


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
    """The batches of one round: stream[step]. Every process draws the whole batch, and keeps its part."""

    def __init__(
        self,
        config: Config,
        views: Views,
        pool: np.ndarray,
        answers: dict[int, int],
        round: Round,
        guesses: Tensor | None = None,  # (N, classes) of another model, for every image
    ) -> None:
        self.config, self.views, self.round, self.guesses = config, views, round, guesses
        self.part = group().share(config.optim.batch)
        self.images = labeled = np.array(list(answers), np.int64)
        self.targets = torch.tensor(list(answers.values()), dtype=torch.int64).to(views.device)
        seed, index = config.seed, round.index
        self.labeled = Epochs(len(labeled), lambda epoch: rng(seed, "labeled", index, epoch).permutation(len(labeled)))
        # When every image has a label, all of them serve as unlabeled ones too: the mathematics go on unchanged.
        free = ~np.isin(pool, labeled)
        free = free if free.any() else ~free

        def shuffle(epoch: int) -> np.ndarray:
            # Shuffle the whole pool, then leave out the labeled: methods that pair by seed see the same order.
            order = rng(seed, "unlabeled", index, epoch).permutation(len(pool))
            chosen: np.ndarray = pool[order[free[order]]]
            return chosen

        self.unlabeled = Epochs(int(free.sum()), shuffle)

    def __getitem__(self, step: int) -> Batch:
        """Return the batch of one step."""
        algorithm, seed, many = self.config.algorithm, self.config.seed, self.config.optim.unlabeled_ratio
        size, begin = self.config.optim.batch, (step - self.round.begin) * self.config.optim.batch
        views, draw = self.views.at_step(step), rng(seed, "augment", step)
        rows = self.labeled.slice(begin, size)
        x = views.weak(self.images[rows], draw)
        if len(strong := spread_evenly(self.config.views.strong_labels, len(rows))):
            where = torch.from_numpy(strong).to(views.device, non_blocking=True)
            x = x.index_copy(0, where, views.distort(x[where], rng(seed, "strong labels", step)))
        x = x[self.part]
        y = self.targets[torch.from_numpy(rows[self.part]).to(self.targets.device, non_blocking=True)]
        if not algorithm.views:
            return Batch(x, y, x[None][:0])
        unlabeled = self.unlabeled.slice(begin * many, size * many)
        u = self.several(views.weak, unlabeled, algorithm.views, draw)
        if not algorithm.strong:
            return Batch(x, y, u)
        # Drawn apart, so that the weak views are those of every other algorithm.
        distorted = self.several(views.strong, unlabeled, algorithm.strong, rng(seed, "strong", step))
        guesses = None if self.guesses is None else self.guesses[torch.from_numpy(unlabeled[self.unlabeled_part])]
        return Batch(x, y, u, distorted, guesses=None if guesses is None else guesses.to(views.device))

    def several(self, view: View, rows: np.ndarray, count: int, draw: np.random.Generator) -> Tensor:
        """Return the part of this process of `count` views of each image."""  # (count, B', ...)
        return torch.stack(view(np.tile(rows, count), draw).chunk(count))[:, self.unlabeled_part]

    @property
    def unlabeled_part(self) -> slice:
        """The part of the unlabeled images of a batch that this process trains on."""
        many = self.config.optim.unlabeled_ratio
        return self.part if self.part == slice(None) else slice(self.part.start * many, self.part.stop * many)


def spread_evenly(share: float, count: int) -> np.ndarray:
    """Return which of `count` places make up a share of them, evenly spread: every slice of a batch gets its part."""
    marks = np.floor(np.arange(count + 1) * share + 1e-9)
    return np.flatnonzero(np.diff(marks))

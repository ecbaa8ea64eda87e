"""How much arithmetic a run asks for, counted on a few real operations and multiplied out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch

from mma.config import Config
from mma.experiments.estimate import one_step, random_images
from mma.experiments.make import data_set, grows
from mma.nets.flops import counted, forward_flop
from mma.query import Query
from mma.training.state import start
from mma.training.stream import pixels_of

FEW = 4  # labeled images in a counted step


@dataclass(frozen=True)
class Flop:
    """Floating-point operations of a run; those of evaluating and of looking for images to ask about stand apart."""

    image: int  # one forward of one image of full size
    step: float  # one training step, the mean over the run
    training: float
    evaluating: float
    asking: float

    @property
    def total(self) -> float:
        """Everything."""
        return self.training + self.evaluating + self.asking


def flop(config: Config) -> Flop:
    """Count a run. Evaluations and queries in the steps made with small images are counted as if they were of full size."""
    entry = data_set(config.data.name)
    images, rounds = random_images(entry, 2 * FEW), config.growth.rounds(passive=config.passive)
    _, height, _, channels = images.pixels.shape
    state, end = start(config, images, torch.device("cpu")), rounds[-1].end
    image = forward_flop(state.teacher, channels, height)
    pixels = pixels_of(images, torch.device("cpu"), config.data.shift, mirror=config.data.mirror)

    def step_at(at: int, batch: int) -> int:
        optim = config.optim.model_copy(update={"batch": batch})
        return counted(partial(one_step, state, config.model_copy(update={"optim": optim}), images, pixels, at))

    share = config.data.small_share
    few, more = (share * step_at(0, batch) + (1 - share) * step_at(end - 1, batch) for batch in (FEW, 2 * FEW))
    step = few + (more - few) * (config.optim.batch / FEW - 1)  # updates cost the same with every batch
    looks = 0 if not grows(config) else Query.parse(config.query).looks
    asked = (len(rounds) - 1) * looks * (config.data.total or entry.pool)
    tested = config.log.evaluations(end) * (config.data.validation or entry.test)
    return Flop(image, step, step * end, float(image * tested), float(image * asked))

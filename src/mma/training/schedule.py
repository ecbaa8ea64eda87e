"""How the learning rate rises and falls over a run."""

from __future__ import annotations

import math

from mma.config import Optim


def scheduled(optim: Optim, step: int, age: int, end: int) -> Optim:
    """Return the settings of one step: `age` steps since the weights were drawn, `end` steps in the whole run."""
    if optim.decay == "constant" and age >= optim.warmup:
        return optim
    share = min((age + 1) / (optim.warmup + 1), 1.0) * falling(optim.decay, step / end)
    return optim.model_copy(update={"lr": optim.lr * share, "kernel_lr": optim.kernel_lr * share})


def falling(decay: str, done: float) -> float:
    """Return what is left of the rate when a share `done` of the run is over: 1 at its start, 0 at its end."""
    match decay:
        case "linear":
            return 1.0 - done
        case "cosine":
            return (1.0 + math.cos(math.pi * done)) / 2
        case _:
            return 1.0

"""How the learning rate rises and falls over a run."""

from __future__ import annotations

from mma.config import Optim


def at_step(optim: Optim, step: int, age: int, end: int) -> Optim:
    """Return the settings of one step: `age` steps since the weights were drawn, `end` steps in the whole run."""
    if optim.decay == "constant" and age >= optim.warmup:
        return optim
    falling = 1.0 - step / end if optim.decay == "linear" else 1.0
    share = min((age + 1) / (optim.warmup + 1), 1.0) * falling
    return optim.model_copy(update={"lr": optim.lr * share, "kernel_lr": optim.kernel_lr * share})

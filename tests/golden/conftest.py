"""The recorded numbers of the original implementation, and a student that starts from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from mma.nets import WideResNet, Wrn

SUFFIXES = {
    "kernel": "weight",
    "bias": "bias",
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}


class Parity:
    """`parity.npz` in our names and layouts; parity.md says what each key holds."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as file:
            self.arrays = dict(file)

    def tensor(self, key: str) -> Tensor:
        return torch.from_numpy(self.arrays[key])

    def images(self, key: str) -> Tensor:
        """(B, H, W, C) bytes -> (B, C, H, W) floats in [-1, 1], channels last in memory."""
        return (self.tensor(key).float() * (2 / 255) - 1).permute(0, 3, 1, 2)

    def views(self) -> Tensor:
        """(B, K, H, W, C) bytes -> (K, B, C, H, W) floats in [-1, 1]."""
        return (self.tensor("input/u_u8").float() * (2 / 255) - 1).permute(1, 0, 4, 2, 3)

    def state(self, *prefixes: str) -> dict[str, Tensor]:
        """Everything below the prefixes (such as "init/" or "step1/grad/") under our parameter and buffer names."""
        return {
            our_name(key.removeprefix(prefix)): our_layout(self.tensor(key))
            for prefix in prefixes
            for key in self.arrays
            if key.startswith(prefix)
        }


def our_name(name: str) -> str:
    module, suffix = name.rsplit(".", 1)
    return f"head.{SUFFIXES[suffix]}" if module == "fc" else f"trunk.{module}.{SUFFIXES[suffix]}"


def our_layout(tensor: Tensor) -> Tensor:
    """HWIO -> OIHW for convolutions, (in, out) -> (out, in) for the dense kernel."""
    return tensor.permute(3, 2, 0, 1) if tensor.ndim == 4 else tensor.T if tensor.ndim == 2 else tensor


@pytest.fixture(scope="session")
def parity() -> Parity:
    return Parity(Path(__file__).with_name("parity.npz"))


@pytest.fixture
def parity_student(parity: Parity) -> WideResNet:
    """The recorded network with its recorded initial values, in training mode, channels last."""
    student = Wrn(filters=16, blocks=2).build((32, 32, 3), 10)
    missing, unexpected = student.load_state_dict(parity.state("init/"), strict=False)
    assert not unexpected
    assert all(name.endswith("num_batches_tracked") for name in missing)
    return student.to(memory_format=torch.channels_last).train()

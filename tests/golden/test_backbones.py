"""Our networks against the outputs of other implementations; backbones.md says how they were recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from mma.features import BACKBONES, Hog
from mma.features.pretrained import LITE0, MOBILENETV2
from tests.features.conftest import waves

RECORDED = np.load(Path(__file__).with_name("backbones.npz"))
FILES = {"lite0": LITE0, "mobilenetv2": MOBILENETV2}


def pictures(side: int) -> torch.Tensor:
    return torch.from_numpy(np.stack([waves(side, number) for number in range(2)]))


@pytest.mark.parametrize("side", [64, 101])
@pytest.mark.parametrize("name", list(FILES))
def test_a_network_returns_what_the_original_returns(name, side, tmp_path, monkeypatch):
    monkeypatch.setenv("MMA_DATA", str(tmp_path))
    if FILES[name].find() is None:
        pytest.skip(f"the weights of {name} are not installed")
    network = BACKBONES[name].model_validate({"side": side, "precision": "float32"}).load()
    with torch.inference_mode():
        assert np.abs(network(pictures(side)).numpy() - RECORDED[f"{name}/{side}"]).max() < 1e-4


@pytest.mark.parametrize(("side", "cell", "block"), [(64, 8, 2), (48, 6, 3)])
def test_hog_returns_what_scikit_image_returns(side, cell, block):
    found = Hog(side=side, cell=cell, block=block).load()(pictures(side)).numpy()
    assert np.abs(found - RECORDED[f"hog/{side}-{cell}-{block}"]).max() < 1e-5

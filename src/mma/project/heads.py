"""A live model as it is kept: one dense layer on whole vectors of the backbones. Also how old ones are asked again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from mma.config import Config
from mma.model.backbones import describe_backbones
from mma.model.description import About, ModelFile
from mma.model.engines import FeaturePredictor
from mma.model.folder import load_model, model_files
from mma.model.model import new_model
from mma.nets import Head, HeadNet
from mma.project.pool import Parts, Pool
from mma.project.training_set import TrainingSet
from mma.training.in_memory import FittedHead, fit_head
from mma.views import VectorViews


@dataclass(frozen=True, eq=False)
class WholeHead:
    """A head on whole vectors, so that it does not depend on the directions a pool was projected on."""

    network: HeadNet
    centres: tuple[Tensor, ...]

    @torch.inference_mode()
    def probabilities(self, parts: Parts) -> NDArray[np.float32]:
        """Return the probabilities of stored vectors. (N, classes)"""
        pieces = [
            F.normalize(torch.from_numpy(part).float() - mean) for part, mean in zip(parts, self.centres, strict=True)
        ]
        found: NDArray[np.float32] = self.network(torch.cat(pieces, 1)).softmax(1).numpy()
        return found


def fit(pool: Pool, training: TrainingSet, config: Config) -> FittedHead:
    """Train a head on the labels."""
    return fit_answers(
        pool, training, {pool.row[image]: k for image, k in training.train.items() if image in pool.row}, config
    )


def fit_answers(pool: Pool, training: TrainingSet, answers: dict[int, int], config: Config) -> FittedHead:
    """Train a head on some labels; all images but audit ones and excluded ones are its unlabeled images."""
    excluded = set(training.labels.excluded)
    rows = np.array([row for row, image in enumerate(pool.images) if image.id not in excluded], np.int64)
    return fit_head(pool.views, answers, len(training.classes), pool=rows, config=config)


def unfold(fitted: FittedHead, views: VectorViews) -> WholeHead:
    """Return the same head on whole vectors: W (B x) = (W B) x."""
    wholes = [len(projection.mean) for projection in views.projections]
    classes = len(fitted.net.head.bias)
    network = HeadNet(tuple(wholes), classes, 0)
    pieces = zip(
        torch.split(fitted.net.head.weight.detach() * fitted.net.gate, list(views.shape), 1),
        torch.split(fitted.net.gate, list(views.shape)),
        views.projections,
        strict=True,
    )
    weights, gates = [], []
    for weight, gate, projection in pieces:
        weights.append(weight if projection.basis is None else weight @ projection.basis.T)
        gates.append(torch.full((len(projection.mean),), float(gate.any())))
    with torch.no_grad():
        network.head.weight.copy_(torch.cat(weights, 1))
        network.head.bias.copy_(fitted.net.head.bias)
        network.head.temperature.copy_(fitted.net.head.temperature)
        network.gate.copy_(torch.cat(gates))
    return WholeHead(network.eval(), tuple(projection.mean for projection in views.projections))


def files_of(head: WholeHead, backbone: str, classes: Sequence[str], about: About) -> dict[str, bytes]:
    """Return model.json and model.safetensors."""
    widths = tuple(len(centre) for centre in head.centres)
    file = ModelFile(classes=tuple(classes), input=describe_backbones(backbone, widths), net=Head(), about=about)
    return model_files(new_model(file, head.network, [centre.numpy() for centre in head.centres]))


def read_head(folder: Path) -> WholeHead:
    """Read a live model that was kept."""
    predictor = load_model(folder).predictor
    assert isinstance(predictor, FeaturePredictor)
    assert isinstance(predictor.network, HeadNet)
    return WholeHead(predictor.network, predictor.centres)

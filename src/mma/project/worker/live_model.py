"""A live model as it is kept: one dense layer on whole vectors of the backbones. Also how old ones are asked again."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from mma.config import Config
from mma.data.tables import render_csv
from mma.files import write_atomically
from mma.model.description import About, ModelAccuracy, ModelFile, ServingFile
from mma.model.loader import SERVING, load_model, model_files
from mma.model.model import FeaturePredictor, describe_backbones, new_model
from mma.nets import Head, HeadNet
from mma.project.models import ANSWERS, ModelReport, answers_file, report_file
from mma.project.project import Project
from mma.project.quality.accuracy import Quality
from mma.project.quality.promises import promises_of
from mma.project.worker.features import Parts, Pool, TrainingSet
from mma.project.worker.picks import ChosenPicks
from mma.shares import Share
from mma.soft_targets import Guesses
from mma.training.head import FittedHead, fit_head
from mma.views import VectorViews


@dataclass(frozen=True, eq=False)
class WholeHead:
    """A head on whole vectors, so that it does not depend on the directions a pool was projected on."""

    network: HeadNet
    centres: tuple[Tensor, ...]

    @torch.inference_mode()
    def probabilities(self, parts: Parts) -> NDArray[np.float32]:
        """Return the probabilities of stored vectors. (N, classes)"""
        found: NDArray[np.float32] = self.network(self.vectors(parts)).softmax(1).numpy()
        return found

    def vectors(self, parts: Parts) -> Tensor:
        """Return stored vectors as the head sees them, zero where it does not look. (N, sum of D)"""
        pieces = [
            F.normalize(torch.from_numpy(part).float() - mean) for part, mean in zip(parts, self.centres, strict=True)
        ]
        return torch.cat(pieces, 1) * self.network.gate


def fit_answers(
    pool: Pool, training: TrainingSet, answers: dict[int, int], config: Config, guesses: Guesses | None = None
) -> FittedHead:
    """Train a head on some labels; all images but audit ones and excluded ones are its unlabeled images."""
    sample = list(training.audit.values())  # nobody chose the audit images
    rows, classes = unlabeled_rows(pool, training), len(training.classes)
    return fit_head(pool.views, answers, classes, pool=rows, config=config, guesses=guesses, sample=sample)


def unlabeled_rows(pool: Pool, training: TrainingSet) -> NDArray[np.int64]:
    """Return the rows that a head may guess about while it learns: all but audit images and excluded ones."""
    excluded = set(training.labels.excluded)
    rows = [row for row, image in enumerate(pool.images) if not image.audit and image.id not in excluded]
    return np.array(rows, np.int64)


def unfold(fitted: FittedHead, views: VectorViews) -> WholeHead:
    """Return the same head on whole vectors: W (B x) = (W B) x."""
    parts = zip(torch.split(fitted.net.gate, list(views.shape)), views.projections, strict=True)
    gates = [torch.full((len(projection.mean),), float(gate.any())) for gate, projection in parts]
    network = HeadNet(tuple(map(len, gates)), len(fitted.net.head.bias), 0)
    with torch.no_grad():
        network.head.weight.copy_(views.unproject(fitted.net.head.weight.detach() * fitted.net.gate))
        network.head.bias.copy_(fitted.net.head.bias)
        network.head.temperature.copy_(fitted.net.head.temperature)
        network.gate.copy_(torch.cat(gates))
    return WholeHead(network.eval(), tuple(projection.mean for projection in views.projections))


def read_head(folder: Path) -> WholeHead:
    """Read a live model that was kept."""
    predictor = load_model(folder).predictor
    assert isinstance(predictor, FeaturePredictor)
    assert isinstance(predictor.network, HeadNet)
    return WholeHead(predictor.network, predictor.centres)


@dataclass(frozen=True, eq=False)
class Strangers:
    """What is unlike anything labeled, as an exported model sees it too."""

    typical: NDArray[np.float32]  # (classes, sum of D) the mean labeled image of each class
    border: float | None  # distance from all of them that few audit images exceed; None: too few to tell
    unlike: NDArray[np.bool_]  # (rows of the pool,)


@dataclass(frozen=True, eq=False)
class Made:
    """A model with its picks, and what was found out about it."""

    report: ModelReport
    picks: ChosenPicks
    head: WholeHead
    probs: NDArray[np.float32]  # (rows of the pool, classes), of what serves
    strangers: Strangers


def write_model(project: Project, pool: Pool, training: TrainingSet, made: Made, config: Config) -> None:
    """Write models/NNN, whole or absent: the model, the labels it was made of, its picks and report. Then it may serve."""
    report, models = made.report, project.models
    widths = tuple(len(centre) for centre in made.head.centres)
    seen = describe_backbones(str(getattr(config.views, "backbone", "")), widths)
    # Nobody chooses among audit images by answers.
    shown = [row for row, image in enumerate(pool.images) if not image.audit]
    ids = [pool.images[row].id for row in shown]
    quality = report.quality if report.serving.use == "live" else None  # it is that of what serves
    border, typical = made.strangers.border, made.strangers.typical
    story = about(project, training, ids, quality)
    file = ModelFile(classes=training.names, input=seen, net=Head(), strange=border, about=story)
    centres = [centre.numpy() for centre in made.head.centres]
    picks = [
        [pick.image, pool.everything[pick.image].name, pick.provenance, float(f"{pick.score:.6g}"), pick.why]
        for pick in made.picks.picks
    ]
    files = {
        **model_files(new_model(file, made.head.network, centres, typical=None if border is None else typical)),
        "labels.csv": training.as_csv(),
        "picks.csv": render_csv([["image", "file", "provenance", "score", "why"], *picks]),
        **answers_file(ANSWERS, ids, made.probs[shown], report.class_ids, made.strangers.unlike[shown]),
        **report_file(report),
    }
    models.create(report.number, files)
    models.keep_answers_of(report.number)
    write_atomically(models.place / SERVING, serving_of(report).model_dump_json(indent=1) + "\n")


def serving_of(report: ModelReport) -> ServingFile:
    """Say which model the project hands out, and how good that one is."""
    serving, record = report.serving, report.record
    promises = () if record is None else promises_of(record)
    known = {**vars(serving), **measured(report.quality), "audit": record, "promises": promises}
    return ServingFile(**known)


def measured(quality: Quality | None) -> dict[str, Any]:
    """Return how good a model is as its card says it: the numbers of the status. Nothing: too few labels to say anything."""
    if quality is None or not quality.accuracy.of:
        return {}

    def said(share: Share, on: str) -> ModelAccuracy:
        percent, low, high = (round(100 * value, 6) for value in (share.value, share.low, share.high))
        return ModelAccuracy(percent=percent, low=low, high=high, images=share.of, measured_on=on)

    recalls = {each.name: each.recall for each in quality.classes if each.recall}
    per_class = {name: said(recall, f"audit labels of {name}") for name, recall in recalls.items()}
    return {"accuracy": said(quality.accuracy, quality.where), "per_class": per_class}


def about(project: Project, training: TrainingSet, images: Sequence[str], quality: Quality | None = None) -> About:
    """Say where a model comes from: what its card says. Its data are the images it could learn from, whatever their order."""
    return About(
        source=project.folder.name,
        labels=training.per_class(),
        by=dict(sorted(Counter(training.labels.by).items())),
        images=len(images),
        data=hashlib.sha256("\n".join(sorted(images)).encode()).hexdigest(),
        **measured(quality),
    )

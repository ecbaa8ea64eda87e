"""mma: the best image classifier out of the fewest labels.

Names are loaded on first use, so that `mma.query` or `mma.cost` never pull in torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mma.algorithms import Algorithm as Algorithm
    from mma.algorithms import Batch as Batch
    from mma.algorithms import Losses as Losses
    from mma.classifier import MixMatchClassifier as MixMatchClassifier
    from mma.classifier import labeled_accuracy as labeled_accuracy
    from mma.config import Config as Config
    from mma.config import change as change
    from mma.data import DataSet as DataSet
    from mma.data import Images as Images
    from mma.data import load_data as load_data
    from mma.experiments import grid as grid
    from mma.experiments.report import report as report
    from mma.extensions import use as use
    from mma.growth import Growth as Growth
    from mma.model import Model as Model
    from mma.model import load as load
    from mma.model import predict_folder as predict_folder
    from mma.model.exporter import export as export
    from mma.nets import Net as Net
    from mma.presets import preset as preset
    from mma.query import Candidates as Candidates
    from mma.query import Query as Query
    from mma.run import Run as Run
    from mma.training.ask import DatasetLabels as DatasetLabels
    from mma.training.ask import Oracle as Oracle
    from mma.training.ask import suggest as suggest
    from mma.training.host import Host as Host
    from mma.training.job import evaluate as evaluate
    from mma.training.job import new_run as new_run
    from mma.training.loop import train as train

NAMES = {
    "algorithms": "Algorithm Batch Losses",
    "classifier": "MixMatchClassifier labeled_accuracy",
    "config": "Config change",
    "data": "DataSet Images load_data",
    "experiments": "grid",
    "experiments.report": "report",
    "extensions": "use",
    "growth": "Growth",
    "model": "Model export load predict_folder",
    "nets": "Net",
    "presets": "preset",
    "query": "Candidates Query",
    "run": "Run",
    "training.ask": "DatasetLabels Oracle suggest",
    "training.host": "Host",
    "training.job": "evaluate new_run",
    "training.loop": "train",
}
PUBLIC = {name: f"mma.{module}" for module, names in NAMES.items() for name in names.split()}
__all__ = sorted(PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module 'mma' has no attribute {name!r}")
    return getattr(import_module(PUBLIC[name]), name)

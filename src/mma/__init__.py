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

PUBLIC = {
    "Algorithm": "mma.algorithms",
    "Batch": "mma.algorithms",
    "Candidates": "mma.query",
    "Config": "mma.config",
    "DataSet": "mma.data",
    "DatasetLabels": "mma.training.ask",
    "Growth": "mma.growth",
    "Host": "mma.training.host",
    "Images": "mma.data",
    "Losses": "mma.algorithms",
    "MixMatchClassifier": "mma.classifier",
    "Model": "mma.model",
    "Net": "mma.nets",
    "Oracle": "mma.training.ask",
    "Query": "mma.query",
    "Run": "mma.run",
    "change": "mma.config",
    "evaluate": "mma.training.job",
    "export": "mma.model",
    "grid": "mma.experiments",
    "load": "mma.model",
    "load_data": "mma.data",
    "new_run": "mma.training.job",
    "predict_folder": "mma.model",
    "preset": "mma.presets",
    "report": "mma.experiments.report",
    "suggest": "mma.training.ask",
    "train": "mma.training.loop",
    "use": "mma.extensions",
}
__all__ = list(PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module 'mma' has no attribute {name!r}")
    return getattr(import_module(PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(PUBLIC)

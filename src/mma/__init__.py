"""mma: the best image classifier out of the fewest labels.

Names are loaded on first use, so that `mma.query` or `mma.cost` never pull in torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mma.classifier import MixMatchClassifier as MixMatchClassifier
    from mma.config import Config as Config
    from mma.config import change as change
    from mma.data import DataSet as DataSet
    from mma.data import Images as Images
    from mma.data import load as load
    from mma.growth import Growth as Growth
    from mma.presets import preset as preset
    from mma.query import Candidates as Candidates
    from mma.query import Query as Query
    from mma.run import Run as Run
    from mma.training.host import Host as Host
    from mma.training.oracle import DatasetLabels as DatasetLabels
    from mma.training.oracle import Oracle as Oracle

PUBLIC = {
    "Candidates": "mma.query",
    "Config": "mma.config",
    "DataSet": "mma.data",
    "Growth": "mma.growth",
    "Host": "mma.training.host",
    "Images": "mma.data",
    "DatasetLabels": "mma.training.oracle",
    "MixMatchClassifier": "mma.classifier",
    "Oracle": "mma.training.oracle",
    "Query": "mma.query",
    "Run": "mma.run",
    "change": "mma.config",
    "load": "mma.data",
    "preset": "mma.presets",
}
__all__ = list(PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module 'mma' has no attribute {name!r}")
    return getattr(import_module(PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(PUBLIC)

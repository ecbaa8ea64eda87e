"""Algorithms: hyper-parameters plus a loss of named terms, one short file each."""

from __future__ import annotations

from mma.algorithms.algorithm import RAMP_SHARE, Algorithm, Batch, Losses
from mma.algorithms.anchored import AnchoredMixMatch
from mma.algorithms.fixmatch import FixMatch
from mma.algorithms.freematch import FreeMatch
from mma.algorithms.mean_teacher import MeanTeacher
from mma.algorithms.mixmatch import MixMatch
from mma.algorithms.pi_model import PiModel
from mma.algorithms.pseudo_label import PseudoLabel
from mma.algorithms.supervised import Supervised
from mma.algorithms.vat import VAT

__all__ = ["ALGORITHMS", "RAMP_SHARE", "VAT", "Algorithm", "AnchoredMixMatch", "Batch", "FixMatch", "FreeMatch"]
__all__ += ["Losses", "MeanTeacher", "MixMatch", "PiModel", "PseudoLabel", "Supervised"]

ALGORITHMS: dict[str, type[Algorithm]] = {
    "mixmatch": MixMatch,
    "supervised": Supervised,
    "pi-model": PiModel,
    "pseudo-label": PseudoLabel,
    "mean-teacher": MeanTeacher,
    "vat": VAT,
    "fixmatch": FixMatch,
    "freematch": FreeMatch,
    "anchored-mixmatch": AnchoredMixMatch,
}

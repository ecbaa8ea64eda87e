"""Which model serves: live, deep, or both averaged; chosen on audit labels and said in one sentence. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mma.project.audit import FEWEST
from mma.project.model_report import Serving

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class AuditAnswers:
    """What two models say about the audit images, and what is right."""

    labels: NDArray[np.int64]  # (N,)
    live: Floats  # (N, classes)
    deep: Floats | None = None  # None: there is no deep model


def choose_model(answers: AuditAnswers, live: int, deep: int | None, uses: str) -> Serving:
    """Choose by accuracy on the audit images; where it is equal, the live model, because it knows the latest labels."""
    if deep is None or answers.deep is None:
        return Serving("live", live, f"the live model: {uses}.")
    if len(answers.labels) < FEWEST:
        have = len(answers.labels)
        return Serving(
            "live", live, f"the live model, until {FEWEST} audit labels can compare it with the deep one (now {have})."
        )
    both = (answers.live + answers.deep) / 2
    found = {"live": answers.live, "deep": answers.deep, "both": both}
    percent = {name: 100 * float((probs.argmax(1) == answers.labels).mean()) for name, probs in found.items()}
    best = max(("live", "deep", "both"), key=lambda name: percent[name])
    single = deep if percent["deep"] > percent["live"] else live
    numbers = ", ".join(f"{name} {value:.1f} %" for name, value in percent.items())
    words = {"live": "the live model", "deep": "the deep model", "both": "both models averaged"}[best]
    why = f"{words}, the best on {len(answers.labels)} audit labels ({numbers})."
    if best == "live":
        return Serving("live", single, why)
    return Serving("deep" if best == "deep" else "both", single, why)

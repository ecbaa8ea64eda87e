"""Which model serves: live, deep, or both averaged; chosen on audit labels and said in one sentence. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mma.project.audit import FEWEST
from mma.project.helping import split_by_group
from mma.project.model_report import Serving, Use

Floats = NDArray[np.floating[Any]]
WORDS: dict[Use, str] = {"live": "the live model", "deep": "the deep model", "both": "both models averaged"}


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
    percent = {name: percent_right(probs, answers.labels) for name, probs in candidates(answers).items()}
    best = max(percent, key=lambda name: percent[name])
    single = deep if percent["deep"] > percent["live"] else live
    numbers = ", ".join(f"{name} {value:.1f} %" for name, value in percent.items())
    why = f"{WORDS[best]}, the best on {len(answers.labels)} audit labels ({numbers})."
    return Serving(best, single, why)


def candidates(answers: AuditAnswers) -> dict[Use, Floats]:
    """Return what each model that could serve says; of equally good ones the first serves."""
    assert answers.deep is not None
    return {"live": answers.live, "deep": answers.deep, "both": (answers.live + answers.deep) / 2}


def percent_right(probs: Floats, labels: NDArray[np.int64]) -> float:
    """Return the accuracy in percent."""
    return 100 * float((probs.argmax(1) == labels).mean())


def measured_answers(answers: AuditAnswers, groups: Sequence[str]) -> Floats:
    """Return what a chosen model says about each audit image, to measure its accuracy by.

    The best of three on some labels looks better on these labels than it is. So each half of them is answered by the model that
    the other half chooses; near-duplicates stay in one half.
    """
    if answers.deep is None or len(answers.labels) < FEWEST:
        return answers.live
    found, measured = candidates(answers), answers.live.copy()
    halves = split_by_group(np.arange(len(groups)), dict(enumerate(groups)), seed=0)
    for mine, other in (halves, halves[::-1]):
        percent = {name: percent_right(probs[other], answers.labels[other]) for name, probs in found.items()}
        measured[mine] = found[max(percent, key=lambda name: percent[name])][mine]
    return measured

"""Cover first, then ask where the model is unsure: when to change is read from the data, not from a number of labels."""

from __future__ import annotations

from numpy.random import Generator

from mma.query.candidates import Candidates, Labeled
from mma.query.coverage import cover, cover_uncertain, field_of, left_out
from mma.query.picks import Picks
from mma.query.trust import left_out_accuracy

# Share of left-out labels that must be predicted right before the model's doubts count. Chosen on images held out of the pool
# (digits, signs, Fashion-MNIST, CIFAR-10): from 0.4 on doubts always gained.
YOUNG = 1 / 3


def auto(candidates: Candidates, labeled: Labeled, n: int, rng: Generator) -> Picks:
    """Cover the pool while the model is young, then cover what it is unsure about. Copies of an image never fill a batch.

    Young means that labels which are left out are predicted wrong. Cost: that of uherding.
    """
    field = field_of(candidates, labeled, n, rng)
    if candidates.probs is None:
        picks = cover(field, n)
        return Picks(picks.rows, picks.scores, f"auto covers the pool, because there is no model yet; {picks.why}")
    accuracy = left_out_accuracy(field.labeled_points, labeled.classes, field.target_points, rng)
    if accuracy < YOUNG:
        picks, doubt = cover(field, n), f"{left_out(accuracy)}, less than {YOUNG:.0%}"
        why = f"auto covers the pool, because the model cannot be trusted yet: {doubt}; {picks.why}"
    else:
        picks = cover_uncertain(field, candidates.probs[field.targets], accuracy, n)
        why = f"auto asks where the model is unsure, because it can be trusted: {picks.why}"
    return Picks(picks.rows, picks.scores, why)

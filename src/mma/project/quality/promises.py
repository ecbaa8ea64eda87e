"""Three promises about photos that nobody has labeled, each with a bound that holds for few labels. No torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mma.errors import UserError
from mma.shares import AuditRecord, Promise

SURE = 0.95  # of the promise about errors
FOUND_SURE = 0.9  # of the promise about a class
BATCH = 24  # photos of a search that are shown together
DRY = 0.02  # share of the rest among which no likely photo was of the class, before some are drawn at random
HOPE = 0.06  # of the missing photos that would break the promise: how many the bets believe in
GOAL = 0.95  # share of a class to find
REFUSED = 0.05  # of ordinary photos that may be called unlike anything labeled
BEGIN = 0.5  # of the audit photos, the surest: the tests begin there, or where the fewest photos can pass one
QUANTILES = 1_001  # of the pool's confidence that a model carries
WISHES = (0.01, 0.02, 0.05, 0.1)  # promises that an exported model carries where they can be made
Floats = NDArray[np.floating[Any]]


# The rest labels itself.


def independent(groups: Sequence[object]) -> NDArray[np.int64]:
    """Return one row of each group of near-duplicates, the first: the others are no independent photos."""
    return np.sort(np.unique([str(group) for group in groups], return_index=True)[1])


@dataclass(frozen=True)
class Alone:
    """What the model may answer alone: photos whose confidence reaches `threshold`. None: the wish cannot be promised."""

    max_error: float
    threshold: float | None
    share: float  # of the photos, that it answers
    audit: int  # independent audit labels there are
    needed: int | None  # that would do if errors stay as rare as now; None: more labels alone would not
    possible: float  # the smallest share of errors that can be promised now, for the surest half


@cache
def fewest_labels(max_error: float, errors: int = 0) -> int:
    """Return how many labels show that at most this share is wrong, when so many of them are wrong."""
    from scipy.stats import binom

    many = max(errors + 1, math.ceil(math.log(1 - SURE) / math.log1p(-max_error)))
    while binom.cdf(errors, many, max_error) > 1 - SURE:
        many = max(many + 1, math.ceil(many * 1.005))
    return many


def check_max_error(max_error: float) -> float:
    """Refuse a share of errors that is none, or that promises nothing."""
    if not 0 < max_error < 1:
        raise UserError(
            f"a promise of at most {max_error:g} wrong cannot be made: give a share above 0 and below 1, such as 0.02 for 2 %."
        )
    return max_error


def alone(max_error: float, record: AuditRecord) -> Alone:
    """Return the loosest threshold before the first at which the promise cannot be shown.

    Learn then test (arXiv:2110.01052): audit photos are taken in from the surest on, and each larger set is tested; the set to
    begin with depends on their number alone. The largest set that holds at most `max_error` wrong photos on average passes
    with 5 % at most, and no set behind it is reached otherwise, as long as errors do not become rarer where the model is less
    sure.
    """
    from scipy.stats import beta, binom

    check_max_error(max_error)
    audit, errors, pool = len(record.right), 0, np.array(record.pool)
    if not audit:
        return Alone(max_error, None, 0.0, 0, fewest_labels(max_error), 1.0)
    order = np.argsort(-np.array(record.confidence), kind="stable")
    sure, wrong = np.array(record.confidence)[order], np.cumsum(~np.array(record.right)[order])
    half = (audit + 1) // 2
    possible = float(beta.ppf(SURE, wrong[half - 1] + 1, half - wrong[half - 1])) if wrong[half - 1] < half else 1.0
    while fewest_labels(max_error, errors + 1) <= BEGIN * audit:
        errors += 1
    begin, threshold, needed = fewest_labels(max_error, errors), None, None
    sizes = np.arange(1, audit + 1)
    passes = binom.cdf(wrong, sizes, max_error) <= 1 - SURE
    for size in sizes[begin - 1 :]:
        if size < audit and sure[size] == sure[size - 1]:
            continue  # equally sure photos are taken in together
        if not passes[size - 1] or sure[size - 1] <= 0:  # what is unlike anything labeled has no confidence
            break
        threshold = float(sure[size - 1])
    if threshold is None and audit < begin:
        needed = begin
    elif threshold is None and wrong[begin - 1] / begin < max_error / 2:
        needed = math.ceil(audit * fewest_labels(max_error, int(wrong[begin - 1])) / begin)
    share = 0.0
    if threshold is not None and len(pool):
        # Models that judge audit photos saw fewer labels, and are less sure: never answer a larger share than was tested.
        tested = float((sure >= threshold).mean())
        threshold = max(threshold, float(np.quantile(pool, 1 - tested, method="higher")) if tested < 1 else 0.0)
        share = float((pool >= threshold).mean())
    return Alone(max_error, threshold, share, audit, needed, possible)


def promise_of(record: AuditRecord | None, max_error: float) -> Promise:
    """Return what a model promises, or say what it would take."""
    found = alone(max_error, record or AuditRecord((), (), ()))
    if found.threshold is None:
        raise UserError(
            f"--max-error {max_error:g}: {alone_words(found, 0)} More come on the page, and with  mma audit PROJECT -n 30"
        )
    return Promise(max_error, found.threshold, found.share)


def record_of(confidence: Floats, right: NDArray[np.bool_], pool: Floats) -> AuditRecord:
    """Return what promises follow from, as a model carries it: of audit photos (N,), and the confidence in others. (M,)"""
    quantiles = np.quantile(pool, np.linspace(0, 1, QUANTILES)) if len(pool) else np.zeros(0)
    sure, others = (tuple((np.floor(values * 1e6) / 1e6).tolist()) for values in (confidence, quantiles))
    return AuditRecord(sure, tuple(right.tolist()), others)


def promises_of(record: AuditRecord) -> tuple[Promise, ...]:
    """Return the usual promises that can be made."""
    known = [alone(wish, record) for wish in WISHES]
    return tuple(Promise(each.max_error, each.threshold, each.share) for each in known if each.threshold is not None)


def alone_words(found: Alone, photos: int, share: float | None = None) -> str:
    """Say what is promised about so many photos, of which a share is answered alone, or what it would take."""
    wish = f"at most {100 * found.max_error:g} % of those are wrong ({100 * SURE:.0f} % sure)"
    if found.threshold is not None:
        share = found.share if share is None else share
        yours = photos - round(share * photos)
        return f"I answer {100 * share:.0f} % of the photos alone, {wish}; {yours:,} {'is' if yours == 1 else 'are'} yours."
    wrong = f"that at most {100 * found.max_error:g} % of my answers are wrong"
    text = f"I cannot promise {wrong}: even where I am surest, too many were."
    if found.needed is not None:
        text = f"I cannot promise yet {wrong} ({100 * SURE:.0f} % sure): that takes about {found.needed:,} labels of photos "
        text += f"drawn at random, and there {'is' if found.audit == 1 else 'are'} {found.audit:,}."
    if found.audit and found.possible < 0.5:
        best = f"of the half that I am surest of, at most {100 * found.possible:.1f} % are wrong."
        text += f" What I can promise now: {best}"
    return text


# Find all of one class.


class Recall:
    """Bounds how many photos of a class there are among those that can be searched, valid whenever one stops.

    Each photo drawn at random from the rest is a bet on every possible number: were there that many, one of the rest would be
    of the class with a probability that is known, so a miss multiplies the stake. A number whose stake has grown tenfold is
    refuted (90 % sure; arXiv:2006.04347 bets alike). Photos that were chosen in another way only make the rest smaller.
    """

    def __init__(self, photos: int) -> None:
        dense = np.arange(min(photos, 1_000) + 1)
        wide = dense[-1:]
        if photos > 1_000:
            wide = np.unique(np.geomspace(1_000, photos, 400).astype(np.int64))
        # Numbers of photos, in cells where they are many.
        self.low, self.high = np.append(dense, wide[:-1] + 1), np.append(dense, wide[1:])
        self.misses, self.hits = np.zeros(len(self.low)), np.zeros(len(self.low))

    def draw(self, rest: int, found: int, *, hit: bool) -> None:
        """Note a photo drawn at random from `rest` when `found` of the class were found."""
        expected = HOPE * (found * (1 / GOAL - 1) + 1)  # any number known before the draw keeps the bound valid
        with np.errstate(divide="ignore", invalid="ignore"):
            if hit:
                chance = np.clip((self.high - found) / rest, 0, 1)
                gain = np.log(np.minimum(expected / rest, chance) / chance)
                self.hits += np.where(chance > 0, gain, np.inf)
            else:
                chance = np.clip((self.low - found) / rest, 0, 1)
                self.misses += np.log1p(-np.minimum(expected / rest, chance)) - np.log1p(-chance)

    def most(self, found: int, rest: int) -> int:
        """Return the largest number of photos of the class that is not refuted."""
        with np.errstate(invalid="ignore"):
            stands = ~(self.misses + self.hits >= -math.log(1 - FOUND_SURE))
        stands &= (self.low <= found + rest) & (self.high >= found)
        return min(int(self.high[stands].max(initial=found)), found + rest)

    def promise(self, found: int, rest: int) -> float:
        """Return the share of the class that is found at least."""
        return found / most if (most := self.most(found, rest)) else 1.0


def draws_at_random(batches: Sequence[tuple[bool, int, int]], rest: int) -> bool:
    """Tell whether the next photos of a search should be drawn at random: likely ones have brought nothing for a while.

    `batches` are (drawn at random, photos, of the class), the oldest first.
    """
    looked = 0
    for at_random, photos, hits in reversed(batches):
        if hits:
            break
        looked += 0 if at_random else photos
    return looked >= max(2 * BATCH, DRY * rest)


# Unlike anything labeled.


def strange_above(scores: Floats, share: float = REFUSED) -> float | None:
    """Return a score that a new ordinary photo exceeds with at most this probability; None: too few photos to tell. (N,)

    The scores of audit photos and of the new one are in any order equally likely: the right order statistic is enough.
    """
    place = math.ceil((len(scores) + 1) * (1 - share))
    return float(np.sort(scores)[place - 1]) if place <= len(scores) else None

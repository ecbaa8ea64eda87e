"""Near-duplicates: images whose perceptual hashes differ in a few bits. Groups only ever grow, so nothing changes sides."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable

DISTANCE = 4  # bits of 64 that may differ
WIDTHS = (13, 13, 13, 13, 12)  # bits of a band: with one more band than bits may differ, one band is equal
MASK = (1 << 13) - 1


class Alike:
    """The first image of each group, to be found by hash. A hash is compared with those that share a band with it only."""

    def __init__(self, leaders: Iterable[tuple[str, str]] = ()) -> None:
        self._bands = [(defaultdict[int, list[int]](list), sum(WIDTHS[:place])) for place in range(len(WIDTHS))]
        self._first: dict[int, str] = {}  # hash -> the first image of its group
        for image, phash in leaders:
            self.add(image, phash)

    def add(self, image: str, phash: str) -> None:
        """Begin a group with this image."""
        value = int(phash, 16)
        self._add(image, value, self._sharing(value))

    def _add(self, image: str, value: int, sharing: list[list[int]]) -> None:
        self._first.setdefault(value, image)
        for hashes in sharing:
            hashes.append(value)

    def _sharing(self, value: int) -> list[list[int]]:
        """Return the hashes that share a band with this one, for each band."""
        return [table[value >> shift & MASK] for table, shift in self._bands]

    def group(self, image: str, phash: str) -> str:
        """Return the first image of the nearest group; without one near enough this image begins its own."""
        value, first = int(phash, 16), self._first
        if value in first:
            return first[value]
        sharing = self._sharing(value)
        near = [
            (bits, first[other])
            for hashes in sharing
            for other in hashes
            if (bits := (value ^ other).bit_count()) <= DISTANCE
        ]
        if near:
            return min(near)[1]
        self._add(image, value, sharing)
        return image


def fraction(seed: int, purpose: str, image: str) -> float:
    """Return a number in [0, 1) that depends on nothing but these three."""
    return rank(seed, purpose, image) / 2**63


def rank(seed: int, purpose: str, image: str) -> int:
    """Return a random whole number below 2^63 that depends on nothing but these three."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{image}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1

"""Near-duplicates: images whose perceptual hashes differ in a few bits. Groups only ever grow, so nothing changes sides."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable

DISTANCE = 4  # bits of 64 that may differ
WIDTHS = (13, 13, 13, 13, 12)  # bits of a band: with one more band than bits may differ, one band is equal


class Alike:
    """The first image of each group, to be found by hash. An image is compared with those in its bands only."""

    def __init__(self, leaders: Iterable[tuple[str, str]] = ()) -> None:
        self._bands: list[defaultdict[int, list[tuple[int, str]]]] = [defaultdict(list) for _ in WIDTHS]
        self._exact: dict[int, str] = {}
        for image, phash in leaders:
            self.add(image, phash)

    def add(self, image: str, phash: str) -> None:
        """Begin a group with this image."""
        value = int(phash, 16)
        self._add(image, value, _bands(value))

    def _add(self, image: str, value: int, bands: list[int]) -> None:
        self._exact.setdefault(value, image)
        for table, band in zip(self._bands, bands, strict=True):
            table[band].append((value, image))

    def group(self, image: str, phash: str) -> str:
        """Return the first image of the nearest group; without one near enough this image begins its own."""
        value = int(phash, 16)
        if value in self._exact:
            return self._exact[value]
        bands = _bands(value)
        near = [
            (bits, first)
            for table, band in zip(self._bands, bands, strict=True)
            for other, first in table.get(band, ())
            if (bits := (value ^ other).bit_count()) <= DISTANCE
        ]
        if near:
            return min(near)[1]
        self._add(image, value, bands)
        return image


def _bands(value: int) -> list[int]:
    found = []
    for width in WIDTHS:
        found.append(value & ((1 << width) - 1))
        value >>= width
    return found


def fraction(seed: int, purpose: str, image: str) -> float:
    """Return a number in [0, 1) that depends on nothing but these three."""
    return rank(seed, purpose, image) / 2**63


def rank(seed: int, purpose: str, image: str) -> int:
    """Return a random whole number below 2^63 that depends on nothing but these three."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{image}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1

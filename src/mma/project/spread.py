"""A few images that look unlike each other, found by their perceptual hashes."""

from __future__ import annotations

from sqlalchemy import Connection, select

from mma.project import schema as db

SAMPLE = 512  # images to choose from, drawn at random


def spread_images(connection: Connection, n: int) -> list[str]:
    """Choose images one by one, each as different as can be from those before it (farthest first)."""
    c = db.images.c
    query = select(c.id, c.phash).where(c.open == 1, c.audit == 0).order_by(c.deferred, c.rank).limit(SAMPLE)
    hashes = {row.id: int(row.phash, 16) for row in connection.execute(query)}
    chosen: list[str] = []
    distance = dict.fromkeys(hashes, 65)  # more than 64 bits can differ
    while distance and len(chosen) < n:
        image = max(distance, key=lambda each: distance[each])  # the first of equals
        chosen.append(image)
        del distance[image]
        for other in distance:
            distance[other] = min(distance[other], (hashes[image] ^ hashes[other]).bit_count())
    return chosen

"""A labeling project at a million images: next item and commit, and indexing against bare decoding."""

from __future__ import annotations

import hashlib
import io
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from uuid import uuid4

import numpy as np
from PIL import Image
from sqlalchemy import insert

from bench.duel import ROOT, environment
from mma.children import cores
from mma.project import Answer, Pick, Project, create_project
from mma.project.labels import database as db
from mma.project.labels.events import add_counts
from mma.project.photos import is_audit_group, rank
from mma.rng import rng

IMAGES, LABELS = 1_000_000, 300
PHOTOS = ((20_000, 64, "64 x 64"), (3_000, 256, "256 x 192"), (150, 2_000, "2000 x 1500"))


def section(threads: int) -> str:
    """Return the tables."""
    return "\n".join(["## Projects", "", latency(), "", indexing()])


def latency() -> str:
    """Label at a million images, in a process of its own."""
    found = json.loads(in_process("latency"))
    lines = [
        f"SQLite, {IMAGES:,} images, {LABELS} labels: `next` leases one image, `answer` is durable twice (COMMIT with "
        "synchronous=FULL, then fsync of labels.jsonl). *fsync* is one of 300 bytes on the same disk, in the same minute.",
        "",
        "| | p50, ms | p95, ms |",
        "|---|---|---|",
    ]
    return "\n".join([*lines, *(f"| {name} | {p50:.1f} | {p95:.1f} |" for name, (p50, p95) in found.items())])


def indexing() -> str:
    """Index photos against decoding them bare."""
    lines = [
        "Indexing (sha256, size, perceptual hash, near-duplicates, database, start of the processes) against bare decoding "
        f"of the same files with Pillow; files per second of one core, all processes counted ({cores()} cores). 1 is as fast "
        "as decoding alone. *Again* is a second index, which compares size and mtime.",
        "",
        "| JPEGs | indexed | bare decoding | ratio | again |",
        "|---|---|---|---|---|",
    ]
    for count, side, name in PHOTOS:
        indexed, bare, again = (count / value for value in json.loads(in_process("indexing", str(count), str(side))))
        lines.append(
            f"| {count:,} of {name} | {indexed:,.0f} | {bare:,.0f} | **{indexed / bare:.2f}** | {again:,.0f} |"
        )
    return "\n".join(lines)


def in_process(*arguments: str, module: str = "bench.project") -> str:
    """Measure one thing in a process of its own, and return what it prints."""
    # Not -m: the processes that index would import this file, too, which no command does.
    command = [sys.executable, "-c", f"from {module} import main; main()", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment(), cwd=ROOT)
    print(done.stdout.strip(), flush=True)
    return done.stdout


def fill_project(project: Project, count: int) -> None:
    """Add images that exist in the database only."""
    settings = project.settings
    for start in range(0, count, 10_000):
        ids = [hashlib.sha256(f"{number}".encode()).hexdigest() for number in range(start, min(start + 10_000, count))]
        rows = [
            {
                "id": image,
                "name": f"{image}.jpg",
                "width": 64,
                "height": 64,
                "phash": image[:16],
                "near": image,
                "rank": rank(settings.seed, "order", image),
                "present": 1,
                "open": 1,
                "answers": 0,
                "deferred": 0,
                "audit": int(is_audit_group(settings.seed, image, settings.audit_share)),
            }
            for image in ids
        ]
        files = [{"path": row["name"], "image": row["id"], "size": 1, "mtime": 1, "reason": None} for row in rows]
        with project.store.writing() as connection:
            connection.execute(insert(db.images), rows)
            connection.execute(insert(db.files), files)
            add_counts(connection, Counter({"images": len(rows), "open": len(rows)}))


def synthetic_project(folder: Path, count: int, store: str | None = None, overlap: int = 1) -> Project:
    """Make a project of images that exist in the database only."""
    photos = folder / "photos"
    photos.mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(photos / "one.png")
    project = create_project(photos, classes=["cat", "dog"], store=store, overlap=overlap)
    fill_project(project, count)
    return project


def measure_latency() -> dict[str, tuple[float, float]]:
    """Label a few images of a million."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        project = synthetic_project(Path(folder), IMAGES)
        project.put_picks([Pick(image.id, "why") for image in project.images()[:1_000]], 1)
        asking, answering, syncing, counting = [], [], [], []
        for _ in range(LABELS):
            items: list[str] = []
            asking.append(seconds(lambda items=items: items.extend(item.image for item in project.next("ann", 1))))
            answer = Answer(id=uuid4(), images=items, kind="label", class_id=0, by="ann")
            answering.append(seconds(lambda answer=answer: project.answer(answer)))
            counting.append(seconds(project.counts))
            syncing.append(seconds(lambda: sync(Path(folder) / "bytes")))
        project.close()
    names = ("next item", "answer", "counts", "fsync")
    return {n: percentiles(v) for n, v in zip(names, (asking, answering, counting, syncing), strict=True)}


def seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def sync(path: Path) -> None:
    from mma.files import append_bytes

    append_bytes(path, bytes(300))


def percentiles(times: list[float]) -> tuple[float, float]:
    return 1e3 * statistics.median(times), 1e3 * float(np.quantile(times, 0.95))


def measure_indexing(count: int, side: int) -> tuple[float, float, float]:
    """Return processor seconds to index, to decode, and to index again."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        photos = Path(folder) / "photos"
        photos.mkdir()
        for number in range(count):
            (photos / f"{number}.jpg").write_bytes(noise_jpeg(number, side))
        project = create_project(photos)
        times = [processor_seconds(call) for call in (project.index, lambda: decode_all(photos), project.index)]
        project.close()
    return times[0], times[1], times[2]


def processor_seconds(call: Callable[[], object]) -> float:
    """Return what a call costs in this process and in those it started and ended."""

    def used() -> float:
        return sum(use.ru_utime + use.ru_stime for use in map(getrusage, (RUSAGE_SELF, RUSAGE_CHILDREN)))

    begin = used()
    call()
    return used() - begin


def noise_jpeg(number: int, side: int) -> bytes:
    """Return a photo of coloured blobs, as rich in detail as photos are."""
    blocks = rng(number, "photo").integers(0, 256, (side // 8, side // 8, 3), dtype=np.uint8)
    data = io.BytesIO()
    image = Image.fromarray(blocks).resize((side, side * 3 // 4 if side > 100 else side), Image.Resampling.BICUBIC)
    image.save(data, "JPEG", quality=85)
    return data.getvalue()


def decode_all(folder: Path) -> None:
    """Decode every file, and do nothing else."""
    with ThreadPoolExecutor(cores()) as pool:
        for _ in pool.map(decode, sorted(folder.iterdir())):
            pass


def decode(path: Path) -> None:
    with Image.open(path) as image:
        image.load()


def main() -> None:
    """Measure one thing; print JSON."""
    if sys.argv[1] == "latency":
        print(json.dumps(measure_latency()))
    else:
        print(json.dumps(measure_indexing(int(sys.argv[2]), int(sys.argv[3]))))


if __name__ == "__main__":
    main()

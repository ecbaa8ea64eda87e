"""From the tenth label to new picks: the worker's round on images that exist in the database alone, with random features."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from uuid import uuid4

import numpy as np
import torch

from bench.heads import CLASSES, WIDTH, clusters, open_views
from bench.project import in_process, synthetic_project
from mma.project import Answer, Project
from mma.project.project import change_settings
from mma.project.worker.features import Pool
from mma.project.worker.worker import EVERY, POLL, LiveWorker

CASES = ((2_500, 2.0), (10_000, 2.0), (100_000, 10.0))  # images, seconds until new picks are there
ROUNDS = 6


def section(threads: int) -> str:
    """Return the table."""
    lines = [
        "## New picks",
        "",
        f"From the {EVERY}th, {2 * EVERY}th, ... label to new picks in the queue: a head is trained, every image scored, the "
        f"next ones chosen, and the model, its picks and its report written. Random clusters of {CLASSES} classes, {WIDTH:,} "
        f"numbers, one backbone; {ROUNDS} rounds, one thread. The worker looks every {POLL:g} s, which comes on top.",
        "",
        "| images | median | slowest | processor, median | target |",
        "|---|---|---|---|---|",
    ]
    for images, target in CASES:
        lines.append(in_process("live", str(images), str(target), module="bench.live").strip())
    return "\n".join(lines)


def measure(images: int, rounds: int = ROUNDS) -> list[tuple[float, float]]:
    """Return seconds and processor seconds of each round."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        project = change_settings(synthetic_project(Path(folder), images), backbone="lite0", deep_when_idle=False)
        project.rules = project.rules._replace(audit_asked=0.0)  # audit images would be read from files
        for number in range(2, CLASSES):
            project.add_class(f"class {number}", "bench")
        worker, truth = ready_worker(project)
        settle(worker)
        times = []
        for _ in range(rounds + 1):  # the first one warms up
            answer(project, truth, EVERY)
            begin = time.perf_counter(), time.process_time()
            worker.step()
            times.append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
            settle(worker)
        project.close()
    return times[1:]


def ready_worker(project: Project) -> tuple[LiveWorker, dict[str, int]]:
    """Return a worker whose images have features already, and the class of each image."""
    everything = project.images()
    pool = [image for image in everything if not image.audit]
    stored, truth = clusters(len(pool))
    worker = LiveWorker(project, deep=False)
    worker.gathering.pool = Pool(project.root, pool, open_views(stored), {image.id: image for image in everything})
    worker.gathering.images = project.counts().images
    return worker, {image.id: int(klass) for image, klass in zip(pool, truth, strict=True)}


def answer(project: Project, truth: dict[str, int], count: int) -> None:
    """Answer what is asked."""
    for item in project.next("ann", count):
        given = Answer(id=uuid4(), images=[item.image], kind="label", class_id=truth[item.image], by="ann")
        project.answer(given)


def settle(worker: LiveWorker) -> None:
    """Let the worker do everything else that is due."""
    while worker.step():
        pass


def main() -> None:
    """Measure one case; print its line."""
    images, target = int(sys.argv[2]), float(sys.argv[3])
    clock, processor = np.array(measure(images)).T
    print(
        f"| {images:,} | **{statistics.median(clock):.2f} s** | {clock.max():.2f} s | {statistics.median(processor):.2f} s "
        f"| {target:g} s |"
    )


if __name__ == "__main__":
    main()

"""From the tenth label to new picks: the worker's round on images that exist in the database alone, with random features.
And the wait before it: until a model can see every photo of a large folder."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from uuid import uuid4

import numpy as np
import torch

from bench.heads import CLASSES, WIDTH, clusters, open_views
from bench.project import in_process, noise_jpeg, processor_seconds, synthetic_project
from mma.project import Answer, Project, create_project
from mma.project.project import change_settings
from mma.project.worker import features
from mma.project.worker.features import Gathering, Pool
from mma.project.worker.worker import EVERY, POLL, LiveWorker

CASES = ((2_500, 2.0), (10_000, 2.0), (100_000, 10.0))  # images, seconds until new picks are there
ROUNDS = 6
PHOTOS, SIDE, MANY = 3_000, 256, 50_000  # photos whose features are computed, their width; photos of a large folder


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
    lines += [
        "",
        f"Before that the features must be there. Processor seconds until a model can see every one of {PHOTOS:,} JPEG photos "
        f"of {SIDE} x {SIDE * 3 // 4}: all three views of each at once, and as large folders do it, the plain view of all "
        f"of them first (but for the first {features.BLOCK}) and the others behind the questions. For {MANY:,} photos it is "
        "computed from both: what a view takes, and what is needed once.",
        "",
        "| photos | three views of each | the plain view first | ratio |",
        "|---|---|---|---|",
        in_process("first", module="bench.live").strip(),
    ]
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
    worker.gathering.pool = Pool(pool, open_views(stored), {image.id: image for image in everything})
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


def until_all_are_seen(count: int, *, plain_first: bool) -> float:
    """Return processor seconds from a new project to a pool of all its photos."""
    features.LARGE, features.LONG = (1, 0.0) if plain_first else (count + 1, 0.0)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        photos, os.environ["MMA_DATA"] = Path(folder) / "photos", folder  # features of the other way are not there
        photos.mkdir()
        for number in range(count):
            (photos / f"{number}.jpg").write_bytes(noise_jpeg(number, SIDE))
        project = create_project(photos, classes=["cat", "dog"])
        project.index()
        gathering = Gathering(project, LiveWorker(project, deep=False).config.views, lambda *_: None)

        def gather() -> None:
            while gathering.is_missing():
                gathering.advance(())

        taken = processor_seconds(gather)
        assert gathering.pool is not None
        assert (len(gathering.pool), gathering.plain) == (count, plain_first)
        project.close()
    return taken


def main() -> None:
    """Measure one case; print its lines."""
    if sys.argv[1] == "first":
        until_all_are_seen(16, plain_first=False)  # warms up
        before, now = (until_all_are_seen(PHOTOS, plain_first=first) for first in (False, True))
        view = (before - now) / (2 * PHOTOS - 2 * features.BLOCK)
        once = before - 3 * PHOTOS * view
        computed = [once + view * views for views in (3 * MANY, MANY + 2 * features.BLOCK)]
        print(f"| {PHOTOS:,} | {before:.0f} s | {now:.0f} s | **{now / before:.2f}** |")
        print(
            f"| {MANY:,} | {computed[0] / 60:.1f} min | {computed[1] / 60:.1f} min | {computed[1] / computed[0]:.2f} |"
        )
        return
    images, target = int(sys.argv[2]), float(sys.argv[3])
    clock, processor = np.array(measure(images)).T
    print(
        f"| {images:,} | **{statistics.median(clock):.2f} s** | {clock.max():.2f} s | {statistics.median(processor):.2f} s "
        f"| {target:g} s |"
    )


if __name__ == "__main__":
    main()

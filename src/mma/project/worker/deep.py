"""Train on pixels behind the page: the same `train(run, oracle)` as everywhere. `mma.children` runs its `main()`.

Everything it needs is fixed when it begins: the labels up to one event, and the images there were. Started again, it goes on.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mma.config import Config
from mma.data import UNKNOWN, DataSet, Images
from mma.data.images import no_images
from mma.data.photos import decode_all
from mma.errors import UserError
from mma.files import Row, open_synced, read_json
from mma.growth import Growth, Passive, Round
from mma.model.description import About, ModelFile
from mma.model.loader import input_of, model_files
from mma.model.model import new_model
from mma.presets import preset
from mma.project import open_project
from mma.project.models import ANSWERS, PREDICTIONS, ModelReport, Serving, answers_file, report_file
from mma.project.project import Project, silent
from mma.project.quality.accuracy import judge
from mma.project.records import ProjectImage
from mma.project.worker.live_model import pool_digest
from mma.project.worker.training_set import TrainingSet
from mma.run import Run, Watch
from mma.text import duration, printable, quote_path
from mma.training.host import Host
from mma.training.job import Job, load_read_only
from mma.training.loop import train
from mma.training.predict import probabilities
from mma.training.start import as_guess, is_pretrained, new_run

NICE = 15  # behind the live worker, which is behind the page
TELL = 2.0  # seconds between two notes of the time left
Say = Callable[[str], None]


def train_deep(
    project: Project, say: Say = silent, config: Config | None = None, stop: Callable[[], bool] = lambda: False
) -> ModelReport | None:
    """Train on pixels to the end: goes on with what was begun, else begins with the labels there are now.

    None: `stop` said so; called again, it goes on.
    """
    task = resume_task(project) or begin_task(project, config or suitable_config(project))
    labels = task.training.labels
    note = {"state": "training", "message": "reading photos", "about": {"labels": len(labels)}}
    project.models.put(task.number, kind="deep", seq=labels.seq, **note)
    data = load_data(project, task)
    place = task.folder / "run"
    begun = (place / "config.json").is_file()
    run = Run.open(place) if begun else new_run(task.config, place, data, say, guesses=live_guesses(project, task))
    watch = TimeLeft(project, task.number, say, stop)
    train(run, watch=watch, on=Host(threads=1), data=data)
    if watch.stop:
        return None
    return finish(project, task, load_read_only(run, data))


def live_guesses(project: Project, task: DeepTask) -> list[Row]:
    """Return what the model that serves now says about the images to learn from: the network begins with that."""
    answers = project.models.answers(ANSWERS)
    if answers is None:
        return []
    pool = task.images[: len(task.images) - task.audit]
    known = [(index, image.id) for index, image in enumerate(pool) if image.id in answers.row]
    probs = answers.of([key for _, key in known], task.training.class_ids)
    assert probs is not None
    names = list(task.training.names)
    return [as_guess(*place, names, row) for place, row in zip(known, probs.tolist(), strict=True)]


def suitable_config(project: Project) -> Config:
    """Return the preset for pixels that suits the labels: by what the live model found out about its backbones.

    Where one that was not pretrained, such as hog, is better than all others, there is little to fine-tune.
    """
    report = project.models.latest_report("live")
    found = {name: value for name, value in (report.backbones if report else {}).items() if name != "all"}
    best = max(found, key=lambda name: found[name], default=None)
    return preset("photos-deep" if best is None or is_pretrained(best) else "photos-scratch")


def begin_task(project: Project, config: Config) -> DeepTask:
    """Fix labels, images and settings, and write them down before anything is trained."""
    everything = {image.id: image for image in project.images()}
    labels = project.labels()
    training = TrainingSet(labels, lambda image: image in everything and everything[image].audit)
    if not training.can_train():
        raise UserError("a deep training needs labels of two classes at least. Label more images first.")
    left_out = set(labels.excluded)
    pool = [image for image in everything.values() if not image.audit and image.id not in left_out]
    audited = [everything[image] for image in training.audit if image in everything]
    config = settings_for(config, len(training.train), project.settings.seed)
    number = project.models.begin("deep", labels.seq, "reading photos")
    about = {"seq": labels.seq, "audit": len(audited), "config": config.model_dump(mode="json")}

    files = {
        "images.txt": "".join(f"{image.id}\n" for image in [*pool, *audited]),
        "deep.json": json.dumps(about, indent=1) + "\n",
    }
    project.models.create(
        number, {"labels.csv": training.as_csv(), **{name: text.encode() for name, text in files.items()}}
    )
    return DeepTask(number, project.models.folder(number), training, [*pool, *audited], len(audited), config)


def settings_for(config: Config, labels: int, seed: int) -> Config:
    """Return the settings of one training with all labels at once, as many steps as growing to them would take."""
    growth = config.growth
    once = Growth(
        start=labels, add=1, budget=labels, first=growth.first, every=growth.every, final=growth.final, policy=Passive()
    )
    return config.model_copy(update={"growth": once, "seed": seed})


def resume_task(project: Project) -> DeepTask | None:
    """Return the training that was begun and has not ended."""
    from mma.config import from_json

    begun = [row.number for row in project.models.rows() if row.kind == "deep" and row.state == "training"]
    if not begun or begun[-1] not in project.models.numbers("deep.json"):
        return None
    number, folder = begun[-1], project.models.folder(begun[-1])
    about = read_json(folder / "deep.json")
    everything = {image.id: image for image in project.images()}
    ids = (folder / "images.txt").read_text("ascii").split()
    audit = int(about["audit"])
    kept = set(ids[len(ids) - audit :])
    if gone := [image for image in ids if image not in everything]:
        raise UserError(f"{len(gone)} images of deep model {number} are gone, so that it cannot go on as it began.")
    training = TrainingSet(
        project.labels(upto=int(about["seq"])), lambda image: image in kept or everything[image].audit
    )
    return DeepTask(number, folder, training, [everything[image] for image in ids], audit, from_json(about["config"]))


def finish(project: Project, task: DeepTask, job: Job) -> ModelReport:
    """Write the model, what it says about every image, and its report; tell the project."""
    step = job.state.step - 1
    pool, test = job.views.at_step(step), job.test.at_step(step)
    end = len(task.images) - task.audit
    probs = probabilities(job.state.teacher, pool, np.arange(end))
    audited = probabilities(job.state.teacher, test, np.arange(task.audit)) if task.audit else probs[:0]
    ids = [image.id for image in task.images]
    report = report_of(task, audited, job)
    file = ModelFile(
        classes=task.training.names, input=input_of(pool), net=task.config.net, about=about_of(project, task)
    )
    files = answers_file(PREDICTIONS, ids, np.concatenate([probs, audited]), task.training.class_ids)
    model = model_files(new_model(file, job.state.teacher))
    project.models.add(task.number, {**model, **files, **report_file(report)})
    project.models.publish(report)
    (project.folder / "cache" / f"deep-{task.number:03d}.npy").unlink(missing_ok=True)
    return report


def about_of(project: Project, task: DeepTask) -> About:
    """Say where the model comes from."""
    training = task.training
    pool = task.images[: len(task.images) - task.audit]
    return About(
        source=project.folder.name,
        labels=training.per_class(),
        by=training.by(),
        images=len(pool),
        data=pool_digest([image.id for image in pool]),
    )


def report_of(task: DeepTask, audited: NDArray[np.float32], job: Job) -> ModelReport:
    """Return what is known about a deep model. Curve and forecast belong to the live ones."""
    training = task.training
    groups = [image.group for image in task.images[len(task.images) - task.audit :]]
    labels = np.array([training.audit[image.id] for image in task.images[len(task.images) - task.audit :]], np.int64)
    return ModelReport(
        number=task.number,
        kind="deep",
        seq=training.labels.seq,
        labels=len(training.train),
        audit=task.audit,
        classes=training.names,
        class_ids=training.class_ids,
        per_class=training.per_class(),
        provenance=training.origins(),
        uses=f"a network on pixels: {task.config.net.name}, preset {task.config.preset}, {job.state.step:,} steps",
        quality=judge(audited, labels, training.names, "audit", groups) if task.audit else None,
        curve=(),
        curve_source="audit",
        serving=Serving("deep", task.number, "the deep model."),
    )


class TimeLeft(Watch):
    """Tells the page how long it will take, and stops when asked to."""

    def __init__(self, project: Project, number: int, say: Say, asked: Callable[[], bool]) -> None:
        self.project, self.number, self.talk, self.asked = project, number, say, asked
        self.begun, self.first, self.end, self.told = time.monotonic(), 0, 1, 0.0

    def begin(self, *, step: int, end: int, rounds: tuple[Round, ...]) -> None:
        """Note where it starts."""
        self.begun, self.first, self.end = time.monotonic(), step, end

    def stepped(self, step: int, labels: int) -> None:
        """Tell the time left now and then."""
        now = time.monotonic()
        self.stop = self.asked()
        if now - self.told < TELL or step == self.first:
            return
        self.told = now
        left = (now - self.begun) / (step - self.first) * (self.end - step)
        message = f"step {step:,} of {self.end:,}, about {duration(left)} left"
        work = {"name": "deep training", "done": step, "total": self.end, "left": duration(left)}
        self.project.models.put(self.number, state="training", message=message, about={"labels": labels, "work": work})
        self.talk(message)


def main() -> None:
    """Train one project's photos on pixels, to the end or until told to stop. `mma.children` starts it."""
    os.nice(NICE)
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: asked.set())
    try:
        report = train_deep(open_project(Path(sys.argv[1])), stop=asked.is_set)
    except UserError as error:
        sys.exit(printable(str(error)))
    sys.exit(0 if report else 143)


# What a deep training is made of: labels and images of one moment, and the photos at the network's size.

SIDE = 32  # pixels, for networks that do not say what they see


@dataclass(frozen=True, eq=False)
class DeepTask:
    """A deep training: its number, the labels and images that it is made of, and its settings."""

    number: int
    folder: Path
    training: TrainingSet
    images: list[ProjectImage]  # to learn from, then the audit images with a label
    audit: int  # how many of them are audit images
    config: Config


def load_data(project: Project, task: DeepTask) -> DataSet:
    """Return the images at the network's size. They are decoded once and kept in the cache until the training ends."""
    path = project.folder / "cache" / f"deep-{task.number:03d}.npy"
    if not path.is_file():
        decode(project, task.images, path, side_of(task.config))
    pixels = np.load(path, mmap_mode="c", allow_pickle=False)
    keys = np.frombuffer(bytes.fromhex("".join(image.id for image in task.images)), np.uint8).reshape(-1, 32)
    known = {**task.training.train, **task.training.audit}
    labels = np.array([known.get(image.id, UNKNOWN) for image in task.images], np.int64)
    end = len(task.images) - task.audit
    names = task.training.names
    train_ = Images(pixels[:end], labels[:end], names, stored_keys=keys[:end])
    test = (
        Images(pixels[end:], labels[end:], names, stored_keys=keys[end:])
        if task.audit
        else no_images(train_.shape, names)
    )
    return DataSet(f"project {project.root.name}", train_, test)


def decode(project: Project, images: Sequence[ProjectImage], path: Path, side: int) -> None:
    """Decode photos to one array on disk. One that cannot be read any more stops the training with its name."""
    found = decode_all(project.root, [image.name for image in images], side, grey=False)
    if found.bad:
        first = found.bad[0]
        raise UserError(
            f"{len(found.bad)} photos cannot be read any more, such as {printable(first.file)}: {first.reason}. Restore them, "
            f"or look at the folder again:  mma start {quote_path(project.root)}"
        )
    temporary = path.with_suffix(".tmp")
    temporary.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    with open_synced(temporary) as file:
        np.save(file, found.pixels, allow_pickle=False)
    temporary.replace(path)


def side_of(config: Config) -> int:
    """Return the pixels on each side that a network wants to see."""
    return config.net.photo_side() or SIDE

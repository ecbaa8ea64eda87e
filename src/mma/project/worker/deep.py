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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from mma.config import Config, from_json
from mma.data import UNKNOWN, DataSet, Images
from mma.data.images import no_images
from mma.data.photos import decode_all
from mma.errors import UserError
from mma.features.table import is_pretrained
from mma.files import Row, open_atomically, read_json, write_atomically
from mma.growth import Growth, Passive, Round
from mma.model.description import ModelFile
from mma.model.loader import input_of, model_files
from mma.model.model import new_model
from mma.presets import preset
from mma.project import open_project
from mma.project.models import ANSWERS, PREDICTIONS, ModelReport, Serving, answers_file, report_file
from mma.project.project import Project, silent
from mma.project.quality.accuracy import LEAST_AUDIT, judge
from mma.project.quality.status import DEEP_COST
from mma.project.records import ProjectImage
from mma.project.worker.features import TrainingSet, live_config, open_pool
from mma.project.worker.live_model import about, fit_answers
from mma.rng import rng
from mma.run import Run, Watch
from mma.text import duration, printable, quote_path
from mma.training.host import Host
from mma.training.job import Job, as_guess, load_read_only, new_run
from mma.training.loop import train
from mma.training.predict import probabilities

NICE = 15  # behind the live worker, which is behind the page
SIDE = 32  # pixels, for networks that do not say what they see
TELL = 2.0  # seconds between two notes of the time left
TIMED = 6  # steps that are timed before there was a training; the first one is slower and does not count
GREY = 64  # images of noise that they are timed with
Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class DeepTask:
    """A deep training: its number, the labels and images that it is made of, and its settings."""

    number: int
    folder: Path
    training: TrainingSet
    pool: list[ProjectImage]  # to learn from
    audited: list[ProjectImage]  # audit images: answered for now and for the labels to come, never learned
    config: Config


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
    note_cost(project, task.config, watch.seconds_per_step)
    return finish(project, task, load_read_only(run, data))


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
    images, labels = project.images(), project.labels()
    kept = {image.id for image in images if image.audit}
    training = TrainingSet(labels, lambda image: image in kept)
    if len(set(training.train.values())) < 2:
        raise UserError("a deep training needs labels of two classes at least. Label more images first.")
    left_out = set(labels.excluded)
    pool, audited = (
        [each.id for each in images if each.audit is audit and each.id not in left_out] for audit in (False, True)
    )
    config = with_all_labels(config.model_copy(update={"seed": project.settings.seed}), len(training.train))
    about = {"seq": labels.seq, "audit": len(audited), "config": config.model_dump(mode="json")}
    files = {
        "labels.csv": training.as_csv(),
        "images.txt": "".join(f"{image}\n" for image in (*pool, *audited)).encode(),
        "deep.json": json.dumps(about, indent=1).encode() + b"\n",
    }
    project.models.create(project.models.begin("deep", labels.seq, "reading photos"), files)
    task = resume_task(project)
    assert task is not None
    return task


def with_all_labels(config: Config, count: int) -> Config:
    """Return a config that trains with all labels at once, and for as many steps as growing to them would take."""
    steps = {name: getattr(config.growth, name) for name in ("first", "every", "final")}
    once = Growth(start=count, add=1, budget=count, **steps, policy=Passive())
    return config.model_copy(update={"growth": once})


def time_steps(project: Project) -> None:
    """Time a few steps on noise, so that the page can say how long a deep training takes before there was one."""
    config, draw = with_all_labels(suitable_config(project), GREY // 2), rng(0, "time steps")
    side = config.net.photo_side() or SIDE
    pixels = draw.integers(0, 256, (GREY, side, side, 3), np.uint8)
    labels = np.where(np.arange(GREY) < GREY // 2, np.arange(GREY) % 2, UNKNOWN)
    noise = Images(pixels, labels, ("one", "other"), stored_keys=draw.integers(0, 256, (GREY, 32), np.uint8))
    data = DataSet("noise", noise, no_images(noise.shape, noise.classes))

    times: list[float] = []

    class Timing(Watch):
        def stepped(self, step: int, labels: int) -> None:
            times.append(time.monotonic())
            self.stop = len(times) >= TIMED

    with TemporaryDirectory() as place:
        train(new_run(config, Path(place) / "run", data), watch=Timing(), on=Host(threads=1), data=data)
    note_cost(project, config, float(np.median(np.diff(times))))


def note_cost(project: Project, config: Config, seconds_per_step: float) -> None:
    """Write down how long a deep training takes here."""
    found = {"seconds": seconds_per_step * config.growth.steps, "net": config.net.name}
    write_atomically(project.layout.state / DEEP_COST, json.dumps(found) + "\n")


def resume_task(project: Project) -> DeepTask | None:
    """Return the training that was begun and has not ended."""
    begun = [row.number for row in project.models.rows() if row.kind == "deep" and row.state == "training"]
    if not begun or begun[-1] not in project.models.numbers("deep.json"):
        return None
    number, folder = begun[-1], project.models.folder(begun[-1])
    about, ids = read_json(folder / "deep.json"), (folder / "images.txt").read_text("ascii").split()
    everything = {image.id: image for image in project.images()}
    if gone := [image for image in ids if image not in everything]:
        raise UserError(f"{len(gone)} images of deep model {number} are gone, so that it cannot go on as it began.")
    end = len(ids) - int(about["audit"])
    pool, audited = ([everything[image] for image in part] for part in (ids[:end], ids[end:]))
    kept = set(ids[end:])
    training = TrainingSet(project.labels(upto=int(about["seq"])), lambda image: image in kept)
    return DeepTask(number, folder, training, pool, audited, from_json(about["config"]))


def live_guesses(project: Project, task: DeepTask) -> list[Row]:
    """Return what a quick model says about the images to learn from: the network begins with that.

    The model that serves has learned the audit labels, too. This one has not, so the network can be measured on them.
    """
    answers = project.models.answers(ANSWERS)
    known = {
        image.id: place for place, image in enumerate(task.pool) if answers is not None and image.id in answers.row
    }
    if not known:
        return []
    pool = open_pool(project, [task.pool[place] for place in known.values()])
    labels = {pool.row[image]: label for image, label in task.training.train.items() if image in pool.row}
    fitted = fit_answers(pool, task.training, labels, live_config(project))
    probs, names = fitted.probabilities(pool.views, np.arange(len(pool))), list(task.training.names)
    return [as_guess(place, image, names, probs[pool.row[image]].tolist()) for image, place in known.items()]


def load_data(project: Project, task: DeepTask) -> DataSet:
    """Return the images at the network's size. They are decoded once and kept in the cache until the training ends."""
    path, images, names = pixels_of(project, task), [*task.pool, *task.audited], task.training.names
    if not path.is_file():
        side = task.config.net.photo_side() or SIDE
        found = decode_all(project.root, [image.name for image in images], side, grey=False)
        if found.bad:
            first = found.bad[0]
            raise UserError(
                f"{len(found.bad)} photos cannot be read any more, such as {printable(first.file)}: {first.reason}. Restore "
                f"them, or look at the folder again:  mma start {quote_path(project.root)}"
            )
        path.parent.mkdir(exist_ok=True)
        with open_atomically(path) as file:
            np.save(file, found.pixels, allow_pickle=False)
    pixels = np.load(path, mmap_mode="c", allow_pickle=False)
    keys = np.frombuffer(bytes.fromhex("".join(image.id for image in images)), np.uint8).reshape(-1, 32)
    known = {**task.training.train, **task.training.audit}
    labels = np.array([known.get(image.id, UNKNOWN) for image in images], np.int64)
    end = len(task.pool)
    learned = Images(pixels[:end], labels[:end], names, stored_keys=keys[:end])
    test = (
        Images(pixels[end:], labels[end:], names, stored_keys=keys[end:])
        if task.audited
        else no_images(learned.shape, names)
    )
    return DataSet(f"project {project.root.name}", learned, test)


def pixels_of(project: Project, task: DeepTask) -> Path:
    """Return where the decoded photos lie."""
    return project.folder / "cache" / f"deep-{task.number:03d}.npy"


def finish(project: Project, task: DeepTask, job: Job) -> ModelReport:
    """Write the model, what it says about every image, and its report; tell the project. Curves belong to the live models."""
    training, step = task.training, job.state.step - 1
    pool, test = job.views.at_step(step), job.test.at_step(step)
    probs = probabilities(job.state.teacher, pool, np.arange(len(task.pool)))
    audited = probabilities(job.state.teacher, test, np.arange(len(task.audited))) if task.audited else probs[:0]
    judged = [row for row, image in enumerate(task.audited) if image.id in training.audit]
    groups = [task.audited[row].group for row in judged]
    labels = np.array([training.audit[task.audited[row].id] for row in judged], np.int64)
    uses = f"a network on pixels: {task.config.net.name}, preset {task.config.preset}, {job.state.step:,} steps"
    quality = judge(audited[judged], labels, training.names, groups) if len(labels) >= LEAST_AUDIT else None
    known = {**training.summary(), "uses": uses, "quality": quality, "curve": ()}
    report = ModelReport(task.number, "deep", serving=Serving("deep", task.number, "the deep model."), **known)
    source = about(project, training, [image.id for image in task.pool])
    file = ModelFile(classes=training.names, input=input_of(pool), net=task.config.net, about=source)
    ids = [image.id for image in (*task.pool, *task.audited)]
    files = {
        **model_files(new_model(file, job.state.teacher)),
        **answers_file(PREDICTIONS, ids, np.concatenate([probs, audited]), training.class_ids),
        **report_file(report),
    }
    project.models.add(task.number, files)
    project.models.publish(report)
    pixels_of(project, task).unlink(missing_ok=True)
    return report


class TimeLeft(Watch):
    """Tells the page how long it will take, and stops when asked to."""

    def __init__(self, project: Project, number: int, say: Say, asked: Callable[[], bool]) -> None:
        self.project, self.number, self.talk, self.asked = project, number, say, asked
        self.begun, self.first, self.end, self.told = time.monotonic(), 0, 1, 0.0
        self.seconds_per_step = 0.0

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
        self.seconds_per_step = (now - self.begun) / (step - self.first)
        left = self.seconds_per_step * (self.end - step)
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

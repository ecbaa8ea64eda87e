"""Would this have helped me? The same project code on photos that are labeled already, with a scripted person and no page.

Each seed is two projects on the same photos: one asks, one goes through them in random order. A part of the photos is hidden
from both; on these the true accuracy is measured.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch

from mma.data.photos import FORMATS, quiet_decoders
from mma.files import explain_write_errors, sync_folder, write_atomically
from mma.machine import cores
from mma.project import create_project
from mma.project.audit import Share
from mma.project.cleaning import Cleaned, clean
from mma.project.hidden import HiddenPhotos, TruePoint
from mma.project.live import LiveWorker
from mma.project.model_report import ModelReport, latest_report
from mma.project.pool import usable_key
from mma.project.project import Project, silent
from mma.project.scripted import LabeledPhotos, ScriptedPerson
from mma.rng import rng
from mma.text import printable

HELD = 0.3  # share of the photos that the projects never see
EVERY = 25  # labels between two trainings
LEAST = 20  # labels
PLAN = "plan.json"  # what a folder of simulated projects is known by
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
Say = Callable[[str], None]


@dataclass(frozen=True)
class SimulatedProject:
    """What one scripted project came to."""

    seed: int
    asks: bool
    points: tuple[TruePoint, ...]
    audit: Share | None  # what the project itself says at the end
    wrong: int  # answers that were wrong on purpose
    helping: str
    stop: str | None
    cleaned: Cleaned | None = None  # what the review brought, where answers were wrong

    @property
    def inside(self) -> bool | None:
        """Whether the audit's interval holds the true accuracy; None without an audit."""
        if self.audit is None:
            return None
        return self.audit.low <= self.points[-1].accuracy / 100 <= self.audit.high


@dataclass(frozen=True)
class Plan:
    """What is simulated."""

    budget: int = 400
    noise: float = 0.0  # share of wrong answers
    every: int = EVERY
    audit_asked: float = 0.1


def read_labeled(folder: Path) -> LabeledPhotos:
    """Read a folder with a sub-folder for each class. Of equal photos the first counts; what cannot be read is left out."""
    if not folder.is_dir():
        raise ValueError(
            f"there is no folder {printable(str(folder))}. Give photos that are labeled:  mma simulate FOLDER"
        )
    root = folder.resolve()
    names = [path.relative_to(root).as_posix() for path in sorted(root.rglob("*")) if is_photo(root, path)]
    paths: dict[str, Path] = {}
    classes: dict[str, str] = {}
    with quiet_decoders(), ThreadPoolExecutor(cores()) as pool:
        for name, key in zip(names, pool.map(lambda name: usable_key(root, name), names), strict=True):
            if key is not None:
                paths.setdefault(key, root / name)
                classes.setdefault(key, name.partition("/")[0])
    if len(set(classes.values())) < 2:
        kinds = ", ".join(FORMATS)
        raise ValueError(
            f"{printable(str(folder))} holds no labeled photos: it takes a sub-folder for each of two classes or more, with "
            f"photos in it ({kinds}). There are {len(names):,} files with such names, and {len(paths):,} different photos that "
            "can be read and do not link out of the folder."
        )
    return LabeledPhotos(root, paths, classes)


def is_photo(folder: Path, path: Path) -> bool:
    """Tell whether a file is a photo by its name, and lies in a sub-folder."""
    return path.suffix.lower() in SUFFIXES and path.parent != folder and path.is_file()


def open_place(place: Path, folder: Path, plan: Plan) -> None:
    """Make the folder for the projects. What an earlier simulation left there is replaced, so anything else is refused."""
    shown, there, photos = printable(str(place)), place.resolve(), folder.resolve()
    if there.is_relative_to(photos) or photos.is_relative_to(there):
        raise ValueError(
            f"--out {shown} and the photos lie in each other, and photos are never changed. Choose another --out."
        )
    if place.exists() and not (place / PLAN).is_file() and (not place.is_dir() or any(place.iterdir())):
        raise ValueError(f"--out {shown} holds something else than a simulation. Choose another --out.")
    with explain_write_errors(place, "the same command"):
        place.mkdir(parents=True, exist_ok=True)
        write_atomically(place / PLAN, json.dumps({"photos": folder.name, **asdict(plan)}, indent=1) + "\n")


def check_plan(photos: LabeledPhotos, plan: Plan) -> None:
    """Refuse what cannot be simulated."""
    have = int(len(photos.paths) * (1 - HELD))
    if have < LEAST:
        raise ValueError(
            f"{printable(str(photos.root))} holds {len(photos.paths):,} different photos, too few: {LEAST} are labeled at "
            f"least, and {HELD:.0%} are kept to measure on."
        )
    if plan.budget > have:
        raise ValueError(
            f"--budget {plan.budget} is more than the {have:,} photos to label: {HELD:.0%} of {len(photos.paths):,} are kept "
            f"to measure on. Use --budget {have} or less."
        )
    if not 0 <= plan.noise < 1:
        raise ValueError(f"--noise {plan.noise:g} is no share of wrong answers. Use 0 or more, and less than 1.")


def simulate(
    folder: Path,
    place: Path,
    *,
    plan: Plan = Plan(),
    seeds: Sequence[int] = (1,),
    control: bool = True,
    say: Say = silent,
) -> Iterator[SimulatedProject]:
    """Run scripted projects below `place`: two for each seed, or one without the control. Each is handed out as it ends."""
    photos = read_labeled(folder)
    check_plan(photos, plan)
    open_place(place, folder, plan)
    for seed in seeds:
        shown, hidden = split(photos, seed)
        images = place / f"photos-{seed}"
        link_photos(photos, shown, images)
        for asks in (True, False) if control else (True,):
            one = simulate_project(photos, hidden, images, plan, seed=seed, asks=asks)
            say(describe(one))
            yield one


def split(photos: LabeledPhotos, seed: int) -> tuple[list[str], list[str]]:
    """Return the photos that the projects see, and those that are hidden."""
    keys = sorted(photos.paths)
    order = [keys[i] for i in rng(seed, "simulate", "held out").permutation(len(keys))]
    held = round(HELD * len(keys))
    return order[held:], order[:held]


def link_photos(photos: LabeledPhotos, keys: Sequence[str], images: Path) -> None:
    """Put photos into one flat folder under names that say nothing: the tool must not see the classes."""
    shutil.rmtree(images, ignore_errors=True)
    images.mkdir(parents=True)
    for key in keys:
        target = images / f"{key[:24]}{photos.paths[key].suffix.lower()}"
        try:
            os.link(photos.paths[key], target)
        except OSError:  # another disk, or links are not allowed
            shutil.copyfile(photos.paths[key], target)
    sync_folder(images)


def simulate_project(
    photos: LabeledPhotos, hidden: Sequence[str], images: Path, plan: Plan, *, seed: int, asks: bool
) -> SimulatedProject:
    """Run one project to its budget; where answers were wrong, look for them and correct them."""
    folder = images.with_name(f"{images.name}-{'asking' if asks else 'random'}.mma")
    shutil.rmtree(folder, ignore_errors=True)
    project = create_project(images, folder, classes=photos.names, budget=plan.budget, seed=seed)
    project.index()
    project.rules = project.rules._replace(audit_asked=plan.audit_asked, again_share=0.0)
    torch.set_num_threads(1)
    worker = LiveWorker(project, deep=False, every=plan.every, asks=asks)
    person = ScriptedPerson(project, photos, plan.noise, seed)
    label_all(worker, person, plan)
    assert worker.pool is not None
    outside = HiddenPhotos(photos, hidden, worker.pool)
    result = summary(project, worker, outside, seed=seed, asks=asks, wrong=person.wrong)
    if plan.noise:
        cleaned = clean(project, person, outside, worker.training_set(), lambda: finish(worker))
        result = replace(result, cleaned=cleaned)
    project.close()
    return result


def label_all(worker: LiveWorker, person: ScriptedPerson, plan: Plan) -> None:
    """Give all answers of the budget, with a training now and then."""
    finish(worker)
    for count in range(1, plan.budget + 1):
        person.label_next()
        if count % plan.every == 0 or count == plan.budget:
            finish(worker)


def finish(worker: LiveWorker) -> None:
    """Let the worker do all that is due."""
    worker.rest()
    while worker.step():
        pass


def summary(
    project: Project, worker: LiveWorker, hidden: HiddenPhotos, *, seed: int, asks: bool, wrong: int
) -> SimulatedProject:
    """Measure every model on the hidden photos, and read what the project says of itself."""
    points = hidden.curve(project.folder)
    report = latest_report(project.folder)
    from mma.project.status import status

    now = status(project)
    quality = report.quality if report else None
    audit = quality.accuracy if quality is not None and quality.source == "audit" else None
    if audit is None and report is not None:
        audit = audit_so_far(worker, report)
    helping = report.helping.answer if report else ""
    return SimulatedProject(seed, asks, points, audit, wrong, helping, now.stop.rule if now.stop else None)


def audit_so_far(worker: LiveWorker, report: ModelReport) -> Share | None:
    """Return the audit's interval where it is no verdict yet."""
    from mma.project.audit import share
    from mma.project.measure import audit_groups, audit_probs

    training, pool = worker.training_set(), worker.pool
    if not training.audit or pool is None:
        return None
    said = audit_probs(worker.memory.past[-1], pool, training).argmax(1)
    return share(said == np.array(list(training.audit.values())), audit_groups(pool, training))


def describe(one: SimulatedProject) -> str:
    """Say how a project ended."""
    audit = "no audit"
    if one.audit is not None:
        low, high = 100 * one.audit.low, 100 * one.audit.high
        verdict = "inside" if one.inside else "OUTSIDE"
        audit = f"audit {100 * one.audit.value:.1f} % ({low:.1f}-{high:.1f}, {one.audit.of} labels): {verdict}"
    way = "asking" if one.asks else "random order"
    last = one.points[-1]
    words = f"seed {one.seed}, {way}: {last.answers} labels, truly {last.accuracy:.1f} %; {audit}"
    return words if one.cleaned is None else f"{words}; {describe_cleaning(one.cleaned)}"


def describe_cleaning(found: Cleaned) -> str:
    """Say what the review found and brought."""
    return (
        f"{found.found} of {found.wrong} wrong labels among {found.suspects} suspects ({found.found_by_margin} by margin), "
        f"accuracy {found.before:.1f} -> {found.after:.1f} % (all right: {found.ceiling:.1f})"
    )

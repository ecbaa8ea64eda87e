"""The worker process: keeps a model and its picks up to date while people label. `mma.children` runs its `main()`.

Labeling never waits for it. Kill it at any time: everything it needs is in the project's folder.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

import numpy as np
import torch

from mma.errors import TemporarilyUnavailable, UserError
from mma.features import parse_backbone
from mma.features.names import can_guess, first_guesses, prepare_names
from mma.project import open_project
from mma.project.guesses import NAMES
from mma.project.labels.database import write_progress
from mma.project.models import PREDICTIONS, report_file
from mma.project.project import Project, silent, training
from mma.project.quality.status import read_cost, write_page
from mma.project.worker.deep import time_steps
from mma.project.worker.features import Gathering, Pool, TrainingSet, feature_views, live_config
from mma.project.worker.picks import COVERAGE, MANY, Question, choose_picks
from mma.project.worker.round import compare_asking, live_round, recall
from mma.project.worker.supervise import LEAST, MOST, Attempts, DeepProcess
from mma.text import printable, quote_path, talk
from mma.training.head import fit_head

POLL, SLOW_POLL = 0.1, 0.5  # seconds between two looks at the project
AWAY = 60.0  # seconds without an answer after which it looks less often
EVERY = 10  # labels
REST = 15.0  # seconds without an answer after which fewer labels are enough
NICE = 10  # the page comes first
SETTLED = 10.0  # seconds after which another trainer is not just about to end
COMPARE_EVERY = 50  # labels between two comparisons of queried and random labels


class LiveWorker:
    """Does what is due, one thing at a time: features, a round, a comparison."""

    def __init__(
        self,
        project: Project,
        say: Callable[[str], None] = silent,
        *,
        deep: bool = True,
        every: int = EVERY,
        asks: bool = True,  # False: models are made, but nothing is picked, so that people are asked in random order
        raises: bool = False,  # what fails ends the worker: nobody is labeling, and numbers without it would mislead
    ) -> None:
        self.project, self.say, self.every, self.asks, self.raises = project, say, every, asks, raises
        self.config = live_config(project)
        self.attempts = Attempts(project.layout.state / "attempt.json")
        self.gathering = Gathering(project, feature_views(self.config), self.note)
        self.memory = recall(project)
        self.deep = DeepProcess(project, say) if deep else None
        self.answers = project.models.answers(PREDICTIONS)  # of the newest deep model
        self.seq = -1  # the last event that was looked at
        self.changed = 0.0  # when it came
        self.done_seq, self.done_labels = self.memory.seq, self.memory.labels
        self.compared = 0  # labels at the last comparison
        self.asked_at = -1  # seq for which coverage picks were made, before the first model
        self.given_up: set[str] = set()
        self.named: object = None  # the classes, and the size of the pool, that were guessed by names

    def step(self) -> bool:
        """Do one thing that is due. False: there is nothing to do."""
        self.look()
        if self.round_is_due():
            if self.attempt(f"labels up to event {self.seq}", self.round):
                return True
            self.done_seq = self.seq  # not with these labels; more of them may do
        names = self.names_key()
        changed = self.named is None or (self.pool is not None and self.named != names)
        if changed and self.attempt(f"guesses by names {names}", self.guess_by_names):
            return True
        place = f"features after {len(self.gathering.ready):,} images"
        if self.gathering.is_missing() and self.attempt(place, self.gather):
            return True
        # Picks must be made without a model at the beginning, and while there is one class alone.
        start = self.asks and self.pool is not None and not self.memory.past and self.asked_at != self.seq
        start = start and (self.asked_at < 0 or self.seq - self.asked_at >= self.every)
        if start and self.attempt(f"first picks at event {self.seq}", self.ask_for_coverage):
            return True
        if self.gathering.behind and self.attempt(f"{place}: other views", lambda: self.gather(behind=True)):
            return True
        many = self.done_labels >= self.compared + COMPARE_EVERY and self.pool is not None
        if many and self.memory.past and self.attempt(f"comparison at event {self.done_seq}", self.compare):
            return True
        if self.deep is None:
            return False
        idle = time.monotonic() - self.changed
        if idle > REST and self.done_labels >= LEAST and read_cost(self.project) is None:
            return self.attempt("the time of a deep step", lambda: time_steps(self.project))
        if self.deep.tend(idle):
            self.answers = self.project.models.answers(PREDICTIONS)
            self.done_seq = -1  # choose between the models again, with new picks
            return True
        return False

    def look(self) -> None:
        """See whether something new happened."""
        seq = self.project.seq()
        if seq != self.seq:
            self.seq, self.changed = seq, time.monotonic()
        if self.project.heed_wishes() and self.memory.past:
            self.done_seq = -1  # another goal has other picks, and another model may serve

    def rest(self) -> None:
        """Wait for nobody: what is there is enough for a round."""
        self.look()
        self.changed = min(self.changed, time.monotonic() - REST - 1)

    def attempt(self, place: str, do: Callable[[], None]) -> bool:
        """Do something that may go wrong. What fails twice is reported, and left until something changes."""
        if place in self.given_up:
            return False
        why = "the worker died there twice"
        if self.attempts.begin(place):
            try:
                do()
            except Exception as error:  # whatever it is, labeling goes on and the page says so
                if self.raises:
                    raise
                self.say(f"{place}: {type(error).__name__}: {error}")
                if self.attempts.counts().get(place, 0) < MOST:
                    return True
                why = str(error) or type(error).__name__
            except BaseException:  # it was told to end, and did not die of this
                self.attempts.end(place)
                raise
            else:
                self.attempts.end(place)
                return True
        self.given_up.add(place)
        self.attempts.end(place)
        models = self.project.models
        models.put(models.begin("live", max(self.seq, 0)), state="failed", message=f"{place}: {printable(why)}")
        return False

    def note(self, done: int, total: int, left: str | None) -> None:
        """Say and note how far the features are."""
        if done < total:
            self.say(f"features: {done:,} of {total:,} images" + (f", about {left} left" if left else ""))
        with self.project.store.writing() as connection:
            write_progress(connection, "features", done, total, left)

    @property
    def pool(self) -> Pool | None:
        """The images that have features; None before the first few do."""
        return self.gathering.pool

    def gather(self, *, behind: bool = False) -> None:
        """Compute some features."""
        before = self.pool
        if behind:
            self.gathering.catch_up()
        else:
            self.gathering.advance(self.project.labels().ids)
        if before is None and self.pool is not None and len(self.pool) > 1:
            # A throw-away head, trained for a step: what is loaded now need not be loaded when the first labels are there.
            short = self.config.model_copy(update={"growth": self.config.growth.model_copy(update={"final": 1})})
            fit_head(self.pool.views, {0: 0, 1: 1}, 2, config=short)
        if self.pool is not before:
            self.asked_at = -1
            for image, why in self.gathering.broken.items():
                self.say(f"left out: {image[:8]}: {why}")

    def names_key(self) -> tuple[tuple[str, ...], int]:
        """Return what guesses by names depend on."""
        return tuple(each.name for each in self.project.classes() if each.merged_into is None), len(self.pool or ())

    def guess_by_names(self) -> None:
        """Compare the names of the classes with the photos, and store the guesses; or note why there are none."""
        pool, self.named = self.pool, self.names_key()
        used = [each for each in self.project.classes() if each.merged_into is None]
        try:
            backbones = parse_backbone(feature_views(self.config).backbone).parts
            part = next((place for place, each in enumerate(backbones) if can_guess(each)), None)
            if part is None:
                raise UserError("names can be compared with photos on the backbone lite0, or on hf: CLIP or SigLIP.")
            if pool is None or len(used) < 2:
                prepare_names(backbones[part])  # while photos are prepared and names are typed
                self.project.guesses.note("soon")
                return
            begin, audit = time.monotonic(), np.array([image.audit for image in pool.images])
            vectors, names = pool.parts(np.arange(len(pool)))[part], [each.name for each in used]
            probs = np.zeros((len(pool), len(used)), np.float32)
            probs[~audit], probs[audit] = first_guesses(backbones[part], names, vectors[~audit], vectors[audit])
            self.project.guesses.put(NAMES, list(pool.row), probs, [each.id for each in used])
            self.project.guesses.note("ready")
            self.say(f"names compared with {len(pool):,} photos, {time.monotonic() - begin:.1f} s")
        except UserError as error:
            self.project.guesses.note("none", str(error))

    def round_is_due(self) -> bool:
        """Tell whether ten more labels are there, or a few and nobody is labeling."""
        if self.pool is None or self.seq == self.done_seq:
            return False
        labels = self.project.counts().labeled
        rested = time.monotonic() - self.changed > REST
        corrected = bool(self.memory.past) and self.seq - self.done_seq >= self.every  # events that are not new labels
        ready = labels // self.every != self.done_labels // self.every or corrected or rested
        if not ready or labels == 0:
            return False
        trained = {label for image, label in self.training_set().learned.items() if image in self.pool.row}
        return len(trained) > 1  # labels of two classes have features

    def training_set(self) -> TrainingSet:
        """Return the labels of this moment."""
        pool = self.pool
        assert pool is not None

        def is_audit(image: str) -> bool:
            known = pool.everything.get(image)
            return self.project.is_audit(image) if known is None else known.audit

        training = TrainingSet(self.project.labels(), is_audit)
        return replace(training, lost=set(training.audit).difference(pool.row))

    def round(self) -> None:
        """Make a model and picks."""
        assert self.pool is not None
        training = self.training_set()
        number, deep = self.project.models.begin("live", max(self.seq, 0)), self.answers
        made = live_round(
            self.project, self.pool, training, self.memory, self.config, number=number, deep=deep, asks=self.asks
        )
        report = made.report
        if self.asks:
            self.project.put_picks(made.picks.picks, report.number)
        self.project.models.publish(report)  # last: a round without it is done again
        self.done_seq, self.done_labels = training.labels.seq, len(training.labels)
        write_page(self.project)
        self.say(f"model {report.number}: {report.labels} labels, {report.seconds:.2f} s; {report.query}")

    def ask_for_coverage(self) -> None:
        """Ask for images that stand for many others."""
        assert self.pool is not None
        question = Question(self.pool, self.training_set(), COVERAGE, self.project.settings.seed, 0)
        self.project.put_picks(choose_picks(question, MANY).picks, None)
        self.asked_at = self.seq

    def compare(self) -> None:
        """Compare queried with random labels (is asking helping?), and add the answer to the latest report."""
        assert self.pool is not None
        self.compared = self.done_labels
        settings, before = self.project.settings, self.memory.helping
        self.memory.helping = compare_asking(self.pool, self.training_set(), settings.seed, switch=settings.fallback)
        if self.memory.helping.fallback and not before.fallback:
            self.say(self.memory.helping.sentence)
        report = self.project.models.latest_report("live")
        if report is not None:
            self.project.models.add(report.number, report_file(replace(report, helping=self.memory.helping)))
            write_page(self.project)


def work(project: Project, say: Callable[[str], None] = silent, *, until_done: bool = False, deep: bool = True) -> None:
    """Work until the process is told to end; or, `until_done`, until nothing is left to do."""
    torch.set_num_threads(1)
    worker = LiveWorker(project, say, deep=deep)
    try:
        while True:
            if worker.step():
                continue
            if until_done:
                worker.rest()
                if not worker.step() and not (worker.deep and worker.deep.running):
                    return
            time.sleep(POLL if time.monotonic() - worker.changed < AWAY else SLOW_POLL)
    finally:
        if worker.deep is not None:
            worker.deep.stop()


def main() -> None:
    """Run the worker of one project until it is told to end. `mma.children` starts it, and ends it with its parent."""

    def leave(number: int, frame: FrameType | None) -> None:
        """End in order, so that the deep training stores its state. A second signal must not break into that."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(128 + number)

    os.nice(NICE)
    signal.signal(signal.SIGTERM, leave)
    try:
        project = open_project(Path(sys.argv[1]))
        with wait_to_train(project):
            work(project, talk)
    except UserError as error:
        sys.exit(printable(str(error)))


@contextmanager
def wait_to_train(project: Project) -> Iterator[None]:
    """Hold the lock of the one process that trains. The worker of a server that was just killed gives it up in a moment."""
    patience = time.monotonic() + SETTLED
    while True:
        with ExitStack() as held:
            try:
                held.enter_context(training(project.layout.state, f"mma start {quote_path(project.root)}"))
            except TemporarilyUnavailable as error:
                if time.monotonic() > patience:
                    talk(str(error))
                    patience = math.inf  # said once
                time.sleep(SLOW_POLL)
                continue
            yield
            return

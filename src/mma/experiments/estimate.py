"""What runs cost: time, disk and arithmetic, from a few real steps of every kind of run on pixels of the right shape."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from mma.config import Config
from mma.data import DataSet, Images
from mma.data.sources import DataSetInfo
from mma.experiments.engines import TrainingOptions
from mma.experiments.grids import GridCell
from mma.experiments.options import data_set
from mma.experiments.plan import GridPlan, PlannedRun
from mma.nets.network import count_flop, forward_flop
from mma.query import Query
from mma.rng import rng
from mma.training.host import Host
from mma.training.predict import probabilities
from mma.training.state import start
from mma.training.step import Stream, steps

SMALL = 4  # images in the first, cheap step: if even that is slow, the whole batch is reckoned from it
SLOW = 0.15  # seconds for that step from which on it stands for all
ENOUGH = 1.0  # seconds to measure whole steps for
EVALUATED = 50  # images in the measured evaluation
FEW = 4  # labeled images in a step whose arithmetic is counted


@dataclass(frozen=True)
class Speed:
    """What one distinct network and algorithm costs here."""

    step: float  # seconds
    image: float  # seconds to evaluate one image
    state: int  # bytes of a stored state
    full_batch: bool  # False: reckoned from a small batch


@dataclass(frozen=True)
class RunCost:
    """What a run costs."""

    seconds: float
    bytes: int


def kind(config: Config) -> str:
    """Name what the speed of a run depends on."""
    algorithm = f"{config.algorithm.name} {config.algorithm.views}"
    optim = f"{config.optim.rule} {config.optim.batch} {config.optim.unlabeled_ratio} {config.optim.precision}"
    return f"{config.data.name} {config.net.model_dump_json()} {algorithm} {optim} {config.views.model_dump_json()}"


class Trial:
    """A run on random pixels in the shape of its data set, which need not be on this machine."""

    def __init__(self, config: Config, device: torch.device, count: int) -> None:
        info = data_set(config.data.name)
        pixels = rng(0, "estimate").integers(0, 256, (count, *info.shape), dtype=np.uint8)
        labels = np.arange(count, dtype=np.int64) % info.classes
        self.config, self.images = config, Images(pixels, labels, tuple(str(k) for k in range(info.classes)))
        data = DataSet(config.data.name, self.images, self.images)
        self.views = config.views.open(data, device, config.growth.steps)
        self.state = start(config, self.views.shape, len(self.images.classes), device)

    def step(self, at: int, batch: int) -> None:
        """Make one training step as step `at` of the run, with `batch` labeled images."""
        config = self.config.model_copy(update={"optim": self.config.optim.model_copy(update={"batch": batch})})
        round, half = config.growth.rounds()[0], len(self.images) // 2
        answers = {index: int(self.images.labels[index]) for index in range(half)}
        stream = Stream(config, self.views, np.arange(len(self.images)), answers, round)
        self.state.step = at
        next(steps(self.state, config, stream, round, at + 1))


def measure(config: Config, device: torch.device) -> Speed:
    """Make a few real steps and an evaluation."""
    batch, last, share = config.optim.batch, config.growth.steps - 1, config.views.early_share
    trial = Trial(config, device, max(2 * batch, EVALUATED))
    teacher, every = trial.state.teacher.eval(), np.arange(len(trial.images))
    image = repeat(partial(probabilities, teacher, trial.views, every), device, least=1) / len(every)
    size = 4 * 4 * trial.state.weights.vector.numel()  # student, teacher and two moments, float32
    few = min(SMALL, batch)
    quick = repeat(partial(trial.step, last, few), device, least=1)
    if quick > SLOW:
        return Speed(quick * batch / few, image, size, full_batch=False)
    begin = repeat(partial(trial.step, 0, batch), device) if share else 0.0  # with smaller images
    whole = repeat(partial(trial.step, last, batch), device)
    return Speed(share * begin + (1 - share) * whole, image, size, full_batch=True)


def repeat(work: Callable[[], object], device: torch.device, least: int = 30) -> float:
    """Return the median seconds of `least` repetitions, or of as many as a second allows; the first does not count."""
    work()
    times: list[float] = []
    while not times or (sum(times) < ENOUGH and len(times) < least):
        begin = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def looked_at(config: Config, data: DataSetInfo, queries: int, evaluations: int) -> tuple[int, int]:
    """Return how many images so many queries and evaluations look at."""
    pool, tested = config.data.total or data.pool, config.data.validation or data.test
    return queries * Query.parse(config.query).looks * pool, evaluations * tested


def cost(run: PlannedRun, speed: Speed, data: DataSetInfo) -> RunCost:
    """Reckon steps, evaluations and queries that are still to be made, and what the run leaves on disk."""
    config, growth = run.config, run.config.growth
    evaluations = config.log.evaluations(run.end) - run.begin // config.log.every
    queries = sum(round.begin > run.begin or (round.begin == run.begin > 0) for round in growth.rounds()[1:])
    images = sum(looked_at(config, data, queries, evaluations))
    states = 2 + len([step for step in growth.kept_steps() if step >= run.begin])
    logs = 600 * config.log.evaluations(run.end) + 40 * growth.budget
    return RunCost(run.steps * speed.step + images * speed.image, states * speed.state + logs)


def costs(plan: GridPlan, options: TrainingOptions) -> tuple[dict[GridCell, RunCost], dict[str, Speed]]:
    """Return what every run of the plan still costs here, and the speeds that this rests on."""
    device = Host(options.device, options.threads).prepare()
    kinds = {kind(run.config): run.config for run in plan.runs}
    found = {name: measure(config, device) for name, config in kinds.items()}
    data = data_set(plan.grid.base["data"]["name"])
    return {run.cell: cost(run, found[kind(run.config)], data) for run in plan.runs}, found


@dataclass(frozen=True)
class Flop:
    """Floating-point operations of a run; those of evaluating and of looking for images to ask about stand apart."""

    image: int  # one forward of one image of full size
    step: float  # one training step, the mean over the run
    training: float
    evaluating: float
    asking: float

    @property
    def total(self) -> float:
        """Everything."""
        return self.training + self.evaluating + self.asking


def flop(config: Config) -> Flop:
    """Count a run. Evaluations and queries in the steps made with small images are counted as if they were of full size."""
    data, end = data_set(config.data.name), config.growth.steps
    trial = Trial(config, torch.device("cpu"), 2 * FEW)
    image = forward_flop(trial.state.teacher, trial.views.plain(np.zeros(1, np.int64)))
    share = config.views.early_share  # of the steps, made with smaller images

    def step_of(batch: int) -> float:
        first, last = (count_flop(partial(trial.step, at, batch)) for at in (0, end - 1))
        return share * first + (1 - share) * last

    few, more = step_of(FEW), step_of(2 * FEW)
    step = few + (more - few) * (config.optim.batch / FEW - 1)  # updates cost the same with every batch
    asked, tested = looked_at(config, data, len(config.growth.rounds()) - 1, config.log.evaluations(end))
    return Flop(image, step, step * end, float(image * tested), float(image * asked))

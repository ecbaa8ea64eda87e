"""How long and how much disk: a few real steps of every distinct network and algorithm, on pixels of the right shape."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from mma.config import Config
from mma.data import Images
from mma.data.sources import Entry  # INTEGRATE: DataSetInfo
from mma.experiments.design import GridCell
from mma.experiments.engines.worker import TrainingOptions
from mma.experiments.make import data_set, grows, last_step, shape_of
from mma.experiments.plan import GridPlan, PlannedRun
from mma.query import Query
from mma.rng import rng
from mma.training.evaluate import probabilities
from mma.training.host import Host
from mma.training.state import State, start
from mma.training.step import training_step
from mma.training.stream import Pixels, Stream, pixels_of

SMALL = 4  # images in the first, cheap step: if even that is slow, the whole batch is reckoned from it
SLOW = 0.15  # seconds for that step from which on it stands for all
ENOUGH = 1.0  # seconds to measure whole steps for
EVALUATED = 50  # images in the measured evaluation


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
    views = f"{config.data.strong_labels} {config.data.small_side} {config.data.small_share}"
    return f"{config.data.name} {config.net.model_dump_json()} {algorithm} {optim} {views}"


def speeds(plan: GridPlan, options: TrainingOptions) -> dict[str, Speed]:
    """Measure every distinct kind of run in the plan once."""
    kinds = {kind(run.config): run.config for run in plan.runs}
    device = Host(options.device, options.threads).prepare()
    return {name: measure(config, device) for name, config in kinds.items()}


def measure(config: Config, device: torch.device) -> Speed:
    """Make a few steps with random pixels: the data set need not be on this machine."""
    images = random_images(data_set(config.data.name), count=max(2 * config.optim.batch, EVALUATED))
    state = start(config, images, device)
    pixels = pixels_of(images, device, config.data.shift, mirror=config.data.mirror)
    state.teacher.eval()
    look = partial(probabilities, state.teacher, pixels, np.arange(EVALUATED))
    look()
    image = seconds(look, device) / EVALUATED
    some = config.model_copy(
        update={"optim": config.optim.model_copy(update={"batch": min(SMALL, config.optim.batch)})}
    )
    last = last_step(config) - 1
    step = partial(one_step, state, some, images, pixels, last)
    step()
    cheap = seconds(step, device)
    size = 4 * 4 * state.weights.vector.numel()  # student, teacher and two moments, float32
    if cheap > SLOW:
        return Speed(cheap * config.optim.batch / some.optim.batch, image, size, full_batch=False)
    share, times = config.data.small_share, []
    for at in (0, last) if share else (last,):  # the first steps may be made with smaller images
        step = partial(one_step, state, config, images, pixels, at)
        step()
        times.append(median_seconds(step, device))
    return Speed(share * times[0] + (1 - share) * times[-1], image, size, full_batch=True)


def one_step(state: State, config: Config, images: Images, pixels: Pixels, at: int) -> None:
    """Make one training step, as step `at` of the run."""
    answers = {int(i): int(images.labels[i]) for i in range(len(images) // 2)}
    round = config.growth.rounds(passive=config.passive)[0]
    stream = Stream(config, pixels, np.arange(len(images)), answers, round, config.algorithm.views)
    training_step(state, config.algorithm, config.optim, stream[at], age=state.step, ramp=0, rng=rng(1, "loss", 0))


def median_seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return the median seconds of some repetitions."""
    times: list[float] = []
    while sum(times) < ENOUGH and len(times) < 30:
        times.append(seconds(work, device))
    return float(np.median(times))


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Time one call, and wait for the device."""
    begin = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begin


def random_images(data: Entry, count: int) -> Images:
    """Return noise in the shape of a data set."""
    draw = rng(0, "estimate")
    pixels = draw.integers(0, 256, (count, *shape_of(data)), dtype=np.uint8)
    labels = np.arange(count, dtype=np.int64) % data.classes
    return Images(pixels, labels, tuple(str(k) for k in range(data.classes)))


def cost(run: PlannedRun, speed: Speed, data: Entry) -> RunCost:
    """Reckon steps, evaluations and queries that are still to be made, and what the run leaves on disk."""
    config, growth = run.config, run.config.growth
    evaluations = config.log.evaluations(run.end) - run.begin // config.log.every
    rounds = growth.rounds(passive=config.passive)
    queries = sum(round.begin > run.begin or (round.begin == run.begin > 0) for round in rounds[1:])
    looks = 0 if not grows(config) else Query.parse(config.query).looks
    pool = config.data.total or data.pool
    tested = config.data.validation or data.test
    images = evaluations * tested + queries * looks * pool
    states = 2 + len([step for step in growth.kept_steps(passive=config.passive) if step >= run.begin])
    logs = 600 * config.log.evaluations(run.end) + 40 * growth.budget
    return RunCost(run.steps * speed.step + images * speed.image, states * speed.state + logs)


def costs(plan: GridPlan, options: TrainingOptions) -> tuple[dict[GridCell, RunCost], dict[str, Speed]]:
    """Return what every run of the plan still costs here, and the speeds that this rests on."""
    found = speeds(plan, options)
    data = data_set(plan.grid.base["data"]["name"])
    return {run.cell: cost(run, found[kind(run.config)], data) for run in plan.runs}, found

"""What holds for every algorithm in the table; a new entry is tested the moment it is listed."""

from __future__ import annotations

import ast
import copy
import inspect
import json
from dataclasses import replace
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from mma.algorithms import ALGORITHMS, Algorithm, AnchoredMixMatch, Batch, FixMatch, Losses, MixMatch, ops
from mma.config import Optim
from mma.nets import Small, initialise
from mma.rng import rng
from mma.training.step import computing
from tests.each import each

CLASSES, SIDE = 4, 8
Shape = tuple[int, ...]  # of one example
IMAGES, ROWS = (3, SIDE, SIDE), (20,)
RAMPED = 10**9  # a step at which every ramp has come to its end

VARIANTS = {  # settings that change what an algorithm does, beside every algorithm as it is
    "mixmatch, aligned": MixMatch(align="uniform"),
    "fixmatch, with more guesses": FixMatch(threshold=0.3),
    "anchored, by the student": AnchoredMixMatch(guesser="student", align="off"),
}
EVERY = {name: kind() for name, kind in ALGORITHMS.items()} | VARIANTS
every_algorithm = each(algorithm=EVERY)
any_shape = each(shape={"images": IMAGES, "rows": ROWS})
every_semi_supervised = each(algorithm={name: algorithm for name, algorithm in EVERY.items() if algorithm.views})


class RowNet(nn.Module):
    """A small network for feature rows, with batch normalisation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(width, 16), nn.BatchNorm1d(16), nn.LeakyReLU(0.1))
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.trunk(x))


def make_student(shape: Shape = IMAGES, seed: int = 0) -> nn.Module:
    if len(shape) == 1:
        student, draw = RowNet(*shape), torch.Generator().manual_seed(seed)
        for layer in (student.trunk[0], student.head):
            nn.init.normal_(layer.weight, std=0.2, generator=draw)
            nn.init.zeros_(layer.bias)
    else:
        student = Small(filters=8).build((SIDE, SIDE, shape[0]), CLASSES)
        initialise(student, rng(seed, "init"))
    return student.train()


def make_teacher(student: nn.Module) -> nn.Module:
    """As the loop makes it: other weights, the student's own BN buffers, evaluation mode."""
    teacher = copy.deepcopy(student).requires_grad_(False).eval()
    for ours, theirs in zip(teacher.modules(), student.modules(), strict=True):
        ours._buffers = theirs._buffers
    with torch.no_grad():
        for p in teacher.parameters():
            p.mul_(0.9)
    return teacher


def make_batch(
    algorithm: Algorithm, shape: Shape = IMAGES, labeled: int = 12, unlabeled: int = 12, seed: int = 0
) -> Batch:
    """Each class is a pattern; examples and views are the pattern with noise, more of it in the strong ones."""
    views, strong = algorithm.views, algorithm.strong
    draw = torch.Generator().manual_seed(seed)
    patterns = torch.randn(CLASSES, *shape, generator=draw)
    y, hidden = torch.arange(labeled) % CLASSES, torch.arange(unlabeled) % CLASSES
    x = patterns[y] + 0.3 * torch.randn(labeled, *shape, generator=draw)
    u = patterns[hidden] + 0.3 * torch.randn(views, unlabeled, *shape, generator=draw)
    s = patterns[hidden] + 0.6 * torch.randn(strong, unlabeled, *shape, generator=draw)
    return Batch(x, y, u, s if strong else None, algorithm.memory(CLASSES))


def decided(student: nn.Module, batch: Batch, scale: float) -> nn.Module:
    """Make answers differ from image to image, the more the larger the scale."""
    with torch.no_grad(), ops.frozen_statistics(student):
        student.head.weight.mul_(scale)
        student.head.bias.copy_(-student(batch.x).mean(0))
    return student


def losses_of(algorithm: Algorithm, student: nn.Module, batch: Batch, step: int = RAMPED, seed: int = 0) -> Losses:
    return algorithm.loss(student, make_teacher(student), batch, step, rng(seed, "loss", step))


def total(losses: Losses) -> Tensor:
    return torch.stack(list(losses.terms.values())).sum()


class NoHostSync(TorchDispatchMode):
    """Fails where a value is asked for: item(), bool(), float() and masks of unknown size."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert not str(func).startswith(("aten._local_scalar_dense", "aten.is_nonzero", "aten.nonzero", "aten.equal"))
        return func(*args, **(kwargs or {}))


def counts(student: nn.Module) -> list[int]:
    return [int(m.num_batches_tracked) for m in student.modules() if hasattr(m, "num_batches_tracked")]


@every_algorithm
def test_an_algorithm_is_listed_under_its_own_name(algorithm: Algorithm):
    assert ALGORITHMS[algorithm.name] is type(algorithm)


@every_algorithm
@any_shape
@each(step=[0, 7, RAMPED])
def test_terms_are_finite_scalars_with_a_gradient_and_not_negative(algorithm: Algorithm, step: int, shape: Shape):
    losses = losses_of(algorithm, make_student(shape), make_batch(algorithm, shape), step)
    assert losses.terms
    for name, term in losses.terms.items():
        assert term.shape == (), name
        assert term.requires_grad, name
        assert torch.isfinite(term), name
        assert term >= -1e-6, name  # a divergence may round to just below zero


@every_algorithm
@any_shape
def test_every_parameter_gets_a_finite_gradient(algorithm: Algorithm, shape: Shape):
    student = make_student(shape)
    total(losses_of(algorithm, student, make_batch(algorithm, shape))).backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in student.parameters())


@every_algorithm
def test_the_loss_gathers_no_gradient_by_itself(algorithm: Algorithm):
    student = make_student()
    losses_of(algorithm, student, make_batch(algorithm))
    assert all(p.grad is None for p in student.parameters())


@every_algorithm
@any_shape
@each(precision=["float32", "bfloat16"])
def test_thirty_steps_bring_the_loss_down(algorithm: Algorithm, shape: Shape, precision: str):
    student, batch, trace = make_student(shape), make_batch(algorithm, shape, labeled=16, unlabeled=16), []
    optimizer = torch.optim.Adam(student.parameters(), lr=0.01)
    for step in range(30):
        with computing(Optim(precision=precision), torch.device("cpu")):
            loss = total(losses_of(algorithm, student, batch, seed=step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trace.append(loss.item())
    assert sum(trace[-5:]) < 0.9 * sum(trace[:5])


@every_algorithm
@any_shape
def test_the_same_generator_gives_the_same_numbers(algorithm: Algorithm, shape: Shape):
    torch.manual_seed(1)
    first = losses_of(algorithm, make_student(shape), make_batch(algorithm, shape))
    torch.manual_seed(2)  # torch's own generator must not matter
    second = losses_of(algorithm, make_student(shape), make_batch(algorithm, shape))
    assert {k: v.item() for k, v in first.terms.items()} == {k: v.item() for k, v in second.terms.items()}


@every_algorithm
def test_torchs_own_generator_is_left_alone(algorithm: Algorithm):
    student, batch = make_student(), make_batch(algorithm)
    before = torch.get_rng_state()
    losses_of(algorithm, student, batch)
    assert torch.equal(before, torch.get_rng_state())


@every_algorithm
@any_shape
def test_exactly_one_forward_moves_the_running_statistics(algorithm: Algorithm, shape: Shape):
    student = make_student(shape)
    before = student.trunk[1].running_mean.clone()
    losses_of(algorithm, student, make_batch(algorithm, shape))  # the teacher shares these buffers
    assert counts(student) == [1] * len(counts(student))
    assert not torch.equal(before, student.trunk[1].running_mean)


@every_algorithm
@any_shape
def test_networks_are_left_as_they_were(algorithm: Algorithm, shape: Shape):
    student = make_student(shape)
    teacher = make_teacher(student)
    weights = [p.clone() for net in (student, teacher) for p in net.parameters()]
    algorithm.loss(student, teacher, make_batch(algorithm, shape), RAMPED, rng(0, "loss"))
    assert all(map(torch.equal, weights, [p for net in (student, teacher) for p in net.parameters()]))
    assert all(p.grad is None for p in teacher.parameters())
    assert all(m.training for m in student.modules())
    assert not any(m.training for m in teacher.modules())
    assert all(m.track_running_stats for net in (student, teacher) for m in net.modules() if hasattr(m, "running_mean"))


@every_algorithm
@any_shape
def test_the_teacher_gets_no_gradient_even_where_it_could(algorithm: Algorithm, shape: Shape):
    student = make_student(shape)
    teacher = make_teacher(student).requires_grad_(True)
    total(algorithm.loss(student, teacher, make_batch(algorithm, shape), RAMPED, rng(0, "loss"))).backward()
    assert all(p.grad is None for p in teacher.parameters())


@every_algorithm
@each(
    sizes=[
        ((1, SIDE, SIDE), 12, 12),
        (IMAGES, 5, 11),
        (IMAGES, 11, 5),
        ((1, SIDE, SIDE), 2, 16),
        (ROWS, 5, 11),
        ((1,), 9, 4),
    ]
)
def test_any_width_and_batch_sizes(algorithm: Algorithm, sizes: tuple[Shape, int, int]):
    shape, labeled, unlabeled = sizes
    batch = make_batch(algorithm, shape, labeled, unlabeled)
    losses = losses_of(algorithm, make_student(shape), batch)
    assert torch.isfinite(total(losses))
    assert losses.guesses is None or losses.guesses.shape == (unlabeled, CLASSES)


@every_algorithm
@any_shape
def test_guesses_are_distributions_without_gradient(algorithm: Algorithm, shape: Shape):
    losses = losses_of(algorithm, make_student(shape), make_batch(algorithm, shape, unlabeled=9))
    assert algorithm.views or losses.guesses is None
    if losses.guesses is not None:
        assert losses.guesses.shape == (9, CLASSES)
        assert not losses.guesses.requires_grad
        assert (losses.guesses >= 0).all()
        torch.testing.assert_close(losses.guesses.sum(1), torch.ones(9))


@every_algorithm
@any_shape
@each(scale=[100.0, 10_000.0])
def test_extreme_logits_give_no_nan(algorithm: Algorithm, scale: float, shape: Shape):
    student = make_student(shape)
    with torch.no_grad():
        student.head.weight.mul_(scale)
    losses = losses_of(algorithm, student, make_batch(algorithm, shape))
    total(losses).backward()
    assert torch.isfinite(total(losses))
    assert all(torch.isfinite(p.grad).all() for p in student.parameters())
    assert losses.guesses is None or torch.isfinite(losses.guesses).all()


def gradients(algorithm: Algorithm, shape: Shape, precision: str, student: nn.Module | None = None) -> list[Tensor]:
    """Return the gradient of every kernel, computed in a precision as a training step does."""
    student = make_student(shape) if student is None else student
    with computing(Optim(precision=precision), torch.device("cpu")):
        total(losses_of(algorithm, student, make_batch(algorithm, shape, labeled=16, unlabeled=16))).backward()
    kernels = [p for p in student.parameters() if p.ndim >= 2]
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in kernels]


def least_cosine(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """Return how well the directions of two lists of gradients agree, at worst."""
    return min(float(F.cosine_similarity(a.flatten(), b.flatten(), dim=0)) for a, b in zip(ours, theirs, strict=True))


@every_algorithm
@any_shape
def test_gradients_of_bfloat16_point_where_those_of_float32_do(algorithm: Algorithm, shape: Shape):
    # A kernel that was cast for a guess has no gradient; if the forward to train used it again, its cosine would be 0.
    assert least_cosine(gradients(algorithm, shape, "bfloat16"), gradients(algorithm, shape, "float32")) > 0.97


@every_algorithm
def test_the_comparison_of_gradients_notices_a_kernel_without_one(algorithm: Algorithm):
    student = make_student()
    student.trunk[0].weight.requires_grad_(False)
    assert least_cosine(gradients(algorithm, IMAGES, "bfloat16", student), gradients(algorithm, IMAGES, "float32")) == 0


@every_algorithm
@any_shape
def test_in_bfloat16_losses_guesses_memory_and_statistics_are_float32(algorithm: Algorithm, shape: Shape):
    student, batch = make_student(shape), make_batch(algorithm, shape)
    with computing(Optim(precision="bfloat16"), torch.device("cpu")):
        losses = losses_of(algorithm, student, batch)
    kept = [
        *losses.terms.values(),
        *losses.memory.values(),
        student.trunk[1].running_mean,
        student.trunk[1].running_var,
    ]
    if losses.guesses is not None:
        kept.append(losses.guesses)
        torch.testing.assert_close(losses.guesses.sum(1), torch.ones(12))
    assert {tensor.dtype for tensor in kept} == {torch.float32}


@every_algorithm
@any_shape
def test_memory_is_handed_on_and_never_changed_in_place(algorithm: Algorithm, shape: Shape):
    batch = make_batch(algorithm, shape, labeled=10)  # more labels of some classes than of others
    before = {name: value.clone() for name, value in batch.memory.items()}
    memory = losses_of(algorithm, make_student(shape), batch).memory
    assert set(memory) == set(before)
    for name, value in memory.items():
        assert torch.equal(batch.memory[name], before[name]), name
        assert (value.shape, value.dtype) == (before[name].shape, before[name].dtype), name
        assert not value.requires_grad, name
        assert not torch.equal(value, before[name]), name


@every_algorithm
@any_shape
def test_what_is_remembered_counts(algorithm: Algorithm, shape: Shape):
    batch = make_batch(algorithm, shape)
    student = decided(make_student(shape), batch, 3)
    first = losses_of(algorithm, student, batch)
    skewed = {name: value * torch.linspace(0.01, 2, len(value)) for name, value in batch.memory.items()}
    second = losses_of(algorithm, student, replace(batch, memory=skewed))
    assert (total(first).item() != total(second).item()) == bool(batch.memory)


@every_semi_supervised
@any_shape
def test_every_view_counts(algorithm: Algorithm, shape: Shape):
    batch, other = make_batch(algorithm, shape), make_batch(algorithm, shape, seed=1)
    student = decided(make_student(shape), batch, 100)  # sure enough for every threshold
    expected = total(losses_of(algorithm, student, batch)).item()
    for k in range(algorithm.views):
        u = batch.u.clone()
        u[k] = other.u[k]
        assert total(losses_of(algorithm, student, replace(batch, u=u))).item() != expected, k
    for k in range(algorithm.strong):
        strong = batch.strong.clone()
        strong[k] = other.strong[k]
        assert total(losses_of(algorithm, student, replace(batch, strong=strong))).item() != expected, k


@each(name=[name for name, kind in ALGORITHMS.items() if not kind.views])
def test_without_views_unlabeled_images_are_not_looked_at(name: str):
    algorithm = ALGORITHMS[name]()
    batch, some = make_batch(algorithm), make_batch(ALGORITHMS["mixmatch"]()).u
    results = [total(losses_of(algorithm, make_student(), replace(batch, u=u))).item() for u in (batch.u, some)]
    assert results[0] == results[1]


@each(name=[name for name, kind in ALGORITHMS.items() if "ramp" in kind.model_fields])
def test_a_ramp_starts_at_zero(name: str):
    algorithm = ALGORITHMS[name]()
    batch = make_batch(algorithm)
    start = losses_of(algorithm, make_student(), batch, step=0).terms
    assert set(start) == set(losses_of(algorithm, make_student(), batch).terms)
    assert start["labeled"] > 0
    assert any(term == 0 for term in start.values())


@every_algorithm
def test_a_ramp_takes_at_most_two_fifths_of_a_run(algorithm: Algorithm):
    short = algorithm.for_length(1_200)
    assert type(short) is type(algorithm)
    if "ramp" not in type(algorithm).model_fields:
        assert short is algorithm
        return
    assert short.ramp == 480
    assert short.model_copy(update={"ramp": algorithm.ramp}) == algorithm  # nothing else changes
    assert algorithm.for_length(10**9) is algorithm  # a shorter ramp stays
    assert short.for_length(1_200) is short
    assert algorithm.for_length(1_204).ramp == 482  # the nearest whole number to 481.6


@every_algorithm
def test_settings_survive_json(algorithm: Algorithm):
    assert type(algorithm).model_validate_json(algorithm.model_dump_json()) == algorithm
    assert json.loads(algorithm.model_dump_json())["name"] == algorithm.name


@every_algorithm
def test_settings_are_frozen_and_unknown_ones_refused(algorithm: Algorithm):
    with pytest.raises(ValidationError, match="wieght"):
        type(algorithm).model_validate({"wieght": 1})
    with pytest.raises(ValidationError, match="frozen"):
        algorithm.name = "other"
    with pytest.raises(ValidationError):
        type(algorithm).model_validate({"name": "no such algorithm"})


@every_algorithm
def test_negative_settings_are_refused(algorithm: Algorithm):
    numbers = [name for name, value in algorithm if isinstance(value, int | float)]
    for name in numbers:
        with pytest.raises(ValidationError, match=name):
            type(algorithm).model_validate({name: -1})


@every_algorithm
def test_an_algorithm_imports_only_what_all_share(algorithm: Algorithm):
    tree = ast.parse(inspect.getsource(inspect.getmodule(type(algorithm))))
    imported = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):  # a module of the package counts by its own name
            imported |= {f"{node.module}.ops" if a.name == "ops" else node.module for a in node.names}
    ours = {name for name in imported if name.split(".")[0] == "mma"}
    assert ours <= {"mma.algorithms.algorithm", "mma.algorithms.ops", "mma.rng"}


@every_algorithm
@any_shape
def test_nothing_waits_for_the_device(algorithm: Algorithm, shape: Shape):
    student, batch = make_student(shape), make_batch(algorithm, shape)
    teacher = make_teacher(student)
    with NoHostSync():
        total(algorithm.loss(student, teacher, batch, RAMPED, rng(0, "loss"))).backward()


@each(module=[*map(inspect.getmodule, ALGORITHMS.values()), ops])
def test_no_source_line_brings_a_tensor_to_the_host(module: ModuleType):
    # On a CPU some of these go unnoticed by the test above.
    names = {node.attr for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Attribute)}
    assert not names & {"item", "tolist", "cpu", "numpy", "nonzero"}


def test_the_guard_notices_a_host_sync():
    with NoHostSync(), pytest.raises(AssertionError):
        torch.ones(1).item()

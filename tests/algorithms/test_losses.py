"""Each algorithm's terms against the same terms written out slowly."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mma.algorithms import VAT, Algorithm, Batch, Losses, MeanTeacher, MixMatch, PiModel, PseudoLabel, Supervised
from mma.algorithms.ops import frozen_statistics, interleave, mixup, sharpen, uninterleave
from mma.nets import Small, SmallNet, initialise
from mma.rng import rng

CLASSES = 5


@pytest.fixture
def student() -> SmallNet:
    net = Small(filters=8).build((8, 8, 1), CLASSES)
    initialise(net, rng(0, "init"))
    with torch.no_grad():
        net.head.weight.mul_(5)  # answers that differ from image to image
    return net.train()


@pytest.fixture
def teacher(student: SmallNet) -> nn.Module:
    net = copy.deepcopy(student).eval().requires_grad_(False)
    for p in net.parameters():
        p.mul_(0.8)
    return net


def make_batch(views: int, size: int = 12) -> Batch:
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(1 + views, size, 1, 8, 8, generator=draw)
    return Batch(images[0], torch.arange(size) % CLASSES, images[1:])


def probabilities(net: nn.Module, images: Tensor) -> Tensor:
    """With the statistics of the batch, remembering none of them."""
    net = copy.deepcopy(net).train()
    return net(images).softmax(1)


def run(algorithm: Algorithm, student: nn.Module, teacher: nn.Module, batch: Batch, step: int) -> Losses:
    return algorithm.loss(student, teacher, batch, step, rng(0, "loss"))


def labeled(student: nn.Module, batch: Batch) -> Tensor:
    return F.cross_entropy(copy.deepcopy(student)(batch.x), batch.y)


def squared_error(p: Tensor, q: Tensor) -> Tensor:
    return sum(((p[i] - q[i]) ** 2).sum() for i in range(len(p))) / p.numel()


def test_supervised_is_smoothed_cross_entropy(student, teacher):
    batch = make_batch(0)
    expected = torch.full((12, CLASSES), 0.1 / CLASSES)
    expected[torch.arange(12), batch.y] += 0.9
    target = -(expected * copy.deepcopy(student)(batch.x).log_softmax(1)).sum(1).mean()
    terms = run(Supervised(smoothing=0.1), student, teacher, batch, 0).terms
    assert set(terms) == {"labeled"}
    torch.testing.assert_close(terms["labeled"], target)


def test_mixmatch_step_by_step(student, teacher):
    batch, algorithm = make_batch(2), MixMatch(weight=8, ramp=100, temperature=0.25)
    q = sharpen((probabilities(student, batch.u[0]) + probabilities(student, batch.u[1])) / 2, 0.25).detach()
    targets = torch.cat([F.one_hot(batch.y, CLASSES).float(), q, q])
    images, targets = mixup(torch.cat([batch.x, batch.u[0], batch.u[1]]), targets, 0.75, rng(0, "loss"))
    net = copy.deepcopy(student)
    parts = interleave(list(images.split(12)))
    x, *u = uninterleave([net(part) for part in parts], [12] * 3)
    losses = run(algorithm, student, teacher, batch, 25)
    torch.testing.assert_close(losses.guesses, q)
    torch.testing.assert_close(losses.terms["labeled"], -(targets[:12] * x.log_softmax(1)).sum(1).mean())
    expected = 8 * 0.25 * squared_error(torch.cat(u).softmax(1), targets[12:])
    torch.testing.assert_close(losses.terms["unlabeled"], expected)


def test_mixmatch_takes_any_number_of_views(student, teacher):
    for views in (1, 3):
        losses = run(MixMatch(), student, teacher, make_batch(views), 1_000)
        assert torch.isfinite(losses.terms["unlabeled"])


def test_pi_model_compares_two_views_of_the_student(student, teacher):
    batch = make_batch(2)
    p, target = probabilities(student, batch.u[1]), probabilities(student, batch.u[0])
    cross_entropy = labeled(student, batch)
    losses = run(PiModel(weight=10, ramp=8), student, teacher, batch, 4)
    torch.testing.assert_close(losses.terms["labeled"], cross_entropy)
    torch.testing.assert_close(losses.terms["unlabeled"], 5 * squared_error(p, target))
    torch.testing.assert_close(losses.guesses, target.detach())


def test_mean_teacher_compares_the_student_with_the_teacher_on_batch_statistics(student, teacher):
    batch = make_batch(2)
    p, target = probabilities(student, batch.u[1]), probabilities(teacher, batch.u[0])
    cross_entropy = labeled(student, batch)
    losses = run(MeanTeacher(weight=10, ramp=8), student, teacher, batch, 4)
    torch.testing.assert_close(losses.terms["labeled"], cross_entropy)
    torch.testing.assert_close(losses.terms["unlabeled"], 5 * squared_error(p, target))
    assert not teacher.training


def test_pseudo_label_fits_only_the_images_it_is_sure_of(student, teacher):
    batch, p = make_batch(1), probabilities(student, make_batch(1).u[0])
    threshold = p.max(1).values.median().item()
    sure = p.max(1).values > threshold
    assert 0 < sure.sum() < 12
    expected = sum(-p[i].max().log() for i in range(12) if sure[i]) / 12
    losses = run(PseudoLabel(threshold=threshold, weight=2, ramp=0), student, teacher, batch, 0)
    torch.testing.assert_close(losses.terms["unlabeled"], 2 * expected)
    assert torch.equal(losses.guesses.argmax(1), p.argmax(1))
    assert set(losses.guesses.unique().tolist()) == {0.0, 1.0}


def test_vat_entropy_has_its_weight_from_the_first_step(student, teacher):
    batch, p = make_batch(1), probabilities(student, make_batch(1).u[0])
    losses = run(VAT(entropy=0.5), student, teacher, batch, 0)
    torch.testing.assert_close(losses.terms["entropy"], 0.5 * -(p * p.log()).sum(1).mean())
    assert losses.terms["adversarial"] == 0


def test_vat_perturbs_by_its_radius(student):
    u = make_batch(1).u[0]
    with frozen_statistics(student):
        clean = student(u).log_softmax(1).detach()
        d = VAT(radius=3)._perturbation(student, u, clean, rng(0, "vat"))
    torch.testing.assert_close(d.flatten(1).norm(dim=1), torch.full((12,), 3.0))
    assert not d.requires_grad


def test_vat_finds_a_worse_direction_than_chance(student, teacher):
    batch = make_batch(1)
    u = batch.u[0]
    p = probabilities(student, u)
    noise = torch.randn(u.shape, generator=torch.Generator().manual_seed(3))
    noise = noise / noise.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    q = probabilities(student, u + noise)
    chance = (q * (q.log() - p.log())).sum(1).mean()
    losses = run(VAT(radius=1, weight=1, ramp=0), student, teacher, batch, 0)
    assert losses.terms["adversarial"] > 1.5 * chance


def test_vat_searches_where_float32_can_see(student):
    u = make_batch(1).u[0]
    found = []
    for net, images in ((student, u), (copy.deepcopy(student).double(), u.double())):
        with frozen_statistics(net):
            start = rng(0, "vat")
            noise = torch.randn(u.shape, generator=torch.Generator().manual_seed(int(start.integers(2**63))))
            clean = net(images).log_softmax(1).detach()
            d = (1e-3 * noise / noise.flatten(1).norm(dim=1).view(-1, 1, 1, 1)).to(images).requires_grad_()
            moved = net(images + d).log_softmax(1)
            (gradient,) = torch.autograd.grad((clean.exp() * (clean - moved)).sum(1).mean(), d)
            found.append(F.normalize(gradient.flatten(1).double(), dim=1))
    assert (found[0] * found[1]).sum(1).min() > 0.99
    with frozen_statistics(student):
        ours = VAT()._perturbation(student, u, student(u).log_softmax(1).detach(), rng(0, "vat"))
    assert (F.normalize(ours.flatten(1).double(), dim=1) * found[1]).sum(1).min() > 0.99


@pytest.mark.parametrize(
    "algorithm",
    [MixMatch(ramp=0), PiModel(ramp=0), MeanTeacher(ramp=0), VAT(ramp=0), PseudoLabel(threshold=0, ramp=0)],
    ids=lambda algorithm: algorithm.name,
)
def test_half_precision_is_survived(algorithm: Algorithm, student, teacher):
    with torch.autocast("cpu", torch.bfloat16):
        losses = run(algorithm, student, teacher, make_batch(algorithm.views), 0)
    torch.stack(list(losses.terms.values())).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in student.parameters())
    torch.testing.assert_close(losses.guesses.float().sum(1), torch.ones(12))
    assert all(term.dtype == torch.float32 for term in losses.terms.values())


def vat_parts(student: nn.Module, batch: Batch, algorithm: VAT) -> tuple[Tensor, Tensor]:
    """Log probabilities of the clean and of the perturbed images, both with a gradient."""
    with frozen_statistics(student):
        clean = student(batch.u[0]).log_softmax(1)
        d = algorithm._perturbation(student, batch.u[0], clean.detach(), rng(0, "loss"))
        return clean, student(batch.u[0] + d).log_softmax(1)


def kl(a: Tensor, b: Tensor) -> Tensor:
    return (a.exp() * (a - b)).sum(1).mean()


def test_vat_measures_from_the_perturbed_prediction_to_the_clean_one(student, teacher):
    batch, algorithm = make_batch(1), VAT(weight=2, ramp=0)
    clean, perturbed = vat_parts(student, batch, algorithm)
    found = run(algorithm, student, teacher, batch, 0).terms["adversarial"]
    torch.testing.assert_close(found, 2 * kl(perturbed, clean))
    assert abs(found - 2 * kl(clean, perturbed)) > 0.01 * found


def test_vat_sends_no_gradient_into_the_clean_prediction(student, teacher):
    batch, algorithm = make_batch(1), VAT(weight=1, ramp=0)
    parameters = list(student.head.parameters())
    clean, perturbed = vat_parts(student, batch, algorithm)
    expected = torch.autograd.grad(kl(perturbed, clean.detach()), parameters, retain_graph=True)
    through_both = torch.autograd.grad(kl(perturbed, clean), parameters)
    losses = run(algorithm, student, teacher, batch, 0)
    found = torch.autograd.grad(losses.terms["adversarial"], parameters)
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(found[0], through_both[0], rtol=0.01)


@pytest.mark.parametrize("shape", [(7,), (3, 5), (1, 4, 4)])
def test_vat_perturbs_examples_of_any_shape_by_its_radius(shape):
    net = nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(shape).numel(), CLASSES))
    u = torch.randn(6, *shape, generator=torch.Generator().manual_seed(1))
    d = VAT(radius=2)._perturbation(net, u, net(u).log_softmax(1).detach(), rng(0, "vat"))
    torch.testing.assert_close(d.flatten(1).norm(dim=1), torch.full((6,), 2.0))

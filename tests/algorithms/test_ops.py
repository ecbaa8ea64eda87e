"""The operations, each against the slow way to say the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mma.algorithms import ops
from mma.rng import rng


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def small_net() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 4, 3))


# --- sharpen, ramp, one_hot


def test_sharpen_raises_and_normalises():
    p = torch.tensor([[0.5, 0.3, 0.2]])
    torch.testing.assert_close(ops.sharpen(p, 0.5), torch.tensor([[0.25, 0.09, 0.04]]) / 0.38)


def test_sharpen_at_temperature_one_changes_nothing():
    p = draw(4, 6).softmax(1)
    torch.testing.assert_close(ops.sharpen(p, 1.0), p)


@pytest.mark.parametrize("temperature", [1e-3, 0.01, 0.5, 10.0])
@pytest.mark.parametrize("p", [[1.0, 0.0, 0.0], [0.4, 0.3, 0.3], [1 / 3, 1 / 3, 1 / 3], [1 - 1e-7, 1e-7, 0.0]])
def test_sharpen_gives_distributions_at_any_temperature(p: list[float], temperature: float):
    q = ops.sharpen(torch.tensor([p]), temperature)
    assert torch.isfinite(q).all()
    torch.testing.assert_close(q.sum(1), torch.ones(1))


@pytest.mark.parametrize(
    ("step", "length", "value"), [(0, 8, 0), (2, 8, 0.25), (8, 8, 1), (99, 8, 1), (0, 0, 1), (5, 0, 1)]
)
def test_ramp_rises_linearly_and_stays(step: int, length: int, value: float):
    assert ops.ramp(step, length) == value


def test_one_hot_has_the_type_and_width_of_its_model():
    rows = ops.one_hot(torch.tensor([2, 0]), torch.zeros(7, 3, dtype=torch.float64))
    assert torch.equal(rows, torch.tensor([[0, 0, 1], [1, 0, 0]], dtype=torch.float64))


# --- mixup


@pytest.mark.parametrize("shape", [(1, 2, 2), (7,), (3, 4), (1,)])
def test_mixup_mixes_inputs_and_targets_with_the_same_lambda(shape: tuple[int, ...]):
    images, targets = draw(20, *shape), draw(20, 5).softmax(1)
    mixed, soft = ops.mixup(images, targets, 0.75, rng(0, "mixup"))
    again = rng(0, "mixup")
    share = again.beta(0.75, 0.75, size=20)
    partner = again.permutation(20)
    for i in range(20):
        weight = max(share[i], 1 - share[i])
        torch.testing.assert_close(mixed[i], weight * images[i] + (1 - weight) * images[partner[i]])
        torch.testing.assert_close(soft[i], weight * targets[i] + (1 - weight) * targets[partner[i]])


def test_mixup_keeps_each_example_the_larger_part():
    count = 500
    targets = torch.eye(count)
    _, soft = ops.mixup(torch.zeros(count, 1, 1, 1), targets, 0.75, rng(0, "mixup"))
    assert (soft.diagonal() >= 0.5).all()
    assert len(set(soft.diagonal().tolist())) > count / 2  # a lambda per example
    torch.testing.assert_close(soft.sum(0).mean(), torch.tensor(1.0))
    assert ((soft > 0).sum(0) <= 2).all()  # a permutation: nobody is the partner of two


def test_mixup_leaves_its_input_alone():
    images, targets = draw(6, 1, 2, 2), draw(6, 3)
    before = images.clone(), targets.clone()
    ops.mixup(images, targets, 0.75, rng(0, "mixup"))
    assert torch.equal(images, before[0])
    assert torch.equal(targets, before[1])


def test_mixup_at_alpha_zero_is_exactly_nothing():
    images, targets = draw(6, 1, 2, 2), draw(6, 3)
    mixed, soft = ops.mixup(images, targets, 0.0, rng(0, "mixup"))
    assert torch.equal(mixed, images)
    assert torch.equal(soft, targets)


def test_mixup_keeps_channels_last():
    images = draw(6, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    mixed, _ = ops.mixup(images, draw(6, 3), 0.75, rng(0, "mixup"))
    assert mixed.is_contiguous(memory_format=torch.channels_last)


# --- interleave


@pytest.mark.parametrize("sizes", [[3, 3, 3], [64, 64, 64], [5, 8, 8], [8, 5, 5], [1, 9, 9], [4, 4], [7], [2, 3, 4, 5]])
def test_interleaving_is_a_permutation_that_can_be_undone(sizes: list[int]):
    parts = list(torch.split(torch.arange(sum(sizes)), sizes))
    mixed = ops.interleave(parts)
    assert sorted(torch.cat(mixed).tolist()) == list(range(sum(sizes)))
    for part, back in zip(parts, ops.uninterleave(mixed, sizes), strict=True):
        assert torch.equal(part, back)


def test_the_first_interleaved_part_holds_a_slice_of_all():
    parts = [torch.full((9,), i) for i in range(3)]
    assert ops.interleave(parts)[0].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert ops.interleave(parts)[1].tolist() == [1, 1, 1, 0, 0, 0, 1, 1, 1]


def test_interleaved_forward_in_evaluation_is_the_plain_forward():
    net, images = small_net().eval(), draw(14, 1, 4, 4)
    torch.testing.assert_close(ops.interleaved_forward(net, images, [6, 4, 4]), net(images))


def test_only_the_first_interleaved_forward_moves_statistics():
    net, images = small_net(), draw(12, 1, 4, 4)
    ops.interleaved_forward(net, images, [4, 4, 4])
    assert net[1].num_batches_tracked == 1
    moved = net[1].running_mean.clone()
    net[1].reset_running_stats()
    net(ops.interleave(list(images.split(4)))[0])
    torch.testing.assert_close(net[1].running_mean, moved)


def test_interleaved_forward_takes_feature_rows():
    net, rows = nn.Linear(6, 3), draw(14, 6)
    torch.testing.assert_close(ops.interleaved_forward(net, rows, [6, 4, 4]), net(rows))


# --- running averages


def test_ema_keeps_decay_of_the_average_and_stores_no_gradient():
    average, value = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0], requires_grad=True)
    after = ops.ema(average, value, 0.9)
    torch.testing.assert_close(after, torch.tensor([0.9, 0.1]))
    assert not after.requires_grad
    assert average.tolist() == [1.0, 0.0]


# --- modes


def test_frozen_statistics_use_the_batch_and_remember_nothing():
    net, images = small_net(), draw(5, 1, 4, 4)
    expected, net = net(images), small_copy(net)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    with ops.frozen_statistics(net):
        torch.testing.assert_close(net(images), expected)
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert net[1].track_running_stats


def small_copy(net: nn.Sequential) -> nn.Sequential:
    copy = small_net()
    copy.load_state_dict(net.state_dict())
    return copy


def test_frozen_statistics_thaw_after_an_error():
    net = small_net()
    with pytest.raises(RuntimeError, match="stop"), ops.frozen_statistics(net):
        raise RuntimeError("stop")
    assert net[1].track_running_stats


def test_frozen_statistics_do_not_thaw_what_never_tracked():
    net = nn.BatchNorm2d(3, track_running_stats=False)
    with ops.frozen_statistics(net):
        pass
    assert not net.track_running_stats


def test_frozen_statistics_may_be_nested():
    net = small_net()
    with ops.frozen_statistics(net):
        with ops.frozen_statistics(net):
            pass
        assert not net[1].track_running_stats
    assert net[1].track_running_stats


def test_a_teacher_takes_the_modes_of_its_student_and_gets_its_own_back():
    student, teacher = (nn.Sequential(nn.BatchNorm1d(2), nn.Dropout()) for _ in range(2))
    student.train()
    student[0].eval()
    teacher.eval()
    teacher[1].train()
    with ops.same_modes(teacher, student):
        assert [m.training for m in teacher.modules()] == [True, False, True]
    assert [m.training for m in teacher.modules()] == [False, False, True]


def test_noise_follows_from_the_generator_alone():
    x = draw(4, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    torch.manual_seed(1)
    first = ops.noise_like(x, rng(0, "noise"))
    torch.manual_seed(2)
    assert torch.equal(first, ops.noise_like(x, rng(0, "noise")))
    assert not torch.equal(first, ops.noise_like(x, rng(1, "noise")))
    assert first.shape == x.shape
    assert abs(first.mean().item()) < 0.2
    assert np.isclose(first.std().item(), 1, atol=0.1)

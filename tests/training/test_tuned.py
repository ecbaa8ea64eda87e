"""Fine-tuning goes through the same loop: exact resume, frozen parts, learning rates by depth."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mma.config import Optim, from_json
from mma.nets import NETS, initialise
from mma.rng import rng
from mma.training import checkpoint
from mma.training.host import Host
from mma.training.job import load_read_only
from mma.training.loop import train
from mma.training.state import assemble
from mma.training.step import decay, update

ONE = Host(threads=1)
TUNED = ["net=lite0", "net.side=32", "net.frozen=6", "optim.batch=4", "query=diff2-direct", "growth.first=4"]
SHORT = [
    *TUNED,
    "data.total=60",
    "data.validation=20",
    "growth.every=2",
    "growth.final=4",
    "log.every=2",
    "log.checkpoint=3",
]


@pytest.fixture
def pair(tiny, digits, tmp_path):
    """Return a function that makes two equal runs. The settings of small runs name filters, which this network has not."""
    from mma.config import change
    from mma.training.job import new_run

    def make(*settings: str):
        config = change(tiny(), [*SHORT, *settings])
        return [new_run(config, tmp_path / name, digits) for name in ("whole", "parts")]

    return make


@pytest.mark.parametrize(("statistics", "precision"), [("batch", "bfloat16"), ("pretrained", "float32")])
def test_a_fine_tuned_run_resumes_byte_equal(pair, digits, contents, statistics, precision):
    whole, parts = pair(f"net.statistics={statistics}", f"optim.precision={precision}", "growth.refresh_final=true")
    train(whole, data=digits, on=ONE)
    for until in (2, 5, 7):
        train(parts, data=digits, on=ONE, until=until)
    train(parts, data=digits, on=ONE)
    assert whole.status() == "done"
    assert contents(parts) == contents(whole)


def test_frozen_parts_stay_as_they_came_and_are_not_stored(pair, digits):
    run, _ = pair()
    train(run, data=digits, on=ONE)
    header, arrays = checkpoint.read(run.checkpoint_path(run.checkpoint_steps()[-1]))
    stored = {name.split(".")[1] for name in arrays if "/parts." in name}
    assert stored == {"6", "7", "8"}
    assert header.frozen is not None
    net, fresh = load_read_only(run, digits).state.teacher, from_json(run.config()).net.build(digits.train.shape, 10)
    moved = {name for name, value in fresh.named_parameters() if not torch.equal(net.get_parameter(name), value)}
    trained = {name for name, value in fresh.named_parameters() if value.requires_grad}
    assert moved == trained


def test_trained_parts_are_normalised_by_their_batch_and_frozen_ones_are_not(pair, digits):
    from mma.nets.network import GroupedBatchNorm2d
    from mma.training.state import start

    config = from_json(pair("net.statistics=batch")[0].config())
    student = start(config, digits.train.shape, 10, torch.device("cpu")).student
    assert student.training
    assert all(module.training for module in student.modules() if isinstance(module, GroupedBatchNorm2d))
    before = student.parts[8][0].norm.running_mean.clone()
    student(torch.rand(4, 1, 8, 8))
    assert not torch.equal(student.parts[8][0].norm.running_mean, before)


def test_a_frozen_parameter_beside_trained_modules_leaves_them_in_training():
    class Mixed(nn.Module):
        """A frozen parameter of its own, and a part that is trained."""

        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1), requires_grad=False)
            self.norm = nn.BatchNorm1d(3)
            self.head = nn.Linear(3, 2)

    student = assemble(Mixed(), torch.device("cpu")).student
    assert not student.training
    assert student.norm.training
    assert student.head.training


def test_in_bfloat16_the_gradient_reaches_every_trained_parameter(pair, digits):
    from mma.algorithms import Batch
    from mma.training.state import start
    from mma.training.step import training_step

    config = from_json(pair("optim.precision=bfloat16", "algorithm.weight=100.0")[0].config())
    state = start(config, digits.train.shape, 10, torch.device("cpu"))
    draw = torch.Generator().manual_seed(0)
    x, u = torch.rand(4, 1, 8, 8, generator=draw), torch.rand(2, 4, 1, 8, 8, generator=draw)
    batch = Batch(x, torch.arange(4), u)
    training_step(state, config.algorithm, config.optim, batch, age=0, ramp=500, rng=rng(1, "loss"))
    assert all(part.any() for _, part in state.weights.views(state.weights.gradient))


@pytest.mark.parametrize("rule", ["adam", "muon"])
def test_a_factor_of_the_learning_rate_scales_step_and_decay_of_its_parameter(rule):
    net = NETS["small"](filters=8).build((8, 8, 1), 3)
    initialise(net, rng(1, "init"))
    plain, slow = (assemble(net_, torch.device("cpu")) for net_ in (net, rebuild(net)))
    factors = {name: 0.25 for name in slow.weights.shapes if name != "head.weight"}
    slow.rates = slow.weights.spread(factors)
    before = plain.weights.vector.clone()
    gradient = torch.from_numpy(rng(2, "gradient").standard_normal(len(before), dtype="float32"))
    optim = Optim(rule=rule, lr=0.01, kernel_lr=0.03)
    for state in (plain, slow):
        state.weights.gradient.copy_(gradient)
        update(state, optim, 1)
    compare(plain, slow, before, factors)
    for state in (plain, slow):
        state.weights.vector.copy_(before)
        decay(state, 0.1)
    compare(plain, slow, before, factors)


def rebuild(net):
    twin = NETS["small"](filters=8).build((8, 8, 1), 3)
    twin.load_state_dict(net.state_dict())
    return twin


def compare(plain, slow, before, factors) -> None:
    """Make sure that each parameter moved by its factor times what it moves otherwise."""
    whole = dict(plain.weights.views(plain.weights.vector - before))
    for name, moved in slow.weights.views(slow.weights.vector - before):
        torch.testing.assert_close(moved, whole[name] * factors.get(name, 1.0), atol=1e-6, rtol=1e-3)


def test_without_factors_nothing_is_multiplied():
    state = assemble(NETS["small"](filters=8).build((8, 8, 1), 3), torch.device("cpu"))
    assert state.weights.spread({}) is None
    assert state.rates is None

"""In which precision a run computes, what stays float32, and where it may be continued."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from mma.algorithms import Batch
from mma.config import Optim, change
from mma.features import native_precision
from mma.nets import NETS, initialise
from mma.presets import preset
from mma.query import Query
from mma.rng import rng
from mma.training import checkpoint
from mma.training.ask import DatasetLabels, suggest
from mma.training.host import Host
from mma.training.job import evaluate
from mma.training.loop import train
from mma.training.predict import candidates, probabilities
from mma.training.state import start
from mma.training.step import computing, has_bfloat16, resolve, training_step
from mma.views import PixelViews, pixel_views

CPU = torch.device("cpu")
IMAGES = [name for name, kind in NETS.items() if kind.takes == "images"]
BFLOAT16 = Optim(precision="bfloat16")


@pytest.fixture
def processor(monkeypatch):
    """Say what the processor has: processor("float32") is one without bfloat16."""
    return lambda has: monkeypatch.setattr("mma.training.step.native_precision", lambda: has)


def go(run, data, *, until=None, inexact=False):
    train(run, DatasetLabels(data.train), on=Host(threads=1), data=data, until=until, inexact=inexact)


def host(run):
    return json.loads((run.folder / "host.json").read_text())


@pytest.mark.parametrize("has", ["float32", "bfloat16"])
def test_auto_is_what_the_processor_has_and_gives_the_same_numbers(new_run, digits, processor, has):
    processor(has)
    auto, same = new_run("auto", "optim.precision=auto"), new_run("same", f"optim.precision={has}")
    go(auto, digits)
    go(same, digits)
    assert host(auto)["precision"] == has
    for log in ("metrics", "queries", "labels"):
        assert auto.read(log) == same.read(log)


def test_bfloat16_gives_other_numbers_than_float32(new_run, digits):
    runs = [new_run(precision, f"optim.precision={precision}") for precision in ("float32", "bfloat16")]
    for run in runs:
        go(run, digits)
    assert runs[0].read("metrics")[0]["loss"] != runs[1].read("metrics")[0]["loss"]


@pytest.mark.parametrize(("begun", "resumed"), [("bfloat16", "float32"), ("float32", "bfloat16")])
def test_auto_that_would_be_another_precision_here_is_refused_unless_asked_for(
    new_run, digits, processor, begun, resumed, refusal
):
    processor(begun)
    run = new_run("r", "optim.precision=auto")
    go(run, digits, until=5)
    processor(resumed)
    with refusal():
        go(run, digits)
    go(run, digits, inexact=True)
    assert run.status() == "done"
    assert host(run)["precision"] == resumed


def test_bfloat16_that_would_be_emulated_here_is_refused_unless_asked_for(new_run, digits, processor, refusal):
    processor("bfloat16")
    run = new_run("r", "optim.precision=bfloat16")
    go(run, digits, until=5)
    processor("float32")
    with refusal():
        go(run, digits)
    go(run, digits, inexact=True)
    assert run.status() == "done"


def test_float32_goes_on_wherever_there_is_bfloat16_or_not(new_run, digits, processor):
    processor("bfloat16")
    run = new_run("r")
    go(run, digits, until=5)
    processor("float32")
    go(run, digits)
    assert run.status() == "done"


def test_a_processor_may_be_told_to_do_without(monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert native_precision() == "float32"
    assert not has_bfloat16(CPU)
    assert resolve(Optim(precision="auto"), CPU) == "float32"


def test_a_gpu_is_asked_itself(monkeypatch):
    for has in (True, False):
        monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation, has=has: has)
        assert has_bfloat16(torch.device("cuda")) == has


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "cifar100-grow100", "svhn", "svhn-extra"])
def test_presets_of_the_paper_stay_float32(name):
    assert preset(name).optim.precision == "float32"


@pytest.mark.parametrize("rule", ["adam", "muon"])
def test_everything_that_is_trained_and_stored_is_float32(rule):
    config = change(preset("digits"), ["optim.precision=bfloat16", f"optim.rule={rule}"])
    state = start(config, (8, 8, 1), 10, CPU)
    draw = torch.Generator().manual_seed(0)
    x, u = torch.rand(8, 1, 8, 8, generator=draw), torch.rand(2, 8, 1, 8, 8, generator=draw)
    training_step(
        state, config.algorithm, config.optim, Batch(x, torch.arange(8), u), age=0, ramp=9, rng=rng(1, "loss")
    )
    kept = [state.weights.vector, state.weights.gradient, state.average.vector, state.moment1, state.moment2]
    kept += [*state.sums.values(), *(buffer for _, buffer in state.buffers() if buffer.is_floating_point())]
    assert {tensor.dtype for tensor in kept} == {torch.float32}
    assert b"BF16" not in checkpoint.encode(state, checkpoint.Identity("c", "d"))


@pytest.mark.parametrize("name", IMAGES)
def test_embeddings_and_logits_of_every_network_are_float32(name):
    net = NETS[name]().build((16, 16, 3), 10)
    initialise(net, rng(1, "init"))
    x = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), computing(BFLOAT16, CPU):
        embedded, logits = net.eval().features(x), net(x)
    assert embedded.dtype == logits.dtype == torch.float32
    assert not torch.equal(logits, logits.bfloat16().float())  # nor were they rounded on the way


def scored(digits, precision, query="diff2.aug-kmeans"):
    net = NETS["small"](filters=16).build((8, 8, 1), 10)
    initialise(net, rng(1, "init"))
    views = pixel_views(digits.train, CPU, PixelViews(shift=1, mirror=False), 100)
    with computing(Optim(precision=precision), CPU):
        return candidates(net.eval(), views, np.arange(300), Query.parse(query), 1, 1)


@pytest.mark.parametrize("query", ["diff2.aug-kmeans", "max-infoD", "entropy.aug-direct"])
def test_scores_in_bfloat16_are_float32_and_close(digits, query):
    exact, half = scored(digits, "float32", query), scored(digits, "bfloat16", query)
    assert half.probs.dtype == np.float32
    assert 0 < np.abs(half.probs - exact.probs).max() < 0.02
    if half.features is not None:
        assert half.features.dtype == np.float32
        np.testing.assert_allclose(half.features, exact.features, atol=0.05)


def test_scores_in_bfloat16_are_not_rounded_to_ties(digits):
    probs = scored(digits, "bfloat16").probs
    distinct = len(np.unique(digits.train.pixels[:300].reshape(300, -1), axis=0))
    assert len(np.unique(probs[:, 0])) >= distinct - 3


def test_a_network_of_ones_own_may_answer_in_bfloat16(digits):
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)).eval()
    views = pixel_views(digits.train, CPU, PixelViews(shift=1, mirror=False), 100)
    with computing(BFLOAT16, CPU):
        assert net(views.plain(np.arange(2))).dtype == torch.bfloat16
        found = probabilities(net, views, np.arange(50))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.sum(1), 1.0, atol=1e-6)


def test_embeddings_of_ones_own_network_may_be_bfloat16(digits):
    net = torch.nn.Module()
    body, net.head = torch.nn.Linear(64, 8), torch.nn.Linear(8, 10)
    net.features = lambda x: body(x.flatten(1))
    views = pixel_views(digits.train, CPU, PixelViews(shift=1, mirror=False), 100)
    with computing(BFLOAT16, CPU):
        found = candidates(net, views, np.arange(50), Query.parse("max-kmeans"), 1, 1)
    assert found.features.dtype == found.probs.dtype == np.float32


def test_a_finished_run_is_tested_in_its_own_precision(new_run, digits, monkeypatch):
    monkeypatch.setattr("mma.training.job.load_data", lambda name: digits)
    run = new_run("r", "optim.precision=bfloat16")
    go(run, digits)
    assert evaluate(run)["accuracy"] == run.read("metrics")[-1]["accuracy"]
    seen = []
    real = torch.Tensor.softmax
    monkeypatch.setattr(
        torch.Tensor, "softmax", lambda x, *a, **k: seen.append(torch.is_autocast_enabled("cpu")) or real(x, *a, **k)
    )
    evaluate(run)
    suggest(run, 3)
    assert seen
    assert all(seen)

"""How many threads a new run takes by itself."""

from __future__ import annotations

import json

import pytest
import torch

from mma.config import Optim
from mma.nets import NETS
from mma.training.ask import DatasetLabels
from mma.training.host import Host, cores, suitable_threads, training_threads
from mma.training.loop import train


@pytest.mark.parametrize(
    ("name", "shape", "filters", "expected"),
    [("small", (8, 8, 1), 32, 1), ("small", (28, 28, 1), 16, 1), ("wrn", (32, 32, 3), 16, cores())],
)
def test_small_networks_take_one_thread_and_large_ones_all(name, shape, filters, expected):
    net = NETS[name](filters=filters).build((shape[0], shape[0], shape[2]), 10)
    assert suitable_threads(net, torch.zeros(1, shape[2], *shape[:2]), 64 if name == "wrn" else 32) == expected


@pytest.mark.parametrize(("precision", "expected"), [("float32", cores()), ("bfloat16", 1)])
def test_a_network_that_bfloat16_makes_small_takes_one_thread_in_it(precision, expected):
    net = NETS["fast"](filters=16).build((32, 32, 3), 10)
    assert suitable_threads(net, torch.zeros(1, 3, 32, 32), 32, precision) == expected


@pytest.mark.parametrize("has", ["float32", "bfloat16"])
def test_threads_follow_from_the_precision_that_auto_has_here(monkeypatch, has):
    monkeypatch.setattr("mma.training.step.native_precision", lambda: has)
    net, before, inside = NETS["fast"](filters=16).build((32, 32, 3), 10), torch.get_num_threads(), []
    with training_threads(net, torch.zeros(1, 3, 32, 32), Optim(batch=32, precision="auto")):
        inside.append(torch.get_num_threads())
    assert inside == [1 if has == "bfloat16" else cores()]
    assert torch.get_num_threads() == before


def test_cores_that_a_scheduler_keeps_back_are_not_ours(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 3, 5}, raising=False)
    assert cores() == 3
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert cores() == 1


def test_a_new_run_writes_down_its_threads_and_goes_on_with_them(new_run, digits):
    run = new_run("r")
    before = torch.get_num_threads()
    try:
        train(run, DatasetLabels(digits.train), data=digits, until=4)
        assert json.loads((run.folder / "host.json").read_text())["threads"] == 1
        other = new_run("s")
        train(other, DatasetLabels(digits.train), data=digits, until=4, on=Host(threads=2))
        train(other, DatasetLabels(digits.train), data=digits, until=8)
        assert json.loads((other.folder / "host.json").read_text())["threads"] == 2
    finally:
        torch.set_num_threads(before)

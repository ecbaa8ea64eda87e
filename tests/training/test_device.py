"""Which device is taken, as a table; nothing here needs a GPU."""

import pytest
import torch

import mma
from mma.errors import UserError
from mma.training.host import Host, check, choose_device, fill_in

TINY = [
    "growth.start=10",
    "growth.add=5",
    "growth.budget=20",
    "growth.first=4",
    "growth.every=4",
    "growth.final=4",
    "log.every=4",
    "optim.batch=4",
]


@pytest.mark.parametrize(
    ("asked", "gpus", "apple", "taken"),
    [
        (None, 0, False, "cpu"),
        ("auto", 0, False, "cpu"),
        ("auto", 2, False, "cuda"),
        ("auto", 2, True, "cuda"),
        ("auto", 0, True, "mps"),
        ("cpu", 2, True, "cpu"),
        ("cuda", 1, True, "cuda"),
        ("cuda:1", 2, False, "cuda:1"),
        ("mps", 2, True, "mps"),
    ],
)
def test_the_device_that_is_taken(asked, gpus, apple, taken):
    device, why = choose_device(asked, gpus, apple)
    assert device == taken
    assert why


@pytest.mark.parametrize(
    ("asked", "gpus", "apple", "says"),
    [
        ("cuda", 0, True, "sees no GPU"),
        ("cuda:2", 2, False, "counts them from 0"),
        ("mps", 1, False, "no GPU of Apple's"),
        ("tpu", 1, True, "no such device"),
        ("cuda:x", 1, True, "no such device"),
        ("mps:0", 1, True, "no such device"),
    ],
)
def test_a_device_that_is_not_there_is_refused_in_a_sentence(asked, gpus, apple, says):
    with pytest.raises(UserError) as refused:
        choose_device(asked, gpus, apple)
    assert says in str(refused.value)


def test_a_new_run_says_which_device_it_took_and_why_and_writes_it_down(tmp_path):
    said = []

    class Listening(mma.run.Watch):
        def say(self, message):
            said.append(message)

    run = mma.new_run(mma.change(mma.preset("digits"), TINY), str(tmp_path / "run"))
    mma.train(run, until=2, watch=Listening(), on=Host("auto"))
    device, why = choose_device("auto")
    assert f"device {device}: {why}" in said[0]
    assert run.host()["device"] == device
    said.clear()
    mma.train(run, until=4, watch=Listening(), on=Host("auto"))
    assert not said  # it goes on where it was, and has nothing new to say


def test_auto_goes_on_where_a_run_was(tmp_path):
    run = mma.new_run(mma.change(mma.preset("digits"), TINY), tmp_path / "run")
    run.write_host({"device": "cpu"})
    assert fill_in(run, Host("auto")).device == "cpu"
    run.write_host({"device": "cuda"})
    if not torch.cuda.is_available():
        with pytest.raises(UserError) as refused:
            fill_in(run, Host())
        assert "sees no GPU" in str(refused.value)


def test_a_run_on_apples_gpu_does_not_go_on_as_if_that_were_exact(tmp_path):
    run = mma.new_run(mma.change(mma.preset("digits"), TINY), tmp_path / "run")
    mma.train(run, until=2)
    then = {**run.host(), "device": "mps"}
    run.write_host(then)
    with pytest.raises(UserError) as refused:
        check(run, then, inexact=False)
    assert "--inexact" in str(refused.value)
    check(run, then, inexact=True)

"""What is evaluated, queried and handed out is the teacher: the average of the weights, not the student."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mma.config import from_json
from mma.model import load
from mma.query import Query
from mma.rng import rng
from mma.run import Run
from mma.training.ask import score_candidates, suggest
from mma.training.host import Host
from mma.training.job import evaluate, load_read_only
from mma.training.loop import train
from mma.training.predict import candidates, probabilities
from mma.training.state import refresh, start

ONE = Host(threads=1)


@pytest.fixture
def run(new_run, digits) -> Run:
    """A run whose teacher is far from its student: it forgets slowly, and the student moves fast."""
    made = new_run("a", "optim.ema_decay=0.99", "optim.lr=0.05")
    train(made, data=digits, on=ONE)
    return made


def answers(net, job) -> np.ndarray:
    return probabilities(net, job.test, np.arange(len(job.data.test)))


def test_the_accuracy_of_a_run_is_that_of_its_teacher(run, digits):
    job = load_read_only(run, digits)
    truth = digits.test.labels
    teacher, student = (answers(net.eval(), job).argmax(1) for net in (job.state.teacher, job.state.student))
    assert (teacher != student).any()
    right = 100 * (teacher == truth).mean()
    assert right != 100 * (student == truth).mean()
    assert run.accuracy() == pytest.approx(right)
    assert evaluate(run)["accuracy"] == pytest.approx(right)
    assert run.summary()["accuracy"] == run.accuracy()


def test_queries_look_at_the_teacher(run, digits):
    job, query = load_read_only(run, digits), Query.parse("diff2-kmeans")
    found, _ = score_candidates(job, job.pool, query, 3)
    teacher, student = (
        candidates(net.eval(), job.views, job.pool, query, 1, 3) for net in (job.state.teacher, job.state.student)
    )
    np.testing.assert_array_equal(found.probs, teacher.probs)
    np.testing.assert_array_equal(found.features, teacher.features)
    assert not np.allclose(found.probs, student.probs)


def test_predictions_are_those_of_the_teacher(run, digits):
    job = load_read_only(run, digits)
    found = load(run).predict(digits.test.pixels)
    np.testing.assert_allclose(found.probs, answers(job.state.teacher, job), atol=1e-5)


def test_suggestions_are_unlabeled_and_named_by_their_key(run, digits):
    picks = suggest(run, 7, "max-direct")
    assert len({pick["index"] for pick in picks}) == 7
    assert not {pick["index"] for pick in picks} & set(run.answers())
    assert all(pick["key"] == digits.train.key(pick["index"]) for pick in picks)
    assert [pick["score"] for pick in picks] == sorted((pick["score"] for pick in picks), reverse=True)


def test_the_median_is_no_mean(new_run):
    run = new_run("m", "log.last=3")
    row = {"round": 2, "labels": 20, "loss": {}}
    run.append("metrics", [{**row, "step": step, "accuracy": a} for step, a in ((28, 10.0), (32, 90.0), (36, 95.0))])
    assert run.median_accuracy() == (90.0, 3)
    assert run.accuracy() is None  # nothing is stored that could be handed out
    run.store(32, lambda: b"")
    assert run.accuracy() == 90.0
    run.store(36, lambda: b"")
    assert run.accuracy() == 95.0


@pytest.mark.parametrize("shrink", [0.0, 0.5])
def test_a_refresh_forgets_moments_teacher_and_memory(tiny, digits, shrink):
    config = tiny("algorithm=freematch", f"growth.shrink={shrink}")
    state = start(config, digits.train.shape, 10, torch.device("cpu"))
    for vector in (state.weights.vector, state.average.vector, state.moment1, state.moment2):
        vector.fill_(7.0)
    state.memory = {name: torch.full_like(value, 7.0) for name, value in state.memory.items()}
    refresh(state, config, 3)
    assert not state.moment1.any()
    assert not state.moment2.any()
    assert torch.equal(state.average.vector, state.weights.vector)
    assert all(torch.equal(state.memory[name], value) for name, value in state.blank.items())
    fresh = start(config, digits.train.shape, 10, torch.device("cpu"))
    config.net.reset(fresh.student, rng(config.seed, "refresh", 3))
    expected = torch.lerp(fresh.weights.vector, torch.full_like(fresh.weights.vector, 7.0), shrink)
    torch.testing.assert_close(state.weights.vector, expected)


def test_a_class_name_with_escape_codes_is_shown_harmlessly():
    from mma.training.loop import warnings

    name = "red\x1b[31m\nalert"
    (missing,) = warnings((name, "b"), {0: 1}, None)
    assert "\x1b" not in missing
    assert "\n" not in missing
    assert "red\\x1b[31m\\nalert" in missing
    collapsed = warnings((name, "b"), {0: 0, 1: 1}, np.array([0.99, 0.01]))
    assert "\x1b" not in collapsed[0]


def test_a_run_keeps_its_config(run, tiny):
    assert from_json(run.config()) == tiny("optim.ema_decay=0.99", "optim.lr=0.05")

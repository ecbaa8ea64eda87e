"""A run that starts with the labels of another one: nobody is asked twice."""

from __future__ import annotations

import pytest

from mma.config import change, config_of
from mma.presets import preset
from mma.run import Run
from mma.training.host import Host
from mma.training.job import choose_deep_preset, logs_from_run
from mma.training.job import new_run as begin
from mma.training.loop import train

ONE = Host(threads=1)


class Nobody:
    """An oracle that must not be asked."""

    def ask(self, indices, round):
        raise AssertionError(f"asked for {len(indices)} labels")


@pytest.fixture
def source(new_run, digits) -> Run:
    run = new_run("source")
    train(run, data=digits, on=ONE)
    return run


def test_the_labels_of_another_run_are_taken_over_in_their_order(source, digits, tiny, tmp_path):
    run = begin(tiny(), tmp_path / "new", digits, labels_from=source)
    train(run, Nobody(), data=digits, on=ONE)
    assert run.status() == "done"
    assert run.answers() == source.answers()
    assert [row["strategy"] for row in run.read("queries")] == ["given"]
    assert config_of(run).growth.start == 20


def test_a_larger_budget_asks_for_the_rest_only(source, digits, tiny, tmp_path):
    run = begin(tiny("growth.budget=26"), tmp_path / "new", digits, labels_from=source)
    train(run, data=digits, on=ONE)
    assert len(run.answers()) == 26
    assert list(run.answers())[:20] == list(source.answers())


def test_it_resumes_byte_equal(source, digits, tiny, tmp_path, contents):
    whole, parts = (begin(tiny(), tmp_path / name, digits, labels_from=source) for name in ("whole", "parts"))
    train(whole, data=digits, on=ONE)
    train(parts, data=digits, on=ONE, until=7)
    train(parts, data=digits, on=ONE)
    assert contents(parts) == contents(whole)


def test_images_are_found_again_by_their_keys(source, digits):
    shuffled = digits.train.take(range(len(digits.train))[::-1])
    rows = logs_from_run(source, shuffled)["labels"]
    assert [row["label"] for row in rows] == list(source.answers().values())
    assert [shuffled.labels[row["index"]] for row in rows] == [row["label"] for row in rows]


def test_images_that_are_not_there_are_refused_before_anything_is_made(source, digits, tiny, tmp_path, refusal):
    from dataclasses import replace

    fewer = replace(digits, train=digits.train.take([i for i in range(1_000) if i not in source.answers()]))
    with refusal():
        begin(tiny(), tmp_path / "new", fewer, labels_from=source)
    assert not (tmp_path / "new").exists()


def test_a_class_is_found_by_its_name_and_another_one_refused(source, digits, refusal):
    from dataclasses import replace

    names = digits.train.classes
    turned = replace(digits.train, classes=names[::-1], labels=9 - digits.train.labels)
    rows = logs_from_run(source, turned)["labels"]
    assert [row["label"] for row in rows] == [9 - label for label in source.answers().values()]
    other = replace(digits.train, classes=tuple(f"class {name}" for name in names))
    with refusal():
        logs_from_run(source, other)


def test_a_run_without_labels_gives_none(new_run, digits, tiny, tmp_path, refusal):
    with refusal():
        begin(tiny(), tmp_path / "new", digits, labels_from=new_run("empty"))
    assert not (tmp_path / "new").exists()


def test_a_fine_tuned_network_starts_there_too(source, digits, tmp_path):
    settings = ["data.name=digits", "net.side=32", "net.frozen=7", "optim.batch=4", "views.shift=1"]
    run = begin(change(preset("photos-deep"), settings), tmp_path / "new", digits, labels_from=source)
    train(run, Nobody(), data=digits, on=ONE, until=2)
    assert run.answers() == source.answers()


@pytest.mark.parametrize(
    ("backbone", "accuracies", "chosen", "why"),
    [
        ("lite0+hog", {"0": 60.0, "1": 82.0, "all": 80.0}, "photos-scratch", "lite0 reaches 60.0 % and hog 82.0 %"),
        ("lite0+hog", {"0": 84.0, "1": 44.0, "all": 83.0}, "photos-deep", "lite0 reaches 84.0 % and hog 44.0 %"),
        ("hog@32+lite0@96", {"0": 70.0, "1": 70.0, "all": 71.0}, "photos-deep", "the network is fine-tuned"),
        ("lite0+mobilenetv2", {"0": 60.0, "1": 82.0, "all": 80.0}, "photos-deep", "has not compared"),
        ("lite0+hog", {}, "photos-deep", "has not compared"),
    ],
)
def test_labels_say_whether_to_fine_tune_or_to_begin_from_scratch(tmp_path, backbone, accuracies, chosen, why):
    config = change(preset("photos"), [f"views.backbone={backbone}"])
    run = Run.create(tmp_path / "run", config.model_dump(mode="json"))
    old = {"0": 99.0, "1": 1.0, "all": 50.0}
    row = {"round": 0, "step": 0, "used": [], "parts": [0]}
    run.append("starts", [{**row, "accuracies": old if accuracies else {}}, {**row, "accuracies": accuracies}])
    assert choose_deep_preset(run)[0] == chosen
    assert why in choose_deep_preset(run)[1]


def test_a_run_on_pixels_says_nothing_about_it(source):
    assert choose_deep_preset(source)[0] == "photos-deep"

"""Training from a folder: growing, stopping, going on exactly, and stopping clearly when that cannot be exact."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from mma.algorithms import ALGORITHMS
from mma.config import from_json
from mma.nets import NETS, winograd
from mma.run import Run, Watch
from mma.training.ask import DECLINED, DatasetLabels
from mma.training.checkpoint import Identity
from mma.training.host import Host, check, describe
from mma.training.loop import train

ONE = Host(threads=1)


def go(run, data, **options):
    train(run, DatasetLabels(data.train), on=ONE, data=data, **options)


def test_a_run_grows_to_its_budget_and_is_done(new_run, digits):
    run = new_run("a")
    assert run.status() == "new"
    go(run, digits)
    assert run.status() == "done"
    assert [row["labels"] for row in run.read("metrics")] == [10] * 3 + [15] * 2 + [20] * 4
    assert [len(row["indices"]) for row in run.read("queries")] == [10, 5, 5]
    labels = run.read("labels")
    assert len({row["index"] for row in labels}) == 20
    assert all(row["label"] == digits.train.labels[row["index"]] for row in labels)


def test_a_row_of_the_metrics_says_everything(new_run, digits):
    run = new_run("a")
    go(run, digits)
    row = run.read("metrics")[-1]
    assert set(row) == {"step", "round", "labels", "accuracy", "loss", "guesses", "warnings"}
    assert set(row["loss"]) == {"labeled", "unlabeled"}
    assert sum(row["guesses"]) == pytest.approx(1, abs=1e-5)
    assert 0 <= row["accuracy"] <= 100


@pytest.mark.parametrize("until", [1, 7, 12, 13, 20, 35])
def test_a_run_stopped_and_continued_ends_byte_equal(new_run, digits, contents, until):
    whole, parts = new_run("whole"), new_run("parts")
    go(whole, digits)
    go(parts, digits, until=until)
    assert parts.checkpoint_steps()[-1] == until
    assert parts.status() == "training"
    go(parts, digits)
    assert contents(parts) == contents(whole)


def test_a_run_stopped_at_every_step_ends_byte_equal(new_run, digits, contents):
    whole, parts = new_run("whole", "algorithm=vat"), new_run("parts", "algorithm=vat")
    go(whole, digits)
    for step in range(1, 37):
        go(parts, digits, until=step)
    assert contents(parts) == contents(whole)


@pytest.mark.parametrize(
    "settings",
    [
        ["algorithm=freematch"],
        ["algorithm=fixmatch", "algorithm.threshold=0.3", "optim.unlabeled_ratio=2"],
        ["algorithm.align=uniform", "growth.refresh_every=1"],
        ["net=fast", "net.filters=8", "optim.decay=linear", "optim.warmup=7", "growth.refresh_every=1"],
        ["net=fast", "net.filters=8", "net.stem=cosines", "net.mirrored=true", "views.mirror=true"],
        ["optim.rule=muon", "optim.warmup=7", "optim.decay=linear"],
        ["views.strong_labels=0.5"],
    ],
    ids=lambda settings: settings[0],
)
def test_what_an_algorithm_remembers_and_how_a_run_is_paced_resume_exactly(new_run, digits, contents, settings):
    whole, parts = new_run("whole", *settings), new_run("parts", *settings)
    go(whole, digits)
    for step in (3, 12, 13, 19, 20, 21, 30):
        go(parts, digits, until=step)
    go(parts, digits)
    assert contents(parts) == contents(whole)


def test_a_run_whose_images_grow_resumes_exactly(new_run, digits, contents):
    from mma.data import DataSet, Images

    def doubled(images):
        return Images(images.pixels.repeat(2, axis=1).repeat(2, axis=2), images.labels, images.classes)

    large = DataSet("large", doubled(digits.train), doubled(digits.test))
    settings = ["algorithm=freematch", "views.small_side=9", "views.small_share=0.6", "optim.decay=linear"]
    whole, parts, full = new_run("whole", *settings), new_run("parts", *settings), new_run("full", *settings[:1])
    go(whole, large)
    for step in (3, 12, 21, 22, 30):  # the images grow after step 21
        go(parts, large, until=step)
    go(parts, large)
    assert contents(parts) == contents(whole)
    go(full, large)
    assert full.read("metrics")[0]["loss"] != whole.read("metrics")[0]["loss"]


def test_a_refresh_forgets_what_the_algorithm_remembers(new_run, digits):
    """At decay 0.99 one step after a refresh the averages are next to those of a first step."""
    from mma.training.checkpoint import read

    run = new_run("r", "algorithm=freematch", "growth.refresh_final=true", "log.checkpoint=1")
    go(run, digits, until=21)  # the last round begins at step 20
    _, arrays = read(run.checkpoint_path(21))
    fresh = new_run("fresh", "algorithm=freematch")
    go(fresh, digits, until=20)
    _, kept = read(fresh.checkpoint_path(20))
    assert abs(arrays["memory/confidence"] - 0.1) < 0.01
    assert abs(kept["memory/confidence"] - 0.1) > 0.01


def test_a_checkpoint_of_an_algorithm_that_remembers_nothing_holds_no_memory(new_run, digits):
    from mma.training.checkpoint import read

    run = new_run("a")
    go(run, digits, until=3)
    _, arrays = read(run.checkpoint_path(3))
    assert not [name for name in arrays if name.startswith("memory/")]


def test_a_watcher_that_asks_to_stop_gets_a_stored_state(new_run, digits, contents):
    class Impatient(Watch):
        def stepped(self, step, labels):
            self.stop = step >= 9

    whole, parts = new_run("whole"), new_run("parts")
    go(whole, digits)
    go(parts, digits, watch=Impatient())
    assert parts.checkpoint_steps()[-1] == 9
    go(parts, digits)
    assert contents(parts) == contents(whole)


def test_training_a_finished_run_changes_nothing(new_run, digits, contents):
    run = new_run("a")
    go(run, digits)
    before = contents(run)
    go(run, digits)
    assert contents(run) == before


def test_a_network_wide_enough_for_winograd_resumes_exactly(new_run, digits, contents, monkeypatch):
    used = []
    convolve = winograd.convolve
    monkeypatch.setattr("mma.nets.wrn.winograd.convolve", lambda *given: used.append(1) or convolve(*given))
    whole, parts = new_run("whole", "net.filters=32"), new_run("parts", "net.filters=32")
    go(whole, digits)
    for step in (5, 22):
        go(parts, digits, until=step)
    go(parts, digits)
    assert used
    assert contents(parts) == contents(whole)


def test_settings_against_lock_in_resume_exactly_too(new_run, digits, contents):
    settings = ("growth.ramp_again=true", "growth.refresh_every=1", "growth.shrink=0.4", "growth.start_set=coverage")
    whole, parts = new_run("whole", *settings), new_run("parts", *settings)
    go(whole, digits)
    for step in (3, 12, 13, 19, 20, 21, 30):
        go(parts, digits, until=step)
    go(parts, digits)
    assert contents(parts) == contents(whole)


def test_a_refresh_forgets_and_shrink_one_keeps(new_run, digits):
    runs = [new_run(f"s{shrink}", "growth.refresh_final=true", f"growth.shrink={shrink}") for shrink in (0.0, 1.0)]
    for run in runs:
        go(run, digits)
    losses = [run.read("metrics")[5]["loss"]["labeled"] for run in runs]  # the first row after the refresh
    assert losses[0] > losses[1]


def test_ramp_again_lowers_the_unlabeled_term_after_growth(new_run, digits):
    plain, again = new_run("plain"), new_run("again", "growth.ramp_again=true")
    for run in (plain, again):
        go(run, digits)
    unlabeled = [run.read("metrics")[3]["loss"]["unlabeled"] for run in (plain, again)]
    assert unlabeled[1] < unlabeled[0] / 2


def test_a_passive_run_draws_all_at_once_and_trains_as_long(new_run, digits):
    run = new_run("p", "growth.policy=passive")
    go(run, digits)
    assert [len(row["indices"]) for row in run.read("queries")] == [20]
    assert run.checkpoint_steps()[-1] == 36


def test_runs_of_one_seed_share_start_set_and_first_losses_across_queries(new_run, digits):
    runs = [new_run(name, f"query={name}") for name in ("random", "diff2.aug-kmeans", "max-infoD")]
    for run in runs:
        go(run, digits)
    assert len({str(run.read("queries")[0]["indices"]) for run in runs}) == 1
    assert len({str(run.read("metrics")[:3]) for run in runs}) == 1
    assert len({str(run.read("queries")[1]["indices"]) for run in runs}) == 3


def test_random_growth_ends_with_the_labels_of_the_passive_draw_of_the_same_seed(new_run, digits):
    runs = [new_run("random", "query=random"), new_run("passive", "growth.policy=passive")]
    for run in runs:
        go(run, digits)
    grown, drawn = (list(run.answers()) for run in runs)
    assert grown == drawn


class Slow:
    """People: they answer two at a time and decline some."""

    def __init__(self, labels, declines=()):
        self.labels, self.declines = labels, set(declines)

    def ask(self, indices, round):
        return {i: DECLINED if i in self.declines else int(self.labels[i]) for i in reversed(indices[:2])}


def test_an_oracle_that_answers_late_and_in_part_gives_the_same_run(new_run, digits, contents):
    whole, late = new_run("whole"), new_run("late")
    go(whole, digits)
    oracle, calls = Slow(digits.train.labels), 0
    while late.status() != "done":
        train(late, oracle, on=ONE, data=digits)
        calls += 1
        assert calls < 20
        if late.status() == "waiting":
            assert late.unanswered()
    assert calls > 5
    assert contents(late) == contents(whole)


def test_declined_images_are_replaced_and_stay_unlabeled(new_run, digits):
    run = new_run("d")
    go(run, digits, until=1)
    refused = run.read("queries")[0]["indices"][:3]
    again = new_run("e")
    while again.status() != "done":
        train(again, Slow(digits.train.labels, refused), on=ONE, data=digits)
    answers = again.answers()
    assert [answers[i] for i in refused] == [DECLINED] * 3
    assert sum(label >= 0 for label in answers.values()) == 20
    assert again.read("metrics")[-1]["labels"] == 20


def test_partly_labeled_data_is_asked_only_where_the_label_is_known(new_run, digits):
    from mma.data import DataSet, Images

    labels = digits.train.labels.copy()
    labels[18:] = -1
    partly = DataSet("partly", Images(digits.train.pixels, labels, digits.train.classes), digits.test)
    said = []

    class Listening(Watch):
        def warn(self, message):
            said.append(message)

    run = new_run("partly")
    go(run, partly, watch=Listening())
    assert run.status() == "done"
    assert sorted(run.answers()) == list(range(18))
    assert "no more labels to be had: 18 instead of 20" in said
    go(run, partly, inexact=True)  # also a round that found nothing to ask for left a query behind


def test_data_without_any_label_waits_for_people(new_run, digits):
    from mma.data import DataSet, Images

    blank = Images(digits.train.pixels, np.full(len(digits.train), -1), digits.train.classes)
    data, run = DataSet("blank", blank, digits.test), new_run("blank")
    for _ in range(3):  # asking again changes nothing
        train(run, on=ONE, data=data)
        assert run.status() == "waiting"
        assert len(run.unanswered()) == 10
    questions = (run.folder / "questions.csv").read_text().splitlines()
    assert questions == ["file_name,label", *(f"{blank.key(i)}," for i in run.unanswered())]


def fill_in(run, truth, count=None, declined=()):
    """Do what a person does: write a label behind each name."""
    path = run.folder / "questions.csv"
    heading, *rows = path.read_text().splitlines()
    labels = {truth.key(i): truth.classes[truth.labels[i]] for i in run.unanswered()[:count]}
    labels |= {truth.key(i): "?" for i in run.unanswered() if i in declined}
    filled = [row if row.split(",")[1] else row + labels.get(row.split(",")[0], "") for row in rows]
    path.write_text("\n".join([heading, *filled]) + "\n")


def test_people_answer_through_a_file_and_give_the_run_that_the_data_sets_labels_give(new_run, digits, contents):
    from mma.data import DataSet, Images

    blank = Images(digits.train.pixels, np.full(len(digits.train), -1), digits.train.classes)
    data, run, whole = DataSet("blank", blank, digits.test), new_run("people"), new_run("whole")
    train(run, on=ONE, data=data)
    for count in (4, None, None, 2, None):
        fill_in(run, digits.train, count)
        train(run, on=ONE, data=data)
    assert run.status() == "done"
    go(whole, digits)
    logs = [{name: text for name, text in contents(r).items() if name.endswith("jsonl")} for r in (run, whole)]
    assert logs[0] == logs[1]


def test_equal_images_without_names_share_a_question(tmp_path):
    from mma.data import Images
    from mma.training.ask import QuestionFile

    images = Images(np.zeros((3, 2, 2, 1), np.uint8), np.full(3, -1), ("a", "b"))
    asking = QuestionFile(tmp_path / "questions.csv", images)
    assert asking.ask([0, 1, 2], 0) == {}
    lines = asking.path.read_text().splitlines()
    assert len(lines) == 2
    asking.path.write_text(f"{lines[0]}\n{lines[1]}b\n")
    assert asking.ask([0, 1, 2], 0) == {0: 1, 1: 1, 2: 1}


def test_a_label_that_is_no_class_is_refused_with_its_line_and_nothing_is_lost(new_run, digits, refusal):
    from mma.data import DataSet, Images

    blank = Images(digits.train.pixels, np.full(len(digits.train), -1), digits.train.classes)
    data, run = DataSet("blank", blank, digits.test), new_run("wrong")
    train(run, on=ONE, data=data)
    asked = run.unanswered()
    fill_in(run, digits.train, declined=asked[:1])
    path = run.folder / "questions.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:3], lines[3].split(",")[0] + ",eleven", *lines[4:]]) + "\n")
    filled = path.read_text()
    with refusal():
        train(run, on=ONE, data=data)
    assert path.read_text() == filled
    path.write_text(filled.replace("eleven", "3"))
    train(run, on=ONE, data=data)
    assert len(run.read("labels")) == 10
    assert run.answers()[asked[0]] == DECLINED
    assert run.status() == "waiting"  # for one more, in the place of the declined one


def test_training_without_any_label_is_refused(new_run, digits, refusal):
    class Unwilling:
        def ask(self, indices, round):
            return dict.fromkeys(indices, DECLINED)

    run = new_run("unwilling", "data.total=60")
    with refusal():
        train(run, Unwilling(), on=ONE, data=digits)
    assert run.checkpoint_steps() == []


@pytest.mark.parametrize("answer", [10, -2, 1.5, True, np.float64(1), "1", None])
def test_an_oracle_that_answers_nonsense_is_refused(new_run, digits, answer, refusal):
    class Wrong:
        def ask(self, indices, round):
            return {indices[0]: answer}

    run = new_run("w")
    with refusal():
        train(run, Wrong(), on=ONE, data=digits)
    assert run.read("labels") == []


def test_an_oracle_may_answer_with_numpys_numbers(new_run, digits, contents):
    class Numpy:
        def ask(self, indices, round):
            return {np.int64(i): digits.train.labels[i] for i in indices}

    plain, numpy = new_run("plain"), new_run("numpy")
    go(plain, digits)
    train(numpy, Numpy(), on=ONE, data=digits)
    assert contents(plain) == contents(numpy)


def test_labels_and_queries_name_key_and_class_beside_the_index(new_run, digits):
    run = new_run("k")
    go(run, digits, until=1)
    images, asked = digits.train, run.read("queries")[0]
    assert asked["keys"] == [images.key(i) for i in asked["indices"]]
    for row in run.read("labels"):
        assert row["key"] == images.key(row["index"])
        assert row["class"] == images.classes[row["label"]]


def test_every_image_labeled_still_trains(new_run, digits):
    from mma.data import DataSet

    few = DataSet("few", digits.train.take(np.arange(20)), digits.test)
    run = new_run("all")
    go(run, few)
    assert run.status() == "done"


def test_data_without_a_test_set_trains_without_accuracy(new_run, digits):
    from mma.data import DataSet

    run = new_run("n")
    go(run, DataSet("untested", digits.train, digits.test.take(np.arange(0))))
    assert run.median_accuracy() is None
    assert run.read("metrics")[-1]["accuracy"] is None


def test_a_start_set_that_misses_a_class_is_said(new_run, digits):
    run = new_run("m", "growth.start=3")
    go(run, digits, until=4)
    assert "no label yet for" in run.read("metrics")[0]["warnings"][0]


def test_guesses_in_one_class_are_said():
    from mma.training.loop import warnings

    guesses = np.array([0.95, 0.03, 0.02])
    assert "95% of the guesses are 'a'" in warnings(("a", "b", "c"), {0: 0, 1: 1, 2: 2}, guesses)[0]
    assert warnings(("a", "b", "c"), {0: 0, 1: 1, 2: 2}, np.array([0.4, 0.3, 0.3])) == []


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_state(new_run, digits, refusal):
    run = new_run("nan", "optim.lr=1e30")
    with refusal():
        go(run, digits)
    assert all(np.isfinite(list(row["loss"].values())).all() for row in run.read("metrics"))


def test_a_changed_config_is_refused(new_run, digits, refusal):
    run = new_run("c")
    go(run, digits, until=5)
    config = run.config()
    config["optim"]["lr"] = 0.5
    (run.folder / "config.json").write_text(json.dumps(config))
    with refusal():
        go(run, digits)


def test_other_data_is_refused(new_run, digits, refusal):
    from mma.data import DataSet

    run = new_run("d")
    go(run, digits, until=5)
    with refusal():
        go(run, DataSet("other", digits.train.take(np.arange(500)), digits.test))


@pytest.mark.parametrize("what", ["torch", "numpy", "scikit-learn", "arithmetic"])
def test_other_versions_are_refused(new_run, what, refusal):
    run, now = new_run("v"), describe(ONE, Identity("c", "d"))
    check(run, now, inexact=False)
    with refusal():
        check(run, now | {what: "another"}, inexact=False)


@pytest.mark.parametrize("text", ["[]", "{", "\x00", '"host"'])
def test_a_damaged_host_file_is_named(new_run, digits, text, refusal):
    run = new_run("h")
    go(run, digits, until=5)
    (run.folder / "host.json").write_text(text)
    with refusal():
        go(run, digits)


def test_another_thread_count_is_refused_unless_asked_for(new_run, digits, refusal):
    run = new_run("t")
    go(run, digits, until=5)
    with refusal():
        train(run, DatasetLabels(digits.train), on=Host(threads=2), data=digits)
    train(run, DatasetLabels(digits.train), on=Host(threads=2), data=digits, inexact=True)
    assert run.status() == "done"


@pytest.mark.parametrize(
    ("changed", "options"),
    [
        ({"threads": 2}, "--threads 2 "),
        ({"device": "cuda:1", "gpu": "X"}, "--device cuda:1 "),
        ({"compile": True}, "--compile "),
        ({"device": "cuda", "threads": 4, "compile": True}, "--device cuda --threads 4 --compile "),
        ({"torch": "9"}, ""),
    ],
)
def test_the_advised_command_keeps_the_options_that_were_asked_for(new_run, changed, options):
    run, now = new_run("o"), describe(Host("cpu", 1, False), Identity("c", "d")) | {"threads": 1}
    check(run, now, inexact=False)
    with pytest.raises(ValueError, match="cannot be continued exactly here") as refused:
        check(run, now | changed, inexact=False)
    assert str(refused.value).endswith(f"with  mma train {run.folder} {options}--inexact")
    exact = f"Continue it where it began, with  mma train {run.folder} , or"
    assert (exact in str(refused.value)) == bool(options)


def test_no_command_is_advised_where_none_says_not_to_compile(new_run, refusal):
    run, now = new_run("o"), describe(Host("cpu", 1, True), Identity("c", "d"))
    check(run, now, inexact=False)
    with refusal():
        check(run, now | {"compile": False}, inexact=False)


@pytest.mark.parametrize(
    "damage", [lambda b: b[: len(b) // 2], lambda b: b[:-1] + bytes([b[-1] ^ 1]), lambda b: b"", lambda b: b"pickle"]
)
def test_a_damaged_checkpoint_stops_with_the_way_back_and_going_back_is_exact(
    new_run, digits, contents, damage, refusal
):
    whole, run = new_run("whole"), new_run("cut")
    go(whole, digits)
    go(run, digits, until=17)
    path = run.checkpoint_path(17)
    path.write_bytes(damage(path.read_bytes()))
    with refusal():
        go(run, digits)
    path.unlink()
    go(run, digits)
    assert contents(run) == contents(whole)


def test_a_checkpoint_of_another_network_is_refused(new_run, digits, refusal):
    small, large = new_run("small"), new_run("large", "net.filters=8")
    go(small, digits, until=3)
    go(large, digits, until=3)
    small.checkpoint_path(3).write_bytes(large.checkpoint_path(3).read_bytes())
    with refusal():
        go(small, digits)


def test_two_processes_cannot_train_one_run(new_run, digits, refusal):
    run = new_run("l")
    with run.lock(), refusal():
        go(run, digits)


@pytest.mark.parametrize(
    ("code", "why"), [(28, "No space left on device"), (30, "Read-only file system")], ids=["full", "read-only"]
)
def test_r7_a_full_or_read_only_disk_stops_clearly_and_loses_nothing(
    new_run, digits, contents, monkeypatch, code: int, why: str, refusal
):
    import os

    whole, run = new_run("whole"), new_run("full")
    go(whole, digits)
    real, calls = os.fsync, []

    def full(handle):
        calls.append(handle)
        if len(calls) == 14:
            raise OSError(code, why)
        real(handle)

    monkeypatch.setattr("mma.files.os.fsync", full)
    with refusal():
        go(run, digits)
    monkeypatch.undo()
    go(run, digits)
    assert contents(run) == contents(whole)


def test_the_result_is_the_median_of_the_last_evaluations_at_the_final_label_count(new_run, digits):
    run = new_run("r", "log.last=3")
    go(run, digits)
    last = [row["accuracy"] for row in run.read("metrics")][-3:]
    assert run.median_accuracy() == (sorted(last)[1], 3)


def test_a_users_own_network_trains_and_resumes(new_run, digits, contents, own_nets):
    whole, parts = (new_run(name, "net=test-dense", "query=diff2-kmeans") for name in ("whole", "parts"))
    go(whole, digits)
    go(parts, digits, until=14)
    go(parts, digits)
    assert contents(parts) == contents(whole)


def test_a_users_own_network_may_start_from_the_labels_and_write_down_what_it_likes(new_run, digits, own_nets):
    run = new_run("own", "net=test-starting")
    go(run, digits, until=5)
    assert [(row["step"], row["labels"]) for row in run.read("starts")] == [(0, 10)]


def test_a_network_that_is_not_in_the_table_says_how_to_bring_it(new_run, digits, refusal, monkeypatch):
    for name in [name for name in NETS if name.startswith("test-")]:  # of other tests
        monkeypatch.delitem(NETS, name)
    run = new_run("gone")
    config = run.config()
    config["net"] = {"name": "mine"}
    (run.folder / "config.json").write_text(json.dumps(config))
    with refusal():
        go(run, digits)


def test_a_network_without_embeddings_is_refused_before_it_trains(new_run, digits, own_nets, refusal):
    for query in ("diff2-direct", "max.aug-kmeans"):
        run = new_run(query, "net=test-flat", f"query={query}")
        with refusal():
            go(run, digits)
    for setting in ("query=diff2.aug-direct", "query=random", "growth.policy=passive"):  # answers are all they look at
        run = new_run(setting, "net=test-flat", setting)
        go(run, digits)
        assert run.status() == "done"


@pytest.mark.parametrize("text", ['{"format": 2}', '{"format": 2, "data": 3}', '{"format": 2, "data": {"name": []}}'])
def test_a_config_of_the_wrong_shape_is_a_sentence_that_names_the_file(new_run, text, refusal):
    run = new_run("a")
    (run.folder / "config.json").write_text(text)
    with refusal():
        train(run, on=ONE)


def test_frozen_weights_stay_as_they_came_and_are_named_by_their_hash(new_run, digits, contents, own_nets):
    from mma.training import checkpoint
    from mma.training.job import load_read_only

    whole, parts = (new_run(name, "net=test-half-frozen", "query=diff2-direct") for name in ("whole", "parts"))
    go(whole, digits)
    go(parts, digits, until=14)
    go(parts, digits)
    assert contents(parts) == contents(whole)
    header, arrays = checkpoint.read(whole.checkpoint_path(36))
    assert not any("body" in name for name in arrays)  # neither stored nor averaged
    net = load_read_only(whole, digits).state.teacher
    fresh = from_json(whole.config()).net.build(digits.train.shape, 10)
    for name, value in fresh.body.state_dict().items():
        assert torch.equal(net.body.state_dict()[name], value), name
    assert header.frozen is not None


def test_other_frozen_weights_are_refused_by_their_hash(new_run, digits, own_nets, monkeypatch, refusal):
    from mma.nets import NETS

    run = new_run("a", "net=test-half-frozen", "query=diff2-direct")
    go(run, digits, until=5)
    kind = NETS["test-half-frozen"]
    other = lambda self, shape, classes: real(self.model_copy(update={"fill": 0.2}), shape, classes)  # noqa: E731
    real = kind.build
    monkeypatch.setattr(kind, "build", other)
    with refusal():
        go(run, digits)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_bfloat16_trains_and_resumes(new_run, digits, contents, algorithm):
    settings = ["optim.precision=bfloat16", f"algorithm={algorithm}"]
    whole, parts = new_run("whole", *settings), new_run("parts", *settings)
    go(whole, digits)
    go(parts, digits, until=7)
    go(parts, digits)
    assert contents(parts) == contents(whole)


def test_a_view_that_would_move_everything_out_of_sight_is_refused(new_run, digits, refusal):
    with refusal():
        go(new_run("far", "views.shift=8"), digits)


def test_mirror_images_of_what_must_not_be_mirrored_are_warned_of(new_run, digits):
    said = []

    class Listening(Watch):
        def warn(self, message):
            said.append(message)

    go(new_run("m", "views.mirror=true"), digits, watch=Listening(), until=1)
    assert any("mirror image means something else" in message for message in said)
    said.clear()
    go(new_run("n"), digits, watch=Listening(), until=1)
    assert not any("mirror" in message for message in said)


def test_a_pool_of_fewer_images_uses_only_those(new_run, digits):
    run = new_run("s", "data.total=100", "query=random")
    go(run, digits)
    from mma.data import nested_order

    pool = set(nested_order(len(digits.train), 1)[:100].tolist())
    assert set(run.answers()) <= pool


def test_validation_images_leave_the_pool_and_are_tested_on(new_run, digits):
    from mma.training.job import split_pool

    first, second = (new_run(f"v{seed}", "data.validation=300", f"seed={seed}") for seed in (1, 2))
    pools = [split_pool(from_json(run.config()), digits) for run in (first, second)]
    assert len(pools[0][0]) == len(digits.train) - 300
    assert not set(pools[0][0]) & set(pools[0][1])
    assert pools[0][1].tolist() == pools[1][1].tolist()
    go(first, digits)
    assert not set(first.answers()) & set(pools[0][1].tolist())
    assert all(
        (row["accuracy"] * 3) % 1 < 1e-3 or (row["accuracy"] * 3) % 1 > 1 - 1e-3 for row in first.read("metrics")
    )


def test_a_budget_beyond_the_pool_is_an_error_that_names_both(new_run, digits, refusal):
    with refusal():
        go(new_run("b", "growth.budget=5000"), digits)


def test_holding_out_everything_is_an_error_that_names_both(new_run, digits, refusal):
    with refusal():
        go(new_run("h", "data.validation=1297"), digits)


def test_config_survives_the_folder(new_run, tiny):
    assert from_json(new_run("c").config()) == tiny()


def test_a_folder_that_is_no_run_says_so(tmp_path, refusal):
    with refusal():
        Run.open(tmp_path)


def test_going_on_takes_threads_and_compilation_from_the_run(new_run, digits):
    from mma.training.host import check, describe, fill_in

    run = new_run("h")
    check(run, describe(Host("cpu", 3, True), Identity("c", "d")) | {"threads": 3}, inexact=False)
    assert fill_in(run, Host()) == Host("cpu", 3, True)
    assert fill_in(run, Host(threads=1)) == Host("cpu", 1, True)


def test_the_last_step_is_measured_also_between_evaluations(new_run, digits):
    run = new_run("a", "log.every=7")
    go(run, digits)
    steps = [row["step"] for row in run.read("metrics")]
    assert steps == [7, 14, 21, 28, 35, 36]
    assert len(steps) == from_json(run.config()).log.evaluations(36)


@pytest.mark.parametrize("algorithm", ["mean-teacher", "anchored-mixmatch"])
def test_a_teacher_that_guesses_keeps_frozen_statistics_in_use(new_run, digits, own_nets, algorithm):
    """The frozen normalisation has running statistics of its own; those of a batch would be other numbers."""
    from mma.algorithms.ops import same_modes
    from mma.training.job import load_read_only

    run = new_run("a", "net=test-half-frozen", "query=random", f"algorithm={algorithm}")
    go(run, digits, until=5)
    state = load_read_only(run, digits).state
    with same_modes(state.teacher, state.student):
        assert state.teacher.training
        assert not state.teacher.body[2].training
    assert not state.teacher.training

"""The run folder: torn rows, damaged rows, status, and messages."""

from __future__ import annotations

import json
from threading import Timer

import pytest
from filelock import FileLock

from mma.run import FORMAT, Run


def metric(step):
    return {"step": step, "round": 0, "labels": 20, "loss": {}}


def query(round, indices):
    return {"round": round, "step": 0, "strategy": "random", "indices": indices, "keys": [], "scores": []}


def answer(round, index, label):
    return {"round": round, "index": index, "key": "00", "label": label}


def test_a_torn_last_row_is_not_a_row_and_is_cut(new_run):
    run = new_run("a")
    run.append("metrics", [metric(4), metric(8)])
    with run.path("metrics").open("ab") as file:
        file.write(b'{"step": 1')
    assert run.read("metrics") == [metric(4), metric(8)]
    run.cut("metrics", lambda row: True)
    assert run.path("metrics").read_bytes().endswith(b'"loss":{}}\n')


def test_cut_drops_from_the_first_row_that_is_not_kept(new_run):
    run = new_run("a")
    run.append("metrics", [metric(s) for s in (4, 8, 12)])
    run.cut("metrics", lambda row: row["step"] <= 8)
    assert [row["step"] for row in run.read("metrics")] == [4, 8]


def test_a_damaged_row_in_the_middle_is_named(new_run, refusal):
    run = new_run("a")
    run.path("labels").write_text('{"index":1}\n{"index\n{"index":3}\n')
    with refusal():
        run.read("labels")


def test_answers_come_in_the_order_they_were_asked_for(new_run):
    run = new_run("a")
    run.append("queries", [query(0, [5, 3]), query(1, [9])])
    run.append("labels", [answer(0, 3, 1), answer(1, 9, 0)])
    assert run.unanswered() == [5]
    assert run.status() == "waiting"
    run.append("labels", [answer(0, 5, 2)])
    assert list(run.answers()) == [5, 3, 9]
    assert list(run.answers(0)) == [5, 3]
    assert run.status() == "training"


def test_a_newer_format_is_refused(new_run, refusal):
    run = new_run("a")
    config = run.config() | {"format": FORMAT + 1}
    (run.folder / "config.json").write_text(json.dumps(config))
    with refusal():
        Run.open(run.folder)


def test_a_damaged_config_is_named(new_run, refusal):
    run = new_run("a")
    (run.folder / "config.json").write_text("{")
    with refusal():
        Run.open(run.folder)


def test_a_folder_with_other_things_is_not_taken(tmp_path, tiny, refusal):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "photo.jpg").touch()
    with refusal():
        Run.create(tmp_path / "x", tiny().model_dump(mode="json"))


def test_a_write_that_fails_leaves_the_old_file_and_no_rest(tmp_path, monkeypatch):
    from mma.files import write_atomically

    path = tmp_path / "f"
    write_atomically(path, "old")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mma.files.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_busy_run_is_seen_and_a_dead_lock_is_none(new_run):
    run = new_run("a")
    assert not run.busy()
    with run.lock():
        assert run.busy()
    assert not run.busy()
    assert (run.folder / "lock").exists()


def test_a_run_can_be_locked_while_somebody_looks_at_it(new_run):
    run = new_run("a")
    looker = FileLock(run.folder / "lock", thread_local=False)
    looker.acquire()
    Timer(0.2, looker.release).start()
    with run.lock():
        assert run.busy()


@pytest.mark.parametrize(
    ("log", "row", "missing"),
    [
        ("metrics", {"round": 0}, "step of type int"),
        ("metrics", {**metric(4), "step": True}, "step of type int"),
        ("labels", {"round": 0, "index": 1, "key": "00"}, "label of type int"),
        ("queries", {**query(0, []), "indices": 3}, "indices of type list"),
    ],
)
def test_a_row_of_the_wrong_shape_is_named(new_run, log, row, missing, refusal):
    run = new_run("a")
    run.append(log, [row])
    with refusal():
        run.read(log)


@pytest.mark.parametrize("text", ["[]", "3", '"x"'])
def test_a_config_that_is_no_object_is_named(new_run, text, refusal):
    run = new_run("a")
    (run.folder / "config.json").write_text(text)
    with refusal():
        Run.open(run.folder)


def test_a_file_is_no_place_for_a_run(tmp_path, tiny, refusal):
    (tmp_path / "file").write_text("mine")
    with refusal():
        Run.create(tmp_path / "file", tiny().model_dump(mode="json"))


def test_a_run_that_never_grew_is_measured_over_the_steps_of_a_last_phase(new_run):
    """Its early evaluations have the final label count too, and would pull the median down."""
    run = new_run("a", "growth.policy=passive", "growth.final=20", "log.last=20")
    rows = [{**metric(step), "accuracy": float(step)} for step in range(10, 101, 10)]
    run.append("metrics", rows)
    assert run.median_accuracy() == (95.0, 2)

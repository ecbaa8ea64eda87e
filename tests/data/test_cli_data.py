import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from mma.cli.data import app
from mma.data.releases import CIFAR10


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.setenv("MMA_DATA", str(tmp_path / "root"))

    def call(*arguments):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.output

    return call


@pytest.fixture
def photos(tmp_path):
    for i in range(10):
        path = tmp_path / "photos" / ("c[red]at", "d\x1b[2Jog")[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(path)
    (tmp_path / "photos" / "c[red]at" / "b\x1bad.png").write_bytes(b"x")
    return tmp_path / "photos"


def test_list_shows_what_is_ready_and_how_to_get_the_rest(run):
    lines = run("list").splitlines()
    assert any(line.startswith("digits") and line.rstrip().endswith("ready") for line in lines)
    assert any("604,388" in line and "mma data get svhn-extra" in line for line in lines)


def test_list_as_json(run, photos):
    run("get", "folder", "--from", photos, "--name", "mine")
    rows = {row["name"]: row for row in json.loads(run("list", "--json"))}
    assert rows["folder:mine"]["ready"]
    assert (rows["folder:mine"]["pool"], rows["folder:mine"]["test"]) == (8, 2)
    assert not rows["cifar10"]["ready"]


def test_list_shows_a_damaged_data_set_as_such(run, photos, tmp_path):
    run("get", "folder", "--from", photos, "--name", "mine")
    (tmp_path / "root" / "folder" / "mine" / "meta.json").write_text("{")
    assert "cannot be used, make it again:  mma data get folder --from DIR --name mine" in run("list")


def test_get_folder_shows_the_quarantine_and_escapes_names(run, photos):
    output = run("get", "folder", "--from", photos, "--name", "mine", "--side", "8", "--grey", "--mirror")
    assert "8 images in the pool, 2 to test on, 2 classes, 8 x 8 x 1" in output
    assert "left out 1 files:" in output
    assert r"c[red]at/b\x1bad.png: it is not a readable" in output
    assert "\x1b" not in output + run("info", "folder:mine") + run("list")


def test_info_counts_classes_and_gives_everything_as_json(run, photos):
    run("get", "folder", "--from", photos, "--name", "mine")
    assert r"d\x1b[2Jog" in run("info", "folder:mine")
    details = json.loads(run("info", "folder:mine", "--json"))
    assert details["pool"]["classes"] == {"c[red]at": 4, "d\x1b[2Jog": 4}
    assert details["quarantine"][0]["file"] == "c[red]at/b\x1bad.png"
    assert len(details["pool"]["digest"]) == 64


def test_info_finds_changed_bytes(run, photos, tmp_path, refusal):
    run("get", "folder", "--from", photos, "--name", "mine")
    path = tmp_path / "root" / "folder" / "mine" / "train.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x07")
    with refusal():
        run("info", "folder:mine")


def test_a_long_quarantine_list_is_cut_on_the_screen_only(run, photos):
    for i in range(30):
        (photos / f"bad{i}.png").write_bytes(b"x")
    assert "and 11 more:  mma data info folder:mine --json" in run("get", "folder", "--from", photos, "--name", "mine")
    assert len(json.loads(run("info", "folder:mine", "--json"))["quarantine"]) == 31


def test_classes_can_be_declared(run, photos, tmp_path, refusal):
    flat = tmp_path / "flat"
    flat.mkdir()
    Image.new("RGB", (9, 9)).save(flat / "a.png")
    assert "1 images in the pool, 0 to test on, 2 classes" in run(
        "get", "folder", "--from", flat, "--classes", "cat, dog"
    )
    assert list(json.loads(run("info", "folder:flat", "--json"))["pool"]["classes"]) == ["cat", "dog"]
    with refusal():
        run("get", "folder", "--from", flat, "--classes", "cat,cat")
    with refusal():
        run("get", "folder", "--from", flat, "--classes", "")


def test_list_prints_whole_lines_however_narrow_the_screen_is(run, photos, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    name = "n" * 100
    run("get", "folder", "--from", photos, "--name", name)
    lines = run("list").splitlines()
    assert any(line.startswith(f"folder:{name} ") and line.endswith("32 x 32 x 3  ready") for line in lines)
    assert len(lines) == 10


def test_files_that_are_not_official_are_named_with_the_way_to_replace_them(run, tmp_path):
    for part in (*CIFAR10.train, *CIFAR10.test):
        (tmp_path / part.name).write_bytes(bytes(3_073))
    output = run("get", "cifar10", "--from", tmp_path, "--accept-hash-mismatch")
    assert "note: not the whole data set: 5 of 50,000 images in the pool, 1 of 10,000 to test on" in output
    assert f"delete {tmp_path / 'root' / 'cifar10'} and run  mma data get cifar10" in output


@pytest.mark.parametrize(
    "arguments", [("cifar10", "--from", "."), ("folder", "--from", "missing"), ("folder:x",), ("cifar",)]
)
def test_a_failed_get_creates_nothing(run, tmp_path, monkeypatch, arguments, refusal):
    monkeypatch.chdir(tmp_path)
    with refusal():
        run("get", *arguments)
    assert list(tmp_path.iterdir()) == []


def test_get_digits_says_what_they_are(run):
    assert "digits: 1,297 images in the pool, 500 to test on" in run("get", "digits")


def test_options_of_folders_do_not_go_with_other_data(run, refusal):
    with refusal():
        run("get", "cifar10", "--side", "8")
    with refusal():
        run("get", "folder")
    with refusal():
        run("get", "cifar")


def test_info_shows_the_command_that_makes_a_folder_again(run, photos):
    run("get", "folder", "--from", photos, "--name", "mine", "--side", "16")
    assert f"make it again:  mma data get folder --from {photos} --name mine --side 16\n" in run("info", "folder:mine")
    assert json.loads(run("list", "--json"))[-1]["command"].endswith("--name mine --side 16")


def test_info_and_get_know_hard_data_sets(run, tmp_path):
    assert "hard:long-tail:digits: 359 images in the pool, 500 to test on" in run("info", "hard:long-tail:digits")
    for part in (*CIFAR10.train, *CIFAR10.test):
        (tmp_path / part.name).write_bytes(bytes(3_073))
    output = run("get", "hard:wrong-20:cifar10", "--from", tmp_path, "--accept-hash-mismatch")
    assert "hard:wrong-20:cifar10: 5 images in the pool" in output
    assert f"delete {tmp_path / 'root' / 'cifar10'} and run  mma data get cifar10" in output

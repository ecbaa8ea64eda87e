"""What careless people type: it is refused before anything is made, with the way out, and nothing of theirs is lost."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from mma.cli import commands
from mma.project import create_project
from mma.project.project import training
from mma.project.worker.features import compute_features
from mma.project.worker.worker import LiveWorker
from tests.project import shapes


def refused(*arguments) -> str:
    """Run a command that must fail; return what it says."""
    done = CliRunner().invoke(commands(), list(map(str, arguments)), prog_name="mma")
    assert done.exit_code == 1, done.output
    assert isinstance(done.exception, SystemExit)
    assert any(line.startswith(f"mma {arguments[0]}") for line in done.output.splitlines())
    return done.output


def done(*arguments) -> str:
    found = CliRunner().invoke(commands(), list(map(str, arguments)), prog_name="mma")
    assert found.exit_code == 0, found.output
    return found.output


@pytest.fixture(autouse=True)
def own_data(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("MMA_DATA", str(tmp_path_factory.mktemp("data")))


@pytest.fixture
def made(photos):
    project = create_project(photos, classes=["cat", "dog"])
    project.index()
    yield project
    project.close()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# before a project is made


def test_a_start_that_would_fail_later_makes_no_project(photos, tmp_path):
    (tmp_path / "bad.csv").write_text("name;label\n1.png;cat\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for options, why in (
            (["--host", "0.0.0.0"], "add --allow-remote"),
            (["--port", port], f"port {port} is taken"),
            (["--port", 0, "--labels-from", "nothing.csv"], "there is no file nothing.csv"),
            (["--port", 0, "--labels-from", tmp_path / "bad.csv"], "must begin with a line of column names"),
            (["--port", 0, "--labels-from", "folders"], "has no sub-folders with images"),
            (["--port", 0, "--store", f"postgresql://me:secret@/x?host={tmp_path}"], "cannot be used"),
        ):
            assert why in refused("start", photos, *options)
            assert not photos.with_name("photos.mma").exists()


def test_nearly_one_folder_per_image_is_no_class_however_it_is_asked_for(tmp_path, picture):
    for number in range(12):
        picture(tmp_path / "photos" / "all" / f"visit {number}" / "x.png", number)
    for source in ("folders", "folders:last"):
        said = refused("start", tmp_path / "photos", "--port", 0, "--labels-from", source)
        assert "hardly" in said
    assert not (tmp_path / "photos.mma").exists()


def test_an_unknown_class_is_mended_by_an_option_that_the_command_has(made, photos, tmp_path):
    (tmp_path / "truth.csv").write_text("file_name,label\n1.png,cow\n2.png,cat\n")
    made.close()
    assert "there is no class 'cow'. --classes adds it" in refused(
        "start", photos, "--port", 0, "--labels-from", tmp_path / "truth.csv"
    )
    assert "--add-classes adds it" in refused("tell", photos, tmp_path / "truth.csv")
    assert "2 answers are new" in done("labels", "import", photos, tmp_path / "truth.csv", "--add-classes")
    (tmp_path / "truth.csv").write_text("file_name,label\n2.png,dog\n")
    said = refused("start", photos, "--port", 0, "--labels-from", tmp_path / "truth.csv")
    assert f"mma labels import {made.folder} {tmp_path / 'truth.csv'} --replace" in said


def test_a_command_to_be_typed_is_quoted_where_the_path_has_spaces(photos):
    spaced = photos.rename(photos.with_name("my photos"))
    project = create_project(spaced)
    project.close()
    project.layout.database.unlink()
    project.layout.log.write_text("")
    project.layout.database.write_bytes(b"this is no database at all, but some text" * 30)
    assert f"mma doctor '{project.folder}' --rebuild" in refused("status", spaced)


# tables of questions


def test_a_table_with_answers_is_not_written_over_before_they_are_taken_in(made, photos, tmp_path):
    out = tmp_path / "picks.csv"
    done("ask", photos, "-n", 4, "-o", out)
    done("ask", photos, "-n", 4, "-o", out)  # nothing is filled in yet
    filled = out.read_text().replace(",,", ",cat,", 2)
    out.write_text(filled)
    said = refused("ask", photos, "-n", 4, "-o", out)
    assert "2 answers that were not taken in yet" in said
    assert f"mma tell {made.folder} {out}" in said
    assert out.read_text() == filled
    done("tell", photos, out)
    done("ask", photos, "-n", 4, "-o", out)
    assert ",cat," not in out.read_text()


def test_a_table_is_a_csv_file_and_nothing_else_is_written_over(made, photos, tmp_path):
    for name in ("picks.html", "picks", "picks.json"):
        assert "Use  -o " in refused("ask", photos, "-o", tmp_path / name)
    (tmp_path / "mine.csv").write_text("day,weather\nmonday,rain\n")
    assert "is no table of questions" in refused("ask", photos, "-o", tmp_path / "mine.csv")
    assert (tmp_path / "mine.csv").read_text() == "day,weather\nmonday,rain\n"
    assert not list(tmp_path.glob("picks*"))


def test_an_export_of_labels_replaces_an_export_and_no_other_file(made, photos, tmp_path, label):
    label(made, made.images()[0].id)
    (photos / "labels.csv").write_text("file_name,label\n1.png,mine\n")
    before = contents(photos)
    for target, form in ((photos / "1.png", "csv"), (photos / "1.png", "hf-jsonl"), (photos / "labels.csv", "csv")):
        said = refused("labels", "export", photos, target, "--format", form)
        assert "is there already, and no export of ours" in said
    assert contents(photos) == before
    for name in ("l.csv", "l.jsonl", "l.json"):
        for _ in range(2):
            done("labels", "export", photos, tmp_path / name)


def test_a_file_that_is_no_folder_of_classes_is_said(made, photos, tmp_path):
    (tmp_path / "labels").write_text("file_name,label\n1.png,cat\n")
    assert "which format is labels? Say it with --format" in refused("labels", "import", photos, tmp_path / "labels")
    said = refused("labels", "import", photos, tmp_path / "labels", "--format", "imagefolder")
    assert "is a file, and imagefolder is a folder for each class" in said
    assert "1 answers are new" in done("labels", "import", photos, tmp_path / "labels", "--format", "csv")


# simulations


def test_a_simulation_never_replaces_what_is_not_its_own(tmp_path):
    photos = tmp_path / "photos-1"
    for number in range(40):
        kind = shapes.KINDS[number % 2]
        (photos / kind).mkdir(parents=True, exist_ok=True)
        Image.fromarray(shapes.draw_shape(kind, number)).save(photos / kind / f"{number}.png")
    (tmp_path / "other" / "photos-1").mkdir(parents=True)
    (tmp_path / "other" / "photos-1" / "diary.txt").write_text("dear diary")
    before = contents(tmp_path)
    for out, why in (
        (tmp_path, "lie in each other"),
        (photos / "inside", "lie in each other"),
        (tmp_path / "other", "holds something else than a simulation"),
    ):
        assert why in refused("simulate", photos, "--budget", 20, "--seeds", 1, "--out", out)
    assert contents(tmp_path) == before


def test_a_simulation_says_which_folder_it_takes(tmp_path):
    assert "there is no folder" in refused("simulate", tmp_path / "nothing")
    for kind in ("cat", "dog"):
        (tmp_path / "photos" / kind).mkdir(parents=True)
        (tmp_path / "photos" / kind / "torn.png").write_bytes(b"\x89PNG torn")
    assert "2 files with such names, and 0 different photos" in refused("simulate", tmp_path / "photos")


# images that no model can look at


def test_an_image_of_a_few_pixels_is_listed_and_never_asked_about(photos, made):
    Image.new("RGB", (1, 1)).save(photos / "dot.png")
    Image.new("RGB", (400, 7)).save(photos / "line.png")
    reasons = {bad.file: bad.reason for bad in made.index().bad}
    assert reasons["dot.png"] == "1 x 1 pixels are too few: 8 x 8 are needed"
    assert reasons["line.png"].startswith("400 x 7 pixels")
    assert made.counts().images == 20


def test_an_image_of_a_few_pixels_that_was_indexed_before_stops_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr("mma.data.photos.SMALLEST", 1)
    project, _ = shapes.shape_project(tmp_path, 12)
    Image.new("RGB", (2, 2)).save(project.root / "dot.png")
    project.index()
    worker = LiveWorker(project, deep=False)
    images = [image for image in project.images() if not image.audit or image.name == "dot.png"]
    known, why = compute_features(project.root, worker.config.views, images, lambda message: None)
    assert {image.name for image in images} - {image.name for image in known} == {"dot.png"}
    assert "2 x 2 pixels, and backbones need 8 x 8 at least" in why
    assert f"mma start {project.root}" in why
    project.close()


@pytest.mark.parametrize("how", ["deleted", "changed"])
def test_an_audit_image_that_is_lost_while_people_label_stops_no_round(tmp_path, how):
    project, kinds = shapes.shape_project(tmp_path, audit_asked=0.5)
    worker = LiveWorker(project, deep=False)
    shapes.settle(worker)
    shapes.answer_next(project, kinds, 9)
    labeled = {image for image in project.labels().ids if project.is_audit(image)}
    for image in labeled:
        path = project.path_of(image)
        path.unlink() if how == "deleted" else path.write_bytes(path.read_bytes()[:-40])
    shapes.answer_next(project, kinds, 11)
    shapes.settle(worker)
    assert [row.state for row in project.models.rows()] == ["ready"]
    assert labeled
    assert labeled <= set(worker.training_set().audit)  # their vectors are stored, so they go on measuring
    project.close()


# who trains


def test_a_second_worker_is_refused_while_one_trains(made, photos, label):
    label(made, made.images()[0].id)
    with training(made.layout.state, "mma work"):
        assert "is being trained by another process, mma start or mma work" in refused("work", photos)
    done("work", photos)


def test_a_file_that_the_system_refuses_is_a_sentence(made, photos, monkeypatch):
    def forbidden(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("mma.project.labels.repair.read_log", forbidden)
    said = refused("doctor", photos)
    assert f"{made.layout.log} cannot be used: Permission denied. Allow it" in said


def test_options_for_projects_are_refused_for_runs(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    for options in (["--html"], ["--target", "90"], ["--label-price", "1"]):
        assert "is a run. --html, goals and prices are for projects" in refused("status", tmp_path, *options)


def test_a_project_is_found_from_inside_its_images(made, photos, monkeypatch):
    from mma.model.loader import find_project

    monkeypatch.chdir(photos)
    assert find_project(Path()) == made.folder
    assert find_project(Path("../photos")) == made.folder


def test_a_project_that_is_no_copy_is_not_merged(made, photos, tmp_path, picture, label):
    picture(tmp_path / "others" / "x.png", 70)
    other = create_project(tmp_path / "others", classes=["owl"])
    other.index()
    label(other, other.images()[0].id)
    other.close()
    assert "no copy of this one, but was made on its own" in refused("labels", "merge", photos, other.folder)
    assert [each.name for each in made.classes()] == ["cat", "dog"]

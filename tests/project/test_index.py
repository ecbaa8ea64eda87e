"""The index: in place, incremental, hostile files aside, duplicates together, and the images as they were."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import struct
import subprocess
import sys
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import imagehash
import numpy as np
import pytest
from PIL import Image

from mma.data import photos as data_photos
from mma.data.photos import small_photo
from mma.errors import UserError
from mma.project import create_project, open_project, relink
from mma.project import scan as scan_module
from mma.project.labels.repair import doctor
from mma.project.photos import DISTANCE, Alike, IndexReport, class_hints
from mma.project.scan import look


def key(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def made(photos):
    """A project on SQLite that is not indexed yet."""
    project = create_project(photos, classes=["cat", "dog"])
    yield project
    project.close()


def reasons(report: IndexReport) -> dict[str, str]:
    return {bad.file: bad.reason for bad in report.bad}


def test_r8_images_are_never_written_moved_or_renamed(photos, project, label):
    before = snapshot(photos)
    label(project, project.next("ann", 1)[0].image)
    project.export_labels(project.folder / "export" / "all")
    project.index()
    project.close()
    assert snapshot(photos) == before


def test_an_image_is_known_by_its_bytes_with_its_size(photos, project):
    found = {image.name: image for image in project.images()}
    assert len(found) == 20
    assert found["3.png"].id == key(photos / "3.png")
    assert (found["3.png"].width, found["3.png"].height) == (24, 18)
    assert project.path_of(found["3.png"].id) == (photos / "3.png").resolve()


def test_a_picture_that_is_stored_on_its_side_has_the_size_people_see(photos, made):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (60, 20), "red").save(photos / "side.jpg", exif=exif)
    made.index()
    side = next(image for image in made.images() if image.name == "side.jpg")
    assert (side.width, side.height) == (20, 60)


def test_r8_files_with_the_same_bytes_share_a_label(photos, project, label):
    (photos / "deep" / "er").mkdir(parents=True)
    shutil.copy(photos / "3.png", photos / "deep" / "er" / "copy.png")
    report = project.index()
    assert (report.images, report.files, report.duplicates, report.new) == (20, 21, 1, 0)
    label(project, key(photos / "3.png"))
    assert project.counts().labeled == 1
    project.export_labels(project.folder / "labels-out.csv")
    lines = (project.folder / "labels-out.csv").read_text().splitlines()
    assert {line.split(",")[0] for line in lines[1:]} == {"3.png", "deep/er/copy.png"}


def test_a_second_index_opens_no_file_again(made, monkeypatch):
    made.index()
    monkeypatch.setattr(scan_module._Reader, "read", lambda *args: pytest.fail("opens a file"))
    report = made.index()
    assert (report.images, report.new, report.bad) == (20, 0, [])


def test_new_files_appear_and_change_neither_labels_nor_the_audit_slice(photos, project, picture, label):
    labeled = [item.image for item in project.next("ann", 6)]
    for image in labeled:
        label(project, image)
    before = {image.id: (image.audit, image.group) for image in project.images()}
    labels = project.labels()
    for number in range(20, 30):
        picture(photos / "0 first" / f"{number}.png", number)  # in front of all others
    report = project.index()
    after = {image.id: (image.audit, image.group) for image in project.images()}
    assert report.new == 10
    assert len(after) == 30
    assert {image: after[image] for image in before} == before
    assert project.labels() == labels
    assert project.counts().left == 24


def test_r8_changed_bytes_are_reported_and_the_label_stays_with_the_old_ones(photos, project, picture, label):
    old = key(photos / "3.png")
    label(project, old)
    picture(photos / "3.png", 999)
    report = project.index()
    assert (report.changed, report.missing, report.new) == (["3.png"], [], 1)
    assert project.labels().ids == ()
    assert project.counts().labeled == 1
    picture(photos / "3.png", 3)
    assert project.index().changed == []
    assert project.labels().ids == (old,)


def test_r8_deleted_files_are_reported_and_their_labels_kept(photos, project, label, refusal):
    gone, spare = (photos / "3.png").read_bytes(), key(photos / "3.png")
    label(project, spare)
    (photos / "3.png").unlink()
    (photos / "4.png").unlink()
    report = project.index()
    assert (report.missing, report.changed, report.images) == (["3.png"], [], 18)
    with refusal():
        project.path_of(spare)
    (photos / "elsewhere.png").write_bytes(gone)
    project.index()
    assert project.labels().ids == (spare,)
    assert project.path_of(spare).name == "elsewhere.png"


def test_deleted_images_are_not_asked_about(photos, project):
    for number in range(10):
        (photos / f"{number}.png").unlink()
    project.index()
    items = project.next("ann", 20)
    assert len(items) == project.counts().left == 10


def test_bytes_that_move_to_a_later_file_stay_an_image(photos, project, picture, label, monkeypatch):
    monkeypatch.setattr(scan_module, "FIRST", 1)
    monkeypatch.setattr(scan_module, "PART", 1)
    monkeypatch.setattr(scan_module, "STORED", 1)  # each file in a transaction of its own
    moved, image = (photos / "3.png").read_bytes(), key(photos / "3.png")
    label(project, image)
    picture(photos / "3.png", 999)
    (photos / "later.png").write_bytes(moved)
    report = project.index()
    assert (report.images, report.new, report.changed, report.missing) == (21, 1, [], [])
    assert project.path_of(image).name == "later.png"
    assert project.labels().ids == (image,)


def test_r8_images_and_project_moved_together_go_on(photos, project, label, tmp_path):
    label(project, key(photos / "3.png"))
    project.close()
    (tmp_path / "new").mkdir()
    photos.rename(tmp_path / "new" / "photos")
    project.folder.rename(tmp_path / "new" / "photos.mma")
    again = open_project(tmp_path / "new" / "photos")
    report = again.index()
    assert (report.images, report.new) == (20, 0)
    assert again.path_of(key(tmp_path / "new" / "photos" / "3.png")).is_relative_to(tmp_path / "new")
    assert len(again.labels()) == 1
    again.close()


def test_r8_moved_images_are_linked_again_after_a_look_at_them(photos, project, label, tmp_path, picture, refusal):
    label(project, key(photos / "3.png"))
    project.close()
    picture(tmp_path / "others" / "3.png", 77)
    with refusal():
        relink(project.folder, tmp_path / "others")
    photos.rename(tmp_path / "archive")
    with refusal():
        relink(project.folder, tmp_path / "others")
    again = relink(project.folder, tmp_path / "archive")
    assert again.index().new == 0
    assert again.root == (tmp_path / "archive").resolve()
    again.close()


def test_an_empty_folder_where_there_were_images_changes_nothing(photos, project, tmp_path, label, refusal):
    label(project, key(photos / "3.png"))
    photos.rename(tmp_path / "away")
    with refusal():
        project.index()
    photos.mkdir()  # as the place of a disk that is not connected
    with refusal():
        project.index()
    assert len(project.labels()) == 1
    assert project.counts().left == 19


def test_s7_a_link_back_inside_opens_no_folder_that_leads_out(tmp_path, picture):
    picture(tmp_path / "photos" / "a.png", 1)
    picture(tmp_path / "photos-private" / "secret.png", 2)
    (tmp_path / "photos-private" / "back.png").symlink_to(tmp_path / "photos" / "a.png")
    (tmp_path / "photos" / "sub").symlink_to(tmp_path / "photos-private")
    (tmp_path / "photos" / "out.png").symlink_to(tmp_path / "photos-private" / "secret.png")
    names = ["sub/back.png", "sub/secret.png", "out.png", "a.png"]
    found = {facts.path: facts.reason for facts in scan_module.look((tmp_path / "photos").resolve(), names)}
    leads_out = "it is a link that leads out of the folder"
    assert found == {**dict.fromkeys(names[:3], leads_out), "a.png": None}


# near-duplicates


def test_the_hash_is_that_of_the_library(photos):
    names = [path.name for path in photos.iterdir()]
    found = {facts.path: facts.phash for facts in scan_module.look(photos.resolve(), names)}
    for name in names:
        with Image.open(photos / name) as image:
            assert found[name] == str(imagehash.phash(small_photo(image, scan_module.SIDE)[0]))


def test_pictures_of_one_colour_look_alike(tmp_path):
    pictures = np.stack([np.full((32, 32), value, np.float32) for value in (1, 90, 254)])
    assert len(set(scan_module.perceptual_hashes(pictures))) == 1


def test_near_duplicates_are_one_group(photos, made):
    with Image.open(photos / "3.png") as image:
        image.resize((48, 36)).save(photos / "3-large.png")
        image.save(photos / "3.jpg", quality=80)
    report = made.index()
    groups = made.groups()
    assert report.near == 2
    assert len({groups[key(photos / name)] for name in ("3.png", "3-large.png", "3.jpg")}) == 1
    assert len(set(groups.values())) == 20


def test_groups_are_those_of_a_search_over_all_pairs():
    draw = random.Random(1)
    leaders = [draw.getrandbits(64) for _ in range(300)]
    alike = Alike((f"{value:064x}", f"{value:016x}") for value in leaders)
    for _ in range(2_000):
        value = draw.choice(leaders)
        for bit in draw.sample(range(64), draw.randrange(8)):
            value ^= 1 << bit
        near = [(bin(value ^ leader).count("1"), f"{leader:064x}") for leader in leaders]
        near = [pair for pair in near if pair[0] <= DISTANCE]
        found = Alike.group(alike, "new", f"{value:016x}") if near else None
        if near:
            assert found == min(near)[1]


def test_groups_and_audit_are_the_same_after_a_rebuild(photos, project, picture):
    from mma.project.labels.repair import doctor

    with Image.open(photos / "9.png") as image:
        image.resize((60, 50)).save(photos / "0-large.png")  # a later file that comes first in the folder
    project.index()
    before = {image.id: (image.group, image.audit) for image in project.images()}
    project.close()
    doctor(project.folder, rebuild=True)
    again = open_project(project.folder)
    assert {image.id: (image.group, image.audit) for image in again.images()} == before
    again.close()


def test_near_duplicates_are_all_audit_or_none(photos, made):
    for number in range(20):
        with Image.open(photos / f"{number}.png") as image:
            image.resize((48, 36)).save(photos / f"{number}-large.png")
    made.index()
    audit = {image.id: image.audit for image in made.images()}
    assert all(audit[image] == audit[group] == made.is_audit(image) for image, group in made.groups().items())
    assert 0 < sum(audit.values()) < 40


def test_the_audit_share_is_a_tenth_or_what_a_hundred_images_need():
    from mma.project.project import audit_share

    assert audit_share(100_000) == 0.1
    assert audit_share(500) == 0.2
    assert audit_share(50) == 0.5


def test_a_first_look_shows_images_that_differ(photos, made):
    for number in range(40):
        Image.new("RGB", (30, 30), (number, number, number)).save(photos / f"grey-{number}.png")
    made.index()
    shown = made.spread(8)
    assert len({image.group for image in shown}) == len(shown) == 8


# hostile files


def test_d3_bad_files_are_listed_with_their_reason_and_stop_nothing(photos, made):
    whole = (photos / "3.png").read_bytes()
    (photos / "empty.jpg").write_bytes(b"")
    (photos / "cut.png").write_bytes(whole[: len(whole) // 2])
    (photos / "text.png").write_text("no image")
    (photos / "vector.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (photos / "notes.txt").write_text("passed by")
    (photos / "wide.png").write_bytes(huge_png(100_000, 100_000))
    (photos / "large.png").write_bytes(huge_png(9_000, 9_000))  # below the limit of Pillow, above ours
    os.truncate(photos / "cut.png", len(whole) // 2)
    with (photos / "long.jpg").open("wb") as file:
        file.truncate((64 << 20) + 1)
    report = made.index()
    found = reasons(report)
    assert report.images == 20
    assert found["empty.jpg"] == "the file is empty"
    assert "80,000,000" in found["wide.png"]
    assert found["large.png"] == "9,000 x 9,000 pixels are more than 80,000,000"
    assert "bytes are more than" in found["long.jpg"]
    assert "not a readable JPEG" in found["text.png"]
    assert set(found) == {"empty.jpg", "cut.png", "text.png", "vector.svg", "wide.png", "large.png", "long.jpg"}


def huge_png(width: int, height: int) -> bytes:
    """A PNG of a few bytes that claims to be large."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 100)), (b"IEND", b"")]
    body = b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + body


def test_d3_a_bad_file_that_is_repaired_is_taken_in(photos, made, picture):
    (photos / "late.png").write_bytes(b"half")
    assert list(reasons(made.index())) == ["late.png"]
    picture(photos / "late.png", 55)
    report = made.index()
    assert (report.bad, report.images) == ([], 21)


def test_d3_only_the_first_frame_counts(photos, made):
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue")]
    frames[0].save(photos / "moving.gif", save_all=True, append_images=frames[1:])
    assert made.index().images == 21


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_listed(photos, made):
    (photos / "3.png").chmod(0)
    assert reasons(made.index())["3.png"] == "it may not be read"


def test_s7_links_out_of_the_folder_are_neither_indexed_nor_served(photos, made, tmp_path, picture):
    private = tmp_path / "photos-private"  # a name that begins like the folder's
    picture(private / "secret.png", 5)
    (photos / "out.png").symlink_to(private / "secret.png")
    (photos / "folder").symlink_to(private, target_is_directory=True)
    (photos / "in.png").symlink_to(photos / "3.png")
    report = made.index()
    assert report.images == 20
    assert reasons(report)["out.png"] == "it is a link that leads out of the folder"
    assert reasons(report)["folder"] == "links to folders are not followed"


def test_s7_a_file_that_becomes_a_link_out_of_the_folder_is_not_served(photos, project, tmp_path, picture, refusal):
    image = key(photos / "3.png")
    picture(tmp_path / "photos-private" / "secret.png", 5)
    (photos / "3.png").unlink()
    (photos / "3.png").symlink_to(tmp_path / "photos-private" / "secret.png")
    with refusal():
        project.path_of(image)
    (photos / "3.png").unlink()
    os.mkfifo(photos / "3.png")
    with refusal():
        project.path_of(image)


@pytest.mark.parametrize("becomes", ["a pipe", "a link out", "a link out and back"])
def test_s7_a_file_that_changes_between_a_look_and_the_read_hangs_nothing_and_shows_nothing(
    photos, tmp_path, picture, monkeypatch, becomes
):
    """Whoever looks at it sees a photo; what is opened is something else."""
    private, path, opened = tmp_path / "private.png", photos / "3.png", os.open
    picture(private, 99)
    kept = path.rename(tmp_path / "kept.png")
    path.write_bytes(kept.read_bytes())

    def swap(name, flags, *rest, **more):
        if Path(name) != path:
            return opened(name, flags, *rest, **more)
        path.unlink()
        os.mkfifo(path) if becomes == "a pipe" else path.symlink_to(private)
        try:
            return opened(name, flags, *rest, **more)
        finally:
            path.unlink()
            path.write_bytes(kept.read_bytes())

    monkeypatch.setattr(os, "open", swap)
    facts = look(photos.resolve(), ["3.png"])[0]
    assert facts.image is None
    assert facts.reason in ("it is not a regular file", "Too many levels of symbolic links")
    if becomes == "a link out and back":
        with pytest.raises(UserError, match="changed while it was read"):
            data_photos.read_file(path, photos.resolve())


def test_a_folder_that_changes_while_it_is_indexed_ends_as_it_is(photos, picture, tmp_path):
    """Files come, go, are cut, moved and swapped for pipes and links, again and again; then they are left alone."""
    draw, calm, turn = random.Random(3), threading.Event(), threading.Lock()
    whole = (photos / "3.png").read_bytes()

    def churn():
        while not calm.is_set():
            path = photos / draw.choice(["churn", "a", "a/b"]) / f"{draw.randrange(30)}.png"
            act = draw.randrange(7)
            with turn, suppress(OSError):  # in turn: whoever writes to a pipe that the other one made waits for ever
                path.parent.mkdir(parents=True, exist_ok=True)
                path.unlink(missing_ok=True)
                if act < 2:
                    path.write_bytes(whole[: draw.randrange(len(whole))] if act else whole)
                elif act == 2:
                    picture(path, draw.randrange(1_000))
                elif act == 4:
                    os.mkfifo(path)
                elif act == 5:
                    path.symlink_to(draw.choice([tmp_path, photos / "5.png", photos / "nowhere"]))
                else:
                    path.parent.rename(photos / draw.choice(["churn", "a", "b"]))

    project = create_project(photos, tmp_path / "changing.mma", classes=["cat"])
    threads = [threading.Thread(target=churn, daemon=True) for _ in range(2)]
    for each in threads:
        each.start()
    try:
        for _ in range(12):
            project.index()
    finally:
        calm.set()
        for each in threads:
            each.join()
    project.index()
    other = create_project(photos, tmp_path / "calm.mma", classes=["cat"])
    other.index()
    assert {image.id for image in project.images()} == {image.id for image in other.images()}
    assert not [each for each in doctor(project.folder) if each.problem]
    for each in (project, other):
        each.close()


def test_s7_state_is_private(project):
    project.models.put(state="training")
    assert project.layout.state.stat().st_mode & 0o777 == 0o700
    for path in (project.layout.log, project.layout.database, project.layout.url):
        assert not path.exists() or path.stat().st_mode & 0o777 == 0o600


def test_a_password_of_a_store_is_in_no_public_file(project, postgres_url, photos, tmp_path):
    url = postgres_url.replace("mma@", "mma:secret@")
    made = create_project(photos, tmp_path / "other.mma", store=url)
    public = [path for path in made.folder.iterdir() if path.is_file()]
    assert not [path for path in public if "secret" in path.read_text()]
    assert "secret" not in made.store.place
    assert made.layout.url.stat().st_mode & 0o777 == 0o600
    made.close()


# folders and files as hints


def test_sub_folders_are_offered_but_not_taken(tmp_path, picture):
    for number in range(8):
        picture(tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number}.png", number)
    (tmp_path / "photos" / "labels.csv").write_text("file_name,label\n")
    project = create_project(tmp_path / "photos")
    project.index()
    assert project.classes() == []
    assert len(project.labels()) == 0
    hints = project.hints()
    assert (hints.folders, hints.label_files, hints.question) == (("cat", "dog"), ("labels.csv",), "")
    project.close()


def test_folders_in_folders_are_a_question(tmp_path):
    names = [f"{year}/{kind}/{number}.png" for year in (2020, 2021) for kind in ("cat", "dog") for number in range(5)]
    hints = class_hints(tmp_path, names)
    assert hints.folders == ()
    assert "first ones ('2020', '2021') or the last ones ('cat', 'dog')" in hints.question


def test_nearly_one_folder_per_image_is_a_question(tmp_path):
    hints = class_hints(tmp_path, [f"visit-{number}/photo.png" for number in range(30)])
    assert hints.folders == ()
    assert "30 sub-folders for 30 images" in hints.question


def test_small_tasks_are_handed_over_together_in_order(photos, monkeypatch):
    names = sorted(path.name for path in photos.iterdir())
    for name, value in (("FIRST", 1), ("PART", 2), ("STORED", 6), ("LINGER", 600.0), ("cores", lambda: 1)):
        monkeypatch.setattr(scan_module, name, value)
    parts = [[facts.path for facts in part] for part in scan_module.scan(photos.resolve(), names)]
    assert [len(part) for part in parts] == [1, 6, 6, 6, 1]  # the first one at once
    assert [name for part in parts for name in part] == names


def test_what_nobody_waits_for_is_not_looked_at(photos, monkeypatch):
    names, seen, begun, go_on = [f"{number}.png" for number in range(20)], [], threading.Event(), threading.Event()
    for name, value in (("FIRST", 1), ("PART", 1), ("STORED", 1), ("AHEAD", 20), ("cores", lambda: 1)):
        monkeypatch.setattr(scan_module, name, value)

    def look(root: Path, some: list[str]) -> list[str]:
        seen.extend(some)
        if len(seen) == 2:
            begun.set()
            go_on.wait()
        return some

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            go_on.set()
            super().shutdown(wait=wait)

    monkeypatch.setattr(scan_module, "look", look)
    monkeypatch.setattr(scan_module, "ThreadPoolExecutor", Pool)
    found = scan_module.scan(photos.resolve(), names)
    assert next(found) == names[:1]
    begun.wait()
    found.close()
    assert seen == names[:2]


def test_many_files_are_looked_at_by_several_processes(photos, monkeypatch, made):
    """The same facts as threads find."""
    names = sorted(path.name for path in photos.iterdir())
    alone = scan_module.look(photos.resolve(), names)
    monkeypatch.setattr(scan_module, "MANY", 5)
    monkeypatch.setattr(scan_module, "cores", lambda: 2)
    assert [facts for part in scan_module.scan(photos.resolve(), names) for facts in part] == alone


def test_a_process_that_looks_at_files_imports_little():
    code = (
        "import sys, mma.project.scan; print({'pydantic', 'sqlalchemy', 'torch', 'urllib.request'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"

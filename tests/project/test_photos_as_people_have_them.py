"""Folders as people have them: iPhone photos, huge scans, links, renamed folders, zip files, RAW."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mma.data import photos as decoders
from mma.data.photos import open_image, quiet_decoders, reduce_photo
from mma.project import create_project, open_project
from tests.project.test_commands import mma


def noise(side: int = 40, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8))


def reasons(folder: Path, **options) -> tuple[int, dict[str, str]]:
    """Index a folder; return how many images it has, and why other files are none."""
    project = create_project(folder, **options)
    try:
        report = project.index()
        for image in project.images():
            with quiet_decoders():
                assert project.path_of(image.id).is_file()
        return report.images, {bad.file: bad.reason for bad in report.bad}
    finally:
        project.close()


@pytest.fixture
def heic(tmp_path: Path) -> Path:
    pillow_heif = pytest.importorskip(
        "pillow_heif", reason="iPhone photos are read by pillow-heif, pip install '.[heic]'"
    )
    pillow_heif.register_heif_opener()
    (tmp_path / "photos").mkdir()
    noise(64).save(tmp_path / "photos" / "IMG_0001.HEIC")
    return tmp_path / "photos"


def test_iphone_photos_avif_and_ppm_are_read(heic):
    noise(64, 1).save(heic / "a.avif")
    noise(64, 2).save(heic / "b.ppm")
    noise(64, 3).convert("L").save(heic / "c.pgm")
    assert reasons(heic) == (4, {})


def test_without_a_decoder_the_reason_names_the_iphone_and_the_command_and_later_the_file_is_looked_at_again(
    heic, monkeypatch
):
    noise(64, 1).save(heic / "a.png")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pillow_heif", None)
        count, bad = reasons(heic)
    assert (count, "iPhone" in bad["IMG_0001.HEIC"], "pip install" in bad["IMG_0001.HEIC"]) == (1, True, True)
    project = open_project(heic)
    assert project.index().images == 2
    project.close()


def test_an_iphone_photo_has_the_same_limit_of_pixels(heic, monkeypatch):
    noise(64, 1).save(heic / "a.png")
    monkeypatch.setattr(decoders, "MAX_PIXELS", 64 * 64 - 1)
    assert "pixels are more than" in reasons(heic)[1]["IMG_0001.HEIC"]


def test_a_jpeg_of_a_hundred_megapixels_is_scaled_while_it_is_decoded(tmp_path):
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (12_000, 9_000), "navy").save(tmp_path / "photos" / "scan.jpg", quality=50)
    assert reasons(tmp_path / "photos") == (1, {})
    data = (tmp_path / "photos" / "scan.jpg").read_bytes()
    with quiet_decoders(), open_image(data) as image:
        assert reduce_photo(image, 20_000) == (6_000, 4_500)  # more is wanted than may be decoded
        assert image.convert("RGB").getpixel((5, 5)) == pytest.approx((0, 0, 128), abs=3)


def test_what_cannot_be_scaled_while_it_is_decoded_is_refused(tmp_path):
    (tmp_path / "photos").mkdir()
    Image.new("L", (10_000, 9_000)).save(tmp_path / "photos" / "scan.png")
    Image.new("L", (10_000, 9_000)).save(tmp_path / "photos" / "scan.jpg", progressive=True)
    assert set(reasons(tmp_path / "photos")[1]) == {"scan.png", "scan.jpg"}


def test_raw_files_are_called_by_their_name(tmp_path):
    (tmp_path / "photos").mkdir()
    noise().save(tmp_path / "photos" / "a.png")
    noise().save(tmp_path / "photos" / "b.dng", format="TIFF")  # with a preview that Pillow could read
    assert "RAW file of a camera" in reasons(tmp_path / "photos")[1]["b.dng"]


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """Links to files and to a folder outside, one of them back to the beginning."""
    for number in range(4):
        (tmp_path / "store" / "more").mkdir(parents=True, exist_ok=True)
        noise(seed=number).save(tmp_path / "store" / ("more" if number > 1 else ".") / f"{number}.png")
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(2):
        (folder / f"{number}.png").symlink_to(tmp_path / "store" / f"{number}.png")
    (folder / "more").symlink_to(tmp_path / "store" / "more")
    (tmp_path / "store" / "more" / "back").symlink_to(folder)
    return folder


def test_links_that_lead_out_are_followed_when_asked_for(linked):
    count, bad = reasons(linked)
    assert (count, len(bad)) == (0, 3)
    project = open_project(linked)
    project.close()
    assert "--follow-links" in mma("new", str(linked))
    words = mma("new", str(linked), "--follow-links")
    assert words.startswith("4 images in 4 files, 4 of them new")
    project = open_project(linked)
    assert {project.path_of(image.id).name for image in project.images()} == {f"{n}.png" for n in range(4)}
    project.close()


def test_a_zip_is_to_be_unzipped_first(tmp_path):
    (tmp_path / "my photos.zip").write_bytes(b"PK")
    said = mma("new", str(tmp_path / "my photos.zip"), code=1)
    assert f"unzip '{tmp_path / 'my photos.zip'}' -d '{tmp_path / 'my photos'}'" in said


def test_a_renamed_folder_is_continued_not_begun_again(photos, label):
    project = create_project(photos, classes=["cat", "dog"])
    project.index()
    label(project, project.images()[0].id)
    project.close()
    renamed = photos.rename(photos.with_name("holiday"))
    said = mma("new", str(renamed), code=1)
    assert f"--project {photos.with_name('photos.mma')}" in said
    assert not renamed.with_name("holiday.mma").exists()
    mma("new", str(renamed), "--project", str(photos.with_name("photos.mma")))
    project = open_project(photos.with_name("photos.mma"))
    assert (project.root, project.counts().labeled) == (renamed.resolve(), 1)
    project.close()


def test_a_copy_of_a_folder_is_a_project_of_its_own(photos):
    import shutil

    create_project(photos).close()
    shutil.copytree(photos, photos.with_name("copy"))
    assert "made the project" in mma("new", str(photos.with_name("copy")))


def test_a_project_without_the_page_is_made_asked_told_and_says_what_trains(photos, tmp_path):
    said = mma("new", str(photos), "--classes", "cat,dog")
    assert "mma ask" in said
    table = tmp_path / "picks.csv"
    assert "mma work" in mma("ask", str(photos), "-n", "2", "-o", str(table))
    table.write_text(table.read_text().replace(",,", ",cat,"))
    lines = table.read_text().splitlines()
    assert len(lines) == 3

import io
import os
import struct
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mma.data import BadFile, FolderOptions, photos
from mma.data.folder import describe_unlisted, list_files, read_folder


def reasons(data):
    return {bad.file: bad.reason for bad in data.quarantine}


# decoding


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "bmp", "gif", "tiff"])
def test_every_format_of_the_list_is_read(tmp_path, suffix):
    Image.new("RGB", (50, 20), (200, 100, 50)).save(tmp_path / f"a.{suffix}")
    pixels = read_folder(tmp_path, FolderOptions(name="x", side=8)).train.pixels
    assert pixels.shape == (1, 8, 8, 3)
    assert np.abs(pixels[0].astype(int) - (200, 100, 50)).max() <= 6


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "LA", "CMYK", "I;16"])
def test_every_mode_becomes_eight_bit_colour(tmp_path, mode):
    suffix = "tiff" if mode == "CMYK" else "png"
    image = Image.fromarray(np.full((9, 9), 65_535, np.uint16)) if mode == "I;16" else Image.new("RGB", (9, 9), "white")
    image.convert(mode).save(tmp_path / f"a.{suffix}")
    assert read_folder(tmp_path, FolderOptions(name="x", side=8)).train.pixels.min() >= 254


def test_transparent_places_are_white(tmp_path):
    Image.new("RGBA", (9, 9), (0, 0, 0, 0)).save(tmp_path / "a.png")
    assert read_folder(tmp_path, FolderOptions(name="x", side=8)).train.pixels.min() == 255


def test_the_exif_orientation_is_applied(tmp_path):
    half = np.zeros((16, 16, 3), np.uint8)
    half[:8] = 255  # white above
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned right by 90 degrees
    Image.fromarray(half).save(tmp_path / "a.png", exif=exif)
    pixels = read_folder(tmp_path, FolderOptions(name="x", side=16)).train.pixels[0]
    assert pixels[:, 12:].min() == 255
    assert pixels[:, :4].max() == 0


def test_an_image_is_squashed_not_cropped(tmp_path):
    wide = np.zeros((10, 100, 3), np.uint8)
    wide[:, :25] = 255
    Image.fromarray(wide).save(tmp_path / "a.png")
    pixels = read_folder(tmp_path, FolderOptions(name="x", side=8)).train.pixels[0]
    assert pixels[:, 0].min() > 200
    assert pixels[:, 4:].max() < 50


def test_large_jpegs_are_read_as_well_as_small_ones(tmp_path):
    gradient = np.broadcast_to(np.linspace(0, 255, 1_024).astype(np.uint8)[None, :, None], (1_024, 1_024, 3))
    Image.fromarray(np.ascontiguousarray(gradient)).save(tmp_path / "a.jpg", quality=95)
    row = read_folder(tmp_path, FolderOptions(name="x", side=16)).train.pixels[0, 8, :, 0].astype(int)
    assert np.abs(row - np.linspace(8, 247, 16)).max() < 6


def test_only_the_first_frame_of_an_animation_is_read(tmp_path):
    frames = [Image.new("RGB", (9, 9), colour) for colour in ("black", "white")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert read_folder(tmp_path, FolderOptions(name="x", side=8)).train.pixels.max() == 0


def test_an_image_of_eight_by_eight_pixels_is_used_and_a_smaller_one_is_listed(tmp_path, picture):
    picture(tmp_path / "a.png", size=(8, 8))
    picture(tmp_path / "b.png", size=(40, 7))
    data = read_folder(tmp_path, FolderOptions(name="x", side=4))
    assert (data.train.shape, data.train.names) == ((4, 4, 3), ("a.png",))
    assert reasons(data) == {"b.png": "40 x 7 pixels are too few: 8 x 8 are needed"}


def test_grey_images_are_noted_and_can_be_stored_with_one_channel(tmp_path):
    Image.fromarray(np.arange(100, dtype=np.uint8).reshape(10, 10)).save(tmp_path / "a.png")
    assert any("--grey" in note for note in read_folder(tmp_path, FolderOptions(name="x")).notes)
    data = read_folder(tmp_path, FolderOptions(name="x", grey=True))
    assert data.train.shape == (32, 32, 1)
    assert not any("--grey" in note for note in data.notes)


def test_images_of_one_colour_are_noted_and_work(photo_folder):
    Image.new("RGB", (9, 9), "red").save(photo_folder / "cat" / "red.png")
    data = read_folder(photo_folder, FolderOptions(holdout=0.0))
    assert "1 images are of one single colour: cat/red.png" in data.notes


# bad files


def png_that_claims(width, height):
    header = b"IHDR" + struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    return b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))


def test_bad_files_are_listed_with_their_reason_and_the_rest_is_used(photo_folder, monkeypatch, picture):
    monkeypatch.setattr(photos, "MAX_BYTES", 200_000)
    bad = photo_folder / "cat"
    whole = (bad / "0.png").read_bytes()
    (bad / "truncated.png").write_bytes(whole[: len(whole) // 2])
    picture(bad / "whole.jpg", size=(100, 100))
    (bad / "truncated.jpg").write_bytes((bad / "whole.jpg").read_bytes()[:3_000])
    (bad / "empty.png").write_bytes(b"")
    (bad / "text.jpg").write_text("no image")
    (bad / "drawing.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (bad / "huge.bmp").write_bytes(bytes(200_001))
    (bad / "wide.png").write_bytes(png_that_claims(9_000, 9_000))
    (bad / "bomb.png").write_bytes(png_that_claims(10_000, 10_000))
    (bad / "mega.png").write_bytes(png_that_claims(60_000, 60_000))
    data = read_folder(photo_folder, FolderOptions(holdout=0.0))
    assert len(data.train) == 21
    found = reasons(data)
    assert set(found) == {
        f"cat/{name}"
        for name in (
            *("truncated.png", "truncated.jpg", "empty.png", "text.jpg", "drawing.svg"),
            *("huge.bmp", "wide.png", "bomb.png", "mega.png"),
        )
    }
    assert "not a readable JPEG" in found["cat/drawing.svg"]
    assert found["cat/empty.png"] == "the file is empty"
    assert "bytes are more than 200,000" in found["cat/huge.bmp"]
    assert all("80,000,000" in found[f"cat/{name}.png"] for name in ("wide", "bomb", "mega"))


def test_links_out_of_the_folder_are_refused_and_links_inside_are_not(photo_folder, tmp_path, picture):
    sibling = tmp_path / "photos-private"  # a name that begins like the folder's
    picture(sibling / "secret.png")
    (photo_folder / "cat" / "out.png").symlink_to(sibling / "secret.png")
    (photo_folder / "cat" / "in.png").symlink_to(photo_folder / "dog" / "1.png")
    (photo_folder / "cat" / "nowhere.png").symlink_to(tmp_path / "missing.png")
    (photo_folder / "linked").symlink_to(sibling, target_is_directory=True)
    data = read_folder(photo_folder, FolderOptions(holdout=0.0))
    assert reasons(data) == {
        "cat/out.png": "it is a link that leads out of the folder",
        "cat/nowhere.png": "it is a link that leads nowhere",
        "linked": "links to folders are not followed",
    }
    assert "cat/in.png" in data.train.names
    assert data.train.classes == ("cat", "dog")


def test_a_pipe_is_not_waited_for(photo_folder):
    os.mkfifo(photo_folder / "cat" / "pipe.png")
    assert reasons(read_folder(photo_folder, FolderOptions())) == {"cat/pipe.png": "it is not a regular file"}


def test_hidden_files_are_passed_by(photo_folder, picture):
    (photo_folder / ".DS_Store").write_bytes(b"x")
    picture(photo_folder / ".thumbnails" / "a.png")
    names, bad = list_files(photo_folder)
    assert len(names) == 20
    assert bad == []


def test_a_file_name_that_is_not_text_is_left_out(photo_folder):
    try:
        Path(os.fsdecode(os.fsencode(photo_folder) + b"/cat/\xff.png")).write_bytes(b"x")
    except OSError:
        pytest.skip("this file system only takes names that are text")
    _, bad = list_files(photo_folder)
    assert bad == [BadFile(r"cat/\udcff.png", "its name is not valid text")]


def test_a_folder_of_bad_files_only_is_an_error_with_the_reasons(tmp_path, refusal):
    (tmp_path / "a.png").write_text("no image")
    with refusal():
        read_folder(tmp_path, FolderOptions(name="x"))


def test_an_empty_folder_and_a_missing_folder_are_errors(tmp_path, refusal):
    with refusal():
        read_folder(tmp_path, FolderOptions(name="x"))
    with refusal():
        read_folder(tmp_path / "missing", FolderOptions())


def forbid(monkeypatch, folder):
    """Let the system refuse to list a folder, as it does to everyone but root."""
    real = os.scandir

    def scandir(path):
        if Path(path) == folder:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)


def test_a_sub_folder_that_may_not_be_read_is_listed(photo_folder, monkeypatch):
    forbid(monkeypatch, photo_folder / "cat")
    names, bad = list_files(photo_folder)
    assert {name.split("/")[0] for name in names} == {"dog"}
    assert bad == [BadFile("cat", "it may not be read")]


def test_a_folder_that_may_not_be_read_is_an_error_with_the_way_out(photo_folder, monkeypatch, refusal):
    forbid(monkeypatch, photo_folder)
    with refusal():
        list_files(photo_folder)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read every folder")
def test_the_system_refuses_to_list_a_forbidden_sub_folder(photo_folder):
    (photo_folder / "cat").chmod(0)
    try:
        assert list_files(photo_folder)[1] == [BadFile("cat", "it may not be read")]
    finally:
        (photo_folder / "cat").chmod(0o755)


def test_an_unlisted_folder_is_named_by_its_way_from_the_top():
    error = PermissionError(13, "Permission denied", "photos/a/b\x1b")
    assert describe_unlisted(Path("photos"), error) == BadFile(r"a/b\x1b", "it may not be read")


def test_a_file_that_is_not_there_is_not_called_a_link(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        photos.read_file(tmp_path / "gone.png", tmp_path)
    assert photos.explain_bad_file(caught.value) == "there is no such file"


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "L", "RGB", "I;16", "LAB", "CMYK"])
def test_a_large_image_converted_in_strips_has_the_same_pixels(mode, monkeypatch):
    noise = np.random.default_rng(0).integers(0, 256, (37, 53, 4), dtype=np.uint8)
    if mode == "I;16":
        image = Image.fromarray(noise.view(np.uint16)[..., 0])
    elif mode == "LAB":
        image = Image.merge("LAB", [Image.fromarray(noise[..., c]) for c in range(3)])
    else:
        image = Image.fromarray(noise, "CMYK" if mode == "CMYK" else "RGBA").convert(mode)
    if mode == "P":
        image.info["transparency"] = 7
    whole = [np.asarray(photos._flat(image, kind)) for kind in ("RGB", "L")]
    monkeypatch.setattr(photos, "LARGE", 500)
    for kind, expected in zip(("RGB", "L"), whole, strict=True):
        assert np.array_equal(np.asarray(photos._flat(image, kind)), expected)


def test_large_images_are_decoded_one_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(photos, "LARGE", 500)
    monkeypatch.setattr(photos.tempfile, "gettempdir", lambda: str(tmp_path))
    inside, most, lock = 0, 0, threading.Lock()

    def look(size):
        nonlocal inside, most
        with photos.alone(Image.new("RGB", size)):
            with lock:
                inside += 1
                most = max(most, inside)
            time.sleep(0.02)
            with lock:
                inside -= 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(look, [(30, 30)] * 8))
    assert most == 1
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(look, [(20, 20)] * 8))
    assert most > 1


def test_a_progressive_jpeg_waits_for_its_turn_and_a_plain_one_does_not(tmp_path, monkeypatch):
    monkeypatch.setattr(photos, "LARGE", 500)
    monkeypatch.setattr(photos.tempfile, "gettempdir", lambda: str(tmp_path))
    for name, progressive in (("plain.jpg", False), ("progressive.jpg", True)):
        Image.new("RGB", (30, 30)).save(tmp_path / name, progressive=progressive)
        with photos.open_photo(tmp_path.resolve(), name):
            assert any(tmp_path.glob("*.lock")) == progressive


def test_sixteen_bits_become_eight_by_257():
    """White stays white, and so does every grey level of eight bits; 256 would make 255 of 65,280."""
    levels = np.array([[0, 256, 257, 65_279, 65_280, 65_534, 65_535]], np.uint16)
    assert np.asarray(photos._flat(Image.fromarray(levels), "L")).tolist() == [[0, 0, 1, 254, 254, 254, 255]]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_tiff_is_shown_as_upright_as_other_files(orientation):
    """Pillow turns a TIFF when it decodes it, and other files only when asked to."""
    pixels = np.arange(12 * 20 * 3, dtype=np.uint8).reshape(12, 20, 3)
    exif, shown = Image.Exif(), []
    exif[0x0112] = orientation
    for kind in ("PNG", "TIFF"):
        data = io.BytesIO()
        Image.fromarray(pixels).save(data, kind, exif=exif)
        shown.append(np.asarray(photos.bounded_photo(Image.open(data), 100)))
    assert np.array_equal(*shown)

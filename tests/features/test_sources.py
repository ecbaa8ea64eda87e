"""Images at the size a backbone sees."""

from __future__ import annotations

import hashlib
import shutil

import numpy as np
import pytest
from PIL import Image

from mma.data import Images, load_data
from mma.data.photos import read_photo
from mma.features import ArrayImages, PhotoFiles, image_source
from mma.features.inputs import make_again
from tests.features.conftest import array_images, noise, waves

ROWS = np.arange(3)


def test_an_array_is_scaled_and_grey_becomes_three_channels():
    grey = ArrayImages(noise(3, 20)[..., :1], np.zeros((3, 32), np.uint8))
    images = grey.decode(ROWS, 32)
    assert images.shape == (3, 32, 32, 3)
    assert np.array_equal(images[..., 0], images[..., 2])


def test_an_array_of_the_right_size_is_not_changed():
    images = array_images(3, 16)
    assert np.array_equal(images.decode(ROWS, 16), images.pixels)


def test_an_array_is_scaled_down_with_antialiasing():
    stripes = np.zeros((1, 64, 64, 3), np.uint8)
    stripes[:, :, ::2] = 255
    small = ArrayImages(stripes, np.zeros((1, 32), np.uint8)).decode(np.array([0]), 16)
    assert small.std() < 10  # grey, not black or white


@pytest.mark.parametrize("shape", [(2, 7, 9, 3), (2, 9, 9, 4)])
def test_images_that_are_too_small_or_have_odd_channels_are_refused(shape, refusal):
    with refusal():
        ArrayImages(np.zeros(shape, np.uint8), np.zeros((2, 32), np.uint8))


def test_photos_look_as_in_the_pool_at_another_size(photos):
    """Another filter scales them, so they are alike and not equal."""
    expected = [read_photo(photos.root, photos.names[row], 24, grey=False)[0] for row in ROWS]
    assert np.abs(photos.decode(ROWS, 24).astype(int) - np.stack(expected)).mean() < 8


@pytest.mark.parametrize("mode", ["L", "RGBA", "CMYK", "P", "I;16", "1"])
def test_photos_of_every_mode_look_as_in_the_pool(tmp_path, mode):
    picture = Image.fromarray(waves(60, 1))
    made = (
        Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 257)
        if mode == "I;16"
        else picture.convert(mode)
    )
    made.save(tmp_path / "one.tif")
    key = np.frombuffer(hashlib.sha256((tmp_path / "one.tif").read_bytes()).digest(), np.uint8)[None]
    ours = PhotoFiles(tmp_path.resolve(), ["one.tif"], key).decode(np.array([0]), 30)[0]
    theirs, _ = read_photo(tmp_path.resolve(), "one.tif", 30, grey=False)
    assert np.abs(ours.astype(int) - theirs).mean() < 8


def test_a_photo_is_turned_upright_and_a_large_one_keeps_its_look(tmp_path):
    Image.fromarray(waves(900, 1)).save(tmp_path / "plain.jpg", quality=95)
    turned, exif = Image.fromarray(np.rot90(waves(900, 1))), Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate by 270 degrees to see it upright
    turned.save(tmp_path / "turned.jpg", exif=exif, quality=95)
    names = ["plain.jpg", "turned.jpg"]
    keys = np.stack(
        [np.frombuffer(hashlib.sha256((tmp_path / name).read_bytes()).digest(), np.uint8) for name in names]
    )
    plain, upright = PhotoFiles(tmp_path.resolve(), names, keys).decode(np.arange(2), 32).astype(int)
    assert np.abs(plain - upright).mean() < 12  # turned the wrong way it would be 70
    assert np.abs(plain - read_photo(tmp_path.resolve(), "plain.jpg", 32, grey=False)[0]).mean() < 8


def test_a_photo_that_changed_is_refused_by_its_hash(photos, refusal):
    Image.fromarray(noise(1, 40, 99)[0]).save(photos.root / photos.names[1])
    with refusal():
        photos.decode(ROWS, 24)


def test_a_photo_that_is_gone_or_broken_is_named(photos, refusal):
    (photos.root / photos.names[0]).unlink()
    with refusal():
        photos.decode(ROWS, 24)


def test_a_photo_of_a_few_pixels_is_named(tmp_path, refusal):
    Image.new("RGB", (9, 7)).save(tmp_path / "speck.png")
    key = np.frombuffer(hashlib.sha256((tmp_path / "speck.png").read_bytes()).digest(), np.uint8)[None]
    with refusal():
        PhotoFiles(tmp_path, ["speck.png"], key).decode(np.array([0]), 32)


def test_a_link_that_leads_out_of_the_folder_is_refused(photos, tmp_path, refusal):
    (tmp_path / "photos-private").mkdir()
    inside, outside = photos.root / photos.names[0], tmp_path / "photos-private" / "secret.png"
    inside.rename(outside)
    inside.symlink_to(outside)
    with refusal():
        photos.decode(ROWS, 24)


def test_a_saved_folder_knows_where_its_photos_are(folder_data, tmp_path):
    for split, folder in ((folder_data.train, "photos"), (folder_data.test, "tests")):
        source, note = image_source(split)
        assert isinstance(source, PhotoFiles)
        assert note == ""
        assert source.root == (tmp_path / folder).resolve()
        assert source.decode(np.arange(len(source)), 40).shape == (len(split), 40, 40, 3)


def test_a_photo_that_is_gone_comes_with_the_command_of_its_data_set(folder_data, refusal):
    again = make_again(folder_data)
    for split in (folder_data.train, folder_data.test):
        source, _ = image_source(split, again)
        (source.root / source.names[0]).unlink()
        with refusal():
            source.take(np.array([0])).decode(np.array([0]), 24)


def test_where_the_photos_are_gone_the_stored_pixels_are_used_and_said_so(folder_data, tmp_path):
    shutil.rmtree(tmp_path / "photos")
    source, note = image_source(load_data("folder:mine").train)
    assert isinstance(source, ArrayImages)
    assert "32 x 32 pixels" in note
    assert source.content != PhotoFiles.content  # so that their features are not taken for those of the photos


def test_a_published_data_set_is_an_array(digits):
    source, note = image_source(digits.train)
    assert isinstance(source, ArrayImages)
    assert note == ""


def test_a_part_of_images_keeps_its_folder(folder_data):
    part: Images = folder_data.train.take(np.arange(2))
    assert part.root == folder_data.train.root


@pytest.mark.parametrize("kind", ["array", "photos"])
def test_a_taken_part_decodes_to_the_same_images(kind, photos):
    source = photos if kind == "photos" else array_images(9)
    rows = np.array([5, 2])
    assert np.array_equal(source.take(rows).decode(np.arange(2), 20), source.decode(rows, 20))
    assert np.array_equal(source.take(rows).keys, source.keys[rows])

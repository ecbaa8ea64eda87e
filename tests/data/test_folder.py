import hashlib
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mma.data import BadFile, FolderOptions, get_folder, load, photos
from mma.data.folder import list_files, read_folder

SIGNS = Path(__file__).parents[2].parent / "shared" / "data" / "signs"


def picture(path, size=(40, 30), seed=0, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, **options)
    return pixels


@pytest.fixture
def photo_folder(tmp_path):
    """Ten cats, ten dogs."""
    folder = tmp_path / "photos"
    for i in range(20):
        picture(folder / ("cat", "dog")[i % 2] / f"{i}.png", seed=i)
    return folder


def reasons(data):
    return {bad.file: bad.reason for bad in data.quarantine}


# labels from sub-directories


def test_a_class_per_sub_directory(photo_folder):
    data = read_folder(photo_folder, FolderOptions(side=8, mirror=True))
    assert data.name == "folder:photos"
    assert data.train.classes == ("cat", "dog")
    assert (data.train.class_counts(), data.test.class_counts()) == ({"cat": 8, "dog": 8}, {"cat": 2, "dog": 2})
    assert data.train.shape == (8, 8, 3)
    assert data.mirror
    assert not set(data.train.names) & set(data.test.names)
    assert all(
        data.train.classes[label] == name.split("/")[0]
        for label, name in zip(data.train.labels, data.train.names, strict=True)
    )


def test_reading_twice_gives_the_same_digests_and_changes_no_file(photo_folder):
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in photo_folder.rglob("*")}
    first, second = (read_folder(photo_folder, FolderOptions(side=8)) for _ in range(2))
    assert first.train.digest() == second.train.digest()
    assert first.test.digest() == second.test.digest()
    assert before == {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in photo_folder.rglob("*")}


def test_no_sub_directories_means_no_labels_and_no_test_set(tmp_path):
    for i in (10, 9, 1):
        picture(tmp_path / f"{i}.jpg", seed=i)
    data = read_folder(tmp_path, FolderOptions(name="flat"))
    assert data.train.labels.tolist() == [-1, -1, -1]
    assert data.train.names == ("1.jpg", "9.jpg", "10.jpg")
    assert (data.train.classes, len(data.test)) == ((), 0)


def test_loose_images_beside_classes_have_no_label_and_stay_in_the_pool(photo_folder):
    picture(photo_folder / "loose.png")
    data = read_folder(photo_folder, FolderOptions(holdout=0.5))
    assert data.train.labels[data.train.names.index("loose.png")] == -1
    assert "1 of 11 images in the pool have no label" in data.notes


def test_a_class_with_one_image_is_noted_and_keeps_it_in_the_pool(photo_folder):
    picture(photo_folder / "owl" / "only.png")
    data = read_folder(photo_folder, FolderOptions(holdout=0.9))
    assert data.train.class_counts() == {"cat": 1, "dog": 1, "owl": 1}
    assert any("single image" in note and "owl" in note for note in data.notes)


def test_nothing_is_held_out_when_nothing_is_asked_for(photo_folder):
    assert len(read_folder(photo_folder, FolderOptions(holdout=0.0)).test) == 0


# keys


def labels_by_key(data):
    """The class of every image, by its key, in pool and test set together."""
    return {
        images.key(row): images.classes[label] if label >= 0 else ""
        for images in (data.train, data.test)
        for row, label in enumerate(images.labels)
    }


def test_a_key_is_the_hash_of_the_file_and_goes_with_its_name(photo_folder):
    (photo_folder / "cat" / "00-bad.png").write_bytes(b"x")
    data = read_folder(photo_folder, FolderOptions(side=8))
    for images in (data.train, data.test):
        for row, name in enumerate(images.names):
            assert images.key(row) == hashlib.sha256((photo_folder / name).read_bytes()).hexdigest()


def test_adding_a_photo_renumbers_rows_but_keeps_every_key_and_label(photo_folder, tmp_path):
    before = get_folder(photo_folder, FolderOptions("x", side=8), tmp_path / "root")
    old = labels_by_key(before)
    first = before.train.key(0)
    picture(photo_folder / "ape" / "new.png", seed=99)  # its class comes first, so every id moves, too
    picture(photo_folder / "cat" / "00.png", seed=98)
    after = get_folder(photo_folder, FolderOptions("x", side=8), tmp_path / "root")
    new = labels_by_key(after)
    assert len(new) == len(old) + 2
    assert old.items() <= new.items()
    assert after.train.classes == ("ape", "cat", "dog")
    assert before.train.rows([first]).tolist() == [0]
    everything = [after.train.key(row) for row in range(len(after.train))]
    assert first not in everything[:1]


def test_a_photo_that_is_moved_keeps_its_key(photo_folder):
    before = set(labels_by_key(read_folder(photo_folder, FolderOptions(side=8))))
    (photo_folder / "cat" / "0.png").rename(photo_folder / "dog" / "cat.png")
    assert set(labels_by_key(read_folder(photo_folder, FolderOptions(side=16)))) == before


# declared classes


def test_declared_classes_have_the_ids_of_their_order_and_may_have_no_image(photo_folder):
    data = read_folder(photo_folder, FolderOptions(side=8, classes=("owl", "dog", "cat")))
    assert data.train.classes == data.test.classes == ("owl", "dog", "cat")
    assert data.train.class_counts() == {"owl": 0, "dog": 8, "cat": 8}


def test_a_folder_without_labels_is_a_pool_to_ask_about(tmp_path):
    picture(tmp_path / "pool" / "a.png")
    declared = get_folder(tmp_path / "pool", FolderOptions(classes=("cat", "dog")), tmp_path / "root")
    assert (declared.train.classes, declared.train.labels.tolist()) == (("cat", "dog"), [-1])
    assert "1 of 1 images in the pool have no label" in declared.notes
    empty = get_folder(tmp_path / "pool", FolderOptions(), tmp_path / "root")
    assert (empty.train.classes, empty.train.labels.tolist()) == ((), [-1])
    assert "no class is known yet; name what people can answer with --classes" in empty.notes[0]


def test_a_sub_directory_that_is_not_declared_is_refused_before_an_image_is_read(photo_folder, monkeypatch):
    monkeypatch.setattr("mma.data.folder.decode_all", lambda *_, **__: pytest.fail("decodes"))
    picture(photo_folder / "o\x1bwl" / "a.png")
    with pytest.raises(ValueError, match=r"not among the declared classes: 'dog', 'o\\x1bwl'\. .*--labels FILE"):
        read_folder(photo_folder, FolderOptions(classes=("cat",)))


def test_sub_directories_are_no_classes_when_a_csv_of_labels_is_given(photo_folder, tmp_path):
    (tmp_path / "none.csv").write_text("file_name,label\n")
    data = read_folder(photo_folder, FolderOptions(labels=tmp_path / "none.csv", classes=("ape",)))
    assert (data.train.classes, set(data.train.labels.tolist())) == (("ape",), {-1})


@pytest.mark.parametrize("broken", ["test", "csv"])
def test_what_is_wrong_beside_the_pool_is_found_before_an_image_is_read(photo_folder, tmp_path, monkeypatch, broken):
    monkeypatch.setattr("mma.data.folder.decode_all", lambda *_, **__: pytest.fail("decodes"))
    if broken == "csv":
        picture(tmp_path / "test" / "a.png")
        (tmp_path / "test" / "labels.csv").write_text("file_name,label\nb.png,cat\n")
    with pytest.raises(ValueError, match="there is no"):
        get_folder(photo_folder, FolderOptions(test=tmp_path / "test"), tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_a_cache_that_cannot_be_written_is_found_before_an_image_is_read(photo_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("mma.data.folder.decode_all", lambda *_, **__: pytest.fail("decodes"))
    (tmp_path / "root").write_text("a file")
    with pytest.raises(ValueError, match="is not a folder we may write to"):
        get_folder(photo_folder, FolderOptions(), tmp_path / "root")


# a test directory


def test_a_test_directory_has_the_same_classes(photo_folder, tmp_path):
    picture(tmp_path / "test" / "dog" / "a.png")
    data = read_folder(photo_folder, FolderOptions(test=tmp_path / "test"))
    assert (len(data.train), data.test.labels.tolist(), data.test.names) == (20, [1], ("dog/a.png",))


def test_a_test_directory_with_an_unknown_class_is_refused(photo_folder, tmp_path):
    picture(tmp_path / "test" / "owl\x1b" / "a.png")
    with pytest.raises(ValueError, match=r"classes that the pool does not have: 'owl\\x1b'"):
        read_folder(photo_folder, FolderOptions(test=tmp_path / "test"))


def test_a_pool_without_labels_takes_the_classes_of_its_test_set(tmp_path):
    picture(tmp_path / "pool" / "a.png")
    picture(tmp_path / "test" / "dog" / "a.png")
    data = read_folder(tmp_path / "pool", FolderOptions(test=tmp_path / "test"))
    assert (data.train.labels.tolist(), data.test.labels.tolist(), data.train.classes) == ([-1], [0], ("dog",))


def test_a_test_directory_inside_the_pool_is_refused(photo_folder):
    with pytest.raises(ValueError, match="lies in the other"):
        read_folder(photo_folder, FolderOptions(test=photo_folder / "cat"))


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


def test_an_image_of_one_by_eight_pixels_is_an_image(tmp_path):
    picture(tmp_path / "a.png", size=(1, 8))
    data = read_folder(tmp_path, FolderOptions(name="x", side=4))
    assert (data.train.shape, data.quarantine) == ((4, 4, 3), ())


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


def test_bad_files_are_listed_with_their_reason_and_the_rest_is_used(photo_folder, monkeypatch):
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


def test_links_out_of_the_folder_are_refused_and_links_inside_are_not(photo_folder, tmp_path):
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


def test_hidden_files_are_passed_by(photo_folder):
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


def test_a_folder_of_bad_files_only_is_an_error_with_the_reasons(tmp_path):
    (tmp_path / "a.png").write_text("no image")
    with pytest.raises(ValueError, match=r"none of the 1 files in .* a\.png \(it is not a readable JPEG"):
        read_folder(tmp_path, FolderOptions(name="x"))


def test_an_empty_folder_and_a_missing_folder_are_errors(tmp_path):
    with pytest.raises(ValueError, match="holds no images"):
        read_folder(tmp_path, FolderOptions(name="x"))
    with pytest.raises(ValueError, match="there is no folder"):
        read_folder(tmp_path / "missing", FolderOptions())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (FolderOptions(side=3), "--side 3"),
        (FolderOptions(side=513), "--side 513"),
        (FolderOptions(holdout=1.0), "--holdout 1.0"),
        (FolderOptions(holdout=-0.1), "--holdout -0.1"),
        (FolderOptions(holdout=0.1, test=Path("x")), "both given"),
        (FolderOptions(name="a/b"), "cannot be the name"),
        (FolderOptions(classes=("cat", "dog", "cat")), "listed twice: 'cat'"),
        (FolderOptions(classes=("cat", "")), "a class needs a name"),
    ],
)
def test_impossible_options_are_refused_before_any_work(photo_folder, options, message):
    with pytest.raises(ValueError, match=message):
        get_folder(photo_folder, options, photo_folder.parent / "root")
    assert not (photo_folder.parent / "root").exists()


# saved


def test_a_folder_is_saved_with_its_names_notes_and_quarantine(photo_folder, tmp_path):
    (photo_folder / "cat" / "bad.png").write_bytes(b"x")
    made = get_folder(photo_folder, FolderOptions(name="mine", side=8), tmp_path / "root")
    again = load("folder:mine", tmp_path / "root")
    assert again.train.names == made.train.names
    assert list(reasons(again)) == ["cat/bad.png"]
    assert again.train.digest() == again.train.computed_digest()


def test_the_name_is_made_of_the_directorys(tmp_path):
    picture(tmp_path / "My photos (2)" / "a.png")
    assert get_folder(tmp_path / "My photos (2)", FolderOptions(), tmp_path / "root").name == "folder:My-photos-2"


def test_real_photos_of_traffic_signs(tmp_path):
    if not SIGNS.is_dir():
        pytest.skip(f"{SIGNS} (photos of German traffic signs, from GTSRB) is not there")
    data = get_folder(SIGNS / "pool", FolderOptions("signs", test=SIGNS / "test"), tmp_path)
    assert (len(data.train), len(data.test), len(data.train.classes)) == (2_568, 1_080, 12)
    assert (data.quarantine, data.notes) == ((), ())
    assert set(data.test.class_counts().values()) == {90}

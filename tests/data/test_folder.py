import hashlib
import shlex
from pathlib import Path

import pytest

from mma.data import FolderOptions, get_folder, load_data, photo_options
from mma.data.folder import read_folder

SIGNS = Path(__file__).parents[2].parent / "shared" / "data" / "signs"


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


def test_no_sub_directories_means_no_labels_and_no_test_set(tmp_path, picture):
    for i in (10, 9, 1):
        picture(tmp_path / f"{i}.jpg", seed=i)
    data = read_folder(tmp_path, FolderOptions(name="flat"))
    assert data.train.labels.tolist() == [-1, -1, -1]
    assert data.train.names == ("1.jpg", "9.jpg", "10.jpg")
    assert (data.train.classes, len(data.test)) == ((), 0)


def test_loose_images_beside_classes_have_no_label_and_stay_in_the_pool(photo_folder, picture):
    picture(photo_folder / "loose.png")
    data = read_folder(photo_folder, FolderOptions(holdout=0.5))
    assert data.train.labels[data.train.names.index("loose.png")] == -1
    assert "1 of 11 images in the pool have no label" in data.notes


def test_a_class_with_one_image_is_noted_and_keeps_it_in_the_pool(photo_folder, picture):
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


def test_adding_a_photo_renumbers_rows_but_keeps_every_key_and_label(photo_folder, tmp_path, picture):
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


def test_a_folder_without_labels_is_a_pool_to_ask_about(tmp_path, picture):
    picture(tmp_path / "pool" / "a.png")
    declared = get_folder(tmp_path / "pool", FolderOptions(classes=("cat", "dog")), tmp_path / "root")
    assert (declared.train.classes, declared.train.labels.tolist()) == (("cat", "dog"), [-1])
    assert "1 of 1 images in the pool have no label" in declared.notes
    empty = get_folder(tmp_path / "pool", FolderOptions(), tmp_path / "root")
    assert (empty.train.classes, empty.train.labels.tolist()) == ((), [-1])
    assert (
        "no class is known yet; name what people can answer:  mma data get folder --from DIR --classes"
        in empty.notes[0]
    )


def test_a_sub_directory_that_is_not_declared_is_refused_before_an_image_is_read(
    photo_folder, monkeypatch, picture, refusal
):
    monkeypatch.setattr("mma.data.folder.decode_all", lambda *_, **__: pytest.fail("decodes"))
    picture(photo_folder / "o\x1bwl" / "a.png")
    with refusal():
        read_folder(photo_folder, FolderOptions(classes=("cat",)))


def test_sub_directories_are_no_classes_when_a_csv_of_labels_is_given(photo_folder, tmp_path):
    (tmp_path / "none.csv").write_text("file_name,label\n")
    data = read_folder(photo_folder, FolderOptions(labels=tmp_path / "none.csv", classes=("ape",)))
    assert (data.train.classes, set(data.train.labels.tolist())) == (("ape",), {-1})


@pytest.mark.parametrize("broken", ["test", "csv"])
def test_what_is_wrong_beside_the_pool_is_found_before_an_image_is_read(
    photo_folder, tmp_path, monkeypatch, broken, picture, refusal
):
    monkeypatch.setattr("mma.data.folder.decode_all", lambda *_, **__: pytest.fail("decodes"))
    if broken == "csv":
        picture(tmp_path / "test" / "a.png")
        (tmp_path / "test" / "labels.csv").write_text("file_name,label\nb.png,cat\n")
    with refusal():
        get_folder(photo_folder, FolderOptions(test=tmp_path / "test"), tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_a_cache_that_cannot_be_written_is_found_before_an_image_is_read(photo_folder, tmp_path, monkeypatch, refusal):
    monkeypatch.setattr("mma.data.folder.decode_all", lambda *_, **__: pytest.fail("decodes"))
    (tmp_path / "root").write_text("a file")
    with refusal():
        get_folder(photo_folder, FolderOptions(), tmp_path / "root")


# a test directory


def test_a_test_directory_has_the_same_classes(photo_folder, tmp_path, picture):
    picture(tmp_path / "test" / "dog" / "a.png")
    data = read_folder(photo_folder, FolderOptions(test=tmp_path / "test"))
    assert (len(data.train), data.test.labels.tolist(), data.test.names) == (20, [1], ("dog/a.png",))


def test_a_test_directory_with_an_unknown_class_is_refused(photo_folder, tmp_path, picture, refusal):
    picture(tmp_path / "test" / "owl\x1b" / "a.png")
    with refusal():
        read_folder(photo_folder, FolderOptions(test=tmp_path / "test"))


def test_a_pool_without_labels_takes_the_classes_of_its_test_set(tmp_path, picture):
    picture(tmp_path / "pool" / "a.png")
    picture(tmp_path / "test" / "dog" / "a.png")
    data = read_folder(tmp_path / "pool", FolderOptions(test=tmp_path / "test"))
    assert (data.train.labels.tolist(), data.test.labels.tolist(), data.train.classes) == ([-1], [0], ("dog",))


def test_a_test_directory_inside_the_pool_is_refused(photo_folder, refusal):
    with refusal():
        read_folder(photo_folder, FolderOptions(test=photo_folder / "cat"))


# options


@pytest.mark.parametrize(
    "options",
    [
        FolderOptions(side=3),
        FolderOptions(side=513),
        FolderOptions(holdout=1.0),
        FolderOptions(holdout=-0.1),
        FolderOptions(holdout=0.1, test=Path("x")),
        FolderOptions(name="a/b"),
        FolderOptions(classes=("cat", "dog", "cat")),
        FolderOptions(classes=("cat", "")),
    ],
)
def test_impossible_options_are_refused_before_any_work(photo_folder, monkeypatch, options, refusal):
    monkeypatch.setattr("mma.data.folder.list_files", lambda directory: pytest.fail("reads the folder"))
    with refusal():
        get_folder(photo_folder, options, photo_folder.parent / "root")
    assert not (photo_folder.parent / "root").exists()


@pytest.mark.parametrize("broken", ["missing", "empty", "bad", "inside"])
@pytest.mark.parametrize("test", [False, True])
def test_errors_about_a_folder_name_it_and_no_option_that_another_command_has(photo_folder, tmp_path, broken, test):
    folder = {"inside": photo_folder / "cat"}.get(broken, tmp_path / broken)
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.png").write_text("no image")
    pool, tests = (photo_folder, folder) if test else (folder, photo_folder)
    with pytest.raises(ValueError, match=str(folder)) as caught:
        read_folder(pool, FolderOptions(name="x", test=tests))
    assert "--" not in str(caught.value)


def test_a_name_that_cannot_be_one_is_refused_without_an_option(photo_folder, refusal):
    with refusal():
        read_folder(photo_folder, FolderOptions(name="n" * 101))


def test_a_folder_with_a_long_name_gives_a_shorter_one(tmp_path, picture):
    folder = tmp_path / ("n" * 150)
    picture(folder / "a.png")
    assert read_folder(folder, FolderOptions()).name == "folder:" + "n" * 100
    for side in (None, 128):
        data = read_folder(folder, photo_options(folder, side=side))
        assert len(data.name) == len("folder:") + 100
    assert data.name.endswith("-128px")


# the command that makes it again


def given(command):
    """The options of a command, as the program gets them."""
    return shlex.split(command.removeprefix("mma data get folder "))


def test_a_data_set_knows_the_options_that_make_it_again(photo_folder, tmp_path, monkeypatch, picture):
    (tmp_path / "truth.csv").write_text("file_name,label\ncat/0.png,big cat\ndog/1.png,dog\n")
    monkeypatch.chdir(tmp_path)
    options = FolderOptions(None, 8, Path("truth.csv"), None, 0.5, mirror=True, grey=True, classes=("big cat", "dog"))
    data = read_folder(Path("photos"), options)
    root = tmp_path.resolve()
    assert given(data.options) == [
        *("--from", f"{root}/photos", "--name", "photos", "--side", "8", "--labels", f"{root}/truth.csv"),
        *("--holdout", "0.5", "--classes", "big cat,dog", "--mirror", "--grey"),
    ]


def test_a_data_set_of_photos_to_train_on_knows_its_side_and_test_folder(photo_folder, tmp_path, picture):
    picture(tmp_path / "tests" / "cat" / "a.png")
    made = get_folder(photo_folder, photo_options(photo_folder, tmp_path / "tests", 48), tmp_path / "root")
    words = given(load_data(made.name, tmp_path / "root").options)
    assert words == [
        *("--from", str(photo_folder.resolve()), "--name", made.name.removeprefix("folder:")),
        *("--side", "48", "--test", str((tmp_path / "tests").resolve())),
    ]


# saved


def test_a_folder_is_saved_with_its_names_notes_and_quarantine(photo_folder, tmp_path):
    (photo_folder / "cat" / "bad.png").write_bytes(b"x")
    made = get_folder(photo_folder, FolderOptions(name="mine", side=8), tmp_path / "root")
    again = load_data("folder:mine", tmp_path / "root")
    assert again.train.names == made.train.names
    assert list(reasons(again)) == ["cat/bad.png"]
    assert again.train.digest() == again.train.computed_digest()


def test_the_name_is_made_of_the_directorys(tmp_path, picture):
    picture(tmp_path / "My photos (2)" / "a.png")
    assert get_folder(tmp_path / "My photos (2)", FolderOptions(), tmp_path / "root").name == "folder:My-photos-2"


def test_real_photos_of_traffic_signs(tmp_path):
    if not SIGNS.is_dir():
        pytest.skip(f"{SIGNS} (photos of German traffic signs, from GTSRB) is not there")
    data = get_folder(SIGNS / "pool", FolderOptions("signs", test=SIGNS / "test"), tmp_path)
    assert (len(data.train), len(data.test), len(data.train.classes)) == (2_568, 1_080, 12)
    assert (data.quarantine, data.notes) == ((), ())
    assert set(data.test.class_counts().values()) == {90}

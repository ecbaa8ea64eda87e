import hashlib

import numpy as np
import pytest

from mma.data import Images
from mma.text import printable
from tests.each import each


def some_images(n=5, names=None):
    pixels = np.arange(n * 12, dtype=np.uint8).reshape(n, 2, 2, 3)
    return Images(pixels, np.arange(n, dtype=np.int64) % 2, ("cat", "dog"), names)


def test_equal_content_has_an_equal_digest():
    assert some_images().digest() == some_images().digest()


@pytest.mark.parametrize("change", ["pixel", "label", "class", "shape"])
def test_any_change_changes_the_digest(change):
    images = some_images()
    pixels, labels, classes = images.pixels.copy(), images.labels.copy(), images.classes
    if change == "pixel":
        pixels[-1, -1, -1, -1] += 1
    if change == "label":
        labels[0] = -1
    if change == "class":
        classes = ("cat", "dogs")
    if change == "shape":
        pixels = pixels.reshape(5, 1, 4, 3)
    assert Images(pixels, labels, classes).digest() != images.digest()


def test_digest_does_not_depend_on_the_layout_in_memory():
    images = some_images()
    assert Images(np.asfortranarray(images.pixels), images.labels, images.classes).digest() == images.digest()


def test_take_keeps_labels_and_names_with_their_pixels():
    taken = some_images(names=tuple("abcde")).take(np.array([3, 1]))
    assert taken.names == ("d", "b")
    assert taken.labels.tolist() == [1, 1]
    assert np.array_equal(taken.pixels[0], some_images().pixels[3])


def test_class_counts_pass_by_unlabeled_images():
    images = Images(np.zeros((3, 1, 1, 1), np.uint8), np.array([-1, 1, 1]), ("a", "b"))
    assert images.class_counts() == {"a": 0, "b": 2}


@pytest.mark.parametrize(
    ("pixels", "labels"),
    [
        (np.zeros((2, 3, 3), np.uint8), np.zeros(2, np.int64)),
        (np.zeros((2, 3, 3, 1), np.float32), np.zeros(2, np.int64)),
        (np.zeros((2, 3, 3, 1), np.uint8), np.zeros(3, np.int64)),
        (np.zeros((2, 3, 3, 1), np.uint8), np.array([0, 2])),
        (np.zeros((2, 3, 3, 1), np.uint8), np.array([-2, 0])),
    ],
)
def test_arrays_that_are_not_images_are_refused(pixels, labels, refusal):
    with refusal():
        Images(pixels, labels, ("a", "b"))


@pytest.mark.parametrize("shape", [(1, 8, 1), (8, 1, 3), (1, 1, 1)])
def test_the_smallest_images_are_images(shape):
    assert Images(np.zeros((2, *shape), np.uint8), np.zeros(2, np.int64), ("a",)).shape == shape


def test_an_image_without_a_pixel_is_refused(refusal):
    with refusal():
        Images(np.zeros((2, 0, 8, 1), np.uint8), np.zeros(2, np.int64), ("a",))


# labels


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, np.uint64, ">i4"])
def test_labels_of_any_integer_type_become_int64(dtype):
    images = Images(np.zeros((2, 1, 1, 1), np.uint8), np.array([1, 0], dtype), ("a", "b"))
    assert images.labels.dtype == np.int64
    assert images.labels.tolist() == [1, 0]


@pytest.mark.parametrize("labels", [np.array([True, False]), np.array([0.0, 1.0]), np.array(["0", "1"])])
def test_labels_that_are_not_whole_numbers_are_refused(labels, refusal):
    with refusal():
        Images(np.zeros((2, 1, 1, 1), np.uint8), labels, ("a", "b"))


def test_a_label_too_large_for_int64_is_refused_and_does_not_turn_negative(refusal):
    with refusal():
        Images(np.zeros((1, 1, 1, 1), np.uint8), np.array([2**64 - 1], np.uint64), ("a",))


# keys


def test_a_key_is_the_hash_of_the_pixels_where_there_is_no_file():
    images = some_images()
    assert images.keys.shape == (5, 32)
    assert images.key(3) == hashlib.sha256(images.pixels[3].tobytes()).hexdigest()
    turned = Images(np.asfortranarray(images.pixels), images.labels, images.classes)
    assert np.array_equal(turned.keys, images.keys)


def test_keys_are_the_same_for_any_size_of_chunk(monkeypatch):
    whole = some_images().keys
    monkeypatch.setattr("mma.data.images.CHUNK", 2)
    assert np.array_equal(some_images().keys, whole)


def test_a_key_says_nothing_of_labels_and_classes():
    images = some_images()
    assert np.array_equal(Images(images.pixels, np.full(5, -1), ()).keys, images.keys)


@pytest.mark.parametrize("stored", [True, False])
def test_take_and_with_classes_keep_keys_with_their_images(stored):
    keys = np.random.default_rng(0).integers(0, 256, (5, 32), np.uint8) if stored else None
    images = Images(some_images().pixels, some_images().labels, ("cat", "dog"), stored_keys=keys)
    taken = images.take(np.array([3, 1])).with_classes(("cat", "dog", "owl"))
    assert [taken.key(0), taken.key(1)] == [images.key(3), images.key(1)]


def test_rows_finds_each_key_and_names_the_first_that_is_unknown(refusal):
    images = some_images()
    keys = [images.key(row) for row in (4, 0, 0, 2)]
    assert images.rows(keys).tolist() == [4, 0, 0, 2]
    assert images.rows([]).tolist() == []
    for unknown in ("0" * 64, "f" * 64):
        with refusal():
            images.rows([keys[0], unknown])


def test_rows_of_no_images_are_unknown(refusal):
    with refusal():
        some_images(0).rows(["0" * 64])


@pytest.mark.parametrize("key", ["", "0" * 63, "0" * 65, "x" * 64, "\x1b" * 64, "A" * 64])
def test_what_is_no_key_is_refused(key):
    with pytest.raises(ValueError, match="64 hexadecimal digits") as error:
        some_images().rows([key])
    assert "\x1b" not in str(error.value)


def test_images_that_are_alike_share_a_key_and_the_first_row_is_found():
    pixels = (np.arange(1_000) % 2).astype(np.uint8).reshape(-1, 1, 1, 1)
    images = Images(pixels, np.zeros(1_000, np.int64), ("a",))
    assert images.rows([images.key(999), images.key(998)]).tolist() == [1, 0]


def test_keys_with_zero_bytes_at_their_end_are_told_apart():
    keys = np.zeros((3, 32), np.uint8)
    keys[0, 0], keys[1, :2], keys[2, :3] = 7, (7, 1), (7, 0, 1)
    images = Images(some_images(3).pixels, some_images(3).labels, ("cat", "dog"), stored_keys=keys)
    assert images.rows([images.key(row) for row in (2, 1, 0)]).tolist() == [2, 1, 0]


def test_keys_of_another_shape_are_refused(refusal):
    with refusal():
        Images(some_images().pixels, some_images().labels, ("cat", "dog"), stored_keys=np.zeros((4, 32), np.uint8))


# classes


def test_classes_may_be_empty_at_first_and_grow_with_ids_that_stay():
    empty = Images(some_images().pixels, np.full(5, -1), ())
    grown = empty.with_classes(["cat"]).with_classes(["cat", "dog"])
    assert grown.classes == ("cat", "dog")
    assert grown.labels.tolist() == [-1] * 5
    assert some_images().with_classes(["cat", "dog", "owl"]).labels.tolist() == [0, 1, 0, 1, 0]


@pytest.mark.parametrize("classes", [(), ("cat",), ("dog", "cat"), ("cat", "owl", "dog")])
def test_classes_are_not_removed_or_reordered(classes, refusal):
    with refusal():
        some_images().with_classes(classes)


def test_a_longer_list_of_classes_is_another_content():
    images = some_images()
    stored = Images(images.pixels, images.labels, images.classes, None, images.digest())
    assert stored.with_classes(("cat", "dog", "owl")).digest() != images.digest()


@each(classes=[("cat", "dog", "cat"), ("cat", ""), ("cat", " \t"), ("c\x1bat", "c\x1bat")])
def test_two_classes_of_one_name_and_a_class_without_one_are_refused(classes, refusal):
    with refusal():
        Images(np.zeros((1, 1, 1, 1), np.uint8), np.zeros(1, np.int64), classes)
    with refusal():
        Images(np.zeros((1, 1, 1, 1), np.uint8), np.array([-1]), ()).with_classes(classes)


def test_names_are_shown_without_control_characters():
    assert printable("a\x1b[2Jb\n\u202ec\udcffd é 字 [red]") == r"a\x1b[2Jb\n\u202ec\udcffd é 字 [red]"

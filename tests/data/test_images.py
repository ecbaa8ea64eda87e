import numpy as np
import pytest

from mma.data import Images
from mma.text import printable


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
    ("pixels", "labels", "message"),
    [
        (np.zeros((2, 3, 3), np.uint8), np.zeros(2, np.int64), "pixels must be uint8"),
        (np.zeros((2, 3, 3, 1), np.float32), np.zeros(2, np.int64), "pixels must be uint8"),
        (np.zeros((2, 3, 3, 1), np.uint8), np.zeros(3, np.int64), "one for each of the 2 images"),
        (np.zeros((2, 3, 3, 1), np.uint8), np.array([0, 2]), "labels must lie in -1..1"),
        (np.zeros((2, 3, 3, 1), np.uint8), np.array([-2, 0]), "labels must lie in -1..1"),
    ],
)
def test_arrays_that_are_not_images_are_refused(pixels, labels, message):
    with pytest.raises(ValueError, match=message):
        Images(pixels, labels, ("a", "b"))


def test_names_are_shown_without_control_characters():
    assert printable("a\x1b[2Jb\n\u202ec\udcffd é 字 [red]") == r"a\x1b[2Jb\n\u202ec\udcffd é 字 [red]"

"""Runs on arrays and on a torch `Dataset` of one's own: everything that works on a run takes the data too."""

import numpy as np
import pytest
import torch
from PIL import Image

import mma
from mma.errors import UserError

TINY = [
    "growth.start=10",
    "growth.add=5",
    "growth.budget=20",
    "growth.first=4",
    "growth.every=4",
    "growth.final=4",
    "log.every=4",
    "optim.batch=4",
]


class Squares(torch.utils.data.Dataset):
    """Bright and dark images, as (image, label)."""

    classes = ("dark", "bright")

    def __init__(self, count, make):
        self.count, self.make = count, make

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index >= self.count:
            raise IndexError
        noise = np.random.default_rng(index).integers(0, 60, (8, 8, 3)).astype(np.uint8)
        return self.make(noise + np.uint8(150 * (index % 2))), index % 2


def as_tensor(array):
    return torch.from_numpy(array).permute(2, 0, 1).float() / 255


KINDS = {"arrays": lambda array: array, "tensors": as_tensor, "PIL": Image.fromarray}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_images_make_the_same_data_set_however_they_come(kind):
    data = mma.DataSet.of(Squares(20, KINDS[kind]), Squares(6, KINDS[kind]), name="squares")
    expected = mma.DataSet.of(Squares(20, KINDS["arrays"]), Squares(6, KINDS["arrays"]))
    assert data.train.digest() == expected.train.digest()
    assert (len(data.test), data.train.classes) == (6, ("dark", "bright"))


def test_a_run_on_a_torch_dataset_is_trained_tested_asked_and_loaded(tmp_path):
    pool = Squares(80, as_tensor)
    config = mma.change(mma.preset("digits"), [*TINY, "data.name=mine"])
    run = mma.new_run(config, str(tmp_path / "run"), data=pool)
    data = mma.DataSet.of(pool, Squares(20, as_tensor), name="mine")
    mma.train(run, data=pool)
    assert run.status() == "done"
    assert mma.evaluate(run, data=data)["images"] == 20
    assert len(mma.suggest(run, 3, data=pool)) == 3
    assert mma.load(run, data=pool).classes == ("dark", "bright")
    assert mma.load(run, data=data).about.accuracy.images == 20  # the test set came after the training
    for call in (mma.evaluate, mma.load, lambda run: mma.suggest(run, 3)):
        with pytest.raises(UserError) as refused:
            call(run)
        assert "--use" in str(refused.value)
        assert "data=" in str(refused.value)


def test_images_of_different_sizes_are_scaled_only_when_a_side_is_given():
    class Uneven(Squares):
        def __getitem__(self, index):
            image, label = super().__getitem__(index)
            return image.resize((8 + index, 9)), label

    with pytest.raises(UserError) as refused:
        mma.DataSet.of(Uneven(4, Image.fromarray))
    assert "side=" in str(refused.value)
    assert mma.DataSet.of(Uneven(4, Image.fromarray), side=10).train.shape == (10, 10, 3)


def test_a_dataset_that_cannot_be_used_is_refused_in_a_sentence():
    with pytest.raises(UserError):
        mma.DataSet.of(Squares(0, as_tensor))
    with pytest.raises(UserError):
        mma.DataSet.of(Squares(3, lambda array: array.astype(np.int32)))

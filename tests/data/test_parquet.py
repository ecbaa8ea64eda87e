"""Data sets of Hugging Face, both ways: Parquet and Arrow files with images and ClassLabel."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from mma.data import FolderOptions, get_folder
from mma.data.parquet import packed_files, read_packed, split_of, write_images
from mma.rng import rng

arrow = pytest.importorskip("pyarrow")
CLASSES = ["cat", "dog, large", "=owl"]


def png(shade: int) -> bytes:
    data = io.BytesIO()
    noise = rng(shade, "png").integers(0, 50, (12, 10, 3))
    Image.fromarray((noise + shade).astype(np.uint8)).save(data, "PNG")
    return data.getvalue()


def schema(names=CLASSES, label="label"):
    features = {"image": {"_type": "Image"}, label: {"names": names, "_type": "ClassLabel"}}
    pair = arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
    about = json.dumps({"info": {"features": features}})
    return arrow.schema([("image", pair), (label, arrow.int64())], metadata={"huggingface": about})


def table(labels, first=0, **kind):
    images = [{"bytes": png(first + place), "path": f"{place}.png"} for place in range(len(labels))]
    kind = schema(**kind)
    return arrow.table([images, list(labels)], schema=kind)


def write(path, *args, **kind):
    from pyarrow.parquet import write_table

    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(table(*args, **kind), path)


def test_a_folder_of_parquet_files_is_a_data_set_with_its_own_test_split(tmp_path):
    write(tmp_path / "hub" / "data" / "train-00000-of-00002.parquet", [0, 1, -1, 2])
    write(tmp_path / "hub" / "data" / "train-00001-of-00002.parquet", [1, None], first=10)
    write(tmp_path / "hub" / "data" / "test-00000-of-00001.parquet", [0, 2], first=20)
    data = get_folder(tmp_path / "hub", FolderOptions(side=8), tmp_path / "store")
    assert data.name == "folder:hub"
    assert set(data.train.classes) == set(CLASSES)
    named = [data.train.classes[k] if k >= 0 else "" for k in data.train.labels]
    assert named == ["cat", "dog, large", "", "=owl", "dog, large", ""]
    assert len(data.test) == 2
    again = get_folder(tmp_path / "hub", FolderOptions(side=8), tmp_path / "store")
    assert again.train.digest() == data.train.digest()
    assert len(list((tmp_path / "store" / "unpacked").iterdir())) == 1, "unpacked once"


def test_what_datasets_saves_to_disk_is_read(tmp_path):
    for split, labels in (("train", [0, 1, 1, 2, 0]), ("validation", [2, 1])):
        (tmp_path / "saved" / split).mkdir(parents=True)
        with arrow.OSFile(str(tmp_path / "saved" / split / "data-00000-of-00001.arrow"), "wb") as file:
            rows = table(labels, first=len(labels) * 10)
            with arrow.ipc.new_stream(file, rows.schema) as writer:
                writer.write_table(rows)
    data = get_folder(tmp_path / "saved", FolderOptions(side=8), tmp_path / "store")
    assert (len(data.train), len(data.test)) == (5, 2)


def test_a_single_file_and_a_label_of_another_name_are_read(tmp_path):
    write(tmp_path / "pets.parquet", [0, 0, 0, 0, 0, 1, 1, 1, 1, 1], label="fine_label")
    data = get_folder(tmp_path / "pets.parquet", FolderOptions(side=8), tmp_path / "store")
    assert (len(data.train), len(data.test)) == (8, 2)


def test_splits_are_known_by_file_or_folder(tmp_path):
    for name, split in {
        "data/test-0.parquet": "test",
        "Validation/0.parquet": "validation",
        "0000.parquet": "train",
        "latest/rows.parquet": "train",
    }.items():
        assert split_of(tmp_path / name, tmp_path) == split


def test_what_is_written_is_read_again_with_the_same_bytes(tmp_path):
    files = []
    for place, label in enumerate(["b", "", "a", "=b"] * 100):
        file = tmp_path / f"{place}.png"
        file.write_bytes(png(place % 7))
        files.append((file, file.name, label))
    out = tmp_path / "out.parquet"
    write_images(out, files, {"by": [f"person {place}" for place in range(len(files))]})
    found = list(read_packed([out]))
    assert [(image.data, image.name, image.label) for image in found] == [(f.read_bytes(), n, t) for f, n, t in files]
    assert found[3].more == {"by": "person 3"}
    assert packed_files(out) == [out]


def test_files_that_are_no_data_set_of_images_are_refused_and_leave_nothing(tmp_path, refusal):
    from pyarrow.parquet import write_table

    (tmp_path / "outside.png").write_bytes(png(1))
    cases = {
        "words": lambda path: write_table(arrow.table({"text": ["a"]}), path),
        "cut": lambda path: path.write_bytes(b"PAR1 no more"),
        "label": lambda path: write(path, [0, 7]),
        "empty": lambda path: write_table(arrow.table([[{"bytes": b"", "path": ""}], [0]], schema=schema()), path),
        "outside": lambda path: write_table(
            arrow.table([[{"bytes": None, "path": "../outside.png"}], [0]], schema=schema()), path
        ),
        "test": lambda path: write(path.with_name("test.parquet"), [0, 1]),
    }
    for name, make in cases.items():
        (tmp_path / name).mkdir()
        make(tmp_path / name / "train.parquet")
        with refusal():
            get_folder(tmp_path / name, FolderOptions(side=8), tmp_path / "store")
    left = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert {path.parent.name for path in left} <= {"test"}

"""Weights are hashed before they are read, and kept as safetensors."""

from __future__ import annotations

import shutil
from dataclasses import replace

import torch

from mma.features.pretrained import LITE, LITE0, Lite0, MobileNetwork, load_weights


def copy_of(data_folder):
    return data_folder / "weights" / f"{LITE0.sha256}.safetensors"


def test_weights_are_kept_as_safetensors_and_read_from_there(data_folder, monkeypatch):
    first = load_weights(LITE0, "lite0")
    assert copy_of(data_folder).is_file()
    monkeypatch.setattr(torch, "load", None)  # must not be called again
    gone = replace(LITE0, module="not_installed_any_more")
    second = load_weights(gone, "lite0")
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_flipped_byte_in_our_copy_is_named_by_its_hash(data_folder, refusal):
    load_weights(LITE0, "lite0")
    damaged = bytearray(copy_of(data_folder).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    copy_of(data_folder).write_bytes(damaged)
    with refusal():
        Lite0().load()


def test_a_cut_copy_is_damaged(data_folder, refusal):
    load_weights(LITE0, "lite0")
    copy_of(data_folder).write_bytes(copy_of(data_folder).read_bytes()[:1000])
    with refusal():
        Lite0().load()


def test_d1_a_package_with_another_file_is_refused_by_its_hash_and_never_read(tmp_path, monkeypatch, refusal):
    package = tmp_path / "other_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('nothing of the package may run')")
    shutil.copy(LITE0.find(), package / "weights.pth")
    with (package / "weights.pth").open("ab") as file:
        file.write(b"x")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(torch, "load", None)
    with refusal():
        load_weights(replace(LITE0, module="other_package", path="weights.pth"), "lite0")


def test_a_data_folder_that_cannot_be_written_to_is_a_sentence(data_folder, refusal):
    data_folder.write_text("a file where a folder should be")
    with refusal():
        load_weights(LITE0, "lite0")


def test_weights_that_are_not_installed_are_a_command(refusal):
    with refusal():
        load_weights(replace(LITE0, module="no_such_package"), "lite0")


def test_weights_of_another_shape_are_named(refusal):
    class Wider(Lite0):
        def build(self):
            return MobileNetwork((*LITE[:3], (16, 32, *LITE[3][2:])), same=True)

    with refusal():
        Wider().load()

import gzip
import io
import tarfile

import numpy as np
import pytest

from mma.data import releases as originals
from mma.data.releases import read_members, unzip


def archive_of(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for name, data, kind in members:
            member = tarfile.TarInfo(name)
            member.size, member.type = len(data), kind
            member.linkname = "/etc/passwd" if kind != tarfile.REGTYPE else ""
            tar.addfile(member, io.BytesIO(data))
    return path


def test_d2_only_the_wanted_regular_files_of_an_archive_are_read(tmp_path):
    members = [
        ("../../a.bin", b"content", tarfile.REGTYPE),
        ("b.bin", b"", tarfile.SYMTYPE),
        ("c.bin", b"unwanted", tarfile.REGTYPE),
    ]
    archive = archive_of(tmp_path / "x.tar.gz", members)
    assert read_members(archive, {"a.bin": 100, "b.bin": 100}) == {"a.bin": b"content"}
    assert [path.name for path in tmp_path.iterdir()] == ["x.tar.gz"]


def test_d2_an_archive_bomb_is_refused(tmp_path, refusal):
    archive = archive_of(tmp_path / "bomb.tar.gz", [("a.bin", bytes(30_000_000), tarfile.REGTYPE)])
    with refusal():
        read_members(archive, {"a.bin": 10**9})


def test_d2_a_file_of_an_archive_that_is_too_large_is_not_even_read(tmp_path, refusal):
    archive = archive_of(tmp_path / "x.tar.gz", [("a.bin", bytes(101), tarfile.REGTYPE)])
    with refusal():
        read_members(archive, {"a.bin": 100})


def test_d2_an_archive_of_very_many_files_is_refused(tmp_path, monkeypatch, refusal):
    monkeypatch.setattr(originals, "MAX_MEMBERS", 3)
    archive = archive_of(tmp_path / "many.tar.gz", [(f"{i}", b"", tarfile.REGTYPE) for i in range(4)])
    with refusal():
        read_members(archive, {"a.bin": 10**9})


@pytest.mark.parametrize("keep", [0.5, -4])
def test_an_archive_that_is_cut_short_is_refused(tmp_path, keep, refusal):
    random = np.random.default_rng(0).bytes(100_000)
    archive = archive_of(tmp_path / "x.tar.gz", [("a.bin", random, tarfile.REGTYPE)])
    content = archive.read_bytes()
    archive.write_bytes(content[: keep if keep < 0 else int(keep * len(content))])
    with refusal():
        read_members(archive, {"a.bin": 10**9})


def test_a_zipped_file_may_not_hold_more_than_its_limit(tmp_path, refusal):
    (tmp_path / "x.gz").write_bytes(gzip.compress(bytes(2_000)))
    assert len(unzip(tmp_path / "x.gz", 2_000)) == 2_000
    with refusal():
        unzip(tmp_path / "x.gz", 1_999)
    (tmp_path / "x.gz").write_bytes(gzip.compress(bytes(2_000))[:-9])
    with refusal():
        unzip(tmp_path / "x.gz", 2_000)

import pytest

from mma.data import get


@pytest.fixture(autouse=True)
def no_downloads(monkeypatch):
    """Tests never reach for the network."""
    monkeypatch.setattr("mma.data.sources.fetch", lambda original, directory: pytest.fail(f"downloads {original.name}"))


@pytest.fixture
def accepted():
    """Make a data set out of files that are not the official ones."""
    return lambda name, folder, root: get(name, root, directory=folder, accept_hash_mismatch=True)

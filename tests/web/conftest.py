"""A small project of real files, its page behind the guard, and a real server in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from mma.project import Project, create_project
from mma.web.app import make_app
from mma.web.security import Guard
from tests.web.page import KEYS, OURS, PORT, Running, write_image


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for number in range(30):
        write_image(tmp_path / "photos" / f"photo-{number:02d}.png", number)
    return tmp_path / "photos"


@pytest.fixture
def project(photos: Path) -> Iterator[Project]:
    made = create_project(photos, classes=["cat", "dog"])
    made.index()
    yield made
    made.close()


@pytest.fixture
def guard(project: Project) -> Guard:
    hosts = frozenset({f"127.0.0.1:{PORT}", f"localhost:{PORT}"})
    app = make_app(project, "anna")
    app.state.page.ending = lambda: True  # streams of news end at once; a test reads the whole of an answer
    return Guard(app, KEYS, hosts, project.settings.id)


@pytest.fixture
def stranger(guard: Guard) -> TestClient:
    """Someone at our address without a key."""
    return TestClient(guard, base_url=OURS, raise_server_exceptions=False)


@pytest.fixture
def client(guard: Guard, project: Project) -> TestClient:
    """The person's own browser."""
    headers = {"origin": OURS, "x-mma": project.settings.id, "content-type": "application/json"}
    cookies = {f"mma-{PORT}": KEYS.session}
    return TestClient(guard, base_url=OURS, headers=headers, cookies=cookies, raise_server_exceptions=False)


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """Start servers that end with the test."""
    running: list[Running] = []

    def begin(folder: Path, port: int = 0, header_seconds: float = 10.0, max_connections: int = 128) -> Running:
        running.append(Running(folder, port, header_seconds, max_connections))
        return running[-1]

    yield begin
    for each in running:
        if each.process.poll() is None:
            each.stop(kill=True)


@pytest.fixture
def answer_for() -> Callable[..., dict[str, Any]]:
    """An answer as the page sends it."""
    from uuid import uuid4

    def make(image: str, class_id: int | None = 0, kind: str = "label", **rest: Any) -> dict[str, Any]:
        return {"id": str(uuid4()), "images": [image], "kind": kind, "class_id": class_id, "by": "anna", **rest}

    return make

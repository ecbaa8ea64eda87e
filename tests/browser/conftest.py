"""A real browser at a real server: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mma.project import Project, create_project
from mma.web.security import Keys
from mma.web.server import HOST, bind, guarded, server_of
from tests.web.conftest import start  # noqa: F401
from tests.web.page import KEYS, write_image

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE = 180_000  # milliseconds until a page that does not get there is given up; other programs may use every core
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 740}


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("the page is tested in Debian's chromium, and none is installed (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    short = (
        {"TMPDIR": "/tmp"} if Path("/tmp").is_dir() else {}
    )  # a socket lies there, whose path has at most 107 characters
    with sync_playwright() as playwright:
        options = {"args": ["--no-sandbox", "--disable-gpu"], "env": {**os.environ, **short}}
        browser = playwright.chromium.launch(executable_path=CHROMIUM, **options)
        yield browser
        browser.close()


@pytest.fixture
def make_project(tmp_path: Path) -> Iterator[Callable[..., Project]]:
    """Make an indexed project of pictures that differ."""
    made: list[Project] = []

    def make(count: int = 30, classes: tuple[str, ...] = ("cat", "dog"), name: str = "photos", **rest: Any) -> Project:
        for number in range(count):
            write_image(tmp_path / name / f"photo-{number:03d}.png", number, side=32)
        made.append(create_project(tmp_path / name, classes=classes, **rest))
        made[-1].index()
        return made[-1]

    yield make
    for each in made:
        each.close()


class Served:
    """A server in a thread of this process."""

    def __init__(self, project: Project, keys: Keys = KEYS) -> None:
        self.project, self.socket = project, bind(HOST, 0)
        self.port = self.socket.getsockname()[1]
        self.url = f"http://{HOST}:{self.port}/"
        self.door = f"{self.url}?token={keys.token}"
        self.server = server_of(guarded(project, keys, HOST, self.socket, "anna"))
        self.thread = threading.Thread(target=lambda: self.server.run(sockets=[self.socket]))
        self.thread.start()

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(PATIENCE / 1000)
        self.socket.close()


@pytest.fixture
def serve_project() -> Iterator[Callable[[Project], Served]]:
    """Serve projects until the test ends."""
    served: list[Served] = []

    def begin(project: Project) -> Served:
        served.append(Served(project))
        return served[-1]

    yield begin
    for each in served:
        each.stop()


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Open an address in a browser of its own; errors of the page fail the test."""
    contexts: list[Any] = []
    problems: list[str] = []

    def watch(page: Any) -> Any:
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on("console", lambda message: problems.append(message.text) if "Security Policy" in message.text else None)
        page.set_default_timeout(PATIENCE)
        return page

    def open_at(address: str, context: Any = None, view: str = "", **options: Any) -> Any:
        if context is None:
            context = chromium.new_context(**{"viewport": WIDE, "reduced_motion": "reduce", **options})
            contexts.append(context)
        page = watch(context.new_page())
        page.goto(address)
        page.wait_for_selector("#saved[data-words]")
        if view:
            page.goto(f"{page.url.split('#')[0]}#{view}")
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert not problems

"""What tests of the page share: keys, picture files, and a server in a process of its own."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
import subprocess
import sys
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import Image

from mma.web.security import Keys

T = TypeVar("T")

PORT = 8642
OURS = f"http://127.0.0.1:{PORT}"
PATIENCE = 180  # seconds until something that must happen is given up; other programs may use every core
KEYS = Keys("T" * 43, "S" * 43)

SERVER = """
import sys
from mma.project import open_project
from mma.web.server import Connection, serve
Connection.header_seconds = float(sys.argv[3])
Connection.max_connections = int(sys.argv[4])
serve(open_project(sys.argv[1]), port=int(sys.argv[2]), browser=False, by="anna")
"""


def write_image(path: Path, number: int, side: int = 48) -> Path:
    """Write a picture that looks like no other: blocks of random colours."""
    blocks = np.random.default_rng(number).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(blocks).resize((side, side), Image.Resampling.NEAREST).save(path)
    return path


def free_port() -> int:
    """Return a port that no program listens at and that the system gives to no connection by itself.

    A server that is killed and started again must find it free: a port of the system's own range may be taken meanwhile.
    """
    while True:
        port = 20_000 + secrets.randbelow(10_000)  # not `random`, whose seed is the same in parallel test runs
        with socket.socket() as found:
            if found.connect_ex(("127.0.0.1", port)) != 0:
                return port


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a thread of its own: the browser tests leave a loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


class Running:
    """A server in a process of its own."""

    def __init__(self, folder: Path, port: int, header_seconds: float, max_connections: int) -> None:
        self.folder = folder
        command = [sys.executable, "-c", SERVER, str(folder), str(port), str(header_seconds), str(max_connections)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", self.line)
        assert found, self.line + self.process.stdout.read()
        self.port = int(found[1])

    @property
    def door(self) -> str:
        text = (self.folder / "state" / "open.html").read_text("utf-8")
        return re.findall(r'url=([^"]+)"', text)[0]

    @property
    def token(self) -> str:
        return self.door.split("token=")[1]

    def stop(self, *, kill: bool = False) -> str:
        """End the server and return everything it wrote."""
        self.process.kill() if kill else self.process.terminate()
        return self.line + self.process.communicate(timeout=PATIENCE)[0]

"""Commands that a page may ask for. They take torch, so each runs in a process of its own, one at a time."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any

from mma.project import Project

PATIENCE = 600.0  # seconds


class Command:
    """`mma NAME PROJECT --json`. Nobody waits for it but the person who asked."""

    def __init__(self, name: str, project: Project, failed: str) -> None:
        self.name, self.project, self.failed = name, project, failed
        self.turn = threading.Lock()

    def run(self) -> dict[str, Any]:
        """Return what it printed, or say why it failed."""
        command = [sys.executable, "-m", "mma", self.name, str(self.project.folder), "--json"]
        with self.turn:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise ValueError(f"{self.failed}: {why.removeprefix(f'mma {self.name}: ')}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

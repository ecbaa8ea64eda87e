"""What the figures were taken on."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).parents[1]


def section(command: str) -> str:
    """Return command, versions, machine and date."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return "\n".join(
        [
            "# Measurements",
            "",
            f"`{command}` writes this page. Figures are medians; what is compared takes turns in the same minutes.",
            "",
            "| | |",
            "|---|---|",
            f"| date | {datetime.now(UTC):%Y-%m-%d %H:%M} UTC |",
            f"| commit | {commit()} |",
            f"| machine | {processor()}, {os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}, {memory()} |",
            f"| versions | Python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__} |",
            f"| load before the start (1, 5, 15 minutes) | {load} |",
        ]
    )


def commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GB"


def gigabytes(field: str) -> float:
    """Return what the system says of this process's memory: RssAnon, VmHWM (its peak; `getrusage` counts the parent's)."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) / 1e6 for line in lines if line.startswith(f"{field}:"))

"""Many writers, and writers that are killed. Larger runs:  python tests/project/kills.py 1000;  writers.py 8 10000"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


def run(database: str, name: str, *arguments: str) -> str:
    """Run a script in a process of its own, since it forks."""
    if database == "postgres":
        found = subprocess.run([sys.executable, "-c", "import postgres; print(postgres.binaries())"], cwd=HERE, **TEXT)
        if found.stdout.strip() == "None":
            pytest.skip("no PostgreSQL server (apt-get install postgresql)")
    done = subprocess.run([sys.executable, str(HERE / name), *arguments, database], check=False, **TEXT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


TEXT = {"capture_output": True, "text": True}


@pytest.mark.parametrize("database", DATABASES)
def test_r1_kill_9_under_load_loses_no_acknowledged_label_and_doubles_none(database):
    assert "40 kills" in run(database, "kills.py", "40")


@pytest.mark.parametrize("database", DATABASES)
def test_r5_eight_writers_make_no_error_and_no_image_is_served_twice(database):
    assert "8 writers x 25 labels, 0 errors, 200 labels" in run(database, "writers.py", "8", "25")

"""A real PostgreSQL server for tests: made in a temporary folder, reached by a Unix socket, gone with the tests."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MISSING = "no PostgreSQL server (apt-get install postgresql)"
PLACES = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), Path("/usr/local/bin"), Path("/usr/bin")]


def binaries() -> Path | None:
    """Return the folder with initdb and postgres, if there is one."""
    return next((place for place in PLACES if (place / "initdb").exists() and (place / "postgres").exists()), None)


def ordinary_user() -> str | None:
    """PostgreSQL refuses to run as root; then it runs as somebody else."""
    if os.geteuid() != 0:
        return None
    names = [name for name in ("postgres", "nobody") if name in {user.pw_name for user in pwd.getpwall()}]
    return names[0]


@contextmanager
def server(*, fsync: bool = False) -> Iterator[str]:
    """Start a server; yield its URL. Most tests kill its clients, never the server or the machine: they need no fsync."""
    place, user = binaries(), ordinary_user()
    assert place is not None, MISSING
    # The path of a socket has at most 107 characters, and a TMPDIR may be longer.
    folder = Path(tempfile.mkdtemp(prefix="mma-pg-", dir="/tmp" if Path("/tmp").is_dir() else None))
    try:
        if user is not None:
            shutil.chown(folder, user)
        run = {"user": user, "cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
        initdb = [place / "initdb", "-D", folder / "data", "-U", "mma", "-A", "trust", "--no-sync", "-E", "UTF8"]
        subprocess.run([*initdb, "--locale=C"], check=True, **run)
        options = f"-k {folder} -c listen_addresses='' -c max_connections=200 -c fsync={'on' if fsync else 'off'}"
        control = [place / "pg_ctl", "-D", folder / "data", "-w", "-l", folder / "log"]
        subprocess.run([*control, "-o", options, "start"], check=True, **run)
        try:
            yield f"postgresql://mma@/postgres?host={folder}"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], check=False, **run)
    finally:
        shutil.rmtree(folder, ignore_errors=True)

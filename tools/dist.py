"""Build wheel and sdist, and try the wheel as a stranger would: a fresh environment, no checkout, photos, labels, a model.

python tools/dist.py                         build, check, and try with this Python
python tools/dist.py --python python3.13     try with another one
python tools/dist.py --no-try                build and check alone
"""

from __future__ import annotations

import argparse
import csv
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

ROOT = Path(__file__).parents[1]
NEEDED = (
    "mma/web/static/index.html",
    "mma/features/wordpieces.txt.xz",
    "mma/data/releases.toml",
    "mma/templates/report.html",
    "mma/py.typed",
    "licenses/LICENSE",
)
SCRIPTS = ("mma", "mma-learn")


def build() -> tuple[Path, Path]:
    """Build both into dist/ without touching what is there of other versions; return (wheel, sdist)."""
    out = ROOT / "dist"
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT], check=True, stdout=subprocess.DEVNULL
    )
    wheel = max(out.glob("*.whl"), key=lambda path: path.stat().st_mtime)
    sdist = max(out.glob("*.tar.gz"), key=lambda path: path.stat().st_mtime)
    subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", wheel, sdist], check=True, stdout=subprocess.DEVNULL
    )
    return wheel, sdist


def check_contents(wheel: Path, sdist: Path) -> None:
    """Refuse a wheel that lacks the page, the templates or the licence, or that brings more than the package."""
    names = zipfile.ZipFile(wheel).namelist()
    lacking = [name for name in NEEDED if not any(each.endswith(name) for each in names)]
    foreign = [name for name in names if not name.startswith("mma/") and ".dist-info/" not in name]
    entry = next(name for name in names if name.endswith("entry_points.txt"))
    commands = zipfile.ZipFile(wheel).read(entry).decode()
    lacking += [script for script in SCRIPTS if f"{script} = " not in commands]
    if lacking or foreign:
        raise SystemExit(f"{wheel.name}: lacking {lacking}, not ours {foreign[:5]}")
    with tarfile.open(sdist) as archive:
        if not any(name.endswith("src/mma/__init__.py") for name in archive.getnames()):
            raise SystemExit(f"{sdist.name} has no source")
    for path in (wheel, sdist):
        print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")
    print(f"{len(names):,} files in the wheel, the package alone")


def photos(folder: Path, count: int = 120) -> dict[str, str]:
    """Write real digits as pictures; return the class of each file."""
    digits = load_digits()
    truth = {}
    for row in np.flatnonzero(digits.target < 3)[:count]:
        name = f"{row:04d}.png"
        pixels = np.kron(255 - digits.images[row] * 15.9, np.ones((8, 8))).astype(np.uint8)
        Image.fromarray(pixels).save(folder / name)
        truth[name] = ("zero", "one", "two")[digits.target[row]]
    return truth


def try_wheel(wheel: Path, python: str) -> None:
    """Install the wheel into a fresh environment, away from the checkout, and go from photos to an exported model."""
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
        environment |= {"HOME": place, "PATH": f"{home / 'venv/bin'}:{environment['PATH']}"}
        clock = time.monotonic()

        def run(what: str, *command: str | Path) -> str:
            began = time.monotonic()
            done = subprocess.run(command, cwd=home, env=environment, check=False, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{what} failed:\n{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
            print(f"  {what}: {time.monotonic() - began:.0f} s", flush=True)
            return done.stdout

        @contextmanager
        def started(what: str, command: list[str], sign: bytes) -> Iterator[str]:
            """Start a server, wait for the line with a sign, give the address in it, and end it as Ctrl-C does."""
            began = time.monotonic()
            server = subprocess.Popen(command, cwd=home, env=environment, stderr=subprocess.PIPE)
            assert server.stderr is not None
            said = []
            try:
                while sign not in (line := server.stderr.readline()):
                    said.append(line.decode())
                    if server.poll() is not None:
                        raise SystemExit(f"{' '.join(command)} ended:\n{''.join(said)}")
                print(f"  {what}, until it answers: {time.monotonic() - began:.0f} s", flush=True)
                yield next((word for word in line.decode().split() if word.startswith("http")), "")
            finally:
                server.send_signal(signal.SIGINT)
                server.wait(60)

        run("environment", python, "-m", "venv", home / "venv")
        run("install", home / "venv/bin/pip", "install", "--quiet", "-c", ROOT / "constraints.txt", f"{wheel}[onnx]")
        size = sum(path.stat().st_size for path in (home / "venv").rglob("*") if path.is_file())
        (home / "photos").mkdir()
        truth = photos(home / "photos")
        page = ["mma-learn", "start", "photos", "--classes", "zero,one,two", "--no-browser", "--port", "0"]
        with started("page", page, b"open.html"):
            pass
        for _ in range(2):
            run("ask", "mma", "ask", "photos", "-n", "15", "-o", "picks.csv")
            with (home / "picks.csv").open(newline="") as file:
                rows = list(csv.DictReader(file))
            for row in rows:
                row["label"] = truth[Path(row["path"] if "path" in row else row["file_name"]).name]
            with (home / "picks.csv").open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
            run("tell", "mma", "tell", "photos", "picks.csv")
            run("work", "mma", "work", "photos")
        run("predict", "mma", "predict", "photos.mma", "photos", "-o", "answers.csv")
        with (home / "answers.csv").open(newline="") as file:
            answers = list(csv.DictReader(file))
        right = sum(truth[Path(row["file"]).name] == row["label"] for row in answers)
        run("export", "mma", "export", "photos.mma", "--to", "onnx", "-o", "model")
        server = ["mma-learn", "serve", "model", "--port", "0", "--token-file", "key"]
        with started("serve", server, b"http://") as address:
            photo = next(iter(truth))
            run("one request", python, ROOT / "docs/examples/serve_client.py", address, "key", f"photos/{photo}")
        print(f"  {right} of {len(answers)} photos right after 30 labels; environment {size / 1e9:.1f} GB")
        print(f"  all of it: {time.monotonic() - clock:.0f} s with {python}")


def main() -> None:
    """Build, check, try."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--python", default=sys.executable)
    options.add_argument("--no-try", action="store_true")
    wanted = options.parse_args()
    wheel, sdist = build()
    check_contents(wheel, sdist)
    if not wanted.no_try:
        try_wheel(wheel, wanted.python)


if __name__ == "__main__":
    main()

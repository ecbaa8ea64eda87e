"""`mma serve` under a bounded load on this machine, beside a bare loop of onnxruntime over the same files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
from PIL import Image

from bench.duel import QUIET, ROOT, environment
from bench.predict import make_model, make_photos
from mma.model.exporter import export

REQUESTS, CLIENTS = 600, (1, 8)


def section(threads: int, requests: int = REQUESTS) -> str:
    """Return the table: requests a second and how long one takes, for one client and for eight."""
    lines = [
        "## Serving a model",
        "",
        f"`mma serve model.onnx` (a head on `lite0`), {requests} JPEG files of 256 x 256, one image in a request, server and "
        "clients on the same cores. Bare is a loop of onnxruntime with one image at a time, decoding included, in one process "
        "just before and just after.",
        "",
        "| clients | requests/s | share of bare | median | p95 |",
        "|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        make_photos(place / "photos", requests)
        make_model().save(place / "model")
        export(place / "model", place / "export", ["onnx"])
        files = sorted((place / "photos").rglob("*.jpg"))
        bare = bare_rate(place / "export" / "model.onnx", files)
        found = {clients: load(place / "export" / "model.onnx", place / "key", files, clients) for clients in CLIENTS}
        bare = (bare + bare_rate(place / "export" / "model.onnx", files)) / 2
    for clients, (rate, times) in found.items():
        middle, slow = 1_000 * np.quantile(times, [0.5, 0.95])
        lines.append(f"| {clients} | {rate:.0f} | **{rate / bare:.2f}** | {middle:.0f} ms | {slow:.0f} ms |")
    return "\n".join([*lines, f"| bare onnxruntime | {bare:.0f} | 1 | {1_000 / bare:.0f} ms | |"])


def bare_rate(model: Path, files: list[Path]) -> float:
    """Return the images a second of onnxruntime alone."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    started = time.perf_counter()
    for path in files:
        with Image.open(path) as image:
            session.run(None, {name: np.asarray(image.convert("RGB"))[None]})
    return len(files) / (time.perf_counter() - started)


def load(model: Path, key: Path, files: list[Path], clients: int) -> tuple[float, list[float]]:
    """Send each file once, from so many clients; return requests a second and the seconds of each."""
    command = [sys.executable, "-m", "mma", "serve", str(model), "--token-file", str(key), "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment(**QUIET), cwd=ROOT)
    try:
        assert server.stderr is not None
        address = next(word for line in server.stderr for word in line.split() if word.startswith("http"))
        headers = {"authorization": f"Bearer {key.read_text().strip()}", "content-type": "image/jpeg"}

        def send(part: list[Path]) -> list[float]:
            times = []
            with httpx.Client(base_url=address, headers=headers, trust_env=False, timeout=60) as client:
                for path in part:
                    begin = time.perf_counter()
                    client.post("/predict", content=path.read_bytes()).raise_for_status()
                    times.append(time.perf_counter() - begin)
            return times

        send(files[:8])  # the first use of a network takes longer
        started = time.perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            times = [t for part in pool.map(send, [files[start::clients] for start in range(clients)]) for t in part]
        return len(files) / (time.perf_counter() - started), times
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    print(section(os.cpu_count() or 1))

"""`mma predict` on many photos against bare decoding and the bare network, and the memory it takes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from bench.duel import QUIET, ROOT, environment
from bench.features import seconds
from bench.machine import gigabytes
from bench.pool import Peak
from mma.features import DEFAULT
from mma.features.inputs import squash
from mma.model import Model, ModelFile, load, new_model
from mma.model.model import FeaturePredictor, describe_backbones
from mma.model.predictions import predict_folder
from mma.nets import Head
from mma.rng import rng

IMAGES, FEW, BARE, TARGET = 10_000, 1_000, 512, 0.9
PHOTO, WIDTH, CLASSES = 256, 1280, 10


def section(threads: int, images: int = IMAGES, few: int = FEW) -> str:
    """Return the table: a tenth of the images, and all of them, each in a fresh process."""
    lines = [
        "## Predictions",
        "",
        f"`mma predict` with a head on `{DEFAULT}`: JPEG files of {PHOTO} x {PHOTO} to a CSV file, {threads} cores. Bare is a "
        f"loop over {BARE} of the files that decodes, scales and runs the network, in the same process before and after; the "
        "share is of processor seconds per image, which other programs on the machine do not change.",
        "",
        "| images | images/s | share of bare | target | peak memory of its own |",
        "|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        make_photos(place / "photos", images)
        make_model().save(place / "model")
        for count in (few, images):
            found = measure(place, count, threads)
            lines.append(
                f"| {count:,} | {count / found['seconds']:,.0f} | **{found['share']:.2f}** | {TARGET:.2f} | "
                f"{found['anonymous']:.2f} GB |"
            )
            print(lines[-1], flush=True)
    return "\n".join(lines)


def make_photos(folder: Path, count: int) -> None:
    """Write smooth random photos, a thousand to a sub-folder."""
    small = rng(1, "bench").integers(0, 256, (256, 8, 8, 3), dtype=np.uint8)
    for number in range(count):
        path = folder / f"{number // 1_000:03d}" / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = Image.fromarray(np.roll(small[number % 256], number // 256, axis=0))
        whole.resize((PHOTO, PHOTO), Image.Resampling.BICUBIC).save(path, quality=90)


def make_model() -> Model:
    """Return a head that was never trained: it takes as long as any other."""
    net = Head()
    network = net.build((WIDTH,), CLASSES)
    net.reset(network, rng(1, "bench"))
    names = tuple(f"class {number}" for number in range(CLASSES))
    file = ModelFile(classes=names, input=describe_backbones(DEFAULT, (WIDTH,)), net=net)
    return new_model(file, network, [np.zeros(WIDTH, np.float32)])


def measure(place: Path, count: int, threads: int) -> dict[str, float]:
    """Predict `count` images in a fresh process."""
    command = [sys.executable, "-m", "bench.predict", str(place), str(count), str(threads)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=environment(**QUIET), cwd=ROOT)
    found: dict[str, float] = json.loads(answer.stdout)
    return found


def run_bare(model: Model, paths: list[Path], threads: int) -> None:
    """Decode, scale and run the network, a batch per core, and nothing else."""
    predictor = model.predictor
    assert isinstance(predictor, FeaturePredictor)
    side, (embedder,) = predictor.backbones[0].side, predictor.embedders
    assert embedder is not None

    @torch.inference_mode()
    def work(start: int) -> None:
        images = []
        for path in paths[start : start + predictor.batch]:
            with Image.open(path) as image:
                image.draft(None, (2 * side, 2 * side))
                images.append(squash(np.array(image.convert("RGB"))[None], side)[0])
        predictor.network(embedder(torch.from_numpy(np.stack(images)))).softmax(1)

    with ThreadPoolExecutor(threads, "bare", torch.set_num_threads, (1,)) as pool:
        list(pool.map(work, range(0, len(paths), predictor.batch)))


def main() -> None:
    """Measure in this process and print what it took as JSON."""
    place, count, threads = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    model = load(place / "model")
    paths = sorted((place / "photos").rglob("*.jpg"))[:count]
    run_bare(model, paths[:64], threads)  # the first use of a network takes longer
    bare = [seconds(lambda: run_bare(model, paths[:BARE], threads))[1]]
    chosen = place / "some" / str(count)
    for path in paths:
        link = chosen / path.relative_to(place / "photos")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.hardlink_to(path)
    peak = Peak()
    peak.start()
    clock, processor = seconds(lambda: predict_folder(model, chosen, place / f"{count}.csv"))
    anonymous = max(peak.anonymous, gigabytes("RssAnon"))
    bare.append(seconds(lambda: run_bare(model, paths[:BARE], threads))[1])
    share = (sum(bare) / 2 / min(BARE, count)) / (processor / count)
    print(json.dumps({"seconds": clock, "share": share, "anonymous": anonymous}))


if __name__ == "__main__":
    main()

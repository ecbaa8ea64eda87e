"""Models that were never trained, and photos of every kind: what a model computes does not depend on how good it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from mma.data.photos import squash_photo
from mma.features import parse_backbone
from mma.model import Model, ModelFile, PixelInput, new_model
from mma.model.exporter import borrowed_images
from mma.model.model import HOST, describe_backbones
from mma.nets import NETS, Head, Net
from mma.rng import rng
from mma.views import Pixels

SIGNS = Path(__file__).parents[2].parent / "shared" / "data" / "signs"
NAMES = ("disk", "square", "cross")


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MMA_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@torch.no_grad()
def draw_weights(network: torch.nn.Module, shape: tuple[int, int, int], seed: int) -> None:
    """Draw running statistics and biases that have an effect, and a head that tells images apart."""
    generator = torch.Generator().manual_seed(seed)
    for value in network.state_dict().values():
        if value.ndim == 1 and value.is_floating_point():
            value.add_(torch.rand(value.shape, generator=generator) * 0.2)
    height, width, channels = shape
    photos = [squash_photo(Image.fromarray(each), (width, height), grey=channels == 1) for each in borrowed_images()]
    found = network.eval().features(Pixels(torch.from_numpy(np.stack(photos)), HOST).plain(np.arange(len(photos))))
    drawn = torch.randn(network.head.weight.shape, generator=generator)
    network.head.weight.copy_(drawn * 2 / ((found - found.mean(0)) @ drawn.T).std())
    network.head.bias.copy_(-network.head.weight @ found.mean(0))


def pixel_model(net: Net | str = "small", side: int = 16, channels: int = 3, seed: int = 0, **settings: int) -> Model:
    net = NETS[net](**settings) if isinstance(net, str) else net
    file = ModelFile(
        classes=NAMES, input=PixelInput(height=side, width=side, channels=channels), net=net, temperature=1.5
    )
    network = net.build((side, side, channels), len(NAMES))
    net.reset(network, rng(seed, "test"))
    draw_weights(network, (side, side, channels), seed)
    return new_model(file, network)


def head_model(backbone: str = "hog@32", seed: int = 0, gate: int | None = None, hidden: int = 0) -> Model:
    """A head on some backbones; `gate` is the number of the only part that it looks at."""
    parsed = parse_backbone(backbone)
    parts = getattr(parsed, "parts", (parsed,))
    with torch.inference_mode():
        blank = [part.load()(torch.zeros(1, part.side, part.side, 3, dtype=torch.uint8)) for part in parts]
    widths = tuple(vector.shape[1] for vector in blank)
    net = Head(hidden=hidden)
    network = net.build(widths, len(NAMES))
    net.reset(network, rng(seed, "hidden"))
    draw = np.random.default_rng(seed)
    with torch.no_grad():
        network.head.weight.copy_(torch.from_numpy(draw.normal(0, 2, tuple(network.head.weight.shape))))
        network.head.bias.zero_()
        if gate is not None:
            network.gate.copy_(torch.cat([torch.full((w,), float(n == gate)) for n, w in enumerate(widths)]))
    file = ModelFile(classes=NAMES, input=describe_backbones(backbone, widths), net=net, temperature=2.0)
    centres = [draw.uniform(0, 0.1, width).astype(np.float32) for width in widths]
    return new_model(file, network, centres)


@pytest.fixture
def pixels() -> Callable[..., Model]:
    return pixel_model


@pytest.fixture
def heads() -> Callable[..., Model]:
    return head_model


@pytest.fixture(scope="session")
def scene() -> np.ndarray:
    """A real photo that comes with scikit-learn: a temple, 427 x 640."""
    return np.asarray(load_sample_images().images[0])


@pytest.fixture
def photo_folder(tmp_path: Path, scene: np.ndarray) -> Path:
    """Two classes of pieces of a photo, of mixed sizes: as they are, and turned around."""
    draw = np.random.default_rng(5)
    for number in range(60):
        y, x, height, width = (int(draw.integers(*ends)) for ends in ((0, 200), (0, 400), (40, 120), (40, 120)))
        piece = Image.fromarray(scene[y : y + height, x : x + width])
        path = tmp_path / "pieces" / ("plain", "turned")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        (piece.transpose(Image.Transpose.ROTATE_180) if number % 2 else piece).save(path)
    return tmp_path / "pieces"


@pytest.fixture
def photo_files(tmp_path: Path, scene: np.ndarray) -> dict[str, Path]:
    """Real photos in every mode there is, of mixed sizes."""
    folder = tmp_path / "photos"
    folder.mkdir()
    photo = Image.fromarray(scene)
    small = photo.resize((61, 47))
    made = {
        "large.jpg": photo,
        "small.png": small,
        "grey.png": small.convert("L"),
        "palette.png": small.convert("P"),
        "bits.png": small.convert("1"),
        "cmyk.jpg": small.convert("CMYK"),
        "tall.bmp": photo.crop((100, 0, 130, 400)),
        "lossy.webp": small,
    }
    for name, image in made.items():
        image.save(folder / name)
    alpha = small.convert("RGBA")
    alpha.putalpha(Image.linear_gradient("L").resize(small.size))
    alpha.save(folder / "alpha.png")
    deep = np.asarray(small.convert("L")).astype(np.uint16) * 257
    Image.fromarray(deep).save(folder / "deep.png")
    frames = [small, Image.new("RGB", small.size, "red")]
    frames[0].save(folder / "moving.gif", save_all=True, append_images=frames[1:])
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: to be shown rotated by 90 degrees
    small.save(folder / "turned.jpg", exif=exif, quality=95)
    return {path.name: path for path in sorted(folder.iterdir())}

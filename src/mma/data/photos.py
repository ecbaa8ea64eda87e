"""Turn image files of any size into one array of small ones. Files are hostile until they are decoded."""

from __future__ import annotations

import hashlib
import importlib
import io
import os
import stat
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, JpegImagePlugin, UnidentifiedImageError

from mma.children import cores
from mma.data.images import KEY_BYTES, BadFile
from mma.errors import UserError
from mma.files import in_turn
from mma.text import Progress, install_hint, printable

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "AVIF", "PPM")
RAW = (".cr2", ".cr3", ".nef", ".arw", ".dng", ".orf", ".rw2", ".raf", ".pef", ".srw")
HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
MAX_BYTES = 64 << 20
MAX_PIXELS = 80_000_000  # to decode; below Pillow's own limit, so that ours is the one that speaks
MAX_SCALED = 1_000_000_000  # of a JPEG, which is scaled while it is decoded
SMALLEST = 8  # pixels on a side; below it there is nothing to see
ORIENTATION = 0x0112  # the EXIF tag; from 5 on, width and height change places
LARGE = 16_000_000  # pixels to decode, above which memory counts
STRIP = 64  # rows of a reduced image made at a time
LEADS_OUT = "it is a link that leads out of the folder"
SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I;16N", "I")


class FollowedFolder(type(Path())):  # type: ignore[misc]
    """A folder whose links may lead out of it, because its owner said so. Everybody who gets the path knows it by that."""


@dataclass(frozen=True)
class Photos:
    """The files that could be read, as numbers of the names they were asked for by, and those that could not."""

    pixels: NDArray[np.uint8]  # (N, side, side, 1 or 3)
    keys: NDArray[np.uint8]  # (N, 32), the sha256 of each file
    rows: NDArray[np.int64]  # (N,)
    bad: list[BadFile]


def decode_all(root: Path, names: Sequence[str], side: int, *, grey: bool) -> Photos:
    """Decode `names` (below `root`) in parallel."""
    pixels = np.empty((len(names), side, side, 1 if grey else 3), np.uint8)
    keys = np.empty((len(names), KEY_BYTES), np.uint8)
    inside = root.resolve()

    def decode(row: int) -> str:
        try:
            pixels[row], keys[row] = read_photo(inside, names[row], side, grey=grey)
        except Exception as error:  # decoders raise anything at all on broken bytes; one file must not stop the rest
            return explain_bad_file(error)
        return ""

    # Threads are enough: Pillow decodes and resizes, and hashlib hashes, outside the interpreter's lock.
    with quiet_decoders(), ThreadPoolExecutor(cores()) as pool, Progress() as progress:
        reasons: list[str] = []
        for reason in pool.map(decode, range(len(names))):
            reasons.append(reason)
            progress.update(len(reasons), len(names), lambda: f"decoding: {len(reasons):,} of {len(names):,} images")
    good = np.flatnonzero([not reason for reason in reasons]).astype(np.int64)
    bad = [BadFile(name, reason) for name, reason in zip(names, reasons, strict=True) if reason]
    return Photos(pixels[good], keys[good], good, bad) if bad else Photos(pixels, keys, good, bad)


def read_photo(root: Path, name: str, side: int, *, grey: bool) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read one image as (side, side, 1 or 3) uint8, and the sha256 of its file. `root` must be resolved."""
    with open_photo(root, name) as (image, key):
        if min(image.size) < SMALLEST:
            raise UserError(f"{image.width} x {image.height} pixels are too few: {SMALLEST} x {SMALLEST} are needed")
        return squash_photo(image, (side, side), grey=grey), key


def read_unscaled_photo(root: Path, name: str, enough: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read one image as `read_photo` does, but leave its size to others: (H, W, 3) uint8, and the sha256 of its file.

    A large JPEG comes smaller than it is, with `enough` pixels on each side.
    """
    with open_photo(root, name) as (image, key):
        return unscaled_photo(image, enough), key


def squash_photo(image: Image.Image, size: tuple[int, int], *, grey: bool) -> NDArray[np.uint8]:
    """Return an opened image at a size (width, height), as networks on pixels see it: (height, width, 1 or 3) uint8.

    It is turned upright, put on white where transparent, and squashed: not cropped, because nothing tells us that what
    matters is in the middle. Only the first frame of an animation is read.
    """
    whole = _upright(image, 4 * max(size), "L" if grey else "RGB")
    # One direction after the other: Pillow would choose the order by itself, and not the same one in every version.
    small = whole.resize((size[0], whole.height), Image.Resampling.LANCZOS).resize(size, Image.Resampling.LANCZOS)
    return np.asarray(small, np.uint8).reshape(size[1], size[0], -1)


def unscaled_photo(image: Image.Image, enough: int) -> NDArray[np.uint8]:
    """Return an opened image upright and in colours, (H, W, 3) uint8; a large JPEG with `enough` pixels on each side."""
    return np.array(_upright(image, enough, "RGB"), np.uint8)


def bounded_photo(image: Image.Image, longest: int) -> Image.Image:
    """Return an opened image upright and in colours, with no side longer than `longest` and nothing but its pixels.

    A large one is put on white and reduced in strips: it takes little more memory than its own pixels do.
    """
    width, height = reduce_photo(image, longest)
    by = max(1, max(width, height) // longest) if width * height > LARGE else 1
    small = Image.new("RGB", (-(-width // by), -(-height // by)))
    rows = STRIP * by if by > 1 else height
    for top in range(0, height, rows):
        strip = image.crop((0, top, width, min(top + rows, height)))
        small.paste(_flat(strip, "RGB").reduce(by), (0, top // by))
    small.thumbnail((longest, longest), Image.Resampling.LANCZOS)
    if (turn := image.getexif().get(ORIENTATION, 1)) in range(2, 9):
        small.getexif()[ORIENTATION] = turn
        ImageOps.exif_transpose(small, in_place=True)
    return small


def small_photo(image: Image.Image, enough: int) -> tuple[Image.Image, tuple[int, int]]:
    """Return an opened image small and grey, to look at it rather than to train on it, and the size of the whole image.

    Both are upright. A JPEG's colours are not decoded, and of a large one no more than `enough` pixels on each side need.
    """
    width, height = image.size
    reduce_photo(image, enough, "L")  # before the metadata: to read those of a PNG, Pillow decodes it
    with alone(image):
        turn = image.getexif().get(ORIENTATION, 1)
        if turn != 1:
            ImageOps.exif_transpose(image, in_place=True)
        return _flat(image, "L"), (height, width) if turn >= 5 else (width, height)


@contextmanager
def open_photo(root: Path, name: str) -> Iterator[tuple[Image.Image, NDArray[np.uint8]]]:
    """Open one image below `root`, which must be resolved, and hash its file. Nothing is decoded yet."""
    data = read_file(root / name, root)
    key = hashlib.sha256(data).digest()
    with open_image(data, name) as image, alone(image):
        yield image, np.frombuffer(key, np.uint8)


def open_image(data: bytes, name: str = "") -> Image.Image:
    """Open the bytes of an image. Nothing is decoded yet; formats that cannot be read are called by their name."""
    if name.lower().endswith(RAW):  # Pillow would show the small preview inside some of them
        raise UserError("it is a RAW file of a camera. Export it as JPEG and put that into the folder")
    brands = data[8 : int.from_bytes(data[:4], "big")] if data[4:8] == b"ftyp" else b""
    if brands[:4] in HEIF_BRANDS and b"avif" not in brands:
        try:
            heif = importlib.import_module("pillow_heif")
        except ImportError:
            raise UserError(f"it is an iPhone photo (HEIC). To read those:  {install_hint('heic')}") from None
        heif.register_heif_opener(thumbnails=False)
        return Image.open(io.BytesIO(data), formats=("HEIF",))
    try:
        return Image.open(io.BytesIO(data), formats=FORMATS)
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        if not data.startswith(b"\xff\xd8"):
            raise
        return JpegImagePlugin.JpegImageFile(io.BytesIO(data))  # `reduce_photo` has a limit for these


@contextmanager
def alone(image: Image.Image) -> Iterator[None]:
    """Hold the turn to decode a large image: one at a time, whatever the number of threads and processes of this user.

    A JPEG is decoded at a part of its size, unless it is progressive: then its decoder keeps the whole.
    """
    if image.width * image.height <= LARGE or _is_scaled(image):
        yield
        return
    user = os.getuid() if hasattr(os, "getuid") else "all"
    with in_turn(Path(tempfile.gettempdir()) / f"mma-large-image-{user}.lock"):
        yield


def _is_scaled(image: Image.Image) -> bool:
    return image.format in ("JPEG", "MPO") and not image.info.get("progressive")


def reduce_photo(image: Image.Image, enough: int, mode: str | None = None) -> tuple[int, int]:
    """Let a large JPEG be decoded at down to an eighth of its size, much faster, and return the size it will have.

    One with very many pixels comes with fewer than `enough` if need be. What cannot be scaled while it is decoded is refused
    when it has too many. Nothing is decoded yet.
    """
    width, height = image.size
    most = MAX_SCALED if _is_scaled(image) else MAX_PIXELS
    if width * height > most:
        raise UserError(f"{width:,} x {height:,} pixels are more than {most:,}")
    by = next(by for by in (1, 2, 4, 8) if width * height <= MAX_PIXELS * by * by)
    image.draft(mode, (min(enough, width // by), min(enough, height // by)))
    return image.size


def _upright(image: Image.Image, enough: int, mode: str) -> Image.Image:
    reduce_photo(image, enough)
    ImageOps.exif_transpose(image, in_place=True)
    return _flat(image, mode)


def read_file(path: Path, root: Path) -> bytes:
    """Return the bytes of a file; refuse anything outside the folder, pipes, devices, files of absurd length."""
    check_inside(path, root)
    data, about = read_regular(path)
    if not os.path.samestat(os.stat(check_inside(path, root)), about):
        raise UserError("it changed while it was read")
    return data


def read_regular(path: Path | str, flags: int = 0) -> tuple[bytes, os.stat_result]:
    """Return a file's bytes, and what it is. It is judged again once it is open: a pipe that took its place never ends."""
    check_kind(os.stat(path, follow_symlinks=not flags))
    flags |= os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb", buffering=0) as file:
        check_kind(about := os.fstat(file.fileno()))
        return file.readall(), about


def check_inside(path: Path | str, root: Path | str) -> str:
    """Return where a path leads; refuse one that leads out of `root`, which must be resolved."""
    try:
        target = os.path.realpath(path, strict=True)
    except FileNotFoundError:
        if not os.path.islink(path):
            raise
        raise UserError("it is a link that leads nowhere") from None
    if not isinstance(root, FollowedFolder) and not os.path.join(target, "").startswith(os.path.join(root, "")):
        raise UserError(LEADS_OUT)
    return target


def check_kind(about: os.stat_result) -> None:
    """Refuse pipes, devices, empty files and files of absurd length."""
    if not stat.S_ISREG(about.st_mode):
        raise UserError("it is not a regular file")
    if about.st_size == 0:
        raise UserError("the file is empty")
    if about.st_size > MAX_BYTES:
        raise UserError(f"{about.st_size:,} bytes are more than {MAX_BYTES:,}")


def _flat(image: Image.Image, mode: str) -> Image.Image:
    """Return an image in one mode, on white where it is transparent. A large one is converted strip by strip."""
    if image.mode != mode and image.width * image.height > LARGE:
        whole, rows = Image.new(mode, image.size), max(LARGE // 16 // image.width, 1)
        for top in range(0, image.height, rows):
            strip = image.crop((0, top, image.width, min(top + rows, image.height)))
            whole.paste(_flat(strip, mode), (0, top))
        return whole
    if image.mode in SIXTEEN_BITS:  # Pillow would cut these off at 255
        image = Image.fromarray((np.asarray(image).clip(0, 65_535) // 257).astype(np.uint8))
    if image.mode == "F":
        raise UserError("its pixels are floating-point numbers of unknown range")
    if image.mode == "LAB":  # Pillow makes it grey by way of colours alone
        image = image.convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image if image.mode == mode else image.convert(mode)


@contextmanager
def quiet_decoders() -> Iterator[None]:
    """Silence Pillow's remarks about odd metadata, but make its warning of a decompression bomb an error.

    Set once around all threads, since filters belong to the whole process.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def explain_bad_file(error: Exception) -> str:
    """Say in a few words what is wrong with a file; Pillow's own messages can contain the file's name."""
    if isinstance(error, UnidentifiedImageError):
        return f"it is not a readable {', '.join(FORMATS[:-1])} or {FORMATS[-1]} image"
    if isinstance(error, (Image.DecompressionBombWarning, Image.DecompressionBombError)):
        return f"it has more than {MAX_PIXELS:,} pixels"
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, PermissionError):
        return "it may not be read"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if "truncated" in str(error).lower():  # Pillow has several ways to say so
        return "the file is cut short"
    return printable(str(error))[:200] or type(error).__name__

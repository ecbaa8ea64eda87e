"""Pictures for the page: decoded, turned upright and encoded anew, so that nothing of the original file but pixels goes out."""

from __future__ import annotations

import io
import threading
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mma.data.photos import explain_bad_file, read_unscaled_photo
from mma.errors import UserError
from mma.files import write_atomically
from mma.project import Project

SIZES = {"thumb": 320, "full": 2_048}  # pixels of the longer side, at most
LOSSLESS = 256 * 256  # pixels: small pictures are shown enlarged, where JPEG's blocks would show
QUALITY = 88


class Picture(NamedTuple):
    """An encoded picture."""

    data: bytes
    media: str


class Pictures:
    """The pictures of one project. Thumbnails are kept in its cache; larger ones are kept by the browser alone."""

    def __init__(self, project: Project) -> None:
        self.project, self.folder = project, project.folder / "cache" / "thumbnails"
        self._writing = threading.Lock()

    def picture(self, image: str, size: str) -> Picture:
        """Return a picture of an image; UserError says why there is none."""
        return (self.stored(image) if size == "thumb" else None) or encode(self.pixels(image, SIZES[size]), SIZES[size])

    def pixels(self, image: str, enough: int) -> NDArray[np.uint8]:
        """Decode an image's file, after checking where it lies and that it still has the bytes that were labeled."""
        path = self.project.path_of(image)
        try:
            pixels, key = read_unscaled_photo(self.project.root, str(path.relative_to(self.project.root)), enough)
        except Exception as error:  # decoders raise anything at all on broken bytes
            raise UserError(f"the file cannot be read: {explain_bad_file(error)}.") from error
        if key.tobytes().hex() != image:
            raise UserError("the file has changed since it was indexed. Start again to index it anew.")
        return pixels

    def stored(self, image: str) -> Picture | None:
        """Return a thumbnail made earlier."""
        for suffix, media in MEDIA.items():
            path = self.folder / image[:2] / f"{image}{suffix}"
            if path.is_file():
                return Picture(path.read_bytes(), media)
        return None

    def store(self, image: str, picture: Picture) -> None:
        """Keep a thumbnail. A disk that is full or read-only is no reason to complain: it can be made again."""
        suffix = next(suffix for suffix, media in MEDIA.items() if media == picture.media)
        path = self.folder / image[:2] / f"{image}{suffix}"
        try:
            with self._writing:
                path.parent.mkdir(parents=True, exist_ok=True)
                if not path.exists():
                    write_atomically(path, picture.data)
        except OSError:
            return


MEDIA = {".jpg": "image/jpeg", ".png": "image/png"}


def encode(pixels: NDArray[np.uint8], longest: int) -> Picture:
    """Make a picture of decoded pixels, with no side longer than `longest` and no metadata."""
    image = Image.fromarray(pixels)
    image.thumbnail((longest, longest), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    if image.width * image.height <= LOSSLESS:
        image.save(buffer, "PNG", compress_level=3)
        return Picture(buffer.getvalue(), "image/png")
    image.save(buffer, "JPEG", quality=QUALITY)
    return Picture(buffer.getvalue(), "image/jpeg")

"""Pictures for the page: decoded, turned upright and encoded anew, so that nothing of the original file but pixels goes out."""

from __future__ import annotations

import io
import threading
from contextlib import nullcontext
from typing import NamedTuple

from mma.data.photos import LARGE, bounded_photo, explain_bad_file, open_photo, reduce_photo
from mma.errors import UserError
from mma.files import write_atomically
from mma.project import Project

SIZES = {"thumb": 320, "full": 2_048}  # pixels of the longer side, at most
LOSSLESS = 256 * 256  # pixels: small pictures are shown enlarged, where JPEG's blocks would show
DECODERS = 3  # at once, however many cores there are: memory is what they share
QUALITY = 88
MEDIA = {".jpg": "image/jpeg", ".png": "image/png"}


class Picture(NamedTuple):
    """An encoded picture."""

    data: bytes
    media: str


class Pictures:
    """The pictures of one project. Thumbnails are kept in its cache; larger ones are kept by the browser alone."""

    def __init__(self, project: Project) -> None:
        self.project, self.folder = project, project.folder / "cache" / "thumbnails"
        self._writing, self._large = threading.Lock(), threading.Lock()

    def picture(self, image: str, size: str) -> Picture:
        """Return a picture of an image; UserError says why there is none."""
        return (self.stored(image) if size == "thumb" else None) or self.make(image, SIZES[size])

    def make(self, image: str, longest: int) -> Picture:
        """Decode an image's file, after checking where it lies and that it still has the bytes that were labeled."""
        root, path = self.project.root, self.project.path_of(image)
        try:
            with open_photo(root, str(path.relative_to(root))) as (photo, key):
                width, height = reduce_photo(photo, longest)
                # Large ones one at a time.
                with self._large if width * height > LARGE else nullcontext():
                    small = bounded_photo(photo, longest)
        except Exception as error:  # decoders raise anything at all on broken bytes
            raise UserError(f"the file cannot be read: {explain_bad_file(error)}.") from error
        if key.tobytes().hex() != image:
            raise UserError("the file has changed since it was indexed. Start again to index it anew.")
        lossless, buffer = small.width * small.height <= LOSSLESS, io.BytesIO()
        if lossless:
            small.save(buffer, "PNG", compress_level=3)
        else:
            small.save(buffer, "JPEG", quality=QUALITY)
        return Picture(buffer.getvalue(), MEDIA[".png" if lossless else ".jpg"])

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

"""Classify images with the model beside this file:  python use.py IMAGE ...

It needs onnxruntime, numpy and pillow, nothing else. The model scales images by itself: give it what Pillow decodes.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime reports to its makers unless told not to
import onnxruntime

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")


class Classifier:
    """A model: `classify(path)` returns the classes with their probabilities, the most likely first."""

    def __init__(self, path: str | Path = Path(__file__).with_name("model.onnx")) -> None:
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        about = json.loads(self.session.get_modelmeta().custom_metadata_map["mma"])
        self.classes: list[str] = about["classes"]
        self.enough: int = about["enough"]  # pixels per side that a large JPEG needs to be decoded with

    def classify(self, path: str | Path) -> list[tuple[str, float]]:
        """Return (class, probability) of one image file."""
        found: Any = self.session.run(["probabilities"], {"images": self.read(path)[None]})[0][0]
        return [(self.classes[k], float(found[k])) for k in np.argsort(-found, kind="stable")]

    def read(self, path: str | Path) -> np.ndarray:
        """Decode an image as the model's training did: upright, in colours, on white where it is transparent."""
        with Image.open(path, formats=FORMATS) as file:
            file.draft(None, (self.enough, self.enough))
            image: Image.Image = ImageOps.exif_transpose(file)
            if image.mode.startswith("I"):  # 16 bits
                image = Image.fromarray((np.asarray(image).clip(0, 65_535) // 257).astype(np.uint8))
            if image.has_transparency_data:
                image = image.convert("RGBA")
                image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
            return np.array(image.convert("RGB"))


if __name__ == "__main__":
    classifier = Classifier()
    for name in sys.argv[1:]:
        best, probability = classifier.classify(name)[0]
        print(f"{name}\t{best}\t{probability:.4f}")

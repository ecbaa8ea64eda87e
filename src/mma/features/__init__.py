"""Representations that others learned: frozen backbones turn images into vectors, once, and the vectors are kept."""

from mma.features.backbone import Backbone, Embedder, NetworkBackbone, native_precision
from mma.features.extract import Centring, FeatureProgress, Features, compute_block, features
from mma.features.hf import HuggingFace
from mma.features.hog import Hog
from mma.features.inputs import ArrayImages, ImageSource, PhotoFiles, StoredViews, image_source
from mma.features.lite import Lite0, Lite1, Lite2
from mma.features.mobilenetv2 import MobileNetV2
from mma.features.onnx import Onnx
from mma.features.table import BACKBONES, DEFAULT, Joined, parse_backbone

__all__ = [
    "BACKBONES",
    "DEFAULT",
    "ArrayImages",
    "Backbone",
    "Centring",
    "Embedder",
    "FeatureProgress",
    "Features",
    "Hog",
    "HuggingFace",
    "ImageSource",
    "Joined",
    "Lite0",
    "Lite1",
    "Lite2",
    "MobileNetV2",
    "NetworkBackbone",
    "Onnx",
    "PhotoFiles",
    "StoredViews",
    "compute_block",
    "features",
    "image_source",
    "native_precision",
    "parse_backbone",
]

"""Representations that others learned: frozen backbones turn images into vectors, once, and the vectors are kept."""

from mma.features.backbone import Backbone, Embedder, native_precision
from mma.features.extract import FeatureProgress, Features, compute_block, features
from mma.features.hog import Hog
from mma.features.inputs import ArrayImages, ImageSource, PhotoFiles, StoredViews, image_source
from mma.features.onnx import Onnx
from mma.features.pretrained import Lite0
from mma.features.table import BACKBONES, DEFAULT, Joined, parse_backbone

__all__ = ["BACKBONES", "DEFAULT", "ArrayImages", "Backbone", "Embedder", "FeatureProgress", "Features", "Hog"]
__all__ += ["ImageSource", "Joined", "Lite0", "Onnx", "PhotoFiles", "StoredViews", "compute_block", "features"]
__all__ += ["image_source", "native_precision", "parse_backbone"]

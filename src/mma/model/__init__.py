"""A trained model to use: load it, predict with it, export it."""

from mma.model.description import About, FeatureInput, ModelAccuracy, ModelFile, PixelInput
from mma.model.exporter import Exported, export
from mma.model.loader import load, measured, model_of_run
from mma.model.model import Model, Predictions, new_model
from mma.model.predictions import Summary, predict_folder

__all__ = ["About", "Exported", "FeatureInput", "Model", "ModelAccuracy", "ModelFile", "PixelInput", "Predictions"]
__all__ += ["Summary", "export", "load", "measured", "model_of_run", "new_model", "predict_folder"]

"""Views: what a network is shown of an image. One file for each kind, one table."""

from __future__ import annotations

from mma.views.features import FeatureViews, RowViews, VectorViews
from mma.views.pixels import Pixels, PixelViews, pixel_views
from mma.views.views import Views, ViewSettings

__all__ = ["VIEWS", "FeatureViews", "PixelViews", "Pixels", "RowViews", "VectorViews", "ViewSettings", "Views"]
__all__ += ["pixel_views"]

VIEWS: dict[str, type[ViewSettings]] = {"pixels": PixelViews, "features": FeatureViews}

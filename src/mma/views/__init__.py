"""Views: what a network is shown of an image. One file for each kind, one table."""

from __future__ import annotations

from mma.views.pixels import Pixels, PixelViews, pixel_views
from mma.views.views import ALL, Views, ViewSettings

__all__ = ["ALL", "VIEWS", "PixelViews", "Pixels", "ViewSettings", "Views", "pixel_views"]

VIEWS: dict[str, type[ViewSettings]] = {"pixels": PixelViews}

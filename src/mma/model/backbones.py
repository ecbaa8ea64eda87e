"""The frozen backbones that a model names: found by their label, trusted by their digest."""

from __future__ import annotations

from collections.abc import Sequence

from mma.features import Backbone, Joined, parse_backbone
from mma.model.description import FeatureInput, FeaturePart


def describe_backbones(label: str, widths: Sequence[int]) -> FeatureInput:
    """Describe the backbones of a label such as lite0+hog, with everything decided that depends on this machine."""
    parsed = parse_backbone(label)
    parts = parsed.parts if isinstance(parsed, Joined) else (parsed,)
    described = []
    for part, width in zip(parts, widths, strict=True):
        known = part.resolve()
        described.append(FeaturePart(backbone=known.label(), digest=known.digest(), side=known.side, width=width))
    return FeatureInput(parts=tuple(described))


def find_backbones(described: FeatureInput) -> tuple[Backbone, ...]:
    """Return the backbones that a model was trained on, or say which one is not the same here."""
    return tuple(_find(part) for part in described.parts)


def _find(part: FeaturePart) -> Backbone:
    backbone = parse_backbone(part.backbone)
    if isinstance(backbone, Joined):
        raise ValueError(f"a model names its backbones one by one, and '{part.backbone}' are several.")
    if backbone.side != part.side:
        raise ValueError(
            f"the model was changed: the backbone {part.backbone} sees {backbone.side} pixels on a side, not {part.side}. "
            "Restore model.json from a copy, or export the model again."
        )
    if (found := backbone.digest()) != part.digest:
        raise ValueError(
            f"the model was trained on the backbone {part.backbone} with digest {part.digest}, and the one here has {found}. "
            "Install the version of mma and of the weights that it was trained with, or use its ONNX export."
        )
    return backbone

"""What every network offers: embeddings, a dense head, and logits made of the two."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from mma.nets.norm import in_groups


@runtime_checkable
class Network(Protocol):
    """The contract of a network, also of a user's own `nn.Module`.

    Images arrive as float (B, C, H, W) in channels-last memory format, in [-1, 1]. `forward(x)` is
    `head(features(x))`, so that queries can look at the embeddings and training at the logits.
    """

    head: nn.Module  # (B, D) -> (B, classes)

    def features(self, x: Tensor) -> Tensor:
        """Return one embedding per image."""  # (B, D)
        ...

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits: `head(features(x))`."""  # (B, classes)
        ...


def without_embeddings(net: nn.Module, query: str) -> str:
    """Say what a network of one's own lacks for a query."""
    return (
        f"'{query}' looks at embeddings, but {type(net).__name__} has no features() and head. Give your network both, so that "
        "its forward(x) is head(features(x)), or use the query 'random'."
    )


class GroupedNetwork(nn.Module):
    """A network whose normalisation can keep batches apart that pass through it as one tensor.

    It must hold no other batch normalisation than `GroupedBatchNorm2d`, and nothing else that mixes images.
    """

    def joined(self, x: Tensor, groups: int) -> Tensor:
        """Return the logits of `groups` equal batches that lie one after another in `x`.

        They are those of as many forwards one after another, of which the first alone moves running statistics.
        """
        with in_groups(self, groups):
            logits: Tensor = self(x)
        return logits

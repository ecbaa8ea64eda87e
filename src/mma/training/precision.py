"""In which precision a run computes. Weights, their average, the optimizer, statistics and losses are float32 in both."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from mma.config import Optim
from mma.features.backbone import Precision, native_precision


def has_bfloat16(device: torch.device) -> bool:
    """Return whether the device multiplies bfloat16 natively. Elsewhere it is emulated, and slower than float32."""
    if device.type == "cuda":
        native: bool = torch.cuda.is_bf16_supported(including_emulation=False)
        return native
    return native_precision() == "bfloat16"


def resolve(optim: Optim, device: torch.device) -> Precision:
    """Return the precision to compute in: `auto` is bfloat16 where the device has it, else float32."""
    if optim.precision != "auto":
        return optim.precision
    return "bfloat16" if has_bfloat16(device) else "float32"


def computing(optim: Optim, device: torch.device) -> AbstractContextManager[object]:
    """Compute in the precision of a run: in bfloat16 networks multiply in it, and everything that they train stays float32."""
    half = resolve(optim, device) == "bfloat16"
    # No cache: a kernel that was cast for a guess has no gradient, and the forward to train would find it there.
    return torch.autocast(device.type, torch.bfloat16, enabled=half, cache_enabled=False)


def describe_precision(optim: Optim, device: torch.device) -> str:
    """Return the precision for host.json. Emulated bfloat16 rounds elsewhere than a processor's own, so it is another one."""
    precision = resolve(optim, device)
    return precision if precision == "float32" or has_bfloat16(device) else f"{precision}, emulated"

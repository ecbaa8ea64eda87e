"""MixMatch the obvious way: plain PyTorch, channels-last, nothing tuned and nothing spoiled. What we are measured against.

The mathematics are ours (same padding, order, statistics, Adam); `tests/bench/test_reference.py` compares the losses.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

EPS, LEAK = 1e-3, 0.1


class Same(nn.Module):
    """A convolution with TensorFlow's 'same' padding, written as a padding and a convolution."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        after = kernel // 2
        before = after if stride == 1 else 0  # at stride 2 on an even side
        self.padding = (before, after, before, after)
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=after if stride == 1 else 0)

    def forward(self, x: Tensor) -> Tensor:
        asymmetric = self.padding[0] != self.padding[1]
        return self.conv(F.pad(x, self.padding) if asymmetric else x)


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, first: bool) -> None:
        super().__init__()
        self.first = first
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs, EPS, 0.001), Same(inputs, outputs, 3, stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(outputs, EPS, 0.001), Same(outputs, outputs, 3, 1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride) if inputs != outputs else nn.Identity()
        self.relu = nn.LeakyReLU(LEAK, inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        h = self.relu(self.bn1(x))
        kept = self.shortcut(h if self.first else x)
        h = self.relu(self.bn2(self.conv1(h)))
        return kept + self.conv2(h)


class PlainWideResNet(nn.Module):
    def __init__(self, channels: int, classes: int, filters: int, blocks: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [Same(channels, 16, 3, 1)]
        width = 16
        for stage in range(3):
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                layers.append(Block(width, filters << stage, stride, first=not stage and not block))
                width = filters << stage
        layers += [nn.BatchNorm2d(width, EPS, 0.001), nn.LeakyReLU(LEAK, inplace=True)]
        self.trunk, self.head = nn.Sequential(*layers), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.trunk(x).mean((2, 3)))


class PlainSmallNet(nn.Module):
    def __init__(self, channels: int, classes: int, filters: int, scales: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = channels
        for scale in [*range(scales), scales - 1]:
            outputs = filters << scale
            layers += [nn.AvgPool2d(2)] if layers and outputs != inputs else []
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs, EPS, 0.01)]
            layers += [nn.LeakyReLU(LEAK, inplace=True)]
            inputs = outputs
        self.trunk, self.head = nn.Sequential(*layers), nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.trunk(x).mean((2, 3)))


def set_statistics(net: nn.Module, *, moving: bool) -> None:
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.track_running_stats = moving


def interleave(parts: list[Tensor]) -> list[Tensor]:
    """Swap slice i of part 0 with slice i of part i."""
    n = len(parts)
    sizes = [len(parts[0]) // n + (i >= n - len(parts[0]) % n) for i in range(n)]
    cut = [list(part.split(sizes)) for part in parts]
    for i in range(1, n):
        cut[0][i], cut[i][i] = cut[i][i], cut[0][i]
    return [torch.cat(row) for row in cut]


class PlainMixMatch:
    """One network, its average, Adam, and `step(x, y, u)`."""

    def __init__(self, net: nn.Module, *, weight: float = 75.0, lr: float = 0.002, decay: float = 0.02) -> None:
        self.net = net.to(memory_format=torch.channels_last).train()
        self.average = copy.deepcopy(self.net)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=lr)
        self.weight, self.lr, self.decay = weight, lr, decay

    def step(self, x: Tensor, y: Tensor, u: list[Tensor], rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            set_statistics(self.net, moving=False)
            p = sum(F.softmax(self.net(view), dim=1) for view in u) / len(u)
            sharp = p**2
            q = sharp / sharp.sum(dim=1, keepdim=True)
            set_statistics(self.net, moving=True)
        images = torch.cat([x, *u])
        targets = torch.cat([F.one_hot(y, q.shape[1]).float(), *[q] * len(u)])
        share = rng.beta(0.75, 0.75, size=len(images))
        mix = torch.from_numpy(np.maximum(share, 1 - share)).float()
        other = torch.from_numpy(rng.permutation(len(images)))
        images = mix.view(-1, 1, 1, 1) * images + (1 - mix).view(-1, 1, 1, 1) * images[other]
        targets = mix.view(-1, 1) * targets + (1 - mix).view(-1, 1) * targets[other]
        batches = interleave(list(images.split(len(x))))
        logits = [self.net(batches[0])]
        set_statistics(self.net, moving=False)
        logits += [self.net(batch) for batch in batches[1:]]
        set_statistics(self.net, moving=True)
        logits = interleave(logits)
        labeled = -(targets[: len(x)] * F.log_softmax(logits[0], dim=1)).sum(dim=1).mean()
        unlabeled = ((F.softmax(torch.cat(logits[1:]), dim=1) - targets[len(x) :]) ** 2).mean()
        self.optimizer.zero_grad()
        (labeled + self.weight * unlabeled).backward()
        self.optimizer.step()
        with torch.no_grad():
            for mine, average in zip(self.net.parameters(), self.average.parameters(), strict=True):
                if mine.ndim > 1:
                    mine.mul_(1 - self.lr * self.decay)
                average.mul_(0.999).add_(mine, alpha=0.001)
        return labeled.detach(), unlabeled.detach()

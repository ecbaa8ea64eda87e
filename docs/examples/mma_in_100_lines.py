"""The paper's method in one plain file: MixMatch, and a labeled set that grows by asking (arXiv:1912.00594).

`python docs/examples/mma_in_100_lines.py` grows from 20 to 60 labels on scikit-learn's digits in about a minute.
`mma train digits` does the same with the same numbers; it adds resume, other methods, reports, and people who answer.
"""

import numpy as np
import torch
import torch.nn.functional as F

from mma.data import load_data
from mma.rng import rng  # rng(seed, "purpose", step) is the same stream wherever it is asked for

BATCH, VIEWS, LR, DECAY, EMA = 32, 2, 0.002, 0.02, 0.99
TEMPERATURE, ALPHA, WEIGHT, RAMP = 0.5, 0.75, 10.0, 200  # of MixMatch: sharpening, MixUp, unlabeled loss, its rise
START, ADD, BUDGET = 20, 10, 60  # labels: at first, per query, in all
FIRST, EVERY, FINAL = 300, 100, 600  # steps: before the first query, between queries, with all labels


def draw_weights(seed):
    """Return three kernels and a dense layer, its bias, and a gain and a shift for each normalisation."""
    draw, kernels = rng(seed, "init"), []
    for out, inputs in [(32, 1), (64, 32), (64, 64)]:
        kernels.append(draw.standard_normal((out, inputs, 3, 3), dtype=np.float32) * np.float32((2 / 9 / out) ** 0.5))
        draw.integers(2**63)  # the house draws a seed for the normalisation here
    kernels.append(draw.standard_normal((10, 64), dtype=np.float32) * np.float32((2 / 74) ** 0.5))
    norms = [start(n) for n in (32, 64, 64) for start in (torch.ones, torch.zeros)]
    return [torch.from_numpy(kernel) for kernel in kernels] + [torch.zeros(10)] + norms


def logits(w, x, statistics=None, *, training=True):
    """Forward images. In training a batch is normalised by itself, and moves the running statistics if they are given."""
    for i in range(3):
        x = F.conv2d(F.avg_pool2d(x, 2) if i == 1 else x, w[i], padding=1)
        mean, var = statistics[2 * i : 2 * i + 2] if statistics else (None, None)
        x = F.batch_norm(x, mean, var, w[5 + 2 * i], w[6 + 2 * i], training, momentum=0.05, eps=1e-3)
        x = F.leaky_relu(x, 0.1)
    return F.linear(x.mean((2, 3)), w[3], w[4])  # (B, 1, 8, 8) -> (B, 10)


def weak_view(pixels, draw):
    """Shift each image by up to one pixel, reflecting at the border, and scale it to [-1, 1]."""
    rows, columns = [np.abs(np.arange(8) + draw.integers(-1, 2, len(pixels))[:, None]) for _ in range(2)]  # (B, 8)
    rows, columns = [np.where(place > 7, 14 - place, place) for place in (rows, columns)]
    shown = pixels[np.arange(len(pixels))[:, None, None], rows[:, :, None], columns[:, None, :], 0]
    return torch.from_numpy(shown.astype(np.float32))[:, None] * (1 / 127.5) - 1  # (B, 1, 8, 8)


def interleave(parts):
    """Exchange slices: the first part then holds some of each. Doing it twice undoes it."""
    rows = [list(part.split([10, 11, 11])) for part in parts]
    for i in (1, 2):
        rows[0][i], rows[i][i] = rows[i][i], rows[0][i]
    return [torch.cat(row) for row in rows]


def mixmatch(w, statistics, x, y, u, ramp, draw):
    """Guess labels for the views `u` of unlabeled images, sharpen them, MixUp everything, fit the mixture."""
    with torch.no_grad():
        p = torch.stack([logits(w, view).softmax(1) for view in u]).mean(0)  # (B, 10)
        q = (p / p.amax(1, keepdim=True)) ** (1 / TEMPERATURE)
        q = q / q.sum(1, keepdim=True)
    inputs, targets = torch.cat([x, *u]), torch.cat([F.one_hot(y, 10).float(), *[q] * VIEWS])
    lam = draw.beta(ALPHA, ALPHA, len(inputs))
    lam = torch.from_numpy(np.maximum(lam, 1 - lam).astype(np.float32))[:, None]  # (3 B, 1)
    other = torch.from_numpy(draw.permutation(len(inputs)))
    inputs, targets = inputs[other].lerp(inputs, lam[..., None, None]), targets[other].lerp(targets, lam)
    first, *rest = interleave(inputs.chunk(3))  # only the first forward moves the running statistics
    out = torch.cat(interleave([logits(w, first, statistics), *[logits(w, part) for part in rest]]))
    unlabeled = F.mse_loss(out[BATCH:].softmax(1), targets[BATCH:])
    return F.cross_entropy(out[:BATCH], targets[:BATCH]), WEIGHT * ramp * unlabeled


def diff2(average, statistics, pixels, free, seed, number):
    """Score images by the gap between the two best classes, averaged over augmented views; small = unsure."""
    probs = []
    for part in range(0, len(free), 500):
        draws = [rng(seed, "query", number, part // 500, view) for view in range(VIEWS)]
        views = [weak_view(pixels[free[part : part + 500]], draw) for draw in draws]
        answers = [logits(average, view, statistics, training=False).softmax(1) for view in views]
        probs.append(torch.stack(answers).mean(0))
    best, second = torch.cat(probs).topk(2).values.T
    return (best - second).numpy()


def batch_of(items, kept, begin, *purpose):
    """Return BATCH items from `begin` on of an endless sequence: shuffled copies of the `kept` items."""
    size = np.count_nonzero(kept)
    epochs = range(begin // size, (begin + BATCH - 1) // size + 1)
    orders = [rng(*purpose, epoch).permutation(len(items)) for epoch in epochs]
    return np.concatenate([items[order[kept[order]]] for order in orders])[begin % size :][:BATCH]


@torch.no_grad()
def update(w, average, moments, gradients, step):
    """Adam, then decay of the kernels, then the average that answers and asks."""
    rate = LR * (1 - 0.999 ** (step + 1)) ** 0.5 / (1 - 0.9 ** (step + 1))
    for weight, mean, (m, v), gradient in zip(w, average, moments, gradients, strict=True):
        m.lerp_(gradient, 0.1)
        v.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        weight.addcdiv_(m, v.sqrt() + 1e-8, value=-rate).mul_(1 - LR * DECAY * (weight.ndim > 1))
        mean.lerp_(weight, 1 - EMA)


def train(seed=1, first=FIRST, every=EVERY, final=FINAL):
    """Yield ("picks", images) at every query, ("losses", terms) at every step and ("accuracy", percent) at the end."""
    data = load_data("digits")
    pixels, truth, pool = data.train.pixels, data.train.labels, np.arange(len(data.train))
    w = [weight.requires_grad_() for weight in draw_weights(seed)]
    average, moments = draw_weights(seed), [(torch.zeros_like(weight), torch.zeros_like(weight)) for weight in w]
    statistics = [start(n) for n in (32, 64, 64) for start in (torch.zeros, torch.ones)]
    labeled, step, sizes = pool[:0], 0, [*range(START, BUDGET, ADD), BUDGET]
    for number, size in enumerate(sizes):
        free, begin = np.setdiff1d(pool, labeled), step
        if number == 0:
            picks = rng(seed, "start").permutation(len(pool))[:size]
        else:
            picks = free[np.argsort(diff2(average, statistics, pixels, free, seed, number))[: size - len(labeled)]]
        yield "picks", picks
        labeled = np.concatenate([labeled, picks])  # truth[picks] is what people would answer
        while step < begin + (first if number == 0 else final if size == BUDGET else every):
            draw, at = rng(seed, "augment", step), (step - begin) * BATCH
            chosen = batch_of(labeled, labeled >= 0, at, seed, "labeled", number)
            others = batch_of(pool, ~np.isin(pool, labeled), at, seed, "unlabeled", number)
            x, y = weak_view(pixels[chosen], draw), torch.from_numpy(truth[chosen])
            u = weak_view(pixels[np.tile(others, VIEWS)], draw).chunk(VIEWS)
            losses = mixmatch(w, statistics, x, y, u, min((step - begin) / RAMP, 1.0), rng(seed, "loss", step))
            update(w, average, moments, torch.autograd.grad(torch.stack(losses).sum(), w), step)
            yield "losses", [loss.item() for loss in losses]
            step += 1
    test = torch.from_numpy(data.test.pixels[:, None, :, :, 0].astype(np.float32)) * (1 / 127.5) - 1
    answers = logits(average, test, statistics, training=False).argmax(1).numpy()
    yield "accuracy", 100 * np.mean(answers == data.test.labels)


if __name__ == "__main__":
    *_, (_, accuracy) = train()
    print(f"{BUDGET} labels: {accuracy:.1f} % of the test images are right")

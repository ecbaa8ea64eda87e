"""Is the head ever below the simplest thing? `python tools/first_labels.py run POOLS --out ROWS` asks for the first labels.

POOLS is what `tools/pools.py` writes. A seed draws a part of a pool. Labels are drawn at random, or asked for by `auto` with
the model's own answers, up to 25 per class. At each size the head of the preset `photos` and logistic regressions on either
backbone learn from the same labels. The regression on the better backbone also asks for labels of its own (`auto:lite0` or
`auto:hog`). A (pool, seed) that is in ROWS is not run again. `table ROWS...` writes results/first-labels/.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mma.config import change
from mma.data.tables import render_csv
from mma.experiments.report.statistics import Difference, holm, interval, pair_by_seed, signed_ranks, wilcoxon
from mma.features import Features
from mma.files import write_atomically
from mma.nets.head import PENALTIES, fit_logistic, thread_pools
from mma.presets import preset
from mma.query import Candidates, Labeled, Query
from mma.rng import rng
from mma.training.head import fit_head
from mma.views import FeatureViews, VectorViews
from mma.views.features import find_projection

RESULTS = Path(__file__).parents[1] / "results"
PER_CLASS = (1, 2, 3, 5, 10, 25)
MOST = 0.6  # share of a pool that is labeled at most
TEST = 1_000
WORST = -0.5  # points that the mean of a cell may be below
MARK = "<!-- what follows is written by tools/first_labels.py -->"
BACKBONES = ("lite0", "hog")
HEAD = change(preset("photos"), ["views.crops=0", "net.folds=0"])  # no temperature: it changes no answer
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Recipe:
    """Which images of a stored pool are used. `shares` are those of the classes, in an order that is drawn once."""

    file: str
    images: int  # drawn by a seed, at most
    classes: int | tuple[int, ...] | None = None  # these, or so many at random; None is all
    shares: tuple[float, ...] | None = None
    chosen_on: bool = False  # the rules were chosen on this pool; the others accept them
    stock: int | None = None  # of the stored images, only the first so many are drawn from


TAIL = tuple(20 ** (-k / 9) for k in range(10))  # 20 to 1
POOLS = {
    "digits": Recipe("digits", 1_000, chosen_on=True),
    "signs": Recipe("signs", 1_200, chosen_on=True),
    "cifar10": Recipe("cifar10", 1_300, chosen_on=True),
    "four animals": Recipe("cifar10", 1_200, (2, 3, 4, 5), (0.45, 0.37, 0.09, 0.09), chosen_on=True),
    "cats 10:1": Recipe("cifar10", 1_200, (3, 7), (10.0, 1.0), chosen_on=True),
    "objects": Recipe("objects", 1_300),
    "fashion-mnist": Recipe("fashion-mnist", 1_000, stock=2_500),
    "fashion-mnist 20:1": Recipe("fashion-mnist", 1_000, shares=TAIL, stock=2_500),
    "svhn": Recipe("svhn", 1_000, chosen_on=True, stock=2_500),
    "things 20:1": Recipe("cifar100", 1_000, 10, TAIL),
    "twenty things": Recipe("cifar100", 1_300, 20),
}


@dataclass(frozen=True, eq=False)
class Pool:
    """Images to ask about and to be tested on, as views of both backbones joined."""

    views: VectorViews
    y: Ints
    test: VectorViews
    truth: Ints
    classes: int


def draw(y: Ints, classes: Ints, recipe: Recipe, name: str, most: int, seed: int) -> Ints:
    """Draw images of some classes in their shares; the rarest class has five at least."""
    order = rng(seed, "first labels", name).permutation(len(y) if recipe.stock is None else min(recipe.stock, len(y)))
    order = order[np.isin(y[order], classes)]
    if recipe.shares is None:
        return np.sort(order[:most])
    turned = rng(0, "shares", name).permutation(len(classes))
    wanted = np.array(recipe.shares)[turned] / sum(recipe.shares)
    count = min(most, int((np.array([(y[order] == each).sum() for each in classes]) / wanted).min()))
    rows = [
        order[y[order] == each][: max(round(share * count), 5)] for each, share in zip(classes, wanted, strict=True)
    ]
    return np.sort(np.concatenate(rows))


def open_pool(folder: Path, name: str, seed: int) -> Pool:
    """Draw a pool and project its features as a project does."""
    recipe = POOLS[name]
    with np.load(folder / f"{recipe.file}.npz") as stored:
        arrays = {key: stored[key] for key in stored.files}
    y, truth, classes = arrays["labels"], arrays["test_labels"], recipe.classes
    every = np.arange(int(y.max()) + 1)
    if classes is not None:
        every = rng(0, "classes", name).permutation(every)[:classes] if isinstance(classes, int) else np.array(classes)
    rows, tested = (
        draw(*each) for each in ((y, every, recipe, name, recipe.images, seed), (truth, every, recipe, name, TEST, 0))
    )
    number = np.full(int(max(y.max(), truth.max())) + 1, -1)
    number[every] = np.arange(len(every))

    def parts(prefix: str, chosen: Ints) -> tuple[Features, ...]:
        keys = np.zeros((len(chosen), 32), np.uint8)
        return tuple(
            Features(arrays[prefix + each][chosen][:, None], np.arange(len(chosen)), keys, each) for each in BACKBONES
        )

    settings, seen = HEAD.views, parts("", rows)
    assert isinstance(settings, FeatureViews)
    projections = tuple(find_projection(part, settings.width) for part in seen)
    cpu = torch.device("cpu")
    views, test = (VectorViews(each, projections, cpu, settings) for each in (seen, parts("test_", tested)))
    return Pool(views, number[y[rows]], test, number[truth[tested]], len(every))


def regression(pool: Pool, part: int, rows: Ints) -> tuple[Any, Any]:
    """Fit a logistic regression on one backbone; return a function of its numbers to probabilities, and its numbers."""
    ends = np.cumsum((0, *pool.views.shape))
    where = slice(int(ends[part]), int(ends[part + 1]))
    seen = pool.views.plain(np.arange(len(pool.y))).numpy()[:, where]
    with thread_pools().limit(limits=1):
        weight, bias = fit_logistic(seen[rows], pool.y[rows], pool.classes, PENALTIES[0])
    return (lambda x: torch.from_numpy(x @ weight.T + bias).softmax(1).numpy()), where


def percent(probs: Any, truth: Ints) -> float:
    """Return the accuracy in percent."""
    return round(100 * float((probs.argmax(1) == truth).mean()), 3)


def run_one(folder: Path, name: str, seed: int, most: int) -> Iterator[dict[str, Any]]:
    """Ask for labels in every way, at most so many per class, and learn from them."""
    pool = open_pool(folder, name, seed)
    count, config = len(pool.y), change(HEAD, [f"seed={seed}"])
    everything, tested = pool.views.plain(np.arange(count)).numpy(), pool.test.plain(np.arange(len(pool.truth))).numpy()
    order, auto = rng(seed, "random", name).permutation(count), Query.parse("auto")
    sizes = [each for each in PER_CLASS if each <= most and each * pool.classes <= MOST * count]
    best = ""
    for asked in ("random", "auto", "auto:"):
        asked += best if asked == "auto:" else ""
        rows, probs, gate = np.empty(0, np.int64), None, np.ones(everything.shape[1], bool)
        part = BACKBONES.index(asked[5:]) if ":" in asked else pool.views.closest
        if part is not None:
            ends = np.cumsum((0, *pool.views.shape))
            gate = (np.arange(len(gate)) >= ends[part]) & (np.arange(len(gate)) < ends[part + 1])
        for per_class in sizes:
            more = per_class * pool.classes - len(rows)
            if asked == "random":
                rows = order[: per_class * pool.classes]
            else:
                free = np.setdiff1d(np.arange(count), rows)
                candidates = Candidates(free, None if probs is None else probs[free], everything[free][:, gate])
                known = Labeled(everything[rows][:, gate], pool.y[rows]) if len(rows) else Labeled()
                picked = auto.selection(candidates, more, rng(seed, "select", per_class), known)
                rows = np.concatenate([rows, picked.index])
            row: dict[str, Any] = {
                "pool": name,
                "seed": seed,
                "asked": asked,
                "per_class": per_class,
                "labels": len(rows),
            }
            row["classes_seen"] = len(np.unique(pool.y[rows]))
            for number, backbone in enumerate(BACKBONES):
                if ":" not in asked or number == part:
                    answer, where = regression(pool, number, rows)
                    row[backbone] = percent(answer(tested[:, where]), pool.truth)
                    if ":" in asked:
                        probs = answer(everything[:, where])
            if ":" not in asked:
                begin = time.process_time()
                head = fit_head(pool.views, {int(r): int(pool.y[r]) for r in rows}, pool.classes, config=config)
                row["seconds"] = round(time.process_time() - begin, 3)
                row["head"], row["used"] = (
                    percent(head.probabilities(pool.test, np.arange(len(tested))), pool.truth),
                    "+".join(head.used),
                )
                if asked == "auto":
                    probs, gate = head.probabilities(pool.views, np.arange(count)), head.net.gate.numpy() > 0
            yield row
        if asked == "random":
            best = max(BACKBONES, key=lambda each: float(row[each]))


def run(folder: Path, out: Path, seeds: int, whole: int, names: list[str]) -> None:
    """Run what is not in the file; a (pool, seed) is appended whole. After `whole` seeds the largest size is left out."""
    torch.set_num_threads(1)
    done = {(row["pool"], row["seed"]) for row in read(out)} if out.exists() else set()
    for seed in range(1, seeds + 1):
        for name in names or POOLS:
            if (name, seed) not in done and (folder / f"{POOLS[name].file}.npz").exists():
                begin = time.perf_counter()
                text = "".join(
                    json.dumps(row) + "\n"
                    for row in run_one(folder, name, seed, PER_CLASS[-1 if seed <= whole else -2])
                )
                with out.open("a") as file:
                    file.write(text)
                print(f"{name}, seed {seed}: {time.perf_counter() - begin:.0f} s", flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    """Read the rows."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def read_table(path: Path) -> list[dict[str, Any]]:
    """Read the rows of results/first-labels/runs.csv."""
    whole, text = ("seed", "per_class", "labels", "classes_seen"), ("pool", "asked", "used")
    with path.open(encoding="utf-8", newline="") as file:
        return [
            {
                name: value if name in text else int(value) if name in whole else float(value)
                for name, value in row.items()
                if value
            }
            for row in csv.DictReader(file)
        ]


def cells(rows: list[dict[str, Any]]) -> list[tuple[str, str, int, str, list[float], Difference]]:
    """Compare the head with the better regression on its labels, with one that asked for its own, and `auto` with random.

    One cell for each comparison, pool and size: what is compared, the means, and the difference over the seeds. Holm's
    correction counts the cells of one comparison in one pool.
    """
    found = []
    for pool in dict.fromkeys(row["pool"] for row in rows):
        mine = [row for row in rows if row["pool"] == pool]

        def of(asked: str, name: str, per_class: int, mine: list[dict[str, Any]] = mine) -> dict[int, float]:
            wanted = (row for row in mine if row["asked"].startswith(asked) and row["per_class"] == per_class)
            return {
                row["seed"]: row[name]
                for row in wanted
                if name in row and (asked.endswith(":") == (":" in row["asked"]))
            }

        for what in ("random", "auto", "auto, own questions", "auto - random"):
            group = []
            for per_class in sorted({row["per_class"] for row in mine}):
                asked = "random" if what == "random" else "auto"
                ours = of(asked, "head", per_class)
                other = "auto:" if what == "auto, own questions" else asked
                theirs = [of(other, each, per_class) for each in BACKBONES]
                theirs = [each for each in theirs if len(each) == len(ours)] or [{}]
                best = max(theirs, key=lambda each: np.mean(list(each.values()) or [0.0]))
                best = of("random", "head", per_class) if what == "auto - random" else best
                values = pair_by_seed(ours, best)
                if len(values):
                    means = [
                        float(np.mean([side[seed] for seed in sorted(ours.keys() & best.keys())]))
                        for side in (ours, best)
                    ]
                    place = (what, "", per_class, 0, len(values), float(values.mean()))
                    ranks = float(signed_ranks(values).sum())
                    group.append((means, Difference(*place, *interval(values), ranks, wilcoxon(values))))
            corrected = holm([each.p for _, each in group])
            found += [
                (
                    pool,
                    what,
                    each.budget,
                    "chosen on" if POOLS[pool].chosen_on else "accepts",
                    means,
                    replace(each, holm=p),
                )
                for (means, each), p in zip(group, corrected, strict=True)
            ]
    return found


def as_markdown(rows: list[dict[str, Any]]) -> str:
    """Return the tables, and name every cell that fails."""
    found, text = cells(rows), []
    titles = {
        "random": "Labels drawn at random: head and logistic regression on the better backbone",
        "auto": "Labels asked by `auto`: head and logistic regression on the better backbone, the same labels",
        "auto, own questions": "Head, and logistic regression on the better backbone that asks by `auto` for labels of its own",
        "auto - random": "The head: asked by `auto`, and drawn at random",
    }
    for what, title in titles.items():
        mine = [each for each in found if each[1] == what]
        better = sum(each[-1].verdict == "better" for each in mine)
        bad = [f"{pool}, {size} ({row.mean:+.2f})" for pool, _, size, _, _, row in mine if row.mean < WORST]
        text += [
            f"## {title}",
            "",
            f"{len(mine)} cells; above by the corrected test in {better}, on average in "
            f"{sum(each[-1].mean > 0 for each in mine)}. Below by more than 0.5 points on average: {'; '.join(bad) or 'none'}.",
            "",
        ]
        text += ["| pool | | n | " + " | ".join(map(str, PER_CLASS)) + " |", "|---" * (3 + len(PER_CLASS)) + "|"]
        for pool in dict.fromkeys(each[0] for each in mine):
            by_size = {each[2]: each for each in mine if each[0] == pool}
            counts = sorted({each[5].n for each in by_size.values()})
            line = []
            for size in PER_CLASS:
                if size in by_size:
                    means, row = by_size[size][4], by_size[size][5]
                    mark = "**" if row.verdict == "better" else ""
                    line.append(f"{mark}{means[0]:.1f}{mark} {means[1]:.1f}")
                else:
                    line.append("")
            n = " to ".join(map(str, counts[:: max(len(counts) - 1, 1)]))
            text.append(f"| {pool} | {next(iter(by_size.values()))[3]} | {n} | " + " | ".join(line) + " |")
        text.append("")
    return "\n".join(text)


def write(paths: list[Path]) -> None:
    """Write the rows as one table, and the tables of the README between its marks."""
    rows = [row for path in paths for row in read(path)]
    out, names = RESULTS / "first-labels", list(dict.fromkeys(key for row in rows for key in row))
    lines: list[list[Any]] = [names, *([row.get(name) for name in names] for row in rows)]
    write_atomically(out / "runs.csv", render_csv(lines))
    page = out / "README.md"
    head, _, _ = page.read_text(encoding="utf-8").partition(MARK)
    write_atomically(page, head + MARK + "\n\n" + as_markdown(rows))


def main() -> None:
    """Run, or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("pools", type=Path)
    running.add_argument("names", nargs="*")
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--seeds", type=int, default=12)
    running.add_argument(
        "--whole", type=int, default=12, help="seeds that also have the largest size, which takes longest"
    )
    commands.add_parser("table").add_argument("rows", type=Path, nargs="+")
    given = parser.parse_args()
    if given.command == "run":
        run(given.pools, given.out, given.seeds, given.whole, given.names)
    else:
        write(given.rows)


if __name__ == "__main__":
    main()

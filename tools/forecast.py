"""Check forecasts on learning curves that were measured: `python tools/forecast.py` writes results/forecast/.

A curve is one run of results/*/rounds.csv: the accuracy after each round and the labels it had. Rounds of another length than
the second (such as the long training at the end) are left out, for their gain is not the labels' alone; so are runs that buy
images. From every beginning of a curve the next two rounds are forecast. The noise that bands allow for was chosen on runs with
odd seeds; the table is about those with even seeds. before.csv holds the same table for the bands of an earlier version.

With --pools DIR, a folder of `tools/pools.py`, it simulates projects whose models are measured on the same few audit photos, as
those of a labeling project are, and writes projects.csv.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mma.files import write_atomically
from mma.nets.head import fit_logistic
from mma.project.models import MORE
from mma.project.quality.accuracy import LEAST_AUDIT
from mma.project.quality.forecast import BAND, DECIDES, LEAST, LUCK, NOISE, WORLDS, AccuracyPoint, Curve
from mma.rng import rng
from mma.shares import exact_interval

RESULTS = Path(__file__).parents[1] / "results"
AHEAD = 2  # rounds
HEADS = ("low-budget-", "hard-", "photos-")  # beginnings of names: heads on features, as `mma status` forecasts them
COLUMNS = (
    *("results", "curves", "forecasts", "inside the band", "mean error", "mean error, same gain again", "width"),
    *("gains inside their band", "shown", "inside, of those shown", "width, of those shown"),
)
PROJECT_COLUMNS = ("labels", "forecasts", "inside the band", "width", *COLUMNS[-3:])
VECTORS = {
    "digits": "hog",
    "signs": "hog",
    "fashion-mnist": "hog",
    "svhn": "hog",
    "objects": "lite0",
    "cifar10": "lite0",
}
MOST = 80  # audit photos
Row = dict[str, Any]
BEFORE = ("inside the band", "width")  # columns of the earlier table that are shown beside the new ones


@dataclass(frozen=True)
class Outcome:
    """One forecast and what came, in percent."""

    folder: str
    run: str
    said: float
    low: float
    high: float
    naive: float
    came: float
    gain_inside: bool
    shown: bool  # the band of the gain is narrow enough


def same_gain_again(points: Sequence[AccuracyPoint], labels: int) -> float:
    """Return the naive forecast: from the last two points straight on."""
    before, last = sorted(points, key=lambda point: point.labels)[-2:]
    slope = (last.accuracy - before.accuracy) / (last.labels - before.labels)
    return last.accuracy + slope * (labels - last.labels)


def curves(folder: Path) -> Iterator[tuple[str, list[AccuracyPoint]]]:
    """Yield the name and the points of every usable run of a results folder."""
    with (folder / "rounds.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for run, rounds in groupby(rows, key=run_of):
        if folder.name.startswith("buyer") and "labels only" not in run[0]:
            continue
        points = keep_equal_rounds(list(rounds))
        if len(points) > LEAST:
            yield " ".join(run), points


def is_unseen(run: str) -> bool:
    """Tell whether nothing was chosen on a run: its seed, the last word of its name, is even."""
    return int(run.split()[-1]) % 2 == 0


def run_of(row: dict[str, str]) -> tuple[str, ...]:
    """Return what tells runs apart."""
    return tuple(row[name] for name in ("method", "budget", "total", "seed") if name in row)


def keep_equal_rounds(rounds: list[dict[str, str]]) -> list[AccuracyPoint]:
    """Return the points of a run without the longer trainings at its end."""
    rounds = sorted(rounds, key=lambda row: int(row["labels"]))
    lengths = np.diff([0, *[int(row["step"]) for row in rounds]])
    while len(rounds) > 2 and lengths[len(rounds) - 1] != lengths[1]:
        rounds = rounds[:-1]
    return [AccuracyPoint(int(row["labels"]), float(row["accuracy"])) for row in rounds]


def outcomes(folder: Path) -> Iterator[Outcome]:
    """Forecast every curve of a folder from each of its beginnings."""
    for run, points in curves(folder):
        if not is_unseen(run):
            continue
        for known in range(LEAST, len(points)):
            curve = Curve(points[:known])
            for later in points[known : known + AHEAD]:
                said, naive = curve.at(later.labels), same_gain_again(points[:known], later.labels)
                gain, last = curve.gain(later.labels - curve.last.labels), curve.last.accuracy
                inside = gain.low <= later.accuracy - last <= gain.high
                yield Outcome(
                    folder.name, run, said.accuracy, said.low, said.high, naive, later.accuracy, inside, gain.decides
                )


def table_row(name: str, found: list[Outcome]) -> dict[str, str]:
    """Summarise the forecasts of a folder."""
    held = [one.low <= one.came <= one.high for one in found]
    inside, narrow = np.mean(held), [place for place, one in enumerate(found) if one.shown]
    error, naive = (np.mean([abs(getattr(one, kind) - one.came) for one in found]) for kind in ("said", "naive"))
    width = np.mean([one.high - one.low for one in found])
    runs = len({(one.folder, one.run) for one in found})
    gains = np.mean([one.gain_inside for one in found])
    cells = (name, str(runs), str(len(found)), f"{100 * inside:.1f} %", f"{error:.2f}", f"{naive:.2f}", f"{width:.1f}")
    cells = (*cells, f"{100 * gains:.1f} %", f"{100 * len(narrow) / len(found):.0f} %")
    widths = [found[at].high - found[at].low for at in narrow]
    few = (f"{100 * np.mean([held[at] for at in narrow]):.1f} %", f"{np.mean(widths):.1f}") if narrow else ("", "")
    cells = (*cells, *few)
    return dict(zip(COLUMNS, cells, strict=True))


def all_rows(results: Path = RESULTS) -> list[dict[str, str]]:
    """Return a row for each folder with usable curves, and one for all of them."""
    folders = [path.parent for path in sorted(results.glob("*/rounds.csv"))]
    found = {folder.name: list(outcomes(folder)) for folder in folders}
    rows = [table_row(name, each) for name, each in found.items() if each]
    everything = [one for each in found.values() for one in each]
    heads = [one for one in everything if one.folder.startswith(HEADS)]
    return [*rows, table_row("heads with up to 300 labels", heads), table_row("all", everything)]


def project(pool: str, folder: Path, seed: int) -> Row:
    """Label a pool, ten answers at a time: asked by margin, a part drawn at random to measure by. Truth is another test set."""
    found = np.load(folder / f"{pool}.npz")
    x, test = (found[f"{part}{VECTORS[pool]}"].astype(np.float32) for part in ("", "test_"))
    y, truth = found["labels"].astype(np.int64), found["test_labels"]
    axes = np.linalg.svd((x - x.mean(0))[np.random.default_rng(0).permutation(len(x))[:1_200]], full_matrices=False)[2][
        :160
    ]
    x, test = (normalised((part - x.mean(0)) @ axes.T) for part in (x, test))
    order = rng(seed, "fsim", pool).permutation(len(y))
    audit, rest = order[:MOST], order[MOST : MOST + 3_000]
    labeled, drawn, row = (
        list(rest[: len(found["classes"])]),
        0,
        Row(pool=pool, seed=seed, right=[], truth=[], audit=[], labels=[]),
    )
    for labels in range(10, 410, 10):
        weight, bias = fit_logistic(x[labeled], y[labeled], int(y.max()) + 1, 1e-4)
        many = 3 if drawn < 30 else 1  # of ten answers
        drawn = min(drawn + many, MOST)
        left = np.setdiff1d(rest, labeled)
        top = np.sort(x[left] @ weight.T + bias, axis=1)
        labeled += left[np.argsort(top[:, -1] - top[:, -2], kind="stable")[: 10 - many]].tolist()
        weight, bias = fit_logistic(x[labeled], y[labeled], int(y.max()) + 1, 1e-4)
        row["right"].append(((x[audit] @ weight.T + bias).argmax(1) == y[audit]).astype(int).tolist())
        row["truth"].append(float(100 * ((test @ weight.T + bias).argmax(1) == truth).mean()))
        row["audit"].append(drawn)
        row["labels"].append(labels)
    return row


def normalised(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return vectors of length one."""
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def project_table(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Return how often the true gain of the next 50 labels lay inside its band, always and where a forecast is shown."""
    found = []
    for row in rows:
        right = np.array(row["right"])
        for last in range(LEAST, len(row["labels"]) - 5, 3):
            if (of := row["audit"][last]) < LEAST_AUDIT:
                continue
            points = []
            for labels, hits in zip(row["labels"][: last + 1], right[:, :of].sum(1).tolist(), strict=False):
                low, high = exact_interval(hits, of)
                points.append(AccuracyPoint(labels, 100 * hits / of, 100 * low, 100 * high))
            gain, came = Curve(points).gain(MORE), row["truth"][last + 5] - row["truth"][last]
            found.append((row["labels"][last], gain.low <= came <= gain.high, gain.high - gain.low, gain.decides))
    table = []
    for low, high in ((0, 60), (60, 120), (120, 200), (200, 400), (0, 400)):
        part = np.array([one[1:] for one in found if low <= one[0] < high], np.float64)
        shown = part[part[:, 2] > 0]
        cells = [f"{low} to {high}", str(len(part)), f"{100 * part[:, 0].mean():.1f} %", f"{part[:, 1].mean():.1f}"]
        cells += [f"{100 * len(shown) / len(part):.0f} %"]
        cells += [f"{100 * shown[:, 0].mean():.1f} %", f"{shown[:, 1].mean():.1f}"] if len(shown) else ["", ""]
        table.append(dict(zip(PROJECT_COLUMNS, cells, strict=True)))
    return table


def simulate(pools: Path, notes: Path, out: Path) -> None:
    """Simulate what is missing in the notes, and write the table of the projects with even seeds."""
    rows = [json.loads(line) for line in notes.read_text("utf-8").splitlines()] if notes.exists() else []
    done = {(row["pool"], row["seed"]) for row in rows}
    for pool, seed in [(pool, seed) for pool in VECTORS for seed in range(12) if (pool, seed) not in done]:
        rows.append(project(pool, pools, seed))
        with notes.open("a", encoding="utf-8") as file:
            file.write(json.dumps(rows[-1]) + "\n")
    write_table(out / "projects.csv", project_table([row for row in rows if row["seed"] % 2 == 0]))


def write_table(path: Path, rows: Sequence[dict[str, str]]) -> None:
    """Write rows as CSV."""
    table = io.StringIO()
    writer = csv.DictWriter(table, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, table.getvalue())


def markdown(rows: Sequence[dict[str, str]]) -> str:
    """Return rows as a table of a page."""
    head = ["| " + " | ".join(rows[0]) + " |", "|---" * len(rows[0]) + "|"]
    return "\n".join([*head, *["| " + " | ".join(row.values()) + " |" for row in rows]])


def others_curves() -> str:
    """Return the table of LCDB for the learners that are like heads, and for all."""
    with (RESULTS / "forecast" / "lcdb.csv").open(encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    kept = [head, ["---"] * len(head), *(row for row in rows if row[0] in ("LogisticRegression", "linear", "all"))]
    return "\n".join("| " + " | ".join(row) + " |" for row in kept)


def page(rows: list[dict[str, str]]) -> str:
    """Return README.md."""
    with (RESULTS / "forecast" / "before.csv").open(encoding="utf-8") as file:
        earlier = {row["results"]: row for row in csv.DictReader(file)}
    more = [{f"{name}, before": earlier.get(row["results"], {}).get(name, "") for name in BEFORE} for row in rows]
    table = markdown([{**row, **before} for row, before in zip(rows, more, strict=True)])
    with (RESULTS / "forecast" / "projects.csv").open(encoding="utf-8") as file:
        projects = markdown(list(csv.DictReader(file)))
    return f"""# Do forecasts come true?

Made with `python tools/forecast.py` from the `rounds.csv` of the other folders here.

A band is meant to hold {BAND:.0%} of the later accuracies. Errors and widths are in points of accuracy. *Same gain again* is
a straight line through the last two rounds. The last column is about the gain between the last known round and the later
one, as `mma status` compares forecast and measurement.

{table}

A curve is one run; each beginning of it with {LEAST} rounds or more forecasts the next {AHEAD}. Forecasts of one curve are not
independent of each other. Left out: rounds of another length (the long training at the end), runs that buy images, and runs
with too few rounds. Where networks are trained from scratch (cifar10-lab, buyer-digits) every round also trains on: these
curves are not made by labels alone. Curves of heads on features are what `mma status` forecasts.

*Shown*: `mma status` and the page show a forecast where the 90 % band of the gain is at most {DECIDES:g} points wide. In the
table the gain is that of the next rounds, in a project that of the next 50 labels.

Only runs with even seeds are counted here. On those with odd seeds two numbers were chosen: the noise of a training that is
expected before anything is measured, {NOISE[0]:g} points at 50 % accuracy and 100 labels (of 2, 2.5, 3 and 3.25), and that it
falls with the root of the labels (powers of 0.5 and 0.75). With these, 90.7 % of the odd outcomes are inside bands of 2.2
points. Before, the noise was taken to be the same with 50 labels and with 5,000 (2.5 points), so that nearly every outcome lay
inside the wide bands of large label counts. The form of the curve and the other priors come from logistic regression on
scikit-learn's digits (12 seeds, random and margin, 20 to 300 labels); they were fixed earlier,
with a look at all of these folders.

Networks that are trained from scratch in few steps (buyer-digits) jump more than heads do, and their bands are too narrow.

## In a project
There all models are judged by the same few audit photos. Their curve looks steadier than the models are: it is too high or too
low as a whole. So {WORLDS} curves are drawn that may be the true one, and a training is taken to differ from the next one by
{LUCK:g} points at 50 % accuracy and 100 labels. That number (of 1, 1.2, 1.5, 2, 2.5 and 3), and that the error of a curve may
turn it, were chosen on simulated projects with odd seeds. This table is about 36 with even seeds: six pools (digits, Fashion-
MNIST, signs, objects, CIFAR-10, SVHN), logistic regression on frozen features, asked by margin, 30 audit photos first
(three of ten answers) and one in ten from then on. The outcome is the true gain of the next 50 labels on another test set.
Made with `python tools/forecast.py --pools DIR --notes FILE`.

{projects}

Before, the band of the gain was 0.8 points wide on average in such projects and held 19 % of the outcomes. The wider one,
about what the audit would measure, held 97 % and was 16.0 points wide.

## On curves that are not ours
LCDB has the accuracy of 20 learners of scikit-learn on 246 public tables of numbers, with 16 to 2,048 examples. Nothing was
chosen on them. **A band is meant to hold {BAND:.0%}, and there it holds fewer: they are too narrow for other learners.** The
noise that falls with the root of the labels was chosen on our own heads. *Before* is the version whose noise was the same at
every number of labels. The forecasts themselves are better than before, and far better than *same gain again*. Made with
`python tools/lcdb_curves.py`; all learners are in [lcdb.csv](lcdb.csv), `linear` are seven linear ones together.

{others_curves()}
"""


def main() -> None:
    """Write the table, or say where it differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "forecast")
    parser.add_argument("--pools", type=Path, help="Simulate projects from these pools.")
    parser.add_argument("--notes", type=Path, help="Where finished projects are kept (JSON lines).")
    asked = parser.parse_args()
    if asked.pools:
        simulate(asked.pools, asked.notes, asked.out)
        return
    rows = all_rows()
    write_table(asked.out / "table.csv", rows)
    write_atomically(asked.out / "README.md", page(rows))


if __name__ == "__main__":
    main()

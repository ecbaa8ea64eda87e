"""Check forecasts on learning curves that were measured: `python tools/forecast.py` writes results/forecast/.

A curve is one run of results/*/rounds.csv: the accuracy after each round and the labels it had. Rounds of another length than
the second (such as the long training at the end) are left out, for their gain is not the labels' alone; so are runs that buy
images. From every beginning of a curve the next two rounds are forecast. The noise that bands allow for was chosen on runs with
odd seeds; the table is about those with even seeds.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from mma.files import write_atomically
from mma.project.quality.forecast import BAND, LEAST, AccuracyPoint, Curve

RESULTS = Path(__file__).parents[1] / "results"
AHEAD = 2  # rounds
HEADS = ("low-budget-", "hard-", "photos-")  # beginnings of names: heads on features, as `mma status` forecasts them
COLUMNS = (
    *("results", "curves", "forecasts", "inside the band", "mean error", "mean error, same gain again", "width"),
    "gains inside their band",
)


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
                inside = gain.shown_low <= later.accuracy - last <= gain.shown_high
                yield Outcome(folder.name, run, said.accuracy, said.low, said.high, naive, later.accuracy, inside)


def table_row(name: str, found: list[Outcome]) -> dict[str, str]:
    """Summarise the forecasts of a folder."""
    inside = np.mean([one.low <= one.came <= one.high for one in found])
    error, naive = (np.mean([abs(getattr(one, kind) - one.came) for one in found]) for kind in ("said", "naive"))
    width = np.mean([one.high - one.low for one in found])
    runs = len({(one.folder, one.run) for one in found})
    gains = np.mean([one.gain_inside for one in found])
    cells = (name, str(runs), str(len(found)), f"{100 * inside:.1f} %", f"{error:.2f}", f"{naive:.2f}", f"{width:.1f}")
    cells = (*cells, f"{100 * gains:.1f} %")
    return dict(zip(COLUMNS, cells, strict=True))


def all_rows(results: Path = RESULTS) -> list[dict[str, str]]:
    """Return a row for each folder with usable curves, and one for all of them."""
    folders = [path.parent for path in sorted(results.glob("*/rounds.csv"))]
    found = {folder.name: list(outcomes(folder)) for folder in folders}
    rows = [table_row(name, each) for name, each in found.items() if each]
    everything = [one for each in found.values() for one in each]
    heads = [one for one in everything if one.folder.startswith(HEADS)]
    return [*rows, table_row("heads with up to 300 labels", heads), table_row("all", everything)]


def page(rows: list[dict[str, str]]) -> str:
    """Return README.md."""
    head = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    body = ["| " + " | ".join(row.values()) + " |" for row in rows]
    table = "\n".join(head + body)
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

Only runs with even seeds are counted here. On those with odd seeds one number was chosen, the noise of a training that is
expected before anything is measured: 2.5 points at 50 % accuracy, where the bands of heads came nearest to 90 % (of 1, 2, 2.25,
2.5, 2.75, 3 and 5 points; 5, the value before, gave 96 %). The form of the curve and the other priors come from logistic
regression on scikit-learn's digits (12 seeds, random and margin, 20 to 300 labels); they were fixed earlier, with a look at all
of these folders.

Networks that are trained from scratch in few steps (buyer-digits) jump more than heads do, and their bands are too narrow.
"""


def main() -> None:
    """Write the table, or say where it differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "forecast")
    out: Path = parser.parse_args().out
    rows = all_rows()
    table = io.StringIO()
    writer = csv.DictWriter(table, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "table.csv", table.getvalue())
    write_atomically(out / "README.md", page(rows))


if __name__ == "__main__":
    main()

"""Check forecast bands on learning curves that are not ours: `python tools/lcdb_curves.py` writes results/forecast/lcdb.csv.

tools/forecast.py puts it on its page.

LCDB (package `lcdb` 0.1.0, MIT) holds the test accuracy of 20 learners of scikit-learn on 246 public tables of numbers,
trained with 16 to several thousand examples. A curve here is one learner on one table with the first of its splits (outer and
inner seed 0), up to 2,048 examples: what somebody sees who trains once at each size. Nothing was chosen on these curves. From
every beginning of a curve the next two sizes are forecast, as tools/forecast.py does; each size has 1.4 times the examples.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from mma.files import write_atomically
from mma.project.quality.forecast import LEAST, AccuracyPoint, Curve

RESULTS = Path(__file__).parents[1] / "results"
LARGEST = 2_048  # examples
AHEAD = 2  # sizes
COLUMNS = (
    *("learner", "curves", "forecasts", "inside the band", "mean error, points"),
    *("mean error, same gain again", "width of the band"),
)
LINEAR = (  # what heads on features are like
    *("LogisticRegression", "SVC_linear", "LinearDiscriminantAnalysis", "RidgeClassifier"),
    *("SGDClassifier", "Perceptron", "PassiveAggressiveClassifier"),
)
BEFORE = ("inside the band, before", "width of the band, before")  # of an earlier version; kept as they are
Curves = dict[tuple[str, str], list[AccuracyPoint]]  # by learner and table


def read_curves() -> Curves:
    """Return the curves of the installed package. It is not imported: that would need openml."""
    found = find_spec("lcdb")
    assert found is not None, "pip install --no-deps lcdb==0.1.0"
    assert found.origin is not None
    curves: Curves = defaultdict(list)
    with (Path(found.origin).parent / "database-accuracy.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if (
                row["outer_seed"] == row["inner_seed"] == "0"
                and int(row["size_train"]) <= LARGEST
                and row["score_test"]
            ):
                point = AccuracyPoint(int(row["size_train"]), 100 * float(row["score_test"]))
                curves[row["learner"], row["openmlid"]].append(point)
    return {key: sorted(points, key=lambda point: point.labels) for key, points in curves.items()}


def forecasts(points: list[AccuracyPoint]) -> Iterator[tuple[float, ...]]:
    """Forecast a curve from each of its beginnings: inside or not, the error, that of the naive forecast, the width."""
    for known in range(LEAST, len(points)):
        curve, (before, last) = Curve(points[:known]), points[known - 2 : known]
        slope = (last.accuracy - before.accuracy) / (last.labels - before.labels)
        for later in points[known : known + AHEAD]:
            said, naive = curve.at(later.labels), last.accuracy + slope * (later.labels - last.labels)
            inside, error = said.low <= later.accuracy <= said.high, abs(said.accuracy - later.accuracy)
            yield inside, error, abs(naive - later.accuracy), said.high - said.low


def table_row(name: str, curves: int, found: list[tuple[float, ...]]) -> tuple[str, ...]:
    """Return the means over all forecasts."""
    inside, error, naive, width = np.mean(found, axis=0)
    return name, f"{curves}", f"{len(found)}", f"{100 * inside:.1f} %", f"{error:.2f}", f"{naive:.2f}", f"{width:.1f}"


def main() -> None:
    """Write the table and its page."""
    found: dict[str, list[list[tuple[float, ...]]]] = defaultdict(list)
    for (learner, _), points in sorted(read_curves().items()):
        if len(points) > LEAST:
            found[learner.split(".")[-1]].append(list(forecasts(points)))
    found["linear"] = [curve for name in LINEAR for curve in found[name]]
    found["all"] = [curve for name, curves in found.items() if name != "linear" for curve in curves]
    rows = [table_row(name, len(curves), [one for curve in curves for one in curve]) for name, curves in found.items()]
    path = RESULTS / "forecast" / "lcdb.csv"
    with path.open(encoding="utf-8") as file:
        before = {row[COLUMNS[0]]: [row[name] for name in BEFORE] for row in csv.DictReader(file)}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([(*COLUMNS, *BEFORE), *((*row, *before[row[0]]) for row in rows)])
    write_atomically(path, text.getvalue())


if __name__ == "__main__":
    main()

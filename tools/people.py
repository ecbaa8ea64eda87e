"""Simulated people answer the same images: how many labels are right under newest, majority and a weighed vote?

PYTHONPATH=src python tools/people.py --out results/people
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mma.project.labels.votes import Vote, estimate_reliability
from mma.rng import rng

SLIPS = (0.05, 0.10, 0.20)  # of each person


class Row(NamedTuple):
    """An answer as the vote reads it."""

    seq: int
    kind: str
    class_id: int
    by: str
    provenance: str = "query"


def simulate(seed: int, images: int, classes: int, each: int) -> dict[str, float]:
    """Return the share of right labels under each rule; `each` of the people answer each image, in random order."""
    draw = rng(seed, "people", images, classes, each)
    truth = draw.integers(classes, size=images)
    rows: dict[str, list[Row]] = {}
    for image in range(images):
        order = draw.permutation(len(SLIPS))[:each]
        for place, person in enumerate(order):
            wrong = draw.random() < SLIPS[person]
            said = (truth[image] + draw.integers(1, classes)) % classes if wrong else truth[image]
            rows.setdefault(str(image), []).append(Row(image * 10 + place, "label", int(said), f"person {person + 1}"))
    answers = {image: {row.by: (row.kind, row.class_id) for row in given} for image, given in rows.items()}
    reliability = estimate_reliability(answers)
    weighed, equal = Vote(reliability, classes), Vote()
    rules = {
        "newest": {image: given[-1].class_id for image, given in rows.items()},
        "majority": {image: equal.standing(given).answer.class_id for image, given in rows.items()},
        "weighed": {image: weighed.standing(given).answer.class_id for image, given in rows.items()},
    }
    right = {rule: float(np.mean([said[str(i)] == truth[i] for i in range(images)])) for rule, said in rules.items()}
    disputed = Counter(weighed.disputed(weighed.standing(given)) for given in rows.values())
    estimates = {f"reliability of {person}": value for person, value in reliability.items()}
    return {**right, "disputed": disputed[True] / images, **estimates}


def main() -> None:
    """Write one row per case, the mean over the seeds with its standard error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/people"))
    parser.add_argument("--seeds", type=int, default=20)
    asked = parser.parse_args()
    table = []
    for images, classes, each in [(n, k, e) for e in (2, 3) for k in (2, 5) for n in (100, 400)]:
        found = [simulate(seed, images, classes, each) for seed in range(asked.seeds)]
        row: dict[str, float | int] = {"people per image": each, "classes": classes, "images": images}
        for name in found[0]:
            values = 100 * np.array([case[name] for case in found])
            row[name] = round(float(values.mean()), 2)
            if name in ("newest", "majority", "weighed"):
                row[f"{name} (standard error)"] = round(float(values.std(ddof=1) / np.sqrt(len(values))), 2)
        table.append(row)
    asked.out.mkdir(parents=True, exist_ok=True)
    with (asked.out / "people.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, table[0])
        writer.writeheader()
        writer.writerows(table)
    about = {"slips": SLIPS, "seeds": asked.seeds, "numpy": np.__version__, "python": sys.version.split()[0]}
    (asked.out / "about.json").write_text(json.dumps(about, indent=1) + "\n")
    for row in table:
        print(*row.values())


if __name__ == "__main__":
    main()

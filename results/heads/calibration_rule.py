"""When is a temperature worth finding, and how strongly is it held at 1? On images held out of the pools, never on test images.

    python results/heads/calibration_rule.py digits --backbone hog --out results/heads/calibration-rule.csv

A line of the CSV is one fit: the calibration error without a temperature, and with the one that each strength would give.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from compare import append_line, draw_labels, load_task, scores

from mma.config import change
from mma.nets import logistic
from mma.presets import preset
from mma.training import calibrate
from mma.training.in_memory import fit_head
from mma.views import FeatureViews

STRENGTHS = (0.0, 5.0, 20.0, 80.0)


def main() -> None:
    """Append one line per fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--backbone", default="hog")
    parser.add_argument("--labels", type=lambda text: [int(n) for n in text.split(",")], default=[4, 8, 12, 16, 32])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--pool", type=int, default=10_000)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.held_out = True
    torch.set_num_threads(1)
    views = change(preset("photos"), [f"views.backbone={args.backbone}"]).views
    assert isinstance(views, FeatureViews)
    task = load_task(args, views)
    calibrate.ENOUGH = 0  # find one for any number of labels
    found: dict[float, float] = {}

    def every_strength(logits: np.ndarray, y: np.ndarray) -> float:
        for strength in STRENGTHS:
            logistic.PRIOR = strength
            found[strength] = logistic.find_temperature(logits, y)
        return 1.0

    calibrate.find_temperature = every_strength
    for per_class in args.labels:
        for seed in range(1, args.seeds + 1):
            answers = draw_labels(task.labels, per_class, seed)
            config = change(preset("photos"), [f"views.backbone={args.backbone}", f"seed={seed}"])
            head = fit_head(task.views, answers, task.classes, config=config)
            row: dict[str, object] = {
                "data": args.data,
                "backbone": args.backbone,
                "labels": len(answers),
                "seed": seed,
            }
            for name, temperature in {"none": 1.0, **{f"{s:g}": found[s] for s in STRENGTHS}}.items():
                head.net.head.temperature.fill_(temperature)
                scored = scores(head.probabilities(task.other, np.arange(len(task.truth))), task.truth)
                row |= {f"temperature {name}": round(temperature, 3), f"ece {name}": round(scored["ece"], 3)}
                row |= {f"nll {name}": round(scored["nll"], 4)}
            append_line(args.out, row)


if __name__ == "__main__":
    main()

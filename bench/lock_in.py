"""Does growing cost accuracy against drawing all labels at once? Measured under each setting that could undo lock-in.

Every run is scored on images held out of the *pool*; the test set is never looked at, so lab presets may be chosen by
this table. Runs are paired by seed. Finished runs are read from the CSV and not made again.

    python bench/lock_in.py digits --seeds 101 102 103 104 105 --workers 2
    python bench/lock_in.py report         # the table of all CSVs, into results/lock-in/README.md
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from mma.config import change
from mma.data import DataSet, load
from mma.presets import preset
from mma.rng import rng
from mma.run import Run
from mma.train.host import Host
from mma.train.loop import train
from mma.train.oracle import Known

PLAIN = ["growth.start_set=uniform", "growth.ramp_again=false", "growth.refresh_every=0", "growth.refresh_final=false"]
SETTINGS = {
    "nothing (as the paper)": [],
    "ramp again": ["growth.ramp_again=true"],
    "coverage start set": ["growth.start_set=coverage"],
    "larger start set": ["growth.start={larger}"],
    "restart every round": ["growth.refresh_every=1"],
    "shrink-and-perturb every round": ["growth.refresh_every=1", "growth.shrink=0.5"],
    "restart before the tail": ["growth.refresh_final=true"],
    "shrink-and-perturb before the tail": ["growth.refresh_final=true", "growth.shrink=0.5"],
    "restart before the tail, coverage start set": ["growth.refresh_final=true", "growth.start_set=coverage"],
}
NOTHING, COVERAGE = "nothing (as the paper)", "coverage start set"
RESULTS = Path(__file__).parents[1] / "results" / "lock-in"
HEADER = "| setting | passive | random growth | diff2.aug-direct growth |\n|---|---|---|---|"
INTRO = """# Lock-in: what growing costs against drawing all labels at once

Guesses made early from too few labels can lock in, and later labels then come too late. Accuracy in percent (mean ± standard
deviation over seeds) on images held out of the pool, never the test set, at equal steps; in brackets the difference to passive
with the same kind of start set, paired by seed. Made by `bench/lock_in.py` (its first lines say how); all other settings are
those of the preset of that name, and the lab presets' growth settings were chosen by this table."""
QUERIES = ("passive", "random", "diff2.aug-direct")
HELD_OUT = {"digits": 300, "fashion-mnist": 5_000, "cifar10": 5_000}


def validation(name: str) -> DataSet:
    """Split held-out images off the pool and test on them instead of the test set."""
    data = load(name)
    order = rng(0, "validation").permutation(len(data.train))
    held, kept = np.sort(order[: HELD_OUT[name]]), np.sort(order[HELD_OUT[name] :])
    return DataSet(data.name, data.train.take(kept), data.train.take(held), data.mirror)


def one(name: str, setting: str, query: str, seed: int, extra: list[str]) -> float:
    config = preset(name)
    larger = (config.growth.start + config.growth.budget) // 2
    changes = [text.format(larger=larger) for text in SETTINGS[setting]]
    config = change(config, [*PLAIN, *changes, f"query={query}", f"seed={seed}", "log.checkpoint=100000", *extra])
    data = validation(config.data.name)
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", config.model_dump(mode="json"))
        train(run, Known(data.train), on=Host(threads=1), data=data)
        result = run.result()
    assert result is not None
    return result[0]


def report() -> None:
    """Write the table: mean and deviation over seeds, and the paired difference to passive with the same start set."""
    page = [INTRO]
    for path in sorted(RESULTS.glob("*.csv")):
        with path.open() as file:
            rows = {(r["setting"], r["query"], int(r["seed"])): float(r["accuracy"]) for r in csv.DictReader(file)}
        seeds = sorted({seed for *_, seed in rows})
        page += ["", f"## {path.stem}, seeds {', '.join(map(str, seeds))}", "", HEADER]
        for setting in SETTINGS:
            start = COVERAGE if "coverage" in setting else NOTHING
            cells = [cell(rows, seeds, setting, query, start) for query in QUERIES]
            if any(cell != "-" for cell in cells):
                page.append(f"| {setting} | {' | '.join(cells)} |")
    (RESULTS / "README.md").write_text("\n".join(page) + "\n")


def cell(rows: dict[tuple[str, str, int], float], seeds: list[int], setting: str, query: str, start: str) -> str:
    """Return `mean ± deviation (difference to passive ± its deviation, n)`."""
    pairs = [(rows.get((setting, query, seed)), rows.get((start, "passive", seed))) for seed in seeds]
    both = np.array([(mine, passive) for mine, passive in pairs if mine is not None and passive is not None])
    if not len(both):
        return "-"
    mine, difference = both[:, 0], both[:, 0] - both[:, 1]
    deviation = mine.std(ddof=1) if len(mine) > 1 else float("nan")
    text = f"{mine.mean():.2f} ± {deviation:.2f}"
    if query == "passive":
        return f"{text} (n={len(mine)})"
    return f"{text} ({difference.mean():+.2f} ± {difference.std(ddof=1) if len(mine) > 1 else float('nan'):.2f})"


def main() -> None:
    if sys.argv[1:] == ["report"]:
        report()
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset")
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS))
    parser.add_argument("--queries", nargs="+", default=list(QUERIES))
    parser.add_argument("--set", dest="extra", nargs="+", default=[])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out = options.out or RESULTS / f"{options.preset}.csv"
    done = list(csv.DictReader(out.open())) if out.exists() else []
    seen = {(row["setting"], row["query"], int(row["seed"])) for row in done}
    plan = [
        (s, q, n) for n in options.seeds for s in options.settings for q in options.queries if (s, q, n) not in seen
    ]
    # A passive run asks nothing, so only the start set can matter to it.
    plan = [(s, q, n) for s, q, n in plan if q != "passive" or s in (NOTHING, COVERAGE)]
    out.parent.mkdir(parents=True, exist_ok=True)
    with (
        ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool,
        out.open("a", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        if not done:
            writer.writerow(["setting", "query", "seed", "accuracy"])
        jobs = {pool.submit(one, options.preset, s, q, n, options.extra): (s, q, n) for s, q, n in plan}
        for job in as_completed(jobs):
            writer.writerow([*jobs[job], job.result()])
            file.flush()
            print(*jobs[job], job.result(), flush=True)


if __name__ == "__main__":
    main()

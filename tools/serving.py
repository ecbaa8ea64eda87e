"""Which of two models should serve, by few labels? `python tools/serving.py POOLS --out results/serving` writes the table.

POOLS is a folder of `tools/pools.py`. A project is drawn: a pool, its labels (half of them drawn at random, half asked for by
margin), an audit drawn at random, and labels that came after the second model began. The quick model is a logistic regression
on some coordinates of the vectors. The second one, in the place of a deep model, is better (it sees more coordinates, or twice
the labels) or worse (fewer coordinates, or an old one with fewer labels) in half of the projects each. What both say about the
rest of the pool tells which is better in truth. No network is trained. "And on later labels": labels that came since count like
audit labels; the quick model answers them by three regressions that leave a third out each.
Rules were compared on odd projects; the table is about even ones.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from mma.files import write_atomically
from mma.nets.head import fit_logistic
from mma.rng import rng

POOLS = ("digits", "signs", "fashion-mnist", "objects", "cifar10", "svhn")
SIZES = ((60, 15), (120, 30), (250, 60))  # labels, of which audit labels
KINDS = ("more coordinates", "twice the labels", "fewer coordinates", "fewer labels")
PENALTY = 1e-4
WIDTH = 192  # vectors' coordinates that a model sees
REST = 1_500  # images that tell the truth, at most
COLUMNS = (
    "rule",
    "audit labels",
    "projects",
    "better",
    "served",
    "served of the better",
    "served wrongly",
    "points won",
    "best possible",
)
Row = dict[str, float | str]


def project(pool: str, folder: Path, seed: int) -> Row:
    """Draw a project and two models; return how often each alone is right, and the true difference."""
    found = np.load(folder / f"{pool}.npz")
    y = found["labels"].astype(np.int64)
    draw = rng(seed, "serving", pool)
    parts = [found[name].astype(np.float32) for name in ("lite0", "hog")]
    parts = [(part - part.mean(0)) / np.linalg.norm(part - part.mean(0), axis=1, keepdims=True) for part in parts]
    x = np.concatenate(parts, axis=1)
    labels, audit = SIZES[seed // 2 % len(SIZES)]
    kind = KINDS[int(draw.integers(len(KINDS)))]
    order = draw.permutation(len(y))
    tested, rest = order[:audit], order[audit:]
    begun = rest[: labels // 2]
    width = x.shape[1]
    mine = draw.permutation(width)[:WIDTH]
    wide = {KINDS[0]: 4 * WIDTH, KINDS[2]: WIDTH // 2}.get(kind, WIDTH)
    theirs = draw.permutation(width)[:wide] if wide != WIDTH else mine

    def model(
        columns: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> Callable[[NDArray[np.int64]], NDArray[np.float32]]:
        weight, bias = fit_logistic(np.ascontiguousarray(x[np.ix_(rows, columns)]), y[rows], int(y.max()) + 1, PENALTY)
        return lambda asked: x[np.ix_(asked, columns)] @ weight.T + bias

    def ask(columns: NDArray[np.int64], rows: NDArray[np.int64], many: int) -> NDArray[np.int64]:
        """Ask for the images that a model is least sure of."""
        left = np.setdiff1d(rest[:4_000], rows)
        top = np.sort(model(columns, rows)(left), axis=1)
        return np.concatenate([rows, left[np.argsort(top[:, -1] - top[:, -2], kind="stable")[:many]]])

    old = ask(mine, begun, labels // 2)  # what the deep model learns
    new = ask(mine, old, max(labels // 5, 10))  # the labels that came since
    learned = {KINDS[1]: np.union1d(old, rest[-labels:]), KINDS[3]: old[: int(0.6 * len(old))]}.get(kind, old)
    left = np.setdiff1d(rest[: len(rest) - labels], new)[:REST]
    quick, deep = model(mine, new), model(theirs, learned)
    right = [said(left).argmax(1) == y[left] for said in (quick, deep)]
    once = [said(tested).argmax(1) == y[tested] for said in (quick, deep)]
    row: Row = {"pool": pool, "seed": seed, "kind": kind, "labels": labels, "audit": audit}
    row |= {"live": 100 * float(right[0].mean()), "deep": 100 * float(right[1].mean())}
    later = np.setdiff1d(new, old)
    folds = [later[part::3] for part in range(3)]
    ours = np.concatenate([model(mine, np.setdiff1d(new, fold))(fold).argmax(1) == y[fold] for fold in folds])
    fold = np.concatenate(folds)
    since = deep(fold).argmax(1) == y[fold]
    row |= {"won": int((once[1] & ~once[0]).sum()), "lost": int((once[0] & ~once[1]).sum())}
    return row | {
        "won later": int((since & ~ours).sum()),
        "lost later": int((ours & ~since).sum()),
        "later": len(later),
    }


def sign_test(level: float) -> Callable[[int, int, int], bool]:
    """Serve the deep model where a one-sided exact sign test shows that it is better."""
    return lambda won, lost, of: won > lost and binomtest(won, won + lost, alternative="greater").pvalue <= level


RULES: dict[str, Callable[[int, int, int], bool]] = {
    "more accurate, from 50 audit labels on (earlier)": lambda won, lost, of: of >= 50 and won > lost,
    "more accurate": lambda won, lost, of: won > lost,
    "ahead by two photos": lambda won, lost, of: won >= lost + 2,
    "ahead by the root of the photos that differ": lambda won, lost, of: won - lost >= max((won + lost) ** 0.5, 1),
    "sign test, 30 %": sign_test(0.3),
    "sign test, 20 %": sign_test(0.2),
    "sign test, 10 %": sign_test(0.1),
    "sign test, 5 %": sign_test(0.05),
    "always": lambda won, lost, of: True,
}
LATER = " and on later labels"


def table(rows: list[Row]) -> list[dict[str, str]]:
    """Return what each rule does, by the number of audit labels and over all."""
    found = []
    for name, rule in [*RULES.items(), *((name + LATER, rule) for name, rule in RULES.items() if "50" not in name)]:
        for audit in (*(audit for _, audit in SIZES), None):
            part = [row for row in rows if audit in (None, row["audit"])]
            gain = np.array([float(row["deep"]) - float(row["live"]) for row in part])
            more = [
                {key: int(row[f"{key} later"]) if name.endswith(LATER) else 0 for key in ("won", "lost")}
                for row in part
            ]
            counts = [
                (int(row["won"]) + m["won"], int(row["lost"]) + m["lost"]) for row, m in zip(part, more, strict=True)
            ]
            served = np.array([rule(*both, int(row["audit"])) for both, row in zip(counts, part, strict=True)])
            shares = (gain > 0, served, served[gain > 0], served & (gain < 0))
            cells = [name, "all" if audit is None else str(audit), str(len(part))]
            cells += [f"{100 * share.mean():.0f} %" for share in shares]
            cells += [f"{(gain * served).mean():+.2f}", f"{np.maximum(gain, 0).mean():+.2f}"]
            found.append(dict(zip(COLUMNS, cells, strict=True)))
    return found


def main() -> None:
    """Simulate what is missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pools", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=Path, required=True, help="Where finished projects are kept (JSON lines).")
    parser.add_argument("--projects", type=int, default=60, help="Of each pool, half of them to choose by.")
    asked = parser.parse_args()
    rows = [json.loads(line) for line in asked.rows.read_text().splitlines()] if asked.rows.exists() else []
    done = {(row["pool"], row["seed"]) for row in rows}
    for pool in POOLS:
        for seed in range(asked.projects):
            if (pool, seed) not in done and (asked.pools / f"{pool}.npz").exists():
                rows.append(project(pool, asked.pools, seed))
                with asked.rows.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    asked.out.mkdir(parents=True, exist_ok=True)
    lines = [",".join(("seeds", *COLUMNS))]
    for odd, seeds in ((0, "even"), (1, "odd")):
        for row in table([row for row in rows if int(row["seed"]) % 2 == odd]):
            lines.append(",".join([seeds, *(f'"{cell}"' if "," in cell else cell for cell in row.values())]))
    write_atomically(asked.out / "table.csv", "\n".join(lines) + "\n")
    keys = list(rows[0])
    lines = [
        ",".join(keys),
        *(
            ",".join(f"{row[key]:.2f}" if isinstance(row[key], float) else str(row[key]) for key in keys)
            for row in rows
        ),
    ]
    write_atomically(asked.out / "projects.csv", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

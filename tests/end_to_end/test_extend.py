"""The examples of docs/examples run: entries from user code work in train, grid, classifier, eval and query."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
SHORT = (
    *("growth.first=8", "growth.every=4", "growth.final=8", "growth.budget=30"),
    *("optim.batch=8", "net.filters=8", "log.every=8", "log.checkpoint=8"),
)
pytestmark = pytest.mark.slow


def python(*arguments: str | Path, cwd: Path, ok: bool = True) -> subprocess.CompletedProcess[str]:
    """Run Python as a user would: nothing of ours is imported or inherited."""
    environment = {key: value for key, value in os.environ.items() if key != "MMA_USE"}
    environment |= {"MMA_DATA": str(cwd / "data"), "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is ok, done.stderr
    return done


def mma(*arguments: str | Path, cwd: Path, use: tuple[str, ...] = (), ok: bool = True) -> str:
    """Run a command and return what it prints; what it says of an error where one is expected."""
    used = [part for name in use for part in ("--use", EXAMPLES / name)]
    done = python("-m", "mma", *used, *arguments, cwd=cwd, ok=ok)
    return done.stdout if ok else done.stderr


def settings(*more: str, without: str = "nothing") -> list[str]:
    return [part for setting in (*SHORT, *more) if not setting.startswith(without) for part in ("--set", setting)]


def test_an_own_algorithm_trains_and_is_tested_and_asked_afterwards(tmp_path):
    use = ("own_algorithm.py",)
    changed = settings("algorithm=entropy-minimisation", "algorithm.weight=0.5")
    mma("train", "digits", *changed, "--out", "run", cwd=tmp_path, use=use)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["algorithm"] == {"name": "entropy-minimisation", "weight": 0.5, "ramp": 6}  # 0.4 of 16 steps
    assert "accuracy" in json.loads(mma("eval", "run", "--json", cwd=tmp_path, use=use))
    assert "mma --use" in mma("eval", "run", cwd=tmp_path, ok=False)


def test_an_own_query_chooses_while_training_and_afterwards(tmp_path):
    use = ("own_query.py",)
    mma("train", "digits", *settings("query=gini.aug-spread"), "--out", "run", cwd=tmp_path, use=use)
    rows = [json.loads(line) for line in (tmp_path / "run" / "queries.jsonl").read_text().splitlines()]
    assert [row["strategy"] for row in rows] == ["start-uniform", "gini.aug-spread"]
    picked = json.loads(mma("query", "run", "--n", "4", "--json", cwd=tmp_path, use=use))["picks"]
    assert len({image["index"] for image in picked}) == 4
    answer = json.loads(mma("query", "run", "--n", "4", "--strategy", "far-unsure", "--json", cwd=tmp_path, use=use))
    assert len({image["index"] for image in answer["picks"]}) == 4


@pytest.mark.slow
def test_a_strict_type_checker_accepts_an_own_strategy_and_a_subclass_of_an_algorithm(tmp_path):
    (tmp_path / "mine.py").write_text("""
from typing import Literal

import numpy as np

from mma.algorithms import MixMatch
from mma.query import Candidates, Labeled, Picks, Strategy


class Hard(MixMatch):
    name: Literal["hard"] = "hard"


def first(candidates: Candidates, labeled: Labeled, n: int, rng: np.random.Generator) -> Picks:
    best = candidates.probabilities.max(axis=1) + candidates.embeddings[:, 0]
    rows = np.argsort(-best)[:n]
    return Picks(rows, best[rows])


STRATEGY = Strategy(first, needs_probs=True)
""")
    words = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "mine.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == ""


def test_an_own_network_trains_and_answers_from_python(tmp_path):
    code = f"""
import mma
from pathlib import Path
mma.use(r"{EXAMPLES / "own_network.py"}")
short = [{", ".join(repr(setting) for setting in SHORT if not setting.startswith("net."))}]
run = mma.new_run(mma.change(mma.preset("digits"), [*short, "net=dense", "net.width=16"]), Path("run"))
mma.train(run)
assert run.status() == "done"
assert mma.evaluate(run)["accuracy"] == run.accuracy()
assert len(mma.suggest(run, 3, "diff2-kmeans")) == 3
"""
    python("-W", "error", "-c", code, cwd=tmp_path)


def test_an_own_data_source_is_got_listed_and_trained_on(tmp_path):
    use, rng = ("own_data.py",), np.random.default_rng(0)
    (tmp_path / "files").mkdir()
    arrays = {
        "x_train": rng.integers(0, 256, (600, 8, 8, 1), dtype=np.uint8),
        "x_test": rng.integers(0, 256, (200, 8, 8, 1), dtype=np.uint8),
        "y_train": rng.integers(0, 10, 600),
        "y_test": rng.integers(0, 10, 200),
    }
    np.savez(tmp_path / "files" / "images.npz", **arrays)
    mma("data", "get", "npz", "--from", "files", cwd=tmp_path, use=use)
    assert re.search("^npz .* ready$", mma("data", "list", cwd=tmp_path, use=use), re.M)
    mma("train", "digits", *settings("data.name=npz"), "--out", "run", cwd=tmp_path, use=use)
    assert "200 test images" in mma("eval", "run", cwd=tmp_path, use=use)


def test_workers_of_a_grid_import_what_the_command_uses(tmp_path):
    use = ("own_algorithm.py", "own_network.py", "own_query.py")
    axes = ("--axis", "algorithm=mixmatch,entropy-minimisation", "--axis", "seed=1")
    changed = settings("net=dense", "query=gini-direct", without="net.filters")
    mma("grid", "digits", *axes, *changed, "--out", "grid", "--workers", "2", cwd=tmp_path, use=use)
    rows = (tmp_path / "grid" / "report" / "runs.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in rows] == ["method", "mixmatch", "entropy-minimisation"]
    assert all(",done," in line for line in rows[1:])


def test_the_classifier_takes_own_entries_by_name(tmp_path):
    code = f"""
import mma, numpy as np
for name in ("own_algorithm", "own_network", "own_query"):
    mma.use(rf"{EXAMPLES}/{{name}}.py")
rng = np.random.default_rng(0)
images, y = rng.integers(0, 256, (60, 8, 8), dtype=np.uint8), np.full(60, -1)
y[:10] = np.arange(10) % 2
classifier = mma.MixMatchClassifier(algorithm="entropy-minimisation", net="dense", steps=5, batch=4, random_state=0)
classifier.fit(images, y)
assert type(classifier.net_).__name__ == "DenseNet"
assert len(set(classifier.query(images[10:], 5, strategy="gini-spread"))) == 5
"""
    python("-W", "error", "-c", code, cwd=tmp_path)


def test_people_answer_in_part_and_the_run_goes_on(tmp_path):
    code = f"""
import mma, sys
from pathlib import Path
sys.path.insert(0, r"{EXAMPLES}")
import own_oracle
images = mma.load_data("digits").train
folder = Path("runs/people")
answers = folder.with_suffix(".answers.csv")
preset = mma.preset("digits")
short = [{", ".join(map(repr, SHORT[:3] + SHORT[4:]))}, "growth.start=10", "growth.add=5", "growth.budget=15"]
mma.new_run(mma.change(preset, short), folder)
assert own_oracle.main(folder) == "waiting"

def answer(count):
    asked = [line.split(",") for line in folder.with_suffix(".questions.csv").read_text().split()]
    lines = [f"{{key}},{{images.classes[images.labels[int(index)]]}}\\n" for index, key in asked[:count]]
    with answers.open("a") as file:
        file.writelines(lines)

answer(3)
assert own_oracle.main(folder) == "waiting"
answer(100)
assert own_oracle.main(folder) == "waiting"  # trained, and asks for five more
assert mma.Run(folder).checkpoint_steps()
answer(100)
assert own_oracle.main(folder) == "done"
"""
    python("-W", "error", "-c", code, cwd=tmp_path)


def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    done = python("-W", "error", EXAMPLES / "notebook.py", cwd=tmp_path)
    assert "asks: " in done.stdout
    assert (tmp_path / "notebook-runs" / "learning-curves.svg").stat().st_size > 1_000


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_every_example_is_explained(example):
    assert any(
        f"(examples/{example.name})" in page.read_text("utf-8")
        for page in (ROOT / "docs").glob("*.md")
        if page.name != "README.md"
    )

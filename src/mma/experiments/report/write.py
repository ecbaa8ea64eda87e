"""Write everything there is to know about a grid into one folder: tables, statistics, plots, a page, and how it was made."""

from __future__ import annotations

import json
import platform
import subprocess
from collections import Counter
from importlib.metadata import version
from pathlib import Path

from mma.experiments.grid import Grid
from mma.experiments.report import compute, money, page, plots, summary, tables
from mma.experiments.report.collect import RUNS, Results, write_csv
from mma.experiments.report.summary import Section
from mma.growth import Growth
from mma.machine import cores
from mma.run import write_whole

LABELED_VS_UNLABELED = "labeled-vs-unlabeled.csv"  # what `mma cost` reads
COMMANDS = "commands.txt"
PLOTS = {
    "accuracy-over-labels.png": "Accuracy over labels: mean and one standard deviation over seeds.",
    "learning-curves.png": "Learning curves at the largest budget, and each seed's result.",
    "accuracy-over-money.png": "Accuracy over money spent: mean and one standard deviation over seeds.",
    "accuracy-over-compute.png": "Accuracy over the arithmetic of a whole run: every seed, and their mean.",
}


def draw(found: Results) -> dict[str, bytes]:
    """Return the plots that these results allow, by file name."""
    if found.spending:  # what counts is money; policies at different prices have no common axis of labels
        over_money = money.accuracy_over_money(found)
        return {} if over_money is None else {"accuracy-over-money.png": over_money}
    if found.arithmetic:  # as with money: rows of different lengths have no common axis of steps
        over_compute = compute.accuracy_over_compute(found)
        return {} if over_compute is None else {"accuracy-over-compute.png": over_compute}
    made = {
        "accuracy-over-labels.png": plots.accuracy_over_labels(found),
        "learning-curves.png": plots.learning_curves(found, asked=asked(found)),
    }
    return {name: data for name, data in made.items() if data is not None}


def asked(found: Results) -> list[int]:
    """Return the steps at which growing runs with the largest budget are given labels, if they are few enough to show."""
    if found.grid is None:
        return []
    budget = max((row.budget for row in found.rounds if row.labels < row.budget), default=0)
    if not budget:
        return []
    growth = Growth.model_validate_json(json.dumps({**found.grid.base["growth"], "budget": budget}))
    steps = [round.begin for round in growth.rounds()[1:]]
    return steps if len(steps) < 30 else []


def statistics(found: Results) -> list[Section]:
    """Return the comparisons that fit: policies at equal money, networks at equal compute, or methods at equal labels."""
    if found.arithmetic:
        return compute.sections(found)
    return money.sections(found) if found.spending else summary.sections(found)


def page_of(found: Results, drawn: dict[str, bytes]) -> str:
    """Return the HTML page."""
    about = [] if found.grid is None else [described(found)]
    captions = {PLOTS[name]: data for name, data in drawn.items()}
    return page.html(found.title, tables.table(found), statistics(found), captions, about)


def described(found: Results) -> str:
    """Say what the grid is in a sentence, without clock values."""
    assert found.grid is not None
    done = sum(run.status == "done" for run in found.runs)
    base = found.grid.base
    net = f"{base['net']['name']} network"
    return (
        f"Experiment {found.grid.experiment}, {found.grid.scale} scale, preset {base['preset']} on {base['data']['name']} "
        f"({net}): {done} of {len(found.runs)} runs done. Scored on {scored_on(found.grid)}."
    )


def scored_on(grid: Grid) -> str:
    """Say which images the accuracies are of: choosing by the test set must not happen unseen."""
    changes = [setting for method in grid.methods.values() for setting in method.settings]
    held = {int(setting.split("=")[1]) for setting in changes if setting.startswith("data.validation=")}
    held |= {grid.base["data"]["validation"]} - {0}
    return f"{' or '.join(f'{n:,}' for n in sorted(held))} images held out of the pool" if held else "the test set"


def as_text(found: Results) -> str:
    """Return table and statistics as Markdown, as printed."""
    return tables.as_markdown(tables.table(found)) + "\n" + summary.as_markdown(statistics(found))


def write_all(found: Results, out: Path, command: str) -> list[Path]:
    """Write every file of a report. All but about.json and README.md depend on the results alone, byte for byte."""
    out.mkdir(parents=True, exist_ok=True)
    exported = (found.folder / RUNS).is_file()
    table = tables.table(found)
    write_csv(out, found)
    files: dict[str, str | bytes] = {
        "table.md": tables.as_markdown(table),
        "table.csv": tables.as_csv(table),
        "table.tex": tables.as_latex(table),
        "statistics.md": summary.as_markdown(statistics(found)),
        **draw(found),
    }
    if found.by_total:
        files[LABELED_VS_UNLABELED] = for_cost(found)
    files["report.html"] = page_of(found, {name: data for name, data in files.items() if isinstance(data, bytes)})
    if not exported:  # results that were exported before keep saying how they were made
        files["about.json"] = json.dumps(about(found, command), indent=1) + "\n"
        files["README.md"] = readme(found, command, sorted(files))
    for name, data in files.items():
        write_whole(out / name, data)
    return [out / name for name in files]


def for_cost(found: Results) -> str:
    """Return labels, total, accuracy and seed of the finished runs, as `mma cost` reads them."""
    done = [run for run in found.runs if run.status == "done" and run.accuracy is not None]
    lines = [f"{run.budget},{run.total},{run.accuracy},{run.seed}" for run in done]
    return "\n".join(["labels,total,accuracy,seed", *lines]) + "\n"


def about(found: Results, command: str) -> dict[str, object]:
    """Return how and where the results were made."""
    return {
        "commands": [*commands(found.folder), command],
        "runs": dict(sorted(Counter(run.status for run in found.runs).items())),
        "trained with": hosts(found),
        "commit": commit(),
        "reported with": {"python": platform.python_version(), **{n: version(n) for n in ("mma", "numpy", "scipy")}},
        "machine": {"system": platform.system(), "processor": processor(), "cores": cores()},
    }


def remember(folder: Path, command: str) -> None:
    """Note a command that worked on a grid, each once, in order."""
    known = commands(folder)
    if command not in known:
        write_whole(folder / COMMANDS, "".join(f"{line}\n" for line in [*known, command]))


def commands(folder: Path) -> list[str]:
    """Return the commands that made a grid."""
    path = folder / COMMANDS
    return path.read_text("utf-8").splitlines() if path.is_file() else []


def hosts(found: Results) -> list[dict[str, object]]:
    """Return every distinct combination of versions and hardware that the runs were trained with."""
    known: dict[str, dict[str, object]] = {}
    for path in sorted(found.folder.glob("runs/*/*/host.json")):
        host = json.loads(path.read_text("utf-8"))
        shown = {key: host.get(key) for key in ("mma", "python", "torch", "numpy", "device", "cpu", "threads")}
        known[json.dumps(shown, sort_keys=True)] = shown
    return [known[key] for key in sorted(known)]


def readme(found: Results, command: str, files: list[str]) -> str:
    """Return a page for whoever opens the folder."""
    made = "\n".join([*commands(found.folder), command])
    listed = ", ".join(f"`{name}`" for name in files)
    what = described(found) if found.grid else ""
    return (
        f"# {found.title}\n\n{what}\n\nMade with\n\n```sh\n{made}\n```\n\n"
        "`mma report` on this folder gives the same tables again. Versions, commit and machine: `about.json`.\n\n"
        f"{tables.as_markdown(tables.table(found))}\n`runs.csv` has one line per run, `rounds.csv` one per round, "
        f"`curves.csv` the means while training. Made from them: {listed}.\n"
    )


def commit() -> str | None:
    """Return the commit of the source this runs from, with + when it has changes; None outside git."""
    here = Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"],
            cwd=here, capture_output=True, text=True, check=True, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def processor() -> str:
    """Return the processor's name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()

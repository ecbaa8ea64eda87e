"""Write a report into one folder: tables, statistics, plots, an HTML page, and how it was made."""

from __future__ import annotations

import base64
import json
import platform
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

from markupsafe import Markup

from mma.children import cores
from mma.errors import UserError
from mma.experiments import grids
from mma.experiments.report import figures, summary
from mma.experiments.report.figures import NO_DATES, render
from mma.experiments.report.results import ABOUT, ROUND, RUNS, Results, write_csv
from mma.experiments.report.tables import plus_minus
from mma.files import explain_write_errors, write_atomically
from mma.text import printable, render_template

LABELED_VS_UNLABELED = "labeled-vs-unlabeled.csv"  # what `mma cost` reads
FIGURES: dict[str, tuple[Callable[[Results], Any], str]] = {  # with their captions
    "accuracy-over-labels": (
        figures.accuracy_over_labels,
        "Accuracy over labels: mean over seeds and 95 % interval of the t distribution.",
    ),
    "learning-curves": (
        figures.learning_curves,
        "Accuracy while training: mean over seeds; 95 % intervals of the t distribution at the ends of rounds.",
    ),
    "accuracy-by-seed": (
        figures.accuracy_by_seed,
        "The result of each seed, their mean and its 95 % interval of the t distribution.",
    ),
    "paired-differences": (
        figures.paired_differences,
        "Differences paired by seed: mean and 95 % interval of the paired t distribution. "
        "Filled: shown by the signed-rank test after Holm's correction.",
    ),
    "accuracy-over-money": (
        figures.accuracy_over_money,
        "Accuracy over money spent: mean over seeds and 95 % interval of the t distribution.",
    ),
    "accuracy-over-compute": (
        figures.accuracy_over_compute,
        "Accuracy over the arithmetic of a run: every seed, and their mean.",
    ),
}


def draw(found: Results) -> dict[str, Any]:
    """Return the figures that these results allow, by name."""
    # Policies at different prices have no common axis of labels, methods of different lengths none of steps.
    alone = "accuracy-over-money" if found.spending else "accuracy-over-compute" if found.compute else None
    names = [alone] if alone else list(FIGURES)[:4]
    drawn = {name: FIGURES[name][0](found) for name in names}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def plot(found: Results, path: Path, which: str | None = None) -> Path:
    """Write one figure as the path's ending says; without `which`, the first that there is."""
    drawn, kind = draw(found), path.suffix.removeprefix(".")
    if kind not in NO_DATES:
        raise UserError(f"{printable(str(path))}: a plot ends in {', '.join(f'.{one}' for one in NO_DATES)}.")
    name = which or next(iter(drawn), "")
    if name not in drawn:
        raise UserError(f"these results have no plot '{printable(name)}'. They have: {', '.join(drawn) or 'none'}.")
    write_atomically(path, render(drawn[name], kind))
    return path


def picture_files(drawn: Mapping[str, Any]) -> dict[str, bytes]:
    """Return every figure in every format, by file name."""
    return {f"{name}.{kind}": render(figure, kind) for name, figure in drawn.items() for kind in NO_DATES}


def page_of(found: Results, files: Mapping[str, bytes]) -> str:
    """Return the HTML page: no scripts, nothing loaded from elsewhere, the SVG pictures among `files` inside."""
    svg = {text: files[f"{name}.svg"] for name, (_, text) in FIGURES.items() if f"{name}.svg" in files}
    return render_template(
        "report.html",
        title=found.title,
        about=about_text(found),
        table=found.table(),
        parts=summary.sections(found),
        pictures={caption: Markup(base64.b64encode(data).decode()) for caption, data in svg.items()},
        marked=marked,
        plus_minus=plus_minus,
    )


def about_text(found: Results) -> str:
    """Say what the grid is, without clock values."""
    runs = [run for run in found.runs if run.note != ROUND]
    done = sum(run.status == "done" for run in runs)
    return f"{found.description.about} {done} of {len(runs)} runs done.".strip()


def write_all(found: Results, out: Path, command: str) -> list[Path]:
    """Write every file of a report. All but README.md and about.json depend on the results alone."""
    table, pictures = found.table(), picture_files(draw(found))
    files: dict[str, str | bytes] = {
        "table.md": table.as_markdown(),
        "table.csv": table.as_csv(),
        "table.tex": table.as_latex(),
        "statistics.md": found.statistics(),
        **pictures,
        "report.html": page_of(found, pictures),
        **({LABELED_VS_UNLABELED: for_cost(found)} if found.weighs_images else {}),
    }
    if not (found.folder / RUNS).is_file():
        files[ABOUT] = json.dumps(origin(found, command), indent=1) + "\n"
        made = "\n".join([*grids.read_commands(found.folder), command])
        files["README.md"] = (
            f"# {found.title}\n\n{about_text(found)}\n\nMade with\n\n```sh\n{made}\n```\n\n{table.as_markdown()}\n"
            f"`{ABOUT}` has commands, versions, commit, machine and all settings. `mma report` on this folder prints the "
            "statistics; with `--out` it writes tables, plots and one HTML page. Numbers come out again to the digit where "
            "processor kind, versions and threads of `trained with` are the same; elsewhere rounding moves single seeds. "
            "`mma report --check` on this folder trains one run again and compares.\n"
        )
    elif (found.folder / ABOUT).is_file():  # exported results keep saying how they were made
        files[ABOUT] = (found.folder / ABOUT).read_bytes()
    with explain_write_errors(out, f"mma report {found.folder} --out {out}"):
        out.mkdir(parents=True, exist_ok=True)
        write_csv(out, found)
        for name, data in files.items():
            write_atomically(out / name, data)
    return [out / name for name in files]


def for_cost(found: Results) -> str:
    """Return labels, total, accuracy and seed of the finished runs, as `mma cost` reads them."""
    done = [run for run in found.runs if run.status == "done" and run.accuracy is not None]
    lines = [f"{run.budget},{run.total},{run.accuracy},{run.seed}" for run in done]
    return "\n".join(["labels,total,accuracy,seed", *lines]) + "\n"


def origin(found: Results, command: str) -> dict[str, object]:
    """Return what the results are, how and where they were made, and all settings of the grid."""
    path = found.folder / grids.FILE
    programs = {name: version(name) for name in ("mma-learn", "numpy", "scipy", "matplotlib")}
    return {
        "description": found.description.model_dump(mode="json"),
        "commands": [*grids.read_commands(found.folder), command],
        "runs": dict(sorted(Counter(run.status for run in found.runs if run.note != ROUND).items())),
        "trained with": hosts(found),
        "commit": commit(),
        "reported with": {"python": platform.python_version(), **programs},
        "machine": {"system": platform.system(), "processor": processor(), "cores": cores()},
        "grid": json.loads(path.read_text("utf-8")) if path.is_file() else None,
    }


def hosts(found: Results) -> list[dict[str, object]]:
    """Return every distinct combination of versions and hardware that the runs were trained with."""
    known: dict[str, dict[str, object]] = {}
    for path in sorted(found.folder.glob("runs/*/*/host.json")):
        host = json.loads(path.read_text("utf-8"))
        shown = {key: host.get(key) for key in ("mma", "python", "torch", "numpy", "device", "cpu", "threads")}
        known[json.dumps(shown, sort_keys=True)] = shown
    return [known[key] for key in sorted(known)]


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


def marked(text: str) -> Markup:
    """Return a remark with its Markdown rendered: `code` and **bold**."""
    shown = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
    return Markup(re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", shown))

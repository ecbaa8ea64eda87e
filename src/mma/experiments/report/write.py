"""Write a report into one folder: tables, statistics, plots, an HTML page, and how it was made."""

from __future__ import annotations

import base64
import json
import platform
import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

from markupsafe import Markup

from mma.children import cores
from mma.experiments import grids
from mma.experiments.report import figures, summary
from mma.experiments.report.figures import NO_DATES, render
from mma.experiments.report.results import ABOUT, ROUND, RUNS, Results, write_csv
from mma.experiments.report.tables import plus_minus
from mma.files import explain_write_errors, write_atomically
from mma.text import render_template

LABELED_VS_UNLABELED = "labeled-vs-unlabeled.csv"  # what `mma cost` reads


def draw(found: Results) -> dict[str, Any]:
    """Return the figures that these results allow, by name."""
    usual = figures.accuracy_over_labels, figures.learning_curves, figures.accuracy_by_seed, figures.paired_differences
    # Policies at different prices have no common axis of labels, methods of different lengths none of steps.
    alone = figures.accuracy_over_money if found.spending else figures.accuracy_over_compute
    drawn = {one.__name__: one(found) for one in ((alone,) if found.spending or found.compute else usual)}
    return {name.replace("_", "-"): figure for name, figure in drawn.items() if figure is not None}


def picture_files(drawn: Mapping[str, Any]) -> dict[str, bytes]:
    """Return every figure in every format, by file name."""
    return {f"{name}.{kind}": render(figure, kind) for name, figure in drawn.items() for kind in NO_DATES}


def page_of(found: Results, files: Mapping[str, bytes]) -> str:
    """Return the HTML page: no scripts, nothing loaded from elsewhere, the SVG pictures among `files` inside."""
    svg = {text: files[f"{name}.svg"] for name, text in figures.LOOKS["captions"].items() if f"{name}.svg" in files}
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
        commands, lines = [*grids.read_commands(found.folder), command], table.as_markdown().splitlines()
        files["README.md"] = render_template(
            "results.md", found=found, about=about_text(found), commands=commands, table=lines
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


def hosts(found: Results) -> list[dict[str, Any]]:
    """Return every distinct combination of versions and hardware that the runs were trained with."""
    every = [json.loads(path.read_text("utf-8")) for path in found.folder.glob("runs/*/*/host.json")]
    keys = ("mma", "python", "torch", "numpy", "device", "cpu", "threads")
    known = {json.dumps(shown, sort_keys=True): shown for shown in ({k: host.get(k) for k in keys} for host in every)}
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

"""What a worker knows when it starts: its settings, and what earlier rounds left in the models' folders."""

from __future__ import annotations

from pathlib import Path

from mma.config import Config
from mma.presets import preset
from mma.project.heads import read_head
from mma.project.measure import PastModel
from mma.project.model_report import ModelReport, latest_report, read_report
from mma.project.pool import Pool
from mma.project.project import Project
from mma.project.rounds import Memory
from mma.training.in_memory import fit_head
from mma.views import FeatureViews


def live_config(project: Project) -> Config:
    """Return the settings of the live model: those of the preset photos, on the backbone that the project wants."""
    config = preset("photos")
    assert isinstance(config.views, FeatureViews)
    views = config.views.model_copy(update={"backbone": project.settings.backbone or config.views.backbone})
    return config.model_copy(update={"seed": project.settings.seed, "views": views})


def warm_up(pool: Pool, config: Config) -> None:
    """Train a throw-away head for a step: what is loaded now need not be loaded when the first labels are there."""
    if len(pool) > 1:
        short = config.model_copy(update={"growth": config.growth.model_copy(update={"final": 1})})
        fit_head(pool.views, {0: 0, 1: 1}, 2, config=short)


def done_before(project: Project) -> tuple[int, int]:
    """Return the last event and the number of labels that a whole round was made of; a round that was cut off counts not."""
    last = latest_report(project.folder, "live")
    ready = {model.number for model in project.models() if model.state == "ready"}
    return (last.seq, last.labels + last.audit) if last is not None and last.number in ready else (-1, 0)


def recall(project: Project) -> Memory:
    """Read what earlier rounds left."""
    memory = Memory()
    for folder in sorted((project.folder / "models").glob("*/model.json"), key=lambda path: path.parent.name):
        past = recall_model(folder.parent)
        if past is not None:
            memory.past.append(past)
    last = latest_report(project.folder, "live")
    if last is not None:
        memory.forecasts, memory.source = last.forecasts, last.curve_source
        memory.agreement, memory.helping = last.agreement, last.helping
    return memory


def recall_model(folder: Path) -> PastModel | None:
    """Read one live model of the past; None for a deep one, or one that is damaged."""
    try:
        report = read_report(folder)
        if report.kind != "live":
            return None
        return PastModel(report.number, report.labels, report.class_ids, read_head(folder), crossed_of(report))
    except ValueError:
        return None


def crossed_of(report: ModelReport) -> float | None:
    """Return the cross-validated accuracy that a report holds, in percent."""
    if report.quality is None or report.quality.source != "cross-validation":
        return None
    return 100 * report.quality.accuracy.value

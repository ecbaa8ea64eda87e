"""Whether the logs of a run hold everything that led to its stored state. If not, going on would be another run."""

from __future__ import annotations

from mma.config import Config
from mma.run import Run


def check_logs(run: Run, config: Config, step: int) -> None:
    """Refuse logs that are older than the state: those of a folder that was copied while it was trained, say."""
    begun = {round.index for round in config.growth.rounds() if round.begin < step}
    asked = {row["round"] for row in run.read("queries")}
    bought = {row["round"] for row in run.read("purchases")} if config.growth.spending else begun
    answered = {row["index"] for row in run.read("labels")}
    unanswered = [
        i for row in run.read("queries") if row["round"] in begun for i in row["indices"] if i not in answered
    ]
    recorded = {row["step"] for row in run.read("metrics")}
    last = config.growth.steps
    due = {*range(config.log.every, step + 1, config.log.every), *([last] if step >= last else [])}
    if config.growth.spending:  # a round that bought no label has no query
        asked |= begun - {0}
        bought |= {0}
    for log, gap in (
        ("queries", sorted(begun - asked)),
        ("purchases", sorted(begun - bought)),
        ("labels", unanswered),
        ("metrics", sorted(due - recorded)),
    ):
        if gap:
            raise ValueError(explain_gap(run, log, gap[0], step))


def explain_gap(run: Run, log: str, first: int, step: int) -> str:
    """Say what is missing and how to go on."""
    what = {"queries": "round", "purchases": "round", "labels": "image", "metrics": "step"}[log]
    state = run.checkpoint_path(step)
    return (
        f"{run.path(log)} has no row for {what} {first}, which led to the stored state of step {step}. The log is older than "
        f"the state: perhaps the folder was copied while it was trained. Copy it again, or go back to an earlier state with  "
        f"rm {state} && mma train {run.folder}"
    )

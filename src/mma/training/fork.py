"""Trunk and tail: runs that differ only in budget share their growing part, and the stored state where they part."""

from __future__ import annotations

from pathlib import Path

from safetensors.numpy import save

from mma.config import Config, config_of, from_json
from mma.growth import Round
from mma.nets import Head
from mma.run import Run
from mma.training import checkpoint


def shared_end(a: Config, b: Config) -> int:
    """Return the last step up to which two runs that differ only in budget are the same run."""
    for policy in (a.growth.policy, b.growth.policy):
        if not policy.grows:
            raise ValueError(f"a run with growth.policy={policy.name} shares nothing with another budget.")
    if a.growth.steps != b.growth.steps and (a.optim.decay != "constant" or a.views.early_share > 0):
        return 0  # what depends on the length of the whole run differs from the first step on
    end = 0
    for x, y in zip(a.growth.rounds(), b.growth.rounds(), strict=False):
        same = (x.labels, x.begin, x.refresh) == (y.labels, y.begin, y.refresh)
        starts = x.refresh or x.index == 0
        if not same or (x.end != y.end and starts and calibrates(a)):
            break
        end = min(x.end, y.end)
        if x.end != y.end:
            break
    return end


def calibrates(config: Config) -> bool:
    """Whether a start of the network depends on how long its round will be: a head's temperature does."""
    return isinstance(config.net, Head) and config.net.folds > 1


def shared_states(source: Run, config: Config) -> list[int]:
    """Return the steps of the stored states from which a run with another budget goes on as if it had come there itself.

    The last step of a run is always evaluated. Where no evaluation was due, the state after it is that of no other budget.
    """
    old = config_of(source)
    end, lasts = shared_end(old, config), {old.growth.steps, config.growth.steps}
    stored = [step for step in source.checkpoint_steps() if 0 < step <= end]
    return [step for step in stored if step not in lasts or step % old.log.every == 0]


def fork(trunk: Run, folder: Path, budget: int) -> int:
    """Make the run with another budget that starts from the latest state the two share. Returns its step."""
    old = config_of(trunk)
    growth = {**old.growth.model_dump(), "budget": budget}
    new = from_json({**old.model_dump(mode="json"), "growth": growth})
    stored = shared_states(trunk, new)
    if not stored and not shared_end(old, new):
        raise ValueError(
            f"{trunk.folder} shares no step with a budget of {budget}: its rate (optim.decay), the size of its images "
            "(views.small_share) or the temperature of its head (net.folds) depends on how long it trains. Train it separately."
        )
    if not stored:
        raise ValueError(
            f"{trunk.folder} has no stored state that a budget of {budget} could start from: its first steps up to "
            f"{shared_end(old, new):,} are shared, and none of them was kept. Train it separately, or list the budget in "
            "growth.budgets."
        )
    return copy(trunk, folder, new, stored[-1])


def copy(trunk: Run, folder: Path, config: Config, step: int) -> int:
    """Write the new run's folder as it would be had it been trained to `step` by itself."""
    header, arrays = checkpoint.read(trunk.checkpoint_path(step))
    asked = rounds_begun(config.growth.rounds(), step)
    run = Run.create(folder, config.model_dump(mode="json"))
    header = header.model_copy(update={"config": config.digest()})
    run.write_host({**(trunk.host() or {}), "config": config.digest()})
    for log in ("queries", "labels"):
        run.append(log, [row for row in trunk.read(log) if row["round"] in asked])
    run.append("metrics", [row for row in trunk.read("metrics") if row["step"] <= step])
    for log in ("guesses", "starts"):  # few runs have these
        if rows := [row for row in trunk.read(log) if row.get("step", 0) < step]:
            run.append(log, rows)
    run.store(step, lambda: save(arrays, metadata={"mma": header.model_dump_json()}))
    return step


def rounds_begun(rounds: tuple[Round, ...], step: int) -> set[int]:
    """Return the rounds that were asked for before `step` was made."""
    return {round.index for round in rounds if round.begin < step}

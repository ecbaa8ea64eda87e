"""Stored states: safetensors, whole or absent, tied to the config and the data they belong to.

Trunk and tail: runs that differ only in budget share their growing part, and the stored state where they part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import Tensor

from mma.config import Config, config_of, from_json
from mma.errors import UserError
from mma.nets import Head
from mma.run import Run
from mma.training.state import State

GUESSES = "sha256 of guesses:"  # how the digest of guesses begins


@dataclass(frozen=True)
class Identity:
    """What a stored state belongs to."""

    config: str  # digest of the config
    data: str  # digest of the images and labels
    views: str | None = None  # digest of the backbone that made the features, or of guesses that the run was given

    def refuse_another(self, run: Path, config: object, data: object, views: object) -> None:
        """Refuse to go on with a run that began with other digests: it would be another run under the same name."""
        if config != self.config:
            raise UserError(
                f"{run}: config.json was changed after the run began. Put the old settings back, or start a new run with the "
                "new ones:  mma train PRESET --set path=value --out NEW"
            )
        if data != self.data:
            raise UserError(
                f"{run}: the data set is not the one this run began with (its digest differs). Bring its images back and make "
                "it again:  mma data info NAME  shows the command, and NAME is data.name in config.json. Or start a new run:  "
                "mma train PRESET --out NEW"
            )
        if views != self.views:
            guesses = any(str(digest).startswith(GUESSES) for digest in (views, self.views))
            what = "guesses.jsonl is not the file that" if guesses else "the backbone is not the one"
            restore = (
                "Restore it from a copy" if guesses else "Install the version of its weights that the run began with"
            )
            changed = f"{'it' if guesses else 'its digest'} was {views} and is {self.views}"
            raise UserError(f"{run}: {what} this run began with: {changed}. {restore}, or start a new run.")


class CheckpointHeader(BaseModel):
    """What a checkpoint says of itself, checked before any tensor is looked at."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: int
    step: int
    summed: int
    config: str
    data: str
    views: str | None
    tensors: str  # digest of all tensors: a flipped bit is found
    frozen: str | None  # digest of what is not trained, and so not stored; None when everything is trained


def tensors(state: State) -> Iterator[tuple[str, Tensor]]:
    """Name every tensor that training changes."""
    for part, flat, vector in (
        ("student", state.weights, state.weights.vector),
        ("teacher", state.average, state.average.vector),
        ("moment1", state.weights, state.moment1),
        ("moment2", state.weights, state.moment2),
    ):
        yield from ((f"{part}/{name}", view) for name, view in flat.views(vector))
    yield from ((f"buffer/{name}", buffer) for name, buffer in state.buffers())
    yield from ((f"memory/{name}", remembered) for name, remembered in state.memory.items())


def encode(state: State, identity: Identity) -> bytes:
    """Return the file of a state. All metadata is one JSON string, because a map would be written in random order."""
    sums = ((f"sum/{name}", total) for name, total in state.sums.items())
    arrays = as_arrays([*tensors(state), *sums])
    about = {"step": state.step, "summed": state.summed, "tensors": digest(arrays), "frozen": frozen_digest(state)}
    header = CheckpointHeader.model_validate({"format": 1, **vars(identity), **about})
    return save(arrays, metadata={"mma": header.model_dump_json()})


def frozen_digest(state: State) -> str | None:
    """Return one number for what is not trained: frozen parameters, statistics of frozen modules. None for nothing."""
    fixed = [(name, parameter) for name, parameter in state.student.named_parameters() if not parameter.requires_grad]
    arrays = as_arrays([*fixed, *state.buffers(frozen=True)])
    return digest(arrays) if arrays else None


def as_arrays(named: Iterable[tuple[str, Tensor]]) -> dict[str, np.ndarray]:
    """Return tensors as arrays on the host."""
    return {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in named}


def digest(arrays: dict[str, np.ndarray]) -> str:
    """Return one number for all tensors and their names."""
    total = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        total.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        total.update(arrays[name].tobytes())
    return total.hexdigest()


def prune(run: Run, latest: int, kept: frozenset[int], scheduled: int) -> None:
    """Keep the latest state, the one scheduled before it, and those that other budgets start from."""
    before = [s for s in run.checkpoint_steps() if s < latest and s % scheduled == 0]
    run.prune({latest, *kept, *before[-1:]}, before=latest)


def load_latest(run: Run, state: State, identity: Identity) -> bool:
    """Put the latest stored state into `state`, after checking that it is whole and belongs here. False when there is none."""
    steps = run.checkpoint_steps()
    if not steps:
        return False
    path = run.checkpoint_path(steps[-1])
    header, arrays = read(path)
    identity.refuse_another(run.folder, header.config, header.data, header.views)
    frozen = frozen_digest(state)
    if header.frozen != frozen:
        raise UserError(
            f"{path} was trained on frozen weights with digest {header.frozen or 'none'}, and the network now brings "
            f"{frozen or 'none'}. Bring the same weights back, or start a new run."
        )
    expected = dict(tensors(state))
    stored = {name for name in arrays if not name.startswith("sum/")}
    if stored != set(expected) or any(arrays[n].shape != tuple(expected[n].shape) for n in stored):
        raise UserError(f"{path} holds another network than this run's config describes. It was not loaded.")
    with torch.no_grad():
        for name, tensor in expected.items():
            tensor.copy_(torch.from_numpy(arrays[name]))
    state.step, state.summed = header.step, header.summed
    sums = {name.removeprefix("sum/"): a for name, a in arrays.items() if name.startswith("sum/")}
    state.sums = {name: torch.from_numpy(a).to(state.device) for name, a in sums.items()}
    return True


def read(path: Path) -> tuple[CheckpointHeader, dict[str, np.ndarray]]:
    """Read a checkpoint, or say how to go on without it."""
    try:
        with safe_open(path, framework="numpy") as file:
            header = CheckpointHeader.model_validate_json((file.metadata() or {}).get("mma", ""))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        if digest(arrays) != header.tensors:
            raise TypeError
    except (SafetensorError, ValidationError, OSError) as error:
        reason = "its description is not one of ours" if isinstance(error, ValidationError) else str(error)
    except TypeError:  # also numpy's own: bfloat16, which no state is stored in
        reason = "its contents do not match their digest"
    else:
        if not path.stem.isdigit() or int(path.stem) == header.step:
            return header, arrays
        reason = f"it holds the state of step {header.step}: the file was renamed"
    earlier = [int(p.stem) for p in path.parent.glob("*.safetensors") if p.stem.isdigit() and p.stem < path.stem]
    back = f"step {max(earlier)}" if earlier else "the beginning"
    raise UserError(
        f"{path} is damaged or cut short ({reason}). Restore it from a copy; or go back to {back} with  "
        f"rm {path} && mma train {path.parent.parent}"
    )


def diverged(run: Run, step: int) -> str:
    """Say that training diverged, where the last good state is, and what to try."""
    good = [s for s in run.checkpoint_steps() if s <= step]
    last = f"the last good state is step {good[-1]}" if good else "no state was stored yet"
    return (
        f"a loss or weight is not finite by step {step}; the run stopped and {last}. Try a smaller --set optim.lr, a "
        f"smaller --set algorithm.weight or a longer --set algorithm.ramp, in a new run."
    )


def shared_end(a: Config, b: Config) -> int:
    """Return the last step up to which two runs that differ only in budget are the same run."""
    for policy in (a.growth.policy, b.growth.policy):
        if not policy.grows:
            raise UserError(f"a run with growth.policy={policy.name} shares nothing with another budget.")
    if a.growth.steps != b.growth.steps and (a.optim.decay != "constant" or a.views.early_share > 0):
        return 0  # what depends on the length of the whole run differs from the first step on
    end = 0
    for x, y in zip(a.growth.rounds(), b.growth.rounds(), strict=False):
        same = (x.labels, x.begin, x.refresh) == (y.labels, y.begin, y.refresh)
        starts = x.refresh or x.index == 0
        calibrates = isinstance(a.net, Head) and a.net.folds > 1  # a temperature depends on how long its round will be
        if not same or (x.end != y.end and starts and calibrates):
            break
        end = min(x.end, y.end)
        if x.end != y.end:
            break
    return end


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
        raise UserError(
            f"{trunk.folder} shares no step with a budget of {budget}: its rate (optim.decay), the size of its images "
            "(views.small_share) or the temperature of its head (net.folds) depends on how long it trains. Train it separately."
        )
    if not stored:
        raise UserError(
            f"{trunk.folder} has no stored state that a budget of {budget} could start from: its first steps up to "
            f"{shared_end(old, new):,} are shared, and none of them was kept. Train it separately; a new run keeps a state "
            f"with  --set growth.budgets=[{budget}]"
        )
    # Write the new run's folder as it would be had it been trained to that step by itself.
    step = stored[-1]
    header, arrays = read(trunk.checkpoint_path(step))
    begun = {round.index for round in new.growth.rounds() if round.begin < step}
    run = Run.create(folder, new.model_dump(mode="json"))
    header = header.model_copy(update={"config": new.digest()})
    run.write_host({**(trunk.host() or {}), "config": new.digest()})
    for log in ("queries", "labels"):
        run.append(log, [row for row in trunk.read(log) if row["round"] in begun])
    run.append("metrics", [row for row in trunk.read("metrics") if row["step"] <= step])
    for log in ("guesses", "starts"):  # few runs have these
        if rows := [row for row in trunk.read(log) if row.get("step", 0) < step]:
            run.append(log, rows)
    run.store(step, lambda: save(arrays, metadata={"mma": header.model_dump_json()}))
    return step

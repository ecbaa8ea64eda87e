"""One run trained by several processes. A process alone is the rule.

Every process goes through the same code in the same order and takes its share of the images. The first one alone reads and
writes the run folder; only the latest state is read by all. Each applies the same mean gradient, so that all of them hold
the same weights, bit for bit. `group()` is the group that this process belongs to: `joined()` and `alone()` set it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from mma.algorithms import Losses
from mma.errors import UserError
from mma.run import Run
from mma.training.state import State

T = TypeVar("T")
PATIENCE = timedelta(hours=2)  # with a process that is silent: the first one may be choosing from a large pool
TO_MEET = timedelta(minutes=10)  # at the start


class OtherProcessFailed(UserError):
    """Another process of the run failed, and says why itself."""


class Group:
    """The processes that train one run together. Of one process alone, every method gives back what it was given."""

    def __init__(self, rank: int = 0, size: int = 1, local: int | None = None) -> None:
        self.rank, self.size = rank, size
        self.first = rank == 0  # it writes and speaks
        self.local = local  # its number on this machine, which is also that of its GPU; None = free to choose
        self.path = (rank,) if size > 1 else ()  # what its own randomness is named by

    def share(self, batch: int) -> slice:
        """Return which part of a batch this process trains on; one that cannot be shared equally was refused before."""
        each = batch // self.size
        return slice(self.rank * each, (self.rank + 1) * each)

    def portion(self, items: Sequence[T]) -> Sequence[T]:
        """Return which items this process works on: a contiguous part, in the order of the ranks; lengths differ by one."""
        begin, end = (len(items) * rank // self.size for rank in (self.rank, self.rank + 1))
        return items[begin:end]

    def from_first(self, make: Callable[[], T]) -> T:
        """Let the first process make something, and tell the others; a UserError ends all of them.

        Inside of `make` the first process is alone, so that it may read the folder there.
        """
        if self.size == 1:
            return make()
        said: list[Any] = [None, None]
        failure: UserError | None = None
        if self.first:
            try:
                with alone():
                    said[0] = make()
            except UserError as error:
                said[1], failure = str(error), error
        with explain_lost_process():
            dist.broadcast_object_list(said, 0)
        if said[1] is not None:
            raise failure or OtherProcessFailed(said[1])
        value: T = said[0]
        return value

    def total(self, *numbers: int) -> list[int]:
        """Add up numbers over the processes. On the host, so that nobody waits for a GPU."""
        if self.size == 1:
            return list(numbers)
        values = torch.tensor(numbers, dtype=torch.int64)
        with explain_lost_process():
            dist.all_reduce(values)
        return [int(value) for value in values]

    @torch.no_grad()
    def average(self, state: State, losses: Losses) -> Losses:
        """Give every process the mean gradient, BN statistics and losses of all.

        It is one message a step: whoever continues from a stored state must not miss what others summed up.
        """
        if self.size == 1:
            return losses
        terms = {name: term.detach().clone() for name, term in losses.terms.items()}
        guesses = None if losses.guesses is None else losses.guesses.mean(0, keepdim=True)  # (1, classes)
        memory = {name: kept.clone() for name, kept in losses.memory.items()}
        assert state.weights.gradient is not None
        tensors: list[Tensor] = [state.weights.gradient, *terms.values(), *([] if guesses is None else [guesses])]
        tensors += [*memory.values(), *(buffer for _, buffer in state.buffers() if buffer.is_floating_point())]
        message = torch.cat([tensor.reshape(-1) for tensor in tensors])
        with explain_lost_process():
            dist.all_reduce(message)
        parts = torch.split(message.div_(self.size), [tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))
        return Losses(terms, guesses, memory)

    def gather(self, rows: np.ndarray | None) -> np.ndarray | None:
        """Put the rows of all portions together in the first process; the others get nothing. Who had no images has no rows."""
        if self.size == 1:
            return rows
        own = torch.empty(0, 0) if rows is None else torch.from_numpy(rows)
        shapes = torch.zeros(self.size, 2, dtype=torch.int64)
        shapes[self.rank] = torch.tensor(own.shape)
        with explain_lost_process():
            dist.all_reduce(shapes)
            if not self.first:
                if len(own):
                    dist.send(own, 0)
                return None
            whole = torch.empty(int(shapes[:, 0].sum()), int(shapes[:, 1].max()))  # one copy: there may be many
            for rank, part in enumerate(torch.split(whole, shapes[:, 0].tolist())):
                if len(part) and rank:
                    dist.recv(part, rank)  # one sender at a time
                elif len(part):
                    part.copy_(own)
        return whole.numpy()

    def require_same(self, mine: Callable[[], dict[str, Any]]) -> None:
        """Refuse to go on where processes differ in something that must be the same; the one that differs says in what."""
        if self.size == 1:
            return
        here = mine()
        there = self.from_first(lambda: here)
        other = [f"{k} is {there[k]!r} in the first process and {here[k]!r} here" for k in here if there[k] != here[k]]
        if self.total(len(other))[0]:
            kind = UserError if other else OtherProcessFailed
            how = "; ".join(other) or "another one says how they differ"
            raise kind(f"the processes of one run must be alike: {how}")

    def wait_for_first(self) -> None:
        """After an error elsewhere, let the first process say so: torchrun ends all of them as soon as one ends."""
        with suppress(OtherProcessFailed):  # a message that will not come: its end is noticed
            self.from_first(lambda: None)


ALONE = Group()
_group: ContextVar[Group] = ContextVar("processes", default=ALONE)


def group() -> Group:
    """Return the group that this process belongs to."""
    return _group.get()


@contextmanager
def alone() -> Iterator[None]:
    """Work without the other processes for a while."""
    token = _group.set(ALONE)
    try:
        yield
    finally:
        _group.reset(token)


@contextmanager
def joined() -> Iterator[Group]:
    """Join the processes that torchrun started, if it did. What is trained inside is trained by all of them."""
    if int(os.environ.get("WORLD_SIZE", "1")) <= 1:
        yield group()
        return
    # Host memory goes through gloo and GPU memory through NCCL, so that what is said does not wait for a GPU.
    gpus = torch.cuda.is_available() and dist.is_nccl_available()
    with explain_lost_process():
        store, rank, size = next(rendezvous("env://", timeout=TO_MEET))
        # What processes of an earlier attempt left in torchrun's store must not be taken for an address of this one.
        store = PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)
        backend = "cpu:gloo,cuda:nccl" if gpus else "gloo"
        dist.init_process_group(backend, timeout=PATIENCE, store=store, rank=rank, world_size=size)
    token = _group.set(Group(rank, size, int(os.environ.get("LOCAL_RANK", rank))))
    try:
        yield group()
    finally:
        _group.reset(token)
    dist.destroy_process_group()  # not after an error: others may be gone, and it would wait for them


@contextmanager
def explain_lost_process() -> Iterator[None]:
    """Say it in a sentence when another process is gone."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        raise OtherProcessFailed(
            f"lost another process of this run ({reason}). Its own message stands beside this line. Start the same "
            "command again, and the run goes on from its latest stored state."
        ) from error


def check_share(batch: int, size: int) -> None:
    """Refuse a batch that the processes cannot share equally."""
    if batch % size:
        fitting = next(n for n in range(size, 0, -1) if batch % n == 0)
        raise UserError(
            f"optim.batch is {batch}, which {size} processes cannot share equally. Train with {fitting} of them "
            f"(torchrun --nproc-per-node {fitting}), or start a new run with  --set optim.batch={batch + -batch % size}"
        )
    if batch < 2 * size:
        raise UserError(
            f"optim.batch is {batch}: with {size} processes each would train on one image a step, and batch normalisation "
            f"needs two. Start a new run with  --set optim.batch={2 * size}"
        )


FOLDER_ACCESS = ["config", "host", "write_host", "checkpoint_steps", "read", "append", "cut", "store", "prune"]
FOLDER_ACCESS += ["remove_unfinished"]


class SharedRun(Run):
    """A run folder that the first process alone reads and writes: what is in it reaches the others as messages."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name not in FOLDER_ACCESS:
            return value
        return lambda *args, **options: group().from_first(lambda: value(*args, **options))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for the first process and, through it, for all."""
        with ExitStack() as held:
            group().from_first(lambda: held.enter_context(super(SharedRun, self).lock()))
            yield

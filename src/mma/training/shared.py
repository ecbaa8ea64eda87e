"""The run folder of a run that several processes train."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mma.files import Row
from mma.run import Run

if TYPE_CHECKING:
    from mma.training.ranks import Ranks


@dataclass(frozen=True)
class SharedRun(Run):
    """A run folder that the first process alone reads and writes: what is in it reaches the others as messages."""

    ranks: Ranks

    def config(self) -> Row:
        """Return config.json."""
        return self.ranks.from_first_rank(super().config)

    def host(self) -> Row | None:
        """Return host.json."""
        return self.ranks.from_first_rank(super().host)

    def write_host(self, host: Row) -> None:
        """Write host.json."""
        self.ranks.from_first_rank(lambda: super(SharedRun, self).write_host(host))

    def checkpoint_steps(self) -> list[int]:
        """Return the steps that have a stored state, in order."""
        return self.ranks.from_first_rank(super().checkpoint_steps)

    def read(self, log: str) -> list[Row]:
        """Return the whole rows of a log."""
        return self.ranks.from_first_rank(lambda: super(SharedRun, self).read(log))

    def append(self, log: str, rows: Sequence[Row] | Callable[[], Sequence[Row]]) -> None:
        """Append rows; the first process alone makes them."""
        self.ranks.from_first_rank(lambda: super(SharedRun, self).append(log, rows))

    def cut(self, log: str, keep: Callable[[Row], bool]) -> None:
        """Drop the rows from the first that is not kept on."""
        self.ranks.from_first_rank(lambda: super(SharedRun, self).cut(log, keep))

    def store(self, step: int, encode: Callable[[], bytes]) -> None:
        """Store the state after `step` steps; it is the same in every process."""
        self.ranks.from_first_rank(lambda: super(SharedRun, self).store(step, encode))

    def prune(self, keep: set[int], before: int) -> None:
        """Remove stored states."""
        self.ranks.from_first_rank(lambda: super(SharedRun, self).prune(keep, before))

    def remove_unfinished(self) -> None:
        """Remove what a kill left of a write."""
        self.ranks.from_first_rank(super().remove_unfinished)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for the first process and, through it, for all."""
        with ExitStack() as held:
            self.ranks.from_first_rank(lambda: held.enter_context(super(SharedRun, self).lock()))
            yield

"""The run folder of a run that several processes train."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mma.run import Row, Run

if TYPE_CHECKING:
    from mma.training.ranks import Ranks


@dataclass(frozen=True)
class SharedRun(Run):
    """A run folder that the first process alone reads and writes: what is in it reaches the others as messages."""

    ranks: Ranks

    def config(self) -> Row:
        """Return config.json."""
        return self.ranks.told(super().config)

    def checkpoint_steps(self) -> list[int]:
        """Return the steps that have a stored state, in order."""
        return self.ranks.told(super().checkpoint_steps)

    def read(self, log: str) -> list[Row]:
        """Return the whole rows of a log."""
        return self.ranks.told(lambda: super(SharedRun, self).read(log))

    def append(self, log: str, rows: Sequence[Row]) -> None:
        """Append rows."""
        self.ranks.told(lambda: super(SharedRun, self).append(log, rows))

    def cut(self, log: str, keep: Callable[[Row], bool]) -> None:
        """Drop the rows from the first that is not kept on."""
        self.ranks.told(lambda: super(SharedRun, self).cut(log, keep))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for the first process and, through it, for all."""
        with ExitStack() as held:
            self.ranks.told(lambda: held.enter_context(super(SharedRun, self).lock()))
            yield

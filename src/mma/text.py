"""Text as people see it: safe names, the name they probably meant, durations, templates; lines and progress on stderr.

One message is one line: names from data may hold escape codes and newlines, and are shown as `\\x1b` and `\\n`.
"""

from __future__ import annotations

import re
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import cache
from html import escape
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from rich.console import Console


def printable(name: str) -> str:
    r"""Write control, direction-changing and undecodable characters as escapes: the escape key shows as \x1b."""
    # C*: control, format (text direction), surrogate (undecodable byte), private, unassigned. Zl, Zp: line separators.
    unsafe = {c for c in set(name) if unicodedata.category(c)[0] == "C" or unicodedata.category(c) in ("Zl", "Zp")}
    return "".join(c.encode("unicode_escape").decode("ascii") if c in unsafe else c for c in name)


def quote_path(path: Path | str) -> str:
    """Write a path as it is typed in a command: quoted where a shell would take it apart, control characters as escapes."""
    return quote(printable(str(path)))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the nearest known name, or nothing; upper and lower case count as alike."""
    spelled = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), spelled, n=1, cutoff=0.5)
    return f" Did you mean '{spelled[near[0]]}'?" if near else ""


def plural(count: int, word: str) -> str:
    """Write a count with its noun: `1 seed`, `2,000 seeds`."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or what kind of error it is."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def duration(seconds: float) -> str:
    """Write a duration in the unit a person would use."""
    for unit, size in (("years", 31_557_600), ("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def render_template(name: str, **values: object) -> str:
    """Fill a template of src/mma/templates. Control characters are made visible, and in a page every value is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    page = name.endswith(".html")

    def visible(value: object) -> object:
        if not isinstance(value, str) or isinstance(value, Markup):
            return value
        # Escaped as Python's own html module writes it, so pages made before Jinja2 keep their bytes.
        return Markup(escape(printable(value))) if page else printable(value)

    environment = Environment(
        loader=PackageLoader("mma"),
        autoescape=page,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=visible,
    )
    return environment.get_template(name).render(**values)


CHECKOUT = Path(__file__).resolve().parents[2]  # where pyproject.toml lies, when mma runs from its source


def install_hint(extra: str) -> str:
    """Return the command that installs what an extra of pyproject.toml needs. mma itself is on no package index."""
    if (CHECKOUT / "pyproject.toml").is_file() and Path.cwd() == CHECKOUT:
        return f"pip install '.[{extra}]'"
    try:
        lines = requires("mma-learn") or []
    except PackageNotFoundError:  # run from its source, in another folder
        return f"pip install {quote(f'{CHECKOUT}[{extra}]')}"
    needed = [line.split(";")[0].strip() for line in lines if re.search(rf"""extra == ['"]{extra}['"]""", line)]
    assert needed, f"pyproject.toml has no extra {extra}"
    return f"pip install {' '.join(map(quote, needed))}"


def update_hint() -> str:
    """Return how to get a newer mma, from where this one came."""
    if (CHECKOUT / "pyproject.toml").is_file():
        return f"git -C {quote_path(CHECKOUT)} pull"
    return "install it again from where you got it"


# What people see on stderr: talk, warnings, progress. What is not a terminal gets plain, whole lines.

FIRST, EVERY = 5.0, 30.0  # seconds to the first plain progress line, and between later ones
REDRAW = 0.2  # seconds between two drawings of the bar


def is_terminal(stream: TextIO) -> bool:
    """Tell whether a person looks at this stream. Unlike rich, do not let FORCE_COLOR decide it."""
    return not stream.closed and stream.isatty()


@cache
def console() -> Console:
    """Return the console of stderr: one for all, so that lines appear above a bar and not inside it."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def talk(message: str) -> None:
    """Print one line to stderr."""
    _print_line("", message)


def warn(message: str) -> None:
    """Print one line to stderr that stands out on a terminal."""
    _print_line("warning: ", message)


def _print_line(head: str, message: str) -> None:
    if not is_terminal(sys.stderr):
        print(head + printable(message), file=sys.stderr, flush=True)
        return
    from rich.text import Text

    # Text, not markup: a bracket in a message is a bracket.
    console().print(Text.assemble((head, "yellow"), printable(message)), soft_wrap=True)


class Progress:
    """A bar on a terminal; elsewhere a plain line after 5 s and then every 30 s. All on stderr."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.due, self.bar = clock, 0.0, None
        if is_terminal(sys.stderr):
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Bar

            text = TextColumn("{task.fields[text]}", markup=False)
            self.bar = Bar(BarColumn(bar_width=12), text, console=console())

    def __enter__(self) -> Self:
        self.due = self.clock() + (FIRST if self.bar is None else 0.0)
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.bar is not None:
            self.bar.stop()

    def update(self, done: int, total: int, describe: Callable[[], str]) -> None:
        """Show how far the work is. `describe` is called only when something is shown."""
        now = self.clock()
        if now < self.due:
            return
        self.due = now + (EVERY if self.bar is None else REDRAW)
        if self.bar is None:
            talk(describe())
            return
        if not self.bar.task_ids:
            self.bar.add_task("", total=total, text="")
        self.bar.update(self.bar.task_ids[0], completed=done, total=total, text=printable(describe()))

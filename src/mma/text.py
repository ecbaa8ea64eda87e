"""Text as people see it: names that are safe to show, the name they probably meant, durations, HTML pages."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from html import escape
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from shlex import quote


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


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or what kind of error it is."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def duration(seconds: float) -> str:
    """Write a duration in the unit a person would use."""
    for unit, size in (("years", 31_557_600), ("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def render_html(name: str, **values: object) -> str:
    """Fill a template of src/mma/templates. Every value is escaped, and its control characters are made visible."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def visible(value: object) -> object:
        # Escaped as Python's own html module writes it, so pages made before Jinja2 keep their bytes.
        return Markup(escape(printable(value))) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(
        loader=PackageLoader("mma"),
        autoescape=True,
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


# A progress bar on a terminal's stderr; silence everywhere else.

Advance = Callable[[int], None]


@contextmanager
def bar(title: str, total: int, *, done: int = 0, in_bytes: bool = False) -> Iterator[Advance]:
    """Show how far a task of `total` parts is; call what you are given with the number of parts just finished."""
    if not sys.stderr.isatty():
        yield lambda parts: None
        return
    from rich.console import Console
    from rich.markup import escape as escape_markup
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    amount = DownloadColumn() if in_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(escape_markup(title), total=total, completed=done)
        yield lambda parts: progress.advance(task, parts)

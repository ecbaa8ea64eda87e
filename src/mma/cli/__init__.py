"""The command line: one short function per command. Heavy modules are imported inside them, so --help is instant."""

from __future__ import annotations

import errno
import os
import platform
import sys
import traceback
from collections.abc import Callable
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from mma.errors import UserError
from mma.text import printable

EXIT_CODES = {
    0: "done, or stopped where --until says",
    1: "failed; the message says why and what to type, or that mma itself has a fault",
    2: "the command line could not be understood",
    3: "mma train waits for labels",
    130: "stopped by Ctrl-C; what is done is stored, and the same command goes on",
    143: "stopped by SIGTERM; likewise",
}
# Click would fill these lines up as a paragraph, but for the mark \b.
EPILOG = "\b\nExit codes:\n" + "\n".join(f"  {code:<3}  {meaning}" for code, meaning in EXIT_CODES.items())
WAY_OUT = "Allow it or make room, then run the same command again. Nothing that was stored is lost."
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]  # click's ClickException; newer typers have their own
WIDE = 10_000  # columns of help that no terminal shows: an option is one line, to be searched


class Commands(TyperGroup):
    """Prints errors, and the help in groups."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command. An error that a person can mend is one line; any other is ours and shows where it happened."""
        try:
            return super().invoke(ctx)
        except (USAGE_ERROR, typer.Abort, typer.Exit):
            raise
        except KeyboardInterrupt:
            complain(ctx, "stopped at once. The same command goes on from what is stored.")
            raise typer.Exit(130) from None
        except UserError as error:
            if os.environ.get("MMA_DEBUG"):  # shows where it came from
                raise
            complain(ctx, str(error))
        except OSError as error:
            if os.environ.get("MMA_DEBUG") or error.errno == errno.EPIPE:  # whoever read our output has gone: no error
                raise
            complain(ctx, f"{error.filename or 'a file'} cannot be used: {error.strerror or error}. {WAY_OUT}")
        except Exception:
            print("\n".join(map(printable, traceback.format_exc().splitlines())), file=sys.stderr)
            system = f"{version_text()}, Python {platform.python_version()}, {platform.platform()}"
            complain(
                ctx,
                "this is a fault in mma, not in what you typed. To report it, give the lines above, the whole command and: "
                f"{system}",
            )
        raise typer.Exit(1) from None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands in their groups. In plain text: rich's panels cut lines that a pipe should get whole."""
        commands = [self.commands[name] for name in self.list_commands(ctx)]
        width = max(len(command.name or "") for command in commands)
        for title in dict.fromkeys(getattr(command, "rich_help_panel", None) for command in commands):
            with formatter.section(title if isinstance(title, str) else "Commands"):
                group = [command for command in commands if getattr(command, "rich_help_panel", None) == title]
                limit = formatter.width - 6 - width
                formatter.write_dl([(f"{one.name:{width}}", one.get_short_help_str(limit)) for one in group])


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # markup would take brackets in help, as of psycopg[binary], for a style
    context_settings={"help_option_names": ["-h", "--help"]},
    help="The best image classifier out of the fewest labels.",
    epilog=EPILOG,
)


def version_text() -> str:
    """Return the name and version of this program."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"mma {version('mma-learn')}"
    except PackageNotFoundError:
        return "mma, run from its source without being installed"


def print_version(value: bool) -> None:
    """Print the version and end."""
    if value:
        print(version_text())
        raise typer.Exit


@app.callback()
def prepare(
    use: Annotated[
        list[str] | None,
        typer.Option("--use", metavar="MODULE", help="Import a Python module or file of yours first. May be repeated."),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Import what the user adds: own algorithms, queries, networks, data sources."""
    from mma.extensions import use as use_module
    from mma.extensions import use_inherited

    use_inherited()
    for name in use or []:
        use_module(name)


def commands() -> typer.Typer:
    """Return the app with every command on it."""
    from mma.cli import data, experiments, photos, train, use

    groups: dict[str, list[Callable[..., None]]] = {
        "Your photos": [  # the five that everybody needs come first
            *(photos.start, photos.status, photos.review, use.predict, use.export, use.classify, photos.label),
            *(photos.work, photos.new, photos.find, photos.ask, photos.audit, photos.tell, photos.doctor),
            photos.simulate,
        ],
        "Train and use": [*(train.train, use.serve, use.evaluate, use.query, use.runs, train.fork, use.show, use.flop)],
        "Experiments": [experiments.demo, experiments.grid, experiments.report, experiments.cost],
    }
    if not app.registered_commands:
        for title, group in groups.items():
            for function in group:
                name = "eval" if function is use.evaluate else function.__name__
                app.command(name, rich_help_panel=title)(function)
        app.add_typer(photos.app, name="labels", cls=Commands, rich_help_panel="Your photos")
        app.add_typer(data.app, name="data", cls=Commands, rich_help_panel="Data")
    return app


def complain(ctx: Any, message: str) -> None:
    """Print an error to stderr; a message of several lines keeps them, other control characters are shown as escapes."""
    name = " ".join(part for part in (ctx.command_path, ctx.invoked_subcommand) if part)
    print("\n".join(printable(line) for line in f"{name}: {message}".split("\n")), file=sys.stderr)


def quiet_threads() -> None:
    """Let threads that wait for each other fall asleep soon. To be called before torch is loaded.

    Those that spin on make a step ten times slower beside another busy process. Those that sleep at once must be woken up
    for every layer, which takes longer than a small layer does, most of all on virtual machines.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")  # some ten microseconds; GNU's OpenMP alone knows it


def main() -> None:
    """Entry point of the `mma` command."""
    quiet_threads()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a class name that the encoding lacks must not end a report
    try:
        commands()(prog_name="mma", terminal_width=None if sys.stdout.isatty() else WIDE, max_content_width=120)
    except KeyboardInterrupt:  # while the commands are imported
        sys.exit(130)

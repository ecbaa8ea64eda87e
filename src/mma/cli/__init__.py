"""The command line: one short function per command. Heavy modules are imported inside them, so --help is instant."""

from __future__ import annotations

import errno
import os
import sys
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from mma.text import printable

EXIT_CODES = {
    0: "done, or stopped where --until says",
    1: "failed; the message says why and what to type",
    2: "the command line could not be understood",
    3: "mma train waits for labels",
    130: "stopped by Ctrl-C; what is done is stored, and the same command goes on",
    143: "stopped by SIGTERM; likewise",
}
# Click would fill these lines up as a paragraph, but for the mark \b.
EPILOG = "\b\nExit codes:\n" + "\n".join(f"  {code:<3}  {meaning}" for code, meaning in EXIT_CODES.items())
WAY_OUT = "Allow it or make room, then run the same command again. Nothing that was stored is lost."
WIDE = 10_000  # columns of help that no terminal shows: an option is one line, to be searched


class Commands(TyperGroup):
    """Turns an error meant for people into one line that starts with the command's name."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; MMA_DEBUG=1 shows where an error came from."""
        try:
            return super().invoke(ctx)
        except ValueError as error:
            if os.environ.get("MMA_DEBUG"):
                raise
            complain(ctx, str(error))
            raise typer.Exit(1) from None
        except OSError as error:
            if os.environ.get("MMA_DEBUG") or error.errno == errno.EPIPE:  # whoever read our output has gone: no error
                raise
            complain(ctx, f"{error.filename or 'a file'} cannot be used: {error.strerror or error}. {WAY_OUT}")
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            complain(ctx, "stopped at once. The same command goes on from what is stored.")
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # markup would take the brackets of '.[ray]' for a style
    context_settings={"help_option_names": ["-h", "--help"]},
    help="The best image classifier out of the fewest labels.",
    epilog=EPILOG,
)


def print_version(value: bool) -> None:
    """Print the version and end."""
    if value:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"mma {version('mma-learn')}")
        except PackageNotFoundError:
            print("mma, run from its source without being installed")
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
    from mma.cli import cost, data, grid, photos, train, use

    if not app.registered_commands:
        for function, name in (
            (photos.start, "start"),
            (photos.label, "label"),
            (photos.ask, "ask"),
            (photos.tell, "tell"),
            (photos.doctor, "doctor"),
            (photos.work, "work"),
            (photos.status, "status"),
            (photos.simulate, "simulate"),
            (photos.review, "review"),
            (grid.demo, "demo"),
            (train.train, "train"),
            (train.fork, "fork"),
            (use.show, "show"),
            (use.flop, "flop"),
            (use.evaluate, "eval"),
            (use.query, "query"),
            (use.predict, "predict"),
            (use.export, "export"),
            (use.runs, "runs"),
            (grid.grid, "grid"),
            (grid.report, "report"),
            (cost.cost, "cost"),
        ):
            app.command(name)(function)
        app.add_typer(photos.app, name="labels", cls=Commands, help="Labels of a project, in and out.")
        app.add_typer(data.app, name="data", cls=Commands, help="Get image data, and see what is there.")
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

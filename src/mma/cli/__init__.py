"""The command line: one short function per command. Heavy modules are imported inside them, so --help is instant."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup


class Commands(TyperGroup):
    """Turns an error meant for people into one line that starts with the command's name."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; MMA_DEBUG=1 shows where an error came from."""
        try:
            return super().invoke(ctx)
        except ValueError as error:
            if os.environ.get("MMA_DEBUG"):
                raise
            name = " ".join(part for part in (ctx.command_path, ctx.invoked_subcommand) if part)
            print(f"{name}: {error}", file=sys.stderr)
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="The best image classifier out of the fewest labels.",
)


def registered() -> typer.Typer:
    """Return the app with every command on it."""
    from mma.cli import cost, data, demo, grid, inspect, report, train

    if not app.registered_commands:
        for function, name in (
            (demo.demo, "demo"),
            (train.train, "train"),
            (train.fork, "fork"),
            (inspect.show, "show"),
            (inspect.flop, "flop"),
            (inspect.evaluate, "eval"),
            (inspect.query, "query"),
            (inspect.runs, "runs"),
            (grid.grid, "grid"),
            (report.report, "report"),
            (cost.cost, "cost"),
        ):
            app.command(name)(function)
        app.add_typer(data.app, name="data", cls=Commands, help="Get image data, and see what is there.")
    return app


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
    registered()(prog_name="mma")

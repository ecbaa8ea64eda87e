"""`mma cost`: what a label is worth, and what to buy next."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mma.errors import UserError
from mma.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from mma.cost import Analysis, CostTable, Exchange, ImagesNeeded, Interval, Mix, Next, Prices

WIDE = 10_000  # columns, where the output is not a terminal


def cost(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="paper:cifar10, paper:cifar100, paper:svhn-extra, a CSV of labels,total,accuracy,seed, or a grid folder.",
        ),
    ],
    target: Annotated[list[float] | None, typer.Option(help="Accuracy to reach, in percent. May be repeated.")] = None,
    label_price: Annotated[float | None, typer.Option(help="Money for one label.")] = None,
    image_price: Annotated[float | None, typer.Option(help="Money for one more image, labeled or not.")] = None,
    at: Annotated[str | None, typer.Option(metavar="LABELS,TOTAL", help="What you have now, like 500,20000.")] = None,
    isotonic: Annotated[
        bool, typer.Option("--isotonic", help="Read columns that never fall, fitted to the data.")
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw into this .png, .svg or .pdf file; a .png gets an .svg and a .pdf beside it."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say how many unlabeled images a label is worth, and with prices what to buy."""
    import json

    import mma.cost

    if plot is not None:
        from mma.cost.plots import check_path

        check_path(plot)
    prices = _prices(label_price, image_price)
    table, place = _table(source), _place(at)
    answer = mma.cost.ask(table, target or [], prices=prices, at=place, smooth=isotonic)
    if plot is not None:
        from mma.cost.plots import cost_figure

        cost_figure(plot, table, answer.targets, prices, at=place, smooth=isotonic)
    if as_json:
        print(json.dumps(mma.cost.as_json(answer), indent=2))
    else:
        _show(answer)
        if plot is not None:
            print(f"Drawn: {printable(str(plot))}")


def _table(source: str) -> CostTable:
    """Read a source; of a grid folder, the runs that are done."""
    from mma.cost import open_table, table_from_runs

    folder = Path(source)
    if not (folder / "grid.json").is_file() or (folder / "labeled-vs-unlabeled.csv").is_file():
        return open_table(source)
    from mma.experiments.report.results import collect

    found = collect(folder)
    done = [(r.budget, r.total, r.accuracy) for r in found.runs if r.status == "done" and r.accuracy is not None]
    if not found.weighs_images or not done:
        several = f"several methods learn from its images: {', '.join(found.learners)}"
        why = (
            "none of its runs is done"
            if not done
            else several
            if found.by_total
            else "all its runs have the same images"
        )
        raise UserError(
            f"{printable(source)} says nothing about images against labels: {why}. A grid that does:  "
            "mma grid labeled-vs-unlabeled-cifar10, or any preset with  --axis data.total=...  and  --axis growth.budget=..."
            " and nothing else varied but the seed"
        )
    return table_from_runs(printable(folder.name), done)


def _prices(label: float | None, image: float | None) -> Prices | None:
    from mma.cost import Prices

    if label is None and image is None:
        return None
    if label is None or image is None:
        missing = "--label-price" if label is None else "--image-price"
        raise UserError(f"One price alone decides nothing: give {missing} too (0 if it is free).")
    return Prices(label, image)


def _place(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    try:
        labels, total = (int(part.replace("_", "")) for part in text.split(","))
    except ValueError:
        raise UserError(f"--at is LABELS,TOTAL in whole numbers, like 500,20000; '{printable(text)}' is not.") from None
    return labels, total


def _show(answer: Analysis) -> None:
    from rich.console import Console
    from rich.markup import escape

    # A terminal has a width; a pipe or file has none, and nothing written there is cut.
    console = Console(soft_wrap=True, highlight=False, width=None if sys.stdout.isatty() else WIDE)
    console.print(f"[bold]{escape(answer.source)}[/]  {answer.rule}")
    for note in answer.notes:
        console.print(f"  {note}", style="dim", markup=False)
    for k, found in enumerate(answer.targets):
        console.print()
        _show_target(console, found, answer)
        if answer.mixes:
            _show_mixes(console, answer.mixes[k], answer)
            if not answer.mixes[k]:
                console.print(f"  {_no_mix(found.target, answer)}")
    if answer.next is not None:
        _show_next(console, answer.next)


def _show_target(console: Console, found: Exchange, answer: Analysis) -> None:
    from rich.table import Table

    shown = Table(title=f"To reach {found.target:g} %", title_justify="left", box=None, padding=(0, 1, 0, 0))
    spread = f"{answer.level:.0%} of draws"
    for heading in ("labels", "images\nin total", spread, "\nunlabeled", "a label\nsaves", spread, "on un-\nlabeled"):
        shown.add_column(heading, justify="right", vertical="bottom", no_wrap=True, header_style="bold")
    remarks = []
    for need, ratio in zip(found.needs, [*found.ratios, None], strict=True):
        rate = ("", "", "")
        if ratio is not None:
            rate = (_rate(ratio.totals), _interval(ratio.totals_interval, "z.1f"), _rate(ratio.unlabeled))
            remarks += [f"{ratio.fewer:,} to {ratio.more:,}: {ratio.finding}."] if ratio.finding else []
        if need.missed:
            remarks.append(f"{need.labels:,} labels: not reached in {need.missed:.0%} of draws.")
        shown.add_row(f"{need.labels:,}", *_need(need), *rate)
    console.print(shown)
    for remark in remarks:
        console.print(f"  {remark}", style="dim")


def _need(need: ImagesNeeded) -> tuple[str, str, str]:
    spread = _interval(need.interval, ",.0f")
    if need.total is not None:
        return f"{need.total:,}", spread, f"{need.unlabeled:,}"
    return "not reached" if need.status == "not reached" else f"under {need.smallest:,}", spread, "-"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:z.1f}"


def _interval(interval: Interval | None, style: str) -> str:
    if interval is None:
        return "-"
    low, high = (format(end, style) if math.isfinite(end) else "open" for end in (interval.low, interval.high))
    return f"{low} to {high}"


def _show_mixes(console: Console, mixes: tuple[Mix, ...], answer: Analysis) -> None:
    more = " more" if answer.next is not None else ""  # from a starting point only what is still to be paid counts
    for k, mix in enumerate(mixes):
        start = "[bold]cheapest[/]" if k == 0 else "then    "
        sure = "" if mix.cheapest is None else f", cheapest in {mix.cheapest:.0%} of draws"
        total = f"{'at most ' if mix.at_most else ''}{mix.total:,}"
        console.print(f"  {start} {mix.labels:,} labels, {total} images in total: {mix.cost:,.2f}{more}{sure}")


def _no_mix(target: float, answer: Analysis) -> str:
    from mma.cost.advice import SMOOTH

    place = "" if answer.next is None else f" with {answer.next.labels:,} labels or more"
    smoothed = " after smoothing" if answer.rule == SMOOTH else ""
    way_out = "Give a lower target" + (" or leave out --isotonic." if smoothed else ".")
    return f"No mix{place} reaches {target:g} %{smoothed}. {way_out}"


def _show_next(console: Console, following: Next) -> None:
    console.print(
        f"\n[bold]From {following.labels:,} labels, {following.total:,} images ({following.accuracy:.2f} %)[/]"
    )
    other = {"labels": "images", "images": "labels"}
    for k, step in enumerate(following.steps):
        start = "[bold]next[/]" if k == 0 else "not "
        point = f"{step.price_of_a_point:,.2f} per point" if step.gain > 0 else "no gain"
        spread = f" ({_interval(step.interval, '+.2f')})" if step.interval else ""
        instead = f"; as much as {step.instead:,.0f} {other[step.what]}" if step.instead is not None else ""
        beyond = "; a forecast, beyond the table" if step.beyond else ""
        what = f"{step.amount:,} more {step.what} for {step.cost:,.2f}: {step.gain:+.2f} points{spread}"
        console.print(f"  {start} {what}, {point}{instead}{beyond}")
    if following.agreement is not None:
        console.print(f"  The first is the better buy in {following.agreement:.0%} of draws.")
    if following.here is not None and following.here.beyond:
        console.print(f"  Fitted surface: {following.here}", style="dim")

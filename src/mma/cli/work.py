"""`mma work`, `mma status`, `mma simulate`: the training behind a project, how it stands, and whether it would have helped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mma.text import printable, quote_path

if TYPE_CHECKING:
    from mma.project import Project
    from mma.project.audit import Share
    from mma.project.status import ProjectStatus

ProjectFolder = Annotated[Path, typer.Argument(metavar="PROJECT", help="A project, or the folder of its images.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def work(
    project: ProjectFolder,
    deep: Annotated[bool, typer.Option("--deep", help="Train a network on pixels as well, to its end.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on and wait for labels until Ctrl-C.")] = False,
) -> None:
    """Train a project without its page, for example on a machine with a better processor. Started again, it goes on."""
    from mma.cli.terminal import talk
    from mma.project import open_project
    from mma.project.owner import training

    opened = open_project(project)
    try:
        if opened.counts().labeled == 0:
            place, root = printable(str(opened.folder)), quote_path(opened.root)
            raise ValueError(f"{place} has no label yet. Label with  mma start {root}")
        with training(opened.layout.state, f"mma work {quote_path(project)}"):
            opened.index(talk)
            train_project(opened, deep=deep, watch=watch)
    finally:
        opened.close()


def train_project(project: Project, *, deep: bool, watch: bool) -> None:
    """Train on pixels if wanted, then on features; say so where no model could be made."""
    from mma.cli.terminal import talk
    from mma.project.live import work as train_live
    from mma.project.status import status as read_status
    from mma.project.words import first_model_words

    if deep:
        from mma.project.deep import train_deep

        if report := train_deep(project, talk):
            talk(f"deep model {report.number}: {report.uses}")
    train_live(project, talk, until_done=not watch, deep=False)
    if not project.models():
        talk(f"no model was made. {first_model_words(read_status(project))}")


def status(
    project: Annotated[Path, typer.Argument(metavar="PROJECT", help="A project, the folder of its images, or a run.")],
    as_json: AsJson = False,
    html: Annotated[bool, typer.Option("--html", help="Write report.html and print where it is.")] = False,
    target: Annotated[
        float | None, typer.Option("--target", min=0, max=100, help="Accuracy in percent that you want.")
    ] = None,
    label_price: Annotated[float | None, typer.Option("--label-price", min=0, help="Money for one label.")] = None,
    point_value: Annotated[
        float | None, typer.Option("--point-value", min=0, help="Money that a point of accuracy is worth.")
    ] = None,
) -> None:
    """Print how good the model of a project or a run is, what more labels would bring, and whether to stop."""
    from dataclasses import replace

    from mma.project import open_project
    from mma.project.report_page import write_page
    from mma.project.status import goals_of
    from mma.project.status import status as read_status

    if (project / "config.json").is_file():
        if html or target is not None or label_price is not None or point_value is not None:
            raise ValueError(f"{printable(str(project))} is a run. --html, --target and prices are for projects.")
        show_run(project, as_json=as_json)
        return
    opened = open_project(project)
    goals = goals_of(opened)
    goals = replace(
        goals,
        target=goals.target if target is None else target,
        label_price=goals.label_price if label_price is None else label_price,
        point_value=goals.point_value if point_value is None else point_value,
    )
    now = read_status(opened, goals)
    if as_json:
        print(json.dumps(now.as_json()))
    elif html:
        print(printable(str(write_page(opened, goals))))
    else:
        show_status(now)
    opened.close()


def show_run(folder: Path, *, as_json: bool) -> None:
    """Print how a run stands."""
    from dataclasses import asdict

    from mma.cli.terminal import print_table
    from mma.project.run_status import run_lines, run_status

    now = run_status(folder)
    if as_json:
        print(json.dumps(asdict(now)))
        return
    for line in run_lines(now):
        print(printable(line))
    if now.tested is not None:
        print()
        rows = [[name, f"{value:.1f} %"] for name, value in now.tested["per_class"].items()]
        print_table(("class", "recall"), rows, right={"recall"})


def show_status(now: ProjectStatus) -> None:
    """Print the status for people."""
    from mma.cli.terminal import print_table
    from mma.project.words import status_lines

    for line in status_lines(now):
        print(printable(line))
    quality = now.report.quality if now.report else None
    found = {each.name: each for each in quality.classes} if quality else {}
    rows = []
    for name, count in now.per_class.items():
        each = found.get(name)
        rows.append([name, str(count), _share(each.recall if each else None), _share(each.precision if each else None)])
    if rows:
        print()
        print_table(("class", "labels", "recall", "precision"), rows, right={"labels", "recall", "precision"})


def _share(share: Share | None) -> str:
    return "-" if share is None else f"{100 * share.value:.0f} % ({100 * share.low:.0f}-{100 * share.high:.0f})"


def simulate(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Photos that are labeled: a sub-folder per class.")],
    noise: Annotated[float, typer.Option("--noise", min=0, max=0.99, help="Share of wrong answers.")] = 0.0,
    budget: Annotated[int, typer.Option("--budget", min=20, help="Labels per project.")] = 400,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Projects with asking, each with its random twin.")] = 3,
    every: Annotated[int, typer.Option("--every", min=10, help="Labels between two trainings.")] = 25,
    audit: Annotated[float, typer.Option("--audit", min=0, max=0.5, help="Share of the answers that measures.")] = 0.1,
    control: Annotated[bool, typer.Option(help="Compare with the same person labeling in random order.")] = True,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Keep the projects and the result there.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Would asking have helped? Label a folder again by a script, through the same project, and compare with random order."""
    from tempfile import TemporaryDirectory

    from mma.cli.terminal import talk
    from mma.project.simulate import Plan
    from mma.project.simulate import simulate as run
    from mma.project.simulated import as_json as plain
    from mma.project.simulated import result_page, write_result

    plan, found = Plan(budget, noise, every, audit), []
    with TemporaryDirectory(prefix="mma-simulate-") as scratch:
        place = out or Path(scratch)
        for one in run(folder, place, plan=plan, seeds=range(1, seeds + 1), control=control, say=talk):
            found.append(one)
            if out is not None:
                write_result(out, folder, plan, found)
    print(json.dumps(plain(found)) if as_json else result_page(folder, plan, found), end="\n" if as_json else "")

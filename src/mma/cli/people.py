"""`mma ask`, `mma tell`, `mma labels` and `mma doctor`: labels by files, and looking after a project."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from mma.text import printable

app = typer.Typer(help="Labels of a project, in and out.", no_args_is_help=True)

Target = Annotated[Path, typer.Argument(metavar="PROJECT", help="A project, or the folder of its images.")]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", metavar="NAME", help="csv, imagefolder, hf-csv, hf-jsonl or label-studio. Default: by the name."
    ),
]
By = Annotated[str, typer.Option("--by", metavar="NAME", help="Who labels.")]
AddClasses = Annotated[bool, typer.Option("--add-classes", help="Add classes that the project does not have.")]


def ask(
    project: Target,
    n: Annotated[int, typer.Option("-n", "--number", min=1, max=100_000, help="How many images.")] = 50,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="CSV", help="The table to fill in.")] = Path("picks.csv"),
    by: By = "files",
) -> None:
    """Write the images that are best labeled next: a table to fill in, a contact sheet, and tasks for Label Studio."""
    from mma.project import open_project
    from mma.project.sheet import ask as write_questions

    opened = open_project(project)
    try:
        written = write_questions(opened, n, out, by)
    finally:
        opened.close()
    for path in written:
        print(printable(str(path)))
    print(f"fill in the column label, then:  mma tell {quote(str(project))} {quote(str(out))}")


def tell(
    project: Target,
    answers: Annotated[Path, typer.Argument(help="A filled-in table, or an export of Label Studio.")],
    by: By = "files",
    add_classes: AddClasses = False,
    form: Format = None,
) -> None:
    """Take in answers to what  mma ask  asked. An empty label is no answer, a ? means that one cannot tell."""
    from mma.project.exchange.take_in import TakeIn

    _take_in(project, answers, form, TakeIn(by=by, add_classes=add_classes, told=True))


@app.command("export")
def export(
    project: Target,
    path: Annotated[Path, typer.Argument(help="File or folder to write.")],
    form: Format = None,
    copy: Annotated[
        bool, typer.Option("--copy", help="imagefolder: copy the images instead of linking to them.")
    ] = False,
) -> None:
    """Write the labels in force, with exact relative path and sha256. Images are never moved."""
    from mma.project import open_project

    opened = open_project(project)
    try:
        count = opened.export_labels(path, form, copy=copy)
    finally:
        opened.close()
    print(printable(f"{path}: {count:,} files"))


@app.command("import")
def import_(
    project: Target,
    path: Annotated[Path, typer.Argument(help="File or folder to read.")],
    form: Format = None,
    by: By = "import",
    add_classes: AddClasses = False,
    replace: Annotated[bool, typer.Option("--replace", help="Let the file change labels that differ here.")] = False,
) -> None:
    """Take labels in: all of them, or none and a list of what is wrong, with line numbers."""
    from mma.project.exchange.take_in import TakeIn

    _take_in(project, path, form, TakeIn(by=by, add_classes=add_classes, replace=replace))


@app.command("merge")
def merge(
    project: Target, other: Annotated[Path, typer.Argument(help="A copy of the project, labeled elsewhere.")]
) -> None:
    """Take in the labels that were given in a copy of a project. Nothing is taken in twice."""
    from mma.project import open_project

    here, there = open_project(project), open_project(other)
    try:
        report = here.merge(there)
    finally:
        here.close()
        there.close()
    print(f"{len(report.events):,} events are new")
    if report.conflicts:
        print(f"{len(report.conflicts):,} images were labeled otherwise here; the labels that came in count now")


def _take_in(project: Path, path: Path, form: str | None, how: object) -> None:
    from mma.project import open_project
    from mma.project.exchange.take_in import TakeIn

    assert isinstance(how, TakeIn)
    opened = open_project(project)
    try:
        events = opened.import_labels(path, form, how)
        left = opened.counts()
    finally:
        opened.close()
    answers = sum(event.image is not None for event in events)
    print(f"{answers:,} answers are new; {left.labeled:,} images are labeled, {left.left:,} are left")


def doctor(
    project: Target,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make the database again from labels.jsonl; the old one is kept.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Compare the two copies of every label, and look for changed and missing images. Exit code 1: something is wrong."""
    from mma.cli.terminal import talk
    from mma.project import find_project
    from mma.project.doctor import doctor as examine

    findings = examine(find_project(project), rebuild=rebuild, say=talk)
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        for finding in findings:
            print(printable(("PROBLEM: " if finding.problem else "") + finding.text))
    if any(finding.problem for finding in findings):
        raise typer.Exit(1)

"""The commands of a labeling project: start, label, ask, tell, labels, doctor, work, status, simulate, review."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from mma.errors import UserError
from mma.text import printable, quote_path

if TYPE_CHECKING:
    from mma.project import IndexReport, Project
    from mma.project.quality.agreement import Kappa
    from mma.project.quality.status import ProjectStatus
    from mma.project.review import Mistakes


SHOWN = 20  # lines of a list on the screen

Port = Annotated[
    int | None,
    typer.Option("--port", min=0, max=65_535, help="Port of the page. Default: the first free one from 8642 on."),
]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Do not open a browser; the address is printed.")]
HostName = Annotated[
    str, typer.Option("--host", help="Address to serve at. Others than this machine's need --allow-remote.")
]
Remote = Annotated[
    bool, typer.Option("--allow-remote", help="Let other machines reach the page. They need the printed key.")
]


def start(
    folder: Annotated[Path, typer.Argument(help="A folder of images, or a project to go on with.")],
    classes: Annotated[
        str | None, typer.Option("--classes", metavar="NAMES", help="Classes, for example cat,dog.")
    ] = None,
    project: Annotated[
        Path | None, typer.Option("--project", metavar="DIR", help="Project folder. Default: FOLDER.mma beside FOLDER.")
    ] = None,
    budget: Annotated[int | None, typer.Option("--budget", min=1, help="How many labels you mean to give.")] = None,
    port: Port = None,
    no_browser: NoBrowser = False,
    store: Annotated[
        str | None, typer.Option("--store", metavar="URL", help="postgresql://... for a team. Default: SQLite.")
    ] = None,
    overlap: Annotated[
        int | None, typer.Option("--overlap", min=1, max=100, help="People per image (new project).")
    ] = None,
    host: HostName = "127.0.0.1",
    allow_remote: Remote = False,
    labels_from: Annotated[
        str | None,
        typer.Option(
            "--labels-from", metavar="SOURCE", help="Take labels: folders, folders:first, folders:last or a file."
        ),
    ] = None,
) -> None:
    """Label the images of a folder in the browser, while a model learns from the labels. The same command goes on.

    Images are indexed where they are, and never changed. Ctrl-C stops; every label is on disk when the page says so.
    """
    from mma.cli.terminal import talk
    from mma.project.exchange.import_labels import check_source
    from mma.project.project import check_images
    from mma.project.settings import project_folder
    from mma.project.worker.supervise import worker
    from mma.web.server import bind, check_address, serve

    check_address(host, allow_remote)
    if not is_project(place_of(folder, project)):
        # Refuse now what would end a start after the project is made.
        check_images(folder, project or project_folder(folder))
        if labels_from is not None:
            check_source(folder, labels_from)
        bind(host, port).close()
    names = [] if classes is None else [name.strip() for name in classes.split(",")]
    opened = open_or_create(folder, project, names, store=store, budget=budget, overlap=overlap)
    with ExitStack() as stack:
        stack.callback(opened.close)
        stack.enter_context(opened.owner(f"mma start {folder}"))
        _prepare(stack, opened, labels_from)
        stack.enter_context(worker(opened, talk))
        serve(opened, host, port, allow_remote=allow_remote, browser=not no_browser, say=talk)


def label(
    project: Annotated[Path, typer.Argument(help="A project, or the folder of its images.")],
    port: Port = None,
    no_browser: NoBrowser = False,
    host: HostName = "127.0.0.1",
    allow_remote: Remote = False,
) -> None:
    """Open the page of a project without training, for example where  mma work  trains on another machine."""
    from mma.cli.terminal import talk
    from mma.project import open_project
    from mma.web.server import check_address, serve

    check_address(host, allow_remote)
    opened = open_project(project)
    with ExitStack() as stack:
        stack.callback(opened.close)
        stack.enter_context(opened.owner(f"mma label {project}"))
        _prepare(stack, opened, None)
        serve(opened, host, port, allow_remote=allow_remote, browser=not no_browser, say=talk)


def place_of(folder: Path, project: Path | None) -> Path:
    """Return where the project of a folder is, or will be."""
    from mma.project import find_project

    return find_project(folder) if project is None else project


def is_project(place: Path) -> bool:
    """Tell whether there is a project already."""
    return (place / "mma.toml").is_file()


def open_or_create(
    folder: Path,
    project: Path | None,
    classes: list[str],
    *,
    store: str | None = None,
    budget: int | None = None,
    overlap: int | None = None,
) -> Project:
    """Open the project of a folder, add the classes that are new; or make it."""
    from mma.cli.terminal import talk
    from mma.project import create_project, open_project, relink
    from mma.project.project import change_settings, check_class_names

    place = place_of(folder, project)
    if not is_project(place):
        return create_project(
            folder, project, classes=classes, store=store, budget=budget, overlap=overlap or 1, say=talk
        )
    if store is not None or overlap is not None:
        raise UserError(f"{printable(str(place))} is there already; --store and --overlap are for new projects.")
    names = check_class_names(classes)
    opened = open_project(place) if folder.resolve() == place.resolve() else relink(place, folder)
    if budget is not None:
        opened = change_settings(opened, budget=budget)
    known = {each.name.casefold() for each in opened.classes()}
    for name in names:
        if name.casefold() not in known:
            opened.add_class(name, "start")
    return opened


def _prepare(stack: ExitStack, project: Project, labels_from: str | None) -> None:
    """Index: to its end when labels depend on it, else behind the page."""
    from mma.cli.terminal import Progress, talk
    from mma.project.exchange.import_labels import take_labels_from
    from mma.project.worker.supervise import indexing

    bar = stack.enter_context(Progress())

    def advance(done: int, total: int) -> None:
        bar.update(done, total, lambda: f"indexed {done:,} of {total:,} new files")

    def tell(report: IndexReport) -> None:
        for line in describe_start(project, report):
            talk(line)

    if labels_from is None:
        stack.enter_context(indexing(project, tell, talk, advance))
        return
    tell(project.index(advance=advance))
    events = take_labels_from(project, labels_from)
    talk(f"took {sum(event.kind == 'label' for event in events):,} labels from {labels_from}")


def describe_start(project: Project, report: IndexReport) -> list[str]:
    """Say what an index found, and what a person should know or decide."""
    lines = [f"{report.images:,} images in {report.files:,} files, {report.new:,} of them new"]
    if report.duplicates:
        lines.append(f"files with the same bytes as another one, whose label they share: {report.duplicates:,}")
    if report.near:
        lines.append(f"images that look almost like another one: {report.near:,}")
    lines += _list_names("files that cannot be used", [f"{bad.file}: {bad.reason}" for bad in report.bad])
    lines += _list_names("files changed after they were labeled; their labels stay with the old bytes", report.changed)
    lines += _list_names("files that were labeled and are gone; their labels are kept", report.missing)
    if not project.classes():
        hints = project.hints()
        lines += [hints.question] if hints.question else []
        if hints.folders:
            names = ", ".join(hints.folders[:SHOWN])
            lines.append(f"sub-folders could be classes: {names}. To take labels from them:  --labels-from folders")
        lines += [f"{name} could hold labels. To take them:  --labels-from {name}" for name in hints.label_files]
    return lines


def _list_names(what: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = [f"  and {len(names) - SHOWN:,} more"] if len(names) > SHOWN else []
    return [f"{what}: {len(names):,}", *(f"  {name}" for name in names[:SHOWN]), *more]


app = typer.Typer(help="Labels of a project, in and out.", no_args_is_help=True)

Target = Annotated[Path, typer.Argument(metavar="PROJECT", help="A project, or the folder of its images.")]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", metavar="NAME", help="csv, imagefolder, hf-csv, hf-jsonl or label-studio. Default: by the name."
    ),
]
By = Annotated[str, typer.Option("--by", metavar="NAME", help="Who labels.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AddClasses = Annotated[bool, typer.Option("--add-classes", help="Add classes that the project does not have.")]


def ask(
    project: Target,
    n: Annotated[int, typer.Option("-n", "--number", min=1, max=100_000, help="How many images.")] = 50,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="CSV", help="The table to fill in.")] = Path("picks.csv"),
    by: By = "files",
) -> None:
    """Write the images that are best labeled next: a table to fill in, a contact sheet, and tasks for Label Studio."""
    from mma.project import open_project
    from mma.project.exchange.formats import ask as write_questions

    with closing(open_project(project)) as opened:
        written = write_questions(opened, n, out, by)
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
    from mma.project.exchange.import_labels import TakeIn

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

    with closing(open_project(project)) as opened:
        count = opened.export_labels(path, form, copy=copy)
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
    from mma.project.exchange.import_labels import TakeIn

    _take_in(project, path, form, TakeIn(by=by, add_classes=add_classes, replace=replace))


@app.command("merge")
def merge(
    project: Target, other: Annotated[Path, typer.Argument(help="A copy of the project, labeled elsewhere.")]
) -> None:
    """Take in the labels that were given in a copy of a project. Nothing is taken in twice."""
    from mma.project import open_project

    with closing(open_project(project)) as here, closing(open_project(other)) as there:
        report = here.merge(there)
    print(f"{len(report.events):,} events are new")
    if report.conflicts:
        print(f"{len(report.conflicts):,} images were labeled otherwise here; the labels that came in count now")


def _take_in(project: Path, path: Path, form: str | None, how: object) -> None:
    from mma.project import open_project
    from mma.project.exchange.import_labels import TakeIn

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
    as_json: Json = False,
) -> None:
    """Compare the two copies of every label, and look for changed and missing images. Exit code 1: something is wrong."""
    from mma.cli.terminal import talk
    from mma.project import find_project
    from mma.project.labels.repair import doctor as examine

    findings = examine(find_project(project), rebuild=rebuild, say=talk)
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        for finding in findings:
            print(printable(("PROBLEM: " if finding.problem else "") + finding.text))
    if any(finding.problem for finding in findings):
        raise typer.Exit(1)


def work(
    project: Target,
    deep: Annotated[bool, typer.Option("--deep", help="Train a network on pixels as well, to its end.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on and wait for labels until Ctrl-C.")] = False,
) -> None:
    """Train a project without its page, for example on a machine with a better processor. Started again, it goes on."""
    from mma.cli.terminal import talk
    from mma.project import open_project
    from mma.project.project import training
    from mma.project.quality.show import first_model_words
    from mma.project.quality.status import status as read_status

    with closing(open_project(project)) as opened:
        if opened.counts().labeled == 0:
            place, root = printable(str(opened.folder)), quote_path(opened.root)
            raise UserError(f"{place} has no label yet. Label with  mma start {root}")
        with training(opened.layout.state, f"mma work {quote_path(project)}"):
            from mma.project.worker.worker import work as train_live

            opened.index(talk)
            if deep:
                from mma.project.worker.deep import train_deep

                if report := train_deep(opened, talk):
                    talk(f"deep model {report.number}: {report.uses}")
            train_live(opened, talk, until_done=not watch, deep=False)
            if not opened.models.rows():
                talk(f"no model was made. {first_model_words(read_status(opened))}")


def status(
    project: Annotated[Path, typer.Argument(metavar="PROJECT", help="A project, the folder of its images, or a run.")],
    as_json: Json = False,
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
    from mma.project.quality.show import write_page
    from mma.project.quality.status import goals_of
    from mma.project.quality.status import status as read_status

    if (project / "config.json").is_file():
        if html or target is not None or label_price is not None or point_value is not None:
            raise UserError(f"{printable(str(project))} is a run. --html, --target and prices are for projects.")
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
    from mma.project.quality.show import run_lines
    from mma.project.quality.status import run_status

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
    from mma.project.quality.show import class_rows, status_lines

    for line in status_lines(now):
        print(printable(line))
    if rows := class_rows(now):
        print()
        print_table(("class", "labels", "recall", "precision"), rows, right={"labels", "recall", "precision"})


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
    as_json: Json = False,
) -> None:
    """Would asking have helped? Label a folder again by a script, through the same project, and compare with random order."""
    from tempfile import TemporaryDirectory

    from mma.cli.terminal import talk
    from mma.project.simulate import Plan
    from mma.project.simulate import simulate as run
    from mma.project.simulation_report import as_json as plain
    from mma.project.simulation_report import result_page, write_result

    plan, found = Plan(budget, noise, every, audit), []
    with TemporaryDirectory(prefix="mma-simulate-") as scratch:
        place = out or Path(scratch)
        for one in run(folder, place, plan=plan, seeds=range(1, seeds + 1), control=control, say=talk):
            found.append(one)
            if out is not None:
                write_result(out, folder, plan, found)
    print(json.dumps(plain(found)) if as_json else result_page(folder, plan, found), end="\n" if as_json else "")


def review(
    project: Target,
    shown: Annotated[int, typer.Option("--shown", min=1, help="How many of each kind to print.")] = 10,
    as_json: Json = False,
) -> None:
    """Print which labels may be wrong, where people disagree, and which images look like no class."""
    from mma.cli.terminal import talk
    from mma.project import open_project
    from mma.project.review import find_mistakes

    with closing(open_project(project)) as opened:
        found = find_mistakes(opened, talk)
    if as_json:
        print(json.dumps(asdict(found)))
        return
    for line in describe_findings(found, shown):
        print(printable(line))


def describe_findings(found: Mistakes, shown: int) -> Iterator[str]:
    """Yield the lines to print: a heading with a number for each kind of mistake, and the first of them."""
    from mma.project.review import NEIGHBOURS

    kinds = {
        f"{len(found.suspects)} of {found.labels} labels look wrong to models that did not see them (which are right about "
        f"{found.predicted or 0.0:.0%} of all labels)": [
            f"{each.file}: labeled {each.label} by {each.by}; model says {each.likely} {each.likely_confidence:.0%}, "
            f"{each.neighbours} of {NEIGHBOURS} neighbours agree"
            for each in found.suspects
        ],
        f"{len(found.conflicts)} groups of alike images have several labels": [
            "; ".join(f"{label}: {', '.join(files)}" for label, files in group.items()) for group in found.conflicts
        ],
        f"{len(found.disagreements)} images have different answers of different people": [
            *(f"{pair}: {describe_kappa(kappa)}" for pair, kappa in found.pairs.items()),
            *found.disagreements,
        ],
        f"{len(found.self_agreement)} people were asked about images again": [
            *(f"{person}: {describe_kappa(kappa)}" for person, kappa in found.self_agreement.items()),
            *(f"{each.file}: first {each.before}, then {each.after}" for each in found.changed),
        ],
        f"{sum(doubt.cannot_tell for doubt in found.doubts)} images that people could not tell, by folder": [
            f"{doubt.folder or '.'}: {doubt.cannot_tell} of {doubt.asked} asked" for doubt in found.doubts
        ],
        f"{len(found.unknown_groups)} groups of similar images match no class: new classes?": [
            f"{len(files)} images, such as {', '.join(files[:3])}" for files in found.unknown_groups
        ],
    }
    yield from found.notes
    for heading, lines in kinds.items():
        if lines:
            yield heading
            yield from (f"  {line}" for line in lines[:shown])
            yield from [f"  and {len(lines) - shown} more"] if len(lines) > shown else []
    if not any(kinds.values()) and not found.notes:
        yield "nothing to look at again was found."


def describe_kappa(kappa: Kappa) -> str:
    """Write an agreement in words."""
    value = "not defined" if kappa.value is None else f"{kappa.value:.2f}"
    return f"{kappa.same:.0%} the same on {kappa.images} images, kappa {value}"

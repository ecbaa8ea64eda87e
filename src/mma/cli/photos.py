"""The commands of a labeling project: start, label, ask, tell, labels, doctor, work, status, simulate, review."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mma.errors import UserError
from mma.text import plural, printable, quote_path

if TYPE_CHECKING:
    from mma.project import IndexReport, Project
    from mma.project.exchange.import_labels import TakeIn
    from mma.project.quality.agreement import Kappa


SHOWN = 20  # lines of a list on the screen

Port = Annotated[
    int | None, typer.Option("--port", min=0, max=65_535, help="Default: the first free one from 8642 on.")
]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Do not open a browser; the address is printed.")]
HostName = Annotated[str, typer.Option("--host", help="Address to serve at; that of a network needs --allow-remote.")]
Remote = Annotated[bool, typer.Option("--allow-remote", help="Let other machines reach it. They need the printed key.")]
FollowLinks = Annotated[
    bool, typer.Option("--follow-links", help="Read links out of the folder, too; it is remembered.")
]
Classes = Annotated[str | None, typer.Option("--classes", metavar="NAMES", help="Classes, for example cat,dog.")]
BOXES = "Label boxes instead of photos: MegaDetector or COCO (JSON), or a folder of YOLO."
Crops = Annotated[Path | None, typer.Option("--crops", metavar="FILE", help=BOXES)]
GUESSES = "They are guesses of this source, such as gpt, and no labels."
AsGuesses = Annotated[str | None, typer.Option("--as-guesses", metavar="SOURCE", help=GUESSES)]
BESIDE = "Project folder. Default: FOLDER.mma beside FOLDER."
ProjectFolder = Annotated[Path | None, typer.Option("--project", metavar="DIR", help=BESIDE)]
LABELS_FROM = "Take labels: folders, folders:first, folders:last or a file."


def start(
    folder: Annotated[Path, typer.Argument(help="A folder of images, or a project to go on with.")],
    classes: Classes = None,
    project: ProjectFolder = None,
    budget: Annotated[int | None, typer.Option("--budget", min=1, help="How many labels you mean to give.")] = None,
    port: Port = None,
    no_browser: NoBrowser = False,
    store: Annotated[str | None, typer.Option("--store", metavar="URL", help="For a team: postgresql://...")] = None,
    overlap: Annotated[int | None, typer.Option("--overlap", min=1, max=100, help="People per image.")] = None,
    host: HostName = "127.0.0.1",
    allow_remote: Remote = False,
    labels_from: Annotated[str | None, typer.Option("--labels-from", metavar="SOURCE", help=LABELS_FROM)] = None,
    as_guesses: AsGuesses = None,
    follow_links: FollowLinks = False,
    crops: Crops = None,
    lan: Annotated[bool, typer.Option("--lan", help="Let other machines of your network open the page.")] = False,
    tls: Annotated[bool, typer.Option("--tls", help="Encrypt, with a certificate made here.")] = False,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", metavar="FILE", help="Encrypt with this one.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="The key of --tls-cert.")] = None,
) -> None:
    """Label the images of a folder in the browser, while a model learns from the labels. The same command goes on.

    Images are indexed where they are, and never changed. Ctrl-C stops; every label is on disk when the page says so.
    """
    from mma.cli.terminal import talk
    from mma.data.photos import FollowedFolder
    from mma.project import find_project
    from mma.project.exchange.import_labels import check_source
    from mma.project.guesses import check_source_name
    from mma.project.project import check_images
    from mma.project.records import project_folder
    from mma.project.worker.supervise import worker
    from mma.web.server import bind, certificate, check_address, lan_address, serve

    if lan:
        host, allow_remote = lan_address(), True
    check_address(host, allow_remote)
    if as_guesses is not None:
        check_source_name(as_guesses)
        if labels_from is None:
            raise UserError("--as-guesses goes with --labels-from, which says where the guesses are.")
    encrypt = [each for each in (tls_cert, tls_key) if each is not None]
    if len(encrypt) == 1 or not all(each.is_file() for each in encrypt):
        raise UserError("--tls-cert and --tls-key go together, and both name a file.")
    if crops is not None:
        folder = _cut(folder, crops)
    if not ((find_project(folder) if project is None else project) / "mma.toml").is_file():
        # Refuse now what would end a start after the project is made.
        project = project or _continued(folder)
        if project is None:
            check_images(FollowedFolder(folder) if follow_links else folder, project_folder(folder))
        if labels_from is not None:
            check_source(folder, labels_from)
        bind(host, port).close()
    wanted = {"store": store, "budget": budget, "overlap": overlap, "follow_links": follow_links}
    opened = open_or_create(folder, project, classes, **wanted)
    with closing(opened), opened.owner(f"mma start {folder}"), ExitStack() as stack:
        _prepare(stack, opened, labels_from, as_guesses)
        stack.enter_context(worker(opened, talk))
        pair = (tls_cert, tls_key) if tls_cert and tls_key else certificate(opened.layout.state, host) if tls else None
        serve(opened, host, port, allow_remote=allow_remote, browser=not no_browser, tls=pair, say=talk)


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
    with closing(open_project(project)) as opened, opened.owner(f"mma label {project}"), ExitStack() as stack:
        _prepare(stack, opened, None)
        serve(opened, host, port, allow_remote=allow_remote, browser=not no_browser, say=talk)


def open_or_create(folder: Path, project: Path | None, classes: str | None, **wanted: Any) -> Project:
    """Open the project of a folder, add the classes that are new; or make it, with settings of `create_project`."""
    from mma.cli.terminal import talk
    from mma.project import create_project, find_project, open_project, relink
    from mma.project.project import change_settings, check_class_names

    place = find_project(folder) if project is None else project
    names = [] if classes is None else [name.strip() for name in classes.split(",")]
    settings = {name: value for name, value in wanted.items() if value not in (None, False)}
    if not (place / "mma.toml").is_file():
        return create_project(folder, project, classes=names, **settings, say=talk)
    if "store" in settings or "overlap" in settings:
        raise UserError(f"{printable(str(place))} is there already; --store and --overlap are for new projects.")
    names = check_class_names(names)
    opened = open_project(place) if folder.resolve() == place.resolve() else relink(place, folder)
    if settings:
        opened = change_settings(opened, **settings)
    known = {each.name.casefold() for each in opened.classes()}
    for name in names:
        if name.casefold() not in known:
            opened.add_class(name, "start")
    return opened


def _continued(folder: Path) -> Path | None:
    """Return the project of a folder that was renamed or moved, if the person wants to continue it."""
    from mma.project.project import moved_project

    if (found := moved_project(folder)) is None:
        return None
    words = f"{printable(str(found))} has the photos of {printable(str(folder))}: the folder was renamed or moved."
    if sys.stdin.isatty() and sys.stderr.isatty():
        return found if typer.confirm(f"{words} Continue it?", default=True, err=True) else None
    place, new = quote_path(folder), quote_path(folder.with_name(folder.name + "-new.mma"))
    raise UserError(
        f"{words} Continue it:  mma start {place} --project {quote_path(found)}   "
        f"Or begin anew:  mma start {place} --project {new}"
    )


def _cut(photos: Path, boxes: Path) -> Path:
    """Cut boxes out of photos, and return the folder of the pieces: they are labeled like photos."""
    from mma.cli.terminal import Progress, talk
    from mma.data.boxes import cut_boxes, read_boxes
    from mma.project.project import check_images

    check_images(photos, photos.with_name(f"{photos.resolve().name}.boxes.new"))
    found = read_boxes(boxes)
    with Progress() as bar:
        words = "cut boxes out of {:,} of {:,} photos".format
        pieces = cut_boxes(photos, found, lambda done, total: bar.update(done, total, lambda: words(done, total)))
    talk(f"{pieces.boxes - len(pieces.bad):,} boxes of {pieces.photos:,} photos are in {printable(str(pieces.folder))}")
    for line in _list_names("boxes or photos that cannot be used", [f"{bad.file}: {bad.reason}" for bad in pieces.bad]):
        talk(line)
    return pieces.folder


def new(
    folder: Annotated[Path, typer.Argument(help="A folder of images.")],
    classes: Classes = None,
    project: ProjectFolder = None,
    follow_links: FollowLinks = False,
    crops: Crops = None,
) -> None:
    """Make a project without the page, or index what was added to its folder. Then:  mma ask, mma tell, mma work."""
    from mma.cli.terminal import Progress
    from mma.project import find_project

    if crops is not None:
        folder = _cut(folder, crops)
    if not ((find_project(folder) if project is None else project) / "mma.toml").is_file():
        project = project or _continued(folder)
    with closing(open_or_create(folder, project, classes, follow_links=follow_links)) as opened:
        with Progress() as bar:
            words = "indexed {:,} of {:,} new files".format
            report = opened.index(advance=lambda done, total: bar.update(done, total, lambda: words(done, total)))
        for line in describe_start(opened, report):
            print(printable(line))
        print(f"what to label next:  mma ask {quote_path(opened.folder)}")


def _prepare(stack: ExitStack, project: Project, labels_from: str | None, guesses: str | None = None) -> None:
    """Index: to its end when labels depend on it, else behind the page."""
    from mma.cli.terminal import Progress, talk
    from mma.project.exchange.import_labels import take_labels_from
    from mma.project.worker.supervise import indexing

    bar, words = stack.enter_context(Progress()), "indexed {:,} of {:,} new files".format

    def advance(done: int, total: int) -> None:
        bar.update(done, total, lambda: words(done, total))

    def tell(report: IndexReport) -> None:
        for line in describe_start(project, report):
            talk(line)

    if labels_from is None:
        stack.enter_context(indexing(project, tell, talk, advance))
        return
    tell(project.index(advance=advance))
    events = take_labels_from(project, labels_from, guesses)
    if isinstance(events, int):
        talk(f"took {events:,} guesses of {printable(guesses or '')} from {labels_from}")
    else:
        talk(f"took {sum(event.kind == 'label' for event in events):,} labels from {labels_from}")


def describe_start(project: Project, report: IndexReport) -> list[str]:
    """Say what an index found, and what a person should know or decide."""
    from mma.data.folder import NOT_FOLLOWED
    from mma.data.photos import LEADS_OUT

    lines = [f"{report.images:,} images in {report.files:,} files, {report.new:,} of them new"]
    if report.duplicates:
        lines.append(f"files with the same bytes as another one, whose label they share: {report.duplicates:,}")
    if report.near:
        lines.append(f"images that look almost like another one: {report.near:,}")
    lines += _list_names("files that cannot be used", [f"{bad.file}: {bad.reason}" for bad in report.bad])
    if any(bad.reason in (LEADS_OUT, NOT_FOLLOWED) for bad in report.bad):
        lines.append(f"To read those links, too:  mma start {quote_path(project.root)} --follow-links")
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
FORMATS = "csv, imagefolder, hf-csv, hf-jsonl or label-studio. Default: by the name."
Format = Annotated[str | None, typer.Option("--format", metavar="NAME", help=FORMATS)]
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
    _write_questions(project, n, out, by, measure=False)


def audit(
    project: Target,
    n: Annotated[int, typer.Option("-n", "--number", min=1, max=100_000, help="How many images.")] = 30,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="CSV", help="The table to fill in.")] = Path("audit.csv"),
    by: By = "files",
) -> None:
    """Measure now: ask about images drawn at random, and say how sharply that tells the accuracy."""
    _write_questions(project, n, out, by, measure=True)


def _write_questions(project: Path, n: int, out: Path, by: str, *, measure: bool) -> None:
    """Write questions as files, and say what is known and what comes next."""
    from mma.cli.terminal import talk
    from mma.project import open_project
    from mma.project.exchange.formats import ask as write
    from mma.project.quality.status import measure_words

    with closing(open_project(project)) as opened:
        images, progress = opened.counts().images, opened.progress()
        if not images or any(each[0] == "index" and each.done < each.total for each in progress):
            talk(f"{images:,} images are indexed so far. For all of them:  mma new {quote_path(opened.root)}")
        if not measure and not opened.models.rows():  # without the page nothing trains by itself
            command = f"mma work {quote_path(opened.folder)}"
            talk(f"no model yet: images are asked about in random order. After some labels:  {command}")
        written = write(opened, n, out, by, measure=measure)
        if measure:
            print(measure_words(opened, n))
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
    copy: Annotated[bool, typer.Option("--copy", help="imagefolder: copy the images, do not link to them.")] = False,
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
    as_guesses: AsGuesses = None,
) -> None:
    """Take labels in: all of them, or none and a list of what is wrong, with line numbers."""
    from mma.project import open_project
    from mma.project.exchange.import_labels import TakeIn, import_guesses

    if as_guesses is None:
        _take_in(project, path, form, TakeIn(by=by, add_classes=add_classes, replace=replace))
        return
    with closing(open_project(project)) as opened:
        count = import_guesses(opened, path, as_guesses, form)
    print(
        f"{plural(count, 'photo')} {'has' if count == 1 else 'have'} a guess by {printable(as_guesses)}. "
        "Labels will show how good it is:  mma status"
    )


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


def _take_in(project: Path, path: Path, form: str | None, how: TakeIn) -> None:
    from mma.cli.terminal import talk
    from mma.project import open_project

    with closing(open_project(project)) as opened:
        events = opened.import_labels(path, form, how)
        left = opened.counts()
    answers = sum(event.image is not None for event in events)
    print(f"{answers:,} answers are new; {left.labeled:,} images are labeled, {left.left:,} are left")
    if answers:
        talk(f"Train on them, unless a page is open, which does it by itself:  mma work {quote_path(project)}")


def find(
    project: Target,
    name: Annotated[str, typer.Argument(metavar="CLASS", help="The class to find all photos of.")],
    yes: Annotated[list[str] | None, typer.Option("--yes", metavar="FILE", help="This one of the batch is.")] = None,
    none: Annotated[bool, typer.Option("--none", help="None of the batch is.")] = False,
    by: By = "files",
    as_json: Json = False,
) -> None:
    """Search the photos of one class until so many are found that a share of them is certain. The page does it, too."""
    from mma.project import open_project
    from mma.project.find import FindRequest, class_called, search

    with closing(open_project(project)) as opened:
        klass = class_called(opened, name)
        state = search(opened, FindRequest(by=by, class_id=klass.id))
        if yes or none:
            images = {item.name: item.image for item in state.items}
            if unknown := [file for file in yes or () if file not in images]:
                raise UserError(f"{printable(unknown[0])} is not in the last batch. Type the names as they are listed.")
            if yes and none:
                raise UserError("--yes and --none exclude each other.")
            chosen = [images[file] for file in yes or ()]
            state = search(opened, FindRequest(by=by, class_id=klass.id, batch=state.batch, yes=chosen))
    if as_json:
        print(json.dumps({**state._asdict(), "items": [item._asdict() for item in state.items]}))
        return
    print(printable(state.words))
    print(printable(state.why))
    for item in state.items:
        print(f"  {printable(item.name)}  {item.likely:.0%}")
    if state.items:
        command = f"mma find {quote_path(project)} {quote(klass.name)}"
        print(f"look at these {len(state.items)}, then:  {command} --yes FILE --yes FILE   or:  {command} --none")


def doctor(
    project: Target,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make the database again; the old one is kept.")] = False,
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
    from mma.project.quality.status import status as read_status

    with closing(open_project(project)) as opened:
        if opened.counts().labeled == 0:
            place, root = printable(str(opened.folder)), quote_path(opened.root)
            raise UserError(f"{place} has no label yet. Label with  mma start {root}")
        with training(opened.layout.state, f"mma work {quote_path(project)}"):
            from mma.project.worker.deep import train_deep
            from mma.project.worker.worker import work as train_live

            opened.index(talk)
            if deep and (report := train_deep(opened, talk)):
                talk(f"deep model {report.number}: {report.uses}")
            train_live(opened, talk, until_done=not watch, deep=False)
            if not opened.models.rows():
                talk(f"no model was made. {read_status(opened).verdict.why}")


def status(
    project: Annotated[Path, typer.Argument(metavar="PROJECT", help="A project, the folder of its images, or a run.")],
    as_json: Json = False,
    html: Annotated[bool, typer.Option("--html", help="Write report.html and print where it is.")] = False,
    target: Annotated[float | None, typer.Option("--target", help="The goal: percent of all photos right.")] = None,
    of_class: Annotated[str | None, typer.Option("--class", metavar="NAME", help="Or of this class found.")] = None,
    label_price: Annotated[float | None, typer.Option("--label-price", min=0, help="Money for one label.")] = None,
    point_value: Annotated[float | None, typer.Option("--point-value", min=0, help="Money for a point more.")] = None,
) -> None:
    """Print how good the model of a project or a run is, what more labels would bring, and whether to stop."""
    from mma.cli.terminal import print_table
    from mma.project import open_project
    from mma.project.quality.goal import check_goal
    from mma.project.quality.status import class_rows, goals_of, run_lines, run_status, status_lines, write_page
    from mma.project.quality.status import status as read_status

    if (project / "config.json").is_file():
        if html or of_class or any(value is not None for value in (target, label_price, point_value)):
            raise UserError(f"{printable(str(project))} is a run. --html, goals and prices are for projects.")
        run = run_status(project)
        if as_json:
            print(json.dumps(asdict(run)))
            return
        for line in run_lines(run):
            print(printable(line))
        if run.tested is not None:
            print()
            recalls = [[name, f"{value:.1f} %"] for name, value in run.tested["per_class"].items()]
            print_table(("class", "recall"), recalls, right={"recall"})
        return
    with closing(open_project(project)) as opened:
        given: dict[str, Any] = {"target": target, "label_price": label_price, "point_value": point_value}
        goals = replace(goals_of(opened), **{name: value for name, value in given.items() if value is not None})
        if target is not None or of_class is not None:
            goals = replace(goals, of_class=of_class)
            check_goal(goals.percent, of_class, [each.name for each in opened.classes() if each.merged_into is None])
        if html and not as_json:
            print(printable(str(write_page(opened, goals))))
            return
        now = read_status(opened, goals)
    if as_json:
        print(json.dumps(now.as_json()))
        return
    for line in status_lines(now):
        print(printable(line))
    if rows := class_rows(now):
        print()
        heads = ("class", "labels", "of all photos", "recall", "precision")
        print_table(heads, rows, right=set(heads[1:]))


def simulate(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Photos that are labeled: a sub-folder per class.")],
    noise: Annotated[float, typer.Option("--noise", min=0, max=0.99, help="Share of wrong answers.")] = 0.0,
    budget: Annotated[int, typer.Option("--budget", min=20, help="Labels per project.")] = 400,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Projects with asking, each with its random twin.")] = 3,
    every: Annotated[int, typer.Option("--every", min=10, help="Labels between two trainings.")] = 25,
    audit: Annotated[float, typer.Option("--audit", min=0, max=0.5, help="Share of the answers that measures.")] = 0.1,
    control: Annotated[bool, typer.Option(help="Compare with the same person labeling in random order.")] = True,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Keep projects and result there.")] = None,
    as_json: Json = False,
) -> None:
    """Would asking have helped? Label a folder again by a script, through the same project, and compare with random order."""
    from tempfile import TemporaryDirectory

    from mma.cli.terminal import talk
    from mma.project.simulate import Plan, result_page, write_result
    from mma.project.simulate import as_json as plain
    from mma.project.simulate import simulate as run

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
    from mma.project.review import NEIGHBOURS, find_mistakes

    def agreement(kappa: Kappa) -> str:
        value = "not defined" if kappa.value is None else f"{kappa.value:.2f}"
        return f"{kappa.same:.0%} the same on {kappa.images} images, kappa {value}"

    with closing(open_project(project)) as opened:
        found = find_mistakes(opened, talk)
    if as_json:
        print(json.dumps(asdict(found)))
        return
    kinds = {
        f"labels that look wrong to models that did not see them (which are right about {found.predicted or 0.0:.0%} of "
        f"all labels): {len(found.suspects)} of {found.labels}": [
            f"{each.file}: labeled {each.label} by {each.by}; model says {each.likely} {each.likely_confidence:.0%}, "
            f"{each.neighbours} of {NEIGHBOURS} neighbours agree"
            for each in found.suspects
        ],
        f"groups of alike images with several labels: {len(found.conflicts)}": [
            "; ".join(f"{label}: {', '.join(files)}" for label, files in group.items()) for group in found.conflicts
        ],
        f"images with different answers of different people: {len(found.disagreements)}": [
            *(f"{pair}: {agreement(kappa)}" for pair, kappa in found.pairs.items()),
            *found.disagreements,
        ],
        f"people who were asked about images again: {len(found.self_agreement)}": [
            *(f"{person}: {agreement(kappa)}" for person, kappa in found.self_agreement.items()),
            *(f"{each.file}: first {each.before}, then {each.after}" for each in found.changed),
        ],
        f"images that people could not tell, by folder: {sum(doubt.cannot_tell for doubt in found.doubts)}": [
            f"{doubt.folder or '.'}: {doubt.cannot_tell} of {doubt.asked} asked" for doubt in found.doubts
        ],
        f"groups of similar images that match no class (new classes?): {len(found.unknown_groups)}": [
            f"{len(files)} images, such as {', '.join(files[:3])}" for files in found.unknown_groups
        ],
        f"classes that look like two: {len(found.split)}": [
            f"{each.label}: {len(each.files)} images differ from the other {each.others}, such as {', '.join(each.files[:3])}"
            for each in found.split
        ],
    }
    said = list(found.notes)
    for heading, lines in kinds.items():
        if lines:
            said += [heading, *(f"  {line}" for line in lines[:shown])]
            said += [f"  and {len(lines) - shown} more"] if len(lines) > shown else []
    for line in said or ["nothing to look at again was found."]:
        print(printable(line))

"""`mma start` and `mma label`: make or go on with a labeling project, and open its page."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mma.text import printable

if TYPE_CHECKING:
    from mma.project import IndexReport, Project

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
    from mma.project.background import worker
    from mma.project.layout import project_folder
    from mma.web.server import check_address

    check_address(host, allow_remote)
    if not is_project(place_of(folder, project)):
        check_beginning(folder, project or project_folder(folder), labels_from, host, port)
    opened = open_or_create(folder, project, _names(classes), store=store, budget=budget, overlap=overlap)
    with ExitStack() as stack:
        stack.callback(opened.close)
        stack.enter_context(opened.owner(f"mma start {folder}"))
        _prepare(stack, opened, labels_from)
        stack.enter_context(worker(opened, talk))
        _serve(opened, host, port, browser=not no_browser, allow_remote=allow_remote)


def label(
    project: Annotated[Path, typer.Argument(help="A project, or the folder of its images.")],
    port: Port = None,
    no_browser: NoBrowser = False,
    host: HostName = "127.0.0.1",
    allow_remote: Remote = False,
) -> None:
    """Open the page of a project without training, for example where  mma work  trains on another machine."""
    from mma.project import open_project
    from mma.web.server import check_address

    check_address(host, allow_remote)
    opened = open_project(project)
    with ExitStack() as stack:
        stack.callback(opened.close)
        stack.enter_context(opened.owner(f"mma label {project}"))
        _prepare(stack, opened, None)
        _serve(opened, host, port, browser=not no_browser, allow_remote=allow_remote)


def _names(classes: str | None) -> list[str]:
    return [] if classes is None else [name.strip() for name in classes.split(",")]


def place_of(folder: Path, project: Path | None) -> Path:
    """Return where the project of a folder is, or will be."""
    from mma.project import find_project

    return find_project(folder) if project is None else project


def is_project(place: Path) -> bool:
    """Tell whether there is a project already."""
    return (place / "mma.toml").is_file()


def check_beginning(folder: Path, place: Path, labels_from: str | None, host: str, port: int | None) -> None:
    """Refuse what would end a start after the project is made: a bad folder, labels that cannot be used, a taken port."""
    from mma.project.begin import check_images
    from mma.project.labels_from import check_source
    from mma.web.server import bind

    check_images(folder, place)
    if labels_from is not None:
        check_source(folder, labels_from)
    bind(host, port).close()


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
    from mma.project.begin import change_settings, check_class_names

    place = place_of(folder, project)
    if not is_project(place):
        return create_project(
            folder, project, classes=classes, store=store, budget=budget, overlap=overlap or 1, say=talk
        )
    if store is not None or overlap is not None:
        raise ValueError(f"{printable(str(place))} is there already; --store and --overlap are for new projects.")
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
    from mma.project.background import indexing
    from mma.project.labels_from import take_labels_from

    bar = stack.enter_context(Progress())

    def advance(done: int, total: int) -> None:
        bar.update(done, total, lambda: f"indexed {done:,} of {total:,} new files")

    def tell(report: IndexReport) -> None:
        for line in describe(project, report):
            talk(line)

    if labels_from is None:
        stack.enter_context(indexing(project, tell, talk, advance))
        return
    tell(project.index(advance=advance))
    events = take_labels_from(project, labels_from)
    talk(f"took {sum(event.kind == 'label' for event in events):,} labels from {labels_from}")


def _serve(project: Project, host: str, port: int | None, *, browser: bool, allow_remote: bool) -> None:
    from mma.cli.terminal import talk
    from mma.web.server import serve

    serve(project, host, port, allow_remote=allow_remote, browser=browser, say=talk)


def describe(project: Project, report: IndexReport) -> list[str]:
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
        lines += _class_hints(project)
    return lines


def _list_names(what: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = [f"  and {len(names) - SHOWN:,} more"] if len(names) > SHOWN else []
    return [f"{what}: {len(names):,}", *(f"  {name}" for name in names[:SHOWN]), *more]


def _class_hints(project: Project) -> list[str]:
    hints = project.hints()
    lines = [hints.question] if hints.question else []
    if hints.folders:
        names = ", ".join(hints.folders[:SHOWN])
        lines.append(f"sub-folders could be classes: {names}. To take labels from them:  --labels-from folders")
    lines += [f"{name} could hold labels. To take them:  --labels-from {name}" for name in hints.label_files]
    return lines

"""The routes of the page. A handler parses, calls the project and answers; the guard around them has checked the rest."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import resources
from typing import Any

import anyio
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from mma.machine import cores
from mma.project import Answer, Klass, Project
from mma.project.deep_process import ask_for_deep
from mma.web.alike import grid_items
from mma.web.commands import Command
from mma.web.history import labeled_images, recent_answers
from mma.web.images import SIZES, Pictures
from mma.web.news import Newsroom, classes_for_page, counts_for_page, read_news
from mma.web.requests import (
    AddClass,
    ClassChange,
    GridRequest,
    MergeClass,
    NextRequest,
    PageRequest,
    RenameClass,
    SetKey,
)
from mma.web.results import results
from mma.web.review import Review
from mma.web.setup import Setup

STATIC = resources.files("mma.web") / "static"
MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
IMAGE_ID = re.compile(r"[0-9a-f]{64}")
KEPT_BY_BROWSER = {"Cache-Control": "private, max-age=86400, immutable"}  # an id is the content
MAX_STREAMS = 32


def project_of(request: Request) -> Project:
    """Return the project that is served."""
    found: Project = request.app.state.project
    return found


def static_files() -> dict[str, tuple[bytes, str]]:
    """Return the files of the page by name. They are read once: no request names a path."""
    found = [each for each in STATIC.iterdir() if each.is_file()]
    kinds = {each.name: MEDIA_TYPES["." + each.name.rsplit(".", 1)[1]] for each in found}
    return {each.name: (each.read_bytes(), kinds[each.name]) for each in found}


async def get_page(request: Request) -> Response:
    """Send the page."""
    return _file(request, "index.html")


async def get_static(request: Request) -> Response:
    """Send a file that belongs to the page."""
    return _file(request, request.path_params["name"])


def _file(request: Request, name: str) -> Response:
    if name not in request.app.state.files:
        raise HTTPException(404, "there is no such file")
    data, media = request.app.state.files[name]
    return Response(data, media_type=media, headers={"Cache-Control": "no-cache"})


async def get_state(request: Request) -> Response:
    """Send what the page needs to begin."""
    project = project_of(request)
    news = await run_in_threadpool(read_news, project)
    about = {"id": project.settings.id, "name": project.root.name, "by": request.app.state.by}
    return JSONResponse({**news, "project": about})


async def get_events(request: Request) -> Response:
    """Send news as they come."""
    room: Newsroom = request.app.state.newsroom
    if room.streams >= MAX_STREAMS:
        raise HTTPException(503, "too many pages listen already")
    return StreamingResponse(room.stream(request.app.state.ending), media_type="text/event-stream")


async def get_image(request: Request) -> Response:
    """Send a picture of an image."""
    image, size, pictures = request.path_params["image"], request.path_params["size"], request.app.state.pictures
    if not IMAGE_ID.fullmatch(image) or size not in SIZES:
        raise HTTPException(404, "there is no such image")
    try:
        picture = await anyio.to_thread.run_sync(pictures.picture, image, size, limiter=request.app.state.decoders)
    except ValueError as error:
        return JSONResponse({"error": str(error)}, 410)
    keep = BackgroundTask(pictures.store, image, picture) if size == "thumb" else None
    return Response(picture.data, media_type=picture.media, headers=KEPT_BY_BROWSER, background=keep)


async def get_recent(request: Request) -> Response:
    """Send a person's last answers."""
    answers = await run_in_threadpool(recent_answers, project_of(request), request.query_params.get("by", ""))
    return JSONResponse({"answers": answers})


async def get_labels(request: Request) -> Response:
    """Send the labels of a class."""
    class_id = request.query_params.get("class_id", "")
    if not class_id.isdecimal() or len(class_id) > 9:
        raise HTTPException(404, "there is no such class")
    return JSONResponse(await run_in_threadpool(labeled_images, project_of(request), int(class_id)))


async def get_sheet(request: Request) -> Response:
    """Send some images that differ from each other, and class names that lie at hand."""
    setup: Setup = request.app.state.setup
    images, offers = await run_in_threadpool(setup.sheet), await run_in_threadpool(lambda: setup.offers)
    return JSONResponse({"images": images, "offers": offers})


async def get_results(request: Request) -> Response:
    """Send how good the model is and what more labels would bring."""
    return JSONResponse(await run_in_threadpool(results, project_of(request)))


async def post_deep(request: Request) -> Response:
    """Ask the worker to train on pixels."""
    asked = PageRequest.model_validate_json(await request.body())
    await run_in_threadpool(ask_for_deep, project_of(request), asked.by)
    return JSONResponse({"asked": True})


async def post_review(request: Request) -> Response:
    """Look for labels that may be wrong. It takes seconds and changes nothing; as a POST only our page can ask for it."""
    PageRequest.model_validate_json(await request.body())
    return JSONResponse(await run_in_threadpool(request.app.state.review.likely_mistakes))


async def post_export(request: Request) -> Response:
    """Export the model in use into the project's folder. It takes a while; labeling goes on."""
    PageRequest.model_validate_json(await request.body())
    return JSONResponse(await run_in_threadpool(request.app.state.export.run))


async def post_next(request: Request) -> Response:
    """Lease images to the person."""
    wanted = NextRequest.model_validate_json(await request.body())
    items = await run_in_threadpool(project_of(request).next, wanted.by, wanted.n, wanted.holding)
    return JSONResponse({"items": [item._asdict() for item in items]})


async def post_answer(request: Request) -> Response:
    """Store an answer. The page says "saved" when it has this reply."""
    answer = Answer.model_validate_json(await request.body())
    project = project_of(request)
    events = await run_in_threadpool(project.answer, answer)
    counts = await run_in_threadpool(counts_for_page, project)
    return JSONResponse({"saved": str(answer.id), "seq": events[-1].seq, "counts": counts})


async def post_grid(request: Request) -> Response:
    """Lease images that look alike."""
    wanted = GridRequest.model_validate_json(await request.body())
    items = await run_in_threadpool(
        grid_items, project_of(request), wanted.by, wanted.class_id, wanted.n, wanted.holding
    )
    return JSONResponse({"items": items})


async def post_class(request: Request) -> Response:
    """Make, rename or merge a class, or give it a key."""
    change = ClassChange.validate_json(await request.body())
    project = project_of(request)
    made = await run_in_threadpool(change_class, project, change)
    return JSONResponse({"made": made.id, **await run_in_threadpool(classes_for_page, project)})


def change_class(project: Project, change: AddClass | RenameClass | MergeClass | SetKey) -> Klass:
    """Carry out a change of a class."""
    if isinstance(change, AddClass):
        return project.add_class(change.name, change.by)
    if isinstance(change, RenameClass):
        return project.rename_class(change.id, change.name, change.by)
    if isinstance(change, MergeClass):
        return project.merge_class(change.id, change.into, change.by)
    return project.set_key(change.id, change.key, change.by)


async def say_invalid(request: Request, error: Exception) -> Response:
    """Answer a body that is not what it should be; what was sent is not repeated."""
    assert isinstance(error, ValidationError)
    places = {".".join(str(part) for part in each["loc"]) or "body" for each in error.errors(include_input=False)}
    return JSONResponse({"error": f"not understood: {', '.join(sorted(places))}"}, 422)


async def say_refused(request: Request, error: Exception) -> Response:
    """Answer what the project refuses: 400 when it always will, 503 when a disk or database failed just now."""
    return JSONResponse({"error": str(error)}, 400 if error.__cause__ is None else 503)


async def say_http(request: Request, error: Exception) -> Response:
    """Answer an address or method that does not exist."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)


async def say_failed(request: Request, error: Exception) -> Response:
    """Answer after a mistake of ours; the terminal shows it."""
    return JSONResponse({"error": "the server made a mistake; its terminal says more"}, 500)


ROUTES = [
    Route("/", get_page),
    Route("/static/{name}", get_static),
    Route("/images/{image}/{size}", get_image),
    Route("/api/state", get_state),
    Route("/api/events", get_events),
    Route("/api/recent", get_recent),
    Route("/api/labels", get_labels),
    Route("/api/sheet", get_sheet),
    Route("/api/results", get_results),
    Route("/api/next", post_next, methods=["POST"]),
    Route("/api/answers", post_answer, methods=["POST"]),
    Route("/api/grid", post_grid, methods=["POST"]),
    Route("/api/classes", post_class, methods=["POST"]),
    Route("/api/deep", post_deep, methods=["POST"]),
    Route("/api/review", post_review, methods=["POST"]),
    Route("/api/export", post_export, methods=["POST"]),
]
HANDLERS: dict[Any, Callable[[Request, Exception], Any]] = {
    ValidationError: say_invalid,
    ValueError: say_refused,
    HTTPException: say_http,
    Exception: say_failed,
}


def make_app(project: Project, by: str) -> Starlette:
    """Return the page's application for a project. It must stand behind a Guard."""
    app = Starlette(routes=ROUTES, exception_handlers=HANDLERS)
    app.state.project, app.state.by, app.state.files = project, by, static_files()
    app.state.pictures, app.state.newsroom, app.state.setup = Pictures(project), Newsroom(project), Setup(project)
    app.state.review, app.state.export = Review(project), Command("export", project, "the model was not exported")
    app.state.decoders = anyio.CapacityLimiter(cores())  # decoding never takes the threads that store labels
    app.state.ending = bool  # False until the server stops
    return app

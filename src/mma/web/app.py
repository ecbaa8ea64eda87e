"""The routes of the page. Each parses, asks the project and answers; the guard around them has checked the rest."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import resources
from typing import Annotated, Any, Literal

import anyio
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from mma.errors import TemporarilyUnavailable, UserError
from mma.project import Answer, Project
from mma.project.find import Browser, BrowseRequest, FindRequest, search
from mma.project.quality.status import measure_words, set_goal
from mma.project.records import Key, Klass, Person
from mma.project.worker.supervise import ask_for_deep
from mma.web import views
from mma.web.security import Invitations, Visitor, refuse
from mma.web.views import Json

STATIC = resources.files("mma.web") / "static"
MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
IMAGE_ID = re.compile(r"[0-9a-f]{64}")
KEPT_BY_BROWSER = {"Cache-Control": "private, max-age=86400, immutable"}  # an id is the content
MAX_STREAMS = 32
MAX_HELD = 1_000
DISPUTED = 200  # disagreements sent at once
HERE_SECONDS = 60.0  # after which a browser is no longer taken to be open


# What the page may send. Ids and names only: no path, address or pattern.


class PageRequest(BaseModel):
    """Something a page sends; a field nobody knows is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    by: Person


class NextRequest(PageRequest):
    """Ask for images besides those the page holds."""

    n: int = Field(ge=0, le=32)
    holding: list[Key] = Field(default_factory=list, max_length=MAX_HELD)


class MeasureRequest(PageRequest):
    """Ask what photos drawn at random in a row would tell; `start` leases them, to be answered first."""

    n: int = Field(ge=1, le=200)
    start: bool = False


class GridRequest(NextRequest):
    """Ask for images that look like a class, or like each other, besides those whose answers are on their way."""

    n: int = Field(ge=1, le=48)
    class_id: int | None


class HeatRequest(PageRequest):
    """Ask where the model looks in photos: the one on the screen first, then those to come."""

    images: list[Key] = Field(min_length=1, max_length=9)


class TryRequest(PageRequest):
    """A picture to classify, in base64; the page makes it small."""

    picture: str = Field(max_length=250_000)


class GoalRequest(PageRequest):
    """Set what the model is to reach: a share in percent, of all photos or of those of a class."""

    target: float | None
    class_id: int | None = None


class ModelRequest(PageRequest):
    """Choose which model serves."""

    use: Literal["better", "live", "deep"]


class HereRequest(PageRequest):
    """Say who sits at which browser."""

    browser: str = Field(pattern="^[0-9a-f-]{36}$")


class Invite(PageRequest):
    """Make an invitation for a person."""

    do: Literal["make"]
    name: Person


class Withdraw(PageRequest):
    """Withdraw an invitation."""

    do: Literal["revoke"]
    id: str = Field(pattern="^[0-9a-f]{16}$")


class ClassChange(PageRequest):
    """Make a class, rename it, merge it into another (null takes that back), give it a key (null: none), or delete it."""

    do: Literal["add", "rename", "merge", "key", "delete"]
    id: int = -1  # no class has it
    name: str = Field(default="", max_length=1_000)
    into: int | None = None
    key: str | None = None


@dataclass
class Page:
    """What is served: a project, and what is kept in memory about it."""

    project: Project
    by: str  # who answers unless the page says another name; empty: the page asks
    invitations: Invitations
    ending: Callable[[], bool] = bool  # False until the server stops
    files: dict[str, tuple[bytes, str]] = field(default_factory=dict)  # read once: no request names a path

    def __post_init__(self) -> None:
        found = [each for each in STATIC.iterdir() if each.is_file()]
        self.files = {each.name: (each.read_bytes(), MEDIA_TYPES[each.name.rsplit(".", 1)[1]]) for each in found}
        self.here: dict[str, dict[str, float]] = {}  # person -> browser -> when it was last seen

        def ending() -> bool:
            return self.ending()

        project = self.project
        self.pictures, self.newsroom, self.setup = (
            views.Pictures(project),
            views.Newsroom(project),
            views.Setup(project),
        )
        self.browser, self.heat = Browser(project, ending), views.Heat(project, ending)
        self.review = views.Review(project, ending)
        self.export = views.mma_command("export", project, "the model was not exported", ending)
        self.predict = views.mma_command("predict", project, "the picture was not classified", ending)
        self.decoders = anyio.CapacityLimiter(views.DECODERS)  # decoding never takes the threads that store labels


class NotUnderstood(UserError):
    """A request that is not what it should be."""


def parse(kind: Any, data: bytes | str, *, json: bool = True) -> Any:
    """Return what a page sent as the type it must have. What was sent wrongly is not repeated."""
    adapter = TypeAdapter(kind)
    try:
        return adapter.validate_json(data) if json else adapter.validate_python(data)
    except ValidationError as error:
        found = error.errors(include_input=False)
        ours = [each["msg"].removeprefix("Value error, ") for each in found if each["type"] == "value_error"]
        places = {".".join(str(part) for part in each["loc"]) or "body" for each in found}
        raise NotUnderstood(" ".join(ours) or f"not understood: {', '.join(sorted(places))}") from error


# Answers that take more than a line. Each gets the page, what was asked (the query, or the parsed body), and who asks.


def begin(page: Page, query: Any, visitor: Visitor) -> Json:
    """What the page needs to begin."""
    project, by = page.project, visitor.name or page.by
    role = "annotator" if visitor.invitation else "owner"
    about = {"id": project.settings.id, "name": project.root.name, "by": by, "role": role}
    return {**views.read_news(project), "project": {**about, "overlap": project.settings.overlap}}


def disagreements(page: Page, query: Any, visitor: Visitor) -> Json:
    """Images that people answered differently; an invited person gets those they have not answered."""
    found = page.project.disagreements(visitor.name)
    return {"images": [{**each._asdict(), "images": [each.image], "id": each.event} for each in found[:DISPUTED]]}


def labels_of_class(page: Page, query: Any, visitor: Visitor) -> Json:
    """The labels of a class."""
    class_id = query.get("class_id", "")
    if not class_id.isdecimal() or len(class_id) > 9:
        raise HTTPException(404, "there is no such class")
    return views.labeled_images(page.project, int(class_id))


def note_here(page: Page, asked: HereRequest, visitor: Visitor) -> Json:
    """Whether another browser has the same name."""
    now, seen = time.monotonic(), page.here.setdefault(asked.by.casefold(), {})
    seen[asked.browser] = now
    return {"twice": sum(now - at < HERE_SECONDS for at in list(seen.values())) > 1}


def change_invitations(page: Page, change: Invite | Withdraw, visitor: Visitor) -> Json:
    """The token of an invitation, which is sent this once; None for one that is withdrawn."""
    if isinstance(change, Withdraw):
        page.invitations.revoke(change.id)
        return {"token": None}
    return {"token": page.invitations.make(change.name, datetime.now(UTC).isoformat(timespec="seconds"))}


def measure(page: Page, wanted: MeasureRequest, visitor: Visitor) -> Json:
    """What more audit labels would tell; their images are leased when asked to."""
    if wanted.start:
        page.project.measure(wanted.by, wanted.n)
    return {"left": page.project.audit_left(), "words": measure_words(page.project, wanted.n)}


def store_answer(page: Page, answer: Answer, visitor: Visitor) -> Json:
    """That an answer is stored. The page says "saved" when it has this reply."""
    if visitor.invitation:  # what others answered is theirs, unless it is in dispute
        if answer.source == "review":
            open_ones = {each.image for each in page.project.disagreements(answer.by)}
            if answer.kind != "undo" and not set(answer.images) <= open_ones:
                raise UserError("somebody has decided about this image already, or you answered it yourself.")
        if answer.kind == "undo" and answer.supersedes and not page.project.gave(answer.by, str(answer.supersedes)):
            raise UserError("that is another person's answer. Only the owner takes it back.")
    events = page.project.answer(answer)
    return {"saved": str(answer.id), "seq": events[-1].seq, "counts": views.counts_for_page(page.project)}


def grid(page: Page, wanted: GridRequest, visitor: Visitor) -> Json:
    """Images that look alike, leased."""
    images, alike, guessed = page.project.grid(wanted.by, wanted.class_id, wanted.n, wanted.holding)
    return {"items": [{"image": each.id, "name": each.name} for each in images], "alike": alike, "guessed": guessed}


def change_class(page: Page, change: ClassChange, visitor: Visitor) -> Json:
    """The classes after one was made, renamed, merged, deleted or given a key."""
    project, by = page.project, change.by
    changes: dict[str, Callable[[], Klass | None]] = {
        "add": lambda: project.add_class(change.name, by),
        "rename": lambda: project.rename_class(change.id, change.name, by),
        "merge": lambda: project.merge_class(change.id, change.into, by),
        "key": lambda: project.set_key(change.id, change.key, by),
        "delete": lambda: project.delete_class(change.id, by),
    }
    made = changes[change.do]()
    return {"made": made and made.id, **views.classes_for_page(project), "counts": views.counts_for_page(project)}


def change_goal(page: Page, asked: GoalRequest, visitor: Visitor) -> Json:
    """How the project stands against a new goal; without a target there is none."""
    set_goal(page.project, asked.target, asked.class_id)
    return views.results(page.project)


def choose_model(page: Page, asked: ModelRequest, visitor: Visitor) -> Json:
    """How the project stands; the worker makes the next model by this choice."""
    page.project.wish(use_model=asked.use)
    return views.results(page.project)


def train_deep(page: Page, asked: PageRequest, visitor: Visitor) -> Json:
    """That a training on pixels is asked for."""
    ask_for_deep(page.project, asked.by)
    return {"asked": True}


def find(page: Page, asked: FindRequest, visitor: Visitor) -> Json:
    """The next batch of a search, after the answer to the last one is taken."""
    state = search(page.project, asked)
    items = [item._asdict() for item in state.items]
    return {**state._asdict(), "items": items, "counts": views.counts_for_page(page.project)}


Handle = Callable[[Page, Any, Visitor], Json]
READS: dict[str, Handle] = {
    "/api/state": begin,
    "/api/recent": lambda page, query, who: {
        "answers": views.recent_answers(page.project, who.name or parse(Person, query.get("by", ""), json=False))
    },
    "/api/labels": labels_of_class,
    "/api/sheet": lambda page, query, who: {"images": page.setup.sheet(), "offers": page.setup.offers},
    "/api/results": lambda page, query, who: views.results(page.project),
    "/api/map": lambda page, query, who: page.browser.map(),
    "/api/people": lambda page, query, who: {"people": [each._asdict() for each in page.project.people()]},
    "/api/disagreements": disagreements,
    "/api/invitations": lambda page, query, who: {  # tokens are not kept, and their hashes stay here
        "invitations": [each._replace(digest="")._asdict() for each in page.invitations.all]
    },
}
SENDS: dict[str, tuple[Any, Handle]] = {
    "/api/browse": (BrowseRequest, lambda page, wanted, who: page.browser.page(wanted)),
    "/api/find": (FindRequest, find),
    "/api/heat": (HeatRequest, lambda page, wanted, who: page.heat.maps(wanted.images)),
    "/api/try": (TryRequest, lambda page, asked, who: views.try_photo(page.predict, asked.picture)),
    "/api/here": (HereRequest, note_here),
    "/api/invite": (Annotated[Invite | Withdraw, Field(discriminator="do")], change_invitations),
    "/api/next": (
        NextRequest,
        lambda page, wanted, who: {
            "items": [item._asdict() for item in page.project.next(wanted.by, wanted.n, wanted.holding)]
        },
    ),
    "/api/measure": (MeasureRequest, measure),
    "/api/answers": (Answer, store_answer),
    "/api/grid": (GridRequest, grid),
    "/api/classes": (ClassChange, change_class),
    "/api/goal": (GoalRequest, change_goal),
    "/api/model": (ModelRequest, choose_model),
    "/api/deep": (PageRequest, train_deep),
    # These take seconds or minutes, and change no label; as a POST only our page can ask for them.
    "/api/review": (PageRequest, lambda page, asked, who: page.review.likely_mistakes()),
    "/api/export": (PageRequest, lambda page, asked, who: page.export.run()),
}


def answering(handle: Handle, kind: Any = None) -> Callable[[Request], Any]:
    """Make an endpoint: it parses the body, if there is one, and answers from a thread of its own."""

    async def endpoint(request: Request) -> Response:
        asked: Any = request.query_params if kind is None else parse(kind, await request.body())
        visitor: Visitor = request.scope["mma.visitor"]
        if visitor.name and kind is not None and asked.by != visitor.name:
            raise HTTPException(403, f"your invitation is for {visitor.name}, and this is by somebody else")
        return JSONResponse(await run_in_threadpool(handle, request.app.state.page, asked, visitor))

    return endpoint


# What is no JSON: files of the page, news as they come, pictures, and the zip.


async def get_file(request: Request) -> Response:
    """Send the page, or a file that belongs to it."""
    files = request.app.state.page.files
    name = request.path_params.get("name", "index.html")
    if name not in files:
        raise HTTPException(404, "there is no such file")
    data, media = files[name]
    return Response(data, media_type=media, headers={"Cache-Control": "no-cache"})


async def get_events(request: Request) -> Response:
    """Send news as they come, until the server stops or the invitation is withdrawn."""
    page: Page = request.app.state.page
    if page.newsroom.streams >= MAX_STREAMS:
        raise HTTPException(503, "too many pages listen already")
    invited = request.scope["mma.visitor"].invitation

    def ending() -> bool:
        return page.ending() or any(invited and each.id == invited.id and each.revoked for each in page.invitations.all)

    return StreamingResponse(page.newsroom.stream(ending), media_type="text/event-stream")


async def get_image(request: Request) -> Response:
    """Send a picture of an image."""
    page: Page = request.app.state.page
    image, size = request.path_params["image"], request.path_params["size"]
    if not IMAGE_ID.fullmatch(image) or size not in views.SIZES:
        raise HTTPException(404, "there is no such image")
    try:
        picture = await anyio.to_thread.run_sync(page.pictures.picture, image, size, limiter=page.decoders)
    except TemporarilyUnavailable:
        raise
    except UserError as error:
        return refuse(410, str(error))
    keep = BackgroundTask(page.pictures.store, image, picture) if size == "thumb" else None
    return Response(picture.data, media_type=picture.media, headers=KEPT_BY_BROWSER, background=keep)


async def get_download(request: Request) -> Response:
    """Send the newest exported model and the labels as a zip, as it is made."""
    page: Page = request.app.state.page
    files = await run_in_threadpool(views.files_to_take, page.project)
    if not files:
        raise HTTPException(404, "there is nothing to download yet. Label some photos first")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", page.project.root.name).strip("-.") or "photos"
    headers = {"Content-Disposition": f'attachment; filename="{name}.zip"'}
    return StreamingResponse(views.zipped(files), media_type="application/zip", headers=headers)


ROUTES = [
    Route("/", get_file),
    Route("/static/{name}", get_file),
    Route("/images/{image}/{size}", get_image),
    Route("/api/events", get_events),
    Route("/api/download", get_download),
    *(Route(path, answering(handle)) for path, handle in READS.items()),
    *(Route(path, answering(handle, kind), methods=["POST"]) for path, (kind, handle) in SENDS.items()),
]


async def say_refused(request: Request, error: Exception) -> Response:
    """Answer what a person can mend. The page gives a label up after this alone, so it is signed with the project's id."""
    status = 422 if isinstance(error, NotUnderstood) else 400
    project = request.app.state.page.project.settings.id
    return JSONResponse({"error": str(error), "refused": True, "project": project}, status)


HANDLERS: dict[Any, Callable[[Request, Any], Any]] = {
    UserError: say_refused,
    TemporarilyUnavailable: lambda request, error: refuse(503, str(error)),  # a disk or a database fails
    HTTPException: lambda request, error: refuse(error.status_code, error.detail),
    Exception: lambda request, error: refuse(500, "the server made a mistake; its terminal says more"),
}


def make_app(project: Project, by: str, invitations: Invitations | None = None) -> Starlette:
    """Return the page's application for a project. It must stand behind a Guard."""
    app = Starlette(routes=ROUTES, exception_handlers=HANDLERS)
    app.state.page = Page(project, by, invitations or Invitations(project.layout.state))
    return app

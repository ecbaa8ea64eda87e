"""The routes of the page. A handler parses, calls the project and answers; the guard around them has checked the rest."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import wraps
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
from mma.project.browse import Browser, BrowseRequest
from mma.project.find import FindRequest, search
from mma.project.quality.show import measure_words
from mma.project.quality.status import set_goal
from mma.project.records import Key, Person
from mma.project.worker.supervise import ask_for_deep
from mma.web.security import Invitations, Visitor, refuse
from mma.web.tryout import files_to_take, try_photo, zipped
from mma.web.views import (
    DECODERS,
    SIZES,
    Command,
    Json,
    Newsroom,
    Pictures,
    Review,
    Setup,
    classes_for_page,
    counts_for_page,
    labeled_images,
    read_news,
    recent_answers,
    results,
)

STATIC = resources.files("mma.web") / "static"
MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
IMAGE_ID = re.compile(r"[0-9a-f]{64}")
KEPT_BY_BROWSER = {"Cache-Control": "private, max-age=86400, immutable"}  # an id is the content
MAX_STREAMS = 32
MAX_HELD = 1_000
DISPUTED = 200  # disagreements sent at once
HERE_SECONDS = 60.0  # after which a browser is no longer taken to be open
INVITED = ("id", "name", "made", "revoked")


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


class GridRequest(PageRequest):
    """Ask for images that look like a class, or like each other, besides those whose answers are on their way."""

    n: int = Field(ge=1, le=48)
    class_id: int | None
    holding: list[Key] = Field(default_factory=list, max_length=MAX_HELD)


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


class AddClass(PageRequest):
    """Make a class."""

    do: Literal["add"]
    name: str = Field(max_length=1_000)


class RenameClass(PageRequest):
    """Give a class another name."""

    do: Literal["rename"]
    id: int
    name: str = Field(max_length=1_000)


class MergeClass(PageRequest):
    """Count a class's labels for another one; null takes that back."""

    do: Literal["merge"]
    id: int
    into: int | None


class SetKey(PageRequest):
    """Give a class a key, or none."""

    do: Literal["key"]
    id: int
    key: str | None


ClassChange = Annotated[AddClass | RenameClass | MergeClass | SetKey, Field(discriminator="do")]


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
        self.pictures, self.newsroom, self.setup = Pictures(self.project), Newsroom(self.project), Setup(self.project)
        self.browser = Browser(self.project, lambda: self.ending())
        self.trying = threading.Lock()  # one picture is tried at a time
        self.review = Review(self.project, lambda: self.ending())
        self.export = Command("export", self.project, "the model was not exported", lambda: self.ending())
        self.decoders = anyio.CapacityLimiter(DECODERS)  # decoding never takes the threads that store labels


class NotUnderstood(UserError):
    """A request that is not what it should be. What was sent is not repeated."""

    def __init__(self, error: ValidationError) -> None:
        found = error.errors(include_input=False)
        ours = [each["msg"].removeprefix("Value error, ") for each in found if each["type"] == "value_error"]
        places = {".".join(str(part) for part in each["loc"]) or "body" for each in found}
        super().__init__(" ".join(ours) or f"not understood: {', '.join(sorted(places))}")


def parse(kind: Any, data: bytes | str, *, json: bool = True) -> Any:
    """Return what a page sent as the type it must have."""
    adapter = TypeAdapter(kind)
    try:
        return adapter.validate_json(data) if json else adapter.validate_python(data)
    except ValidationError as error:
        raise NotUnderstood(error) from error


def answers(
    kind: Any = None, *, takes_visitor: bool = False
) -> Callable[[Callable[..., Json]], Callable[[Request], Any]]:
    """Make a route of a function: it gets the page and the parsed body or the query, and runs in a thread of its own."""

    def decorate(handle: Callable[..., Json]) -> Callable[[Request], Any]:
        @wraps(handle)
        async def endpoint(request: Request) -> Response:
            asked: Any = request.query_params if kind is None else parse(kind, await request.body())
            visitor = request.scope["mma.visitor"]
            if visitor.invitation and kind is not None and asked.by != visitor.invitation.name:
                raise HTTPException(
                    403, f"your invitation is for {visitor.invitation.name}, and this is by somebody else"
                )
            arguments = (request.app.state.page, asked, *((visitor,) if takes_visitor else ()))
            return JSONResponse(await run_in_threadpool(handle, *arguments))

        return endpoint

    return decorate


async def get_file(request: Request) -> Response:
    """Send the page, or a file that belongs to it."""
    files = request.app.state.page.files
    name = request.path_params.get("name", "index.html")
    if name not in files:
        raise HTTPException(404, "there is no such file")
    data, media = files[name]
    return Response(data, media_type=media, headers={"Cache-Control": "no-cache"})


async def get_events(request: Request) -> Response:
    """Send news as they come."""
    page: Page = request.app.state.page
    if page.newsroom.streams >= MAX_STREAMS:
        raise HTTPException(503, "too many pages listen already")
    invited = request.scope["mma.visitor"].invitation

    def ending() -> bool:
        withdrawn = invited and any(each.id == invited.id and each.revoked for each in page.invitations.all)
        return page.ending() or bool(withdrawn)

    return StreamingResponse(page.newsroom.stream(ending), media_type="text/event-stream")


async def get_image(request: Request) -> Response:
    """Send a picture of an image."""
    page: Page = request.app.state.page
    image, size = request.path_params["image"], request.path_params["size"]
    if not IMAGE_ID.fullmatch(image) or size not in SIZES:
        raise HTTPException(404, "there is no such image")
    try:
        picture = await anyio.to_thread.run_sync(page.pictures.picture, image, size, limiter=page.decoders)
    except TemporarilyUnavailable:
        raise
    except UserError as error:
        return refuse(410, str(error))
    keep = BackgroundTask(page.pictures.store, image, picture) if size == "thumb" else None
    return Response(picture.data, media_type=picture.media, headers=KEPT_BY_BROWSER, background=keep)


@answers(takes_visitor=True)
def get_state(page: Page, query: Any, visitor: Visitor) -> Json:
    """Send what the page needs to begin."""
    by = visitor.invitation.name if visitor.invitation else page.by
    about = {"id": page.project.settings.id, "name": page.project.root.name, "by": by, "role": visitor.role}
    return {**read_news(page.project), "project": {**about, "overlap": page.project.settings.overlap}}


@answers(takes_visitor=True)
def get_recent(page: Page, query: Any, visitor: Visitor) -> Json:
    """Send a person's last answers; an invited person sees their own."""
    by = visitor.invitation.name if visitor.invitation else parse(Person, query.get("by", ""), json=False)
    return {"answers": recent_answers(page.project, by)}


@answers()
def get_people(page: Page, query: Any) -> Json:
    """Send how far each person is and how far they agree."""
    return {"people": [each._asdict() for each in page.project.people()]}


@answers(takes_visitor=True)
def get_disagreements(page: Page, query: Any, visitor: Visitor) -> Json:
    """Send images that people answered differently; an invited person gets those they have not answered."""
    found = page.project.disagreements(visitor.invitation.name if visitor.invitation else None)
    return {"images": [{**each._asdict(), "images": [each.image], "id": each.event} for each in found[:DISPUTED]]}


@answers(HereRequest)
def post_here(page: Page, asked: HereRequest) -> Json:
    """Note who sits where; say whether another browser has the same name."""
    now, seen = time.monotonic(), page.here.setdefault(asked.by.casefold(), {})
    seen[asked.browser] = now
    return {"twice": sum(now - at < HERE_SECONDS for at in list(seen.values())) > 1}


@answers()
def get_invitations(page: Page, query: Any) -> Json:
    """Send who is invited. Tokens are not kept."""
    return {"invitations": [{n: getattr(each, n) for n in INVITED} for each in page.invitations.all]}


@answers(Annotated[Invite | Withdraw, Field(discriminator="do")])
def post_invitations(page: Page, change: Invite | Withdraw) -> Json:
    """Invite a person, whose token is sent this once, or withdraw an invitation."""
    token = None
    if isinstance(change, Invite):
        token = page.invitations.make(change.name, datetime.now(UTC).isoformat(timespec="seconds"))
    else:
        page.invitations.revoke(change.id)
    return {"token": token}


@answers()
def get_labels(page: Page, query: Any) -> Json:
    """Send the labels of a class."""
    class_id = query.get("class_id", "")
    if not class_id.isdecimal() or len(class_id) > 9:
        raise HTTPException(404, "there is no such class")
    return labeled_images(page.project, int(class_id))


@answers()
def get_sheet(page: Page, query: Any) -> Json:
    """Send some images that differ from each other, and class names that lie at hand."""
    return {"images": page.setup.sheet(), "offers": page.setup.offers}


@answers()
def get_results(page: Page, query: Any) -> Json:
    """Send how good the model is and what more labels would bring."""
    return results(page.project)


@answers(NextRequest)
def post_next(page: Page, wanted: NextRequest) -> Json:
    """Lease images to the person."""
    return {"items": [item._asdict() for item in page.project.next(wanted.by, wanted.n, wanted.holding)]}


@answers(MeasureRequest)
def post_measure(page: Page, wanted: MeasureRequest) -> Json:
    """Say what more audit labels would tell, and lease their images when asked to."""
    if wanted.start:
        page.project.measure(wanted.by, wanted.n)
    return {"left": page.project.audit_left(), "words": measure_words(page.project, wanted.n)}


@answers(Answer, takes_visitor=True)
def post_answer(page: Page, answer: Answer, visitor: Visitor) -> Json:
    """Store an answer. The page says "saved" when it has this reply."""
    if visitor.invitation:  # what others answered is theirs, unless it is in dispute
        if answer.source == "review":
            open_ones = {each.image for each in page.project.disagreements(answer.by)}
            if answer.kind != "undo" and not set(answer.images) <= open_ones:
                raise UserError("somebody has decided about this image already, or you answered it yourself.")
        if answer.kind == "undo" and answer.supersedes and not page.project.gave(answer.by, str(answer.supersedes)):
            raise UserError("that is another person's answer. Only the owner takes it back.")
    events = page.project.answer(answer)
    return {"saved": str(answer.id), "seq": events[-1].seq, "counts": counts_for_page(page.project)}


@answers(GridRequest)
def post_grid(page: Page, wanted: GridRequest) -> Json:
    """Lease images that look alike."""
    images, alike, guessed = page.project.grid(wanted.by, wanted.class_id, wanted.n, wanted.holding)
    return {"items": [{"image": each.id, "name": each.name} for each in images], "alike": alike, "guessed": guessed}


@answers(ClassChange)
def post_class(page: Page, change: AddClass | RenameClass | MergeClass | SetKey) -> Json:
    """Make, rename or merge a class, or give it a key."""
    project = page.project
    if isinstance(change, AddClass):
        made = project.add_class(change.name, change.by)
    elif isinstance(change, RenameClass):
        made = project.rename_class(change.id, change.name, change.by)
    elif isinstance(change, MergeClass):
        made = project.merge_class(change.id, change.into, change.by)
    else:
        made = project.set_key(change.id, change.key, change.by)
    return {"made": made.id, **classes_for_page(project), "counts": counts_for_page(project)}


@answers(GoalRequest)
def post_goal(page: Page, asked: GoalRequest) -> Json:
    """Set the goal; without a target there is none."""
    set_goal(page.project, asked.target, asked.class_id)
    return results(page.project)


@answers(ModelRequest)
def post_model(page: Page, asked: ModelRequest) -> Json:
    """Choose which model serves; the worker makes the next model by that."""
    page.project.wish(use_model=asked.use)
    return results(page.project)


@answers(PageRequest)
def post_deep(page: Page, asked: PageRequest) -> Json:
    """Ask the worker to train on pixels."""
    ask_for_deep(page.project, asked.by)
    return {"asked": True}


@answers(PageRequest)
def post_review(page: Page, asked: PageRequest) -> Json:
    """Look for labels that may be wrong. It takes seconds and changes nothing; as a POST only our page can ask for it."""
    return page.review.likely_mistakes()


@answers(PageRequest)
def post_export(page: Page, asked: PageRequest) -> Json:
    """Export the model in use into the project's folder. It takes a while; labeling goes on."""
    return page.export.run()


@answers(BrowseRequest)
def post_browse(page: Page, wanted: BrowseRequest) -> Json:
    """List photos: by class, label, person or name. Nothing is leased."""
    return page.browser.page(wanted)


@answers()
def get_map(page: Page, query: Any) -> Json:
    """Send the photos in two dimensions. A map that is missing or old is drawn in the background."""
    return page.browser.map()


@answers(FindRequest)
def post_find(page: Page, asked: FindRequest) -> Json:
    """Take the answer to a batch of a search, and send the next one."""
    state = search(page.project, asked)
    return {
        **state._asdict(),
        "items": [item._asdict() for item in state.items],
        "counts": counts_for_page(page.project),
    }


@answers(TryRequest)
def post_try(page: Page, asked: TryRequest) -> Json:
    """Classify a picture that is not in the project. It is not kept."""
    with page.trying:
        return try_photo(page.project, asked.picture, lambda: page.ending())


async def get_download(request: Request) -> Response:
    """Send the newest exported model and the labels as a zip, as it is made."""
    page: Page = request.app.state.page
    files = await run_in_threadpool(files_to_take, page.project)
    if not files:
        raise HTTPException(404, "there is nothing to download yet. Label some photos first")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", page.project.root.name).strip("-.") or "photos"
    headers = {"Content-Disposition": f'attachment; filename="{name}.zip"'}
    return StreamingResponse(zipped(files), media_type="application/zip", headers=headers)


async def say_refused(request: Request, error: Exception) -> Response:
    """Answer what a person can mend. The page gives a label up after this alone, so it is signed with the project's id."""
    status = 422 if isinstance(error, NotUnderstood) else 400
    project = request.app.state.page.project.settings.id
    return JSONResponse({"error": str(error), "refused": True, "project": project}, status)


async def say_not_now(request: Request, error: Exception) -> Response:
    """Answer while a disk or a database fails."""
    return refuse(503, str(error))


async def say_http(request: Request, error: Exception) -> Response:
    """Answer an address or method that does not exist."""
    assert isinstance(error, HTTPException)
    return refuse(error.status_code, error.detail)


async def say_failed(request: Request, error: Exception) -> Response:
    """Answer after a mistake of ours; the terminal shows it."""
    return refuse(500, "the server made a mistake; its terminal says more")


ROUTES = [
    Route("/", get_file),
    Route("/static/{name}", get_file),
    Route("/images/{image}/{size}", get_image),
    Route("/api/state", get_state),
    Route("/api/events", get_events),
    Route("/api/recent", get_recent),
    Route("/api/labels", get_labels),
    Route("/api/sheet", get_sheet),
    Route("/api/results", get_results),
    Route("/api/download", get_download),
    Route("/api/browse", post_browse, methods=["POST"]),
    Route("/api/map", get_map),
    Route("/api/find", post_find, methods=["POST"]),
    Route("/api/try", post_try, methods=["POST"]),
    Route("/api/people", get_people),
    Route("/api/disagreements", get_disagreements),
    Route("/api/invitations", get_invitations),
    Route("/api/here", post_here, methods=["POST"]),
    Route("/api/invite", post_invitations, methods=["POST"]),
    Route("/api/next", post_next, methods=["POST"]),
    Route("/api/measure", post_measure, methods=["POST"]),
    Route("/api/answers", post_answer, methods=["POST"]),
    Route("/api/grid", post_grid, methods=["POST"]),
    Route("/api/classes", post_class, methods=["POST"]),
    Route("/api/goal", post_goal, methods=["POST"]),
    Route("/api/model", post_model, methods=["POST"]),
    Route("/api/deep", post_deep, methods=["POST"]),
    Route("/api/review", post_review, methods=["POST"]),
    Route("/api/export", post_export, methods=["POST"]),
]
HANDLERS: dict[Any, Callable[[Request, Exception], Any]] = {
    UserError: say_refused,
    TemporarilyUnavailable: say_not_now,
    HTTPException: say_http,
    Exception: say_failed,
}


def make_app(project: Project, by: str, invitations: Invitations | None = None) -> Starlette:
    """Return the page's application for a project. It must stand behind a Guard."""
    app = Starlette(routes=ROUTES, exception_handlers=HANDLERS)
    app.state.page = Page(project, by, invitations or Invitations(project.layout.state))
    return app

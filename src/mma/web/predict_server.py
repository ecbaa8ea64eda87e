"""Serve a trained model over HTTP: image bytes or JSON in, classes with probabilities out.

Requests that come together share a forward. The page's guards hold here too: hosts by name, limits on bytes and
seconds, a key in constant time, nothing from other sites.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import io
import json
import re
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from mma.data.photos import FORMATS, explain_bad_file, quiet_decoders
from mma.errors import UserError
from mma.files import write_atomically
from mma.text import printable
from mma.web.security import HostGuard, RequestLimits, refuse, same
from mma.web.server import address, allowed_hosts, bind, check_address, is_loopback, plain_server, stopped_by_signals

if TYPE_CHECKING:
    from mma.model import Model

SIZES = (1, 4, 16)  # images of a forward; a network is run on the smallest that holds what waits
MOST_IMAGES = 64  # in one request
WAITING = 512  # images that may wait for their turn
UPLOAD = 32_000_000  # bytes of a request
OPEN = ("/", "/healthz", "/openapi.json")  # these need no key: they say nothing about the model
TEMPLATES = Path(__file__).parents[1] / "templates"
TOKEN = re.compile(r"[A-Za-z0-9_-]{32,}")


class EncodedImages(BaseModel):
    """Several images in one request."""

    model_config = ConfigDict(extra="forbid", strict=True)
    images: list[str] = Field(
        min_length=1, max_length=MOST_IMAGES, description="Files (JPEG, PNG, ...), each as base64."
    )
    top: int = Field(default=1, ge=1, le=1_000, description="How many classes to name for each image.")


class PredictedImage(BaseModel):
    """What the model says about one image, or why it says nothing."""

    label: str | None = Field(description="The likeliest class; null if the image cannot be read.")
    confidence: float | None = Field(description="Its calibrated probability, from 0 to 1.")
    top: list[tuple[str, float]] = Field(description="The likeliest classes with their probabilities.")
    unlike: bool = Field(default=False, description="Whether it is unlike anything labeled: do not rely on the label.")
    problem: str | None = Field(default=None, description="Why the image cannot be read.")


class PredictedImages(BaseModel):
    """One answer for each image, in the order of the request."""

    predictions: list[PredictedImage]


Answer = tuple[Sequence[float], bool]


class Batcher:
    """Puts images of concurrent requests into one forward; one thread computes, because more would slow each other down."""

    def __init__(self, model: Model):
        model.predictor.open()
        self.classes, self.queue = model.classes, asyncio.Queue[tuple[Any, asyncio.Future[Answer]]](WAITING)
        # A forward of one image costs a fraction of a full one. All sizes share the loaded networks.
        predictor: Any = model.predictor
        loaded = {name: value for name, value in vars(predictor).items() if name == "embedders"}
        self.sizes = {size: replace(predictor, batch=size) for size in SIZES}
        for sized in self.sizes.values():
            vars(sized).update(loaded)
        self.prepare: Callable[..., Any] = predictor.prepare
        self.computer = ThreadPoolExecutor(1, "predict")

    async def classify(self, prepared: Any) -> Answer:
        """Return the probabilities of one image that was decoded, and whether it is unlike anything labeled."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        try:
            self.queue.put_nowait((prepared, answer))
        except asyncio.QueueFull:
            raise Busy from None
        return await answer

    async def run(self) -> None:
        """Compute what waits, as many images at a time as there are, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            waiting = [await self.queue.get()]
            while len(waiting) < SIZES[-1] and not self.queue.empty():
                waiting.append(self.queue.get_nowait())
            sized = self.sizes[next(size for size in SIZES if size >= len(waiting))]
            try:
                found = await loop.run_in_executor(self.computer, sized.classify, [image for image, _ in waiting])
            except (
                Exception
            ) as error:  # our own mistake, answered with 500 to each of them; the next ones get their turn
                for _, answer in waiting:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for (_, answer), probs, unlike in zip(waiting, *(part.tolist() for part in found), strict=True):
                if not answer.done():  # the client may be gone
                    answer.set_result((probs, unlike))


class Busy(Exception):
    """More images wait than can be computed soon."""


class KeyGuard(HostGuard):
    """Checks host, size and key of every request before any route is looked up."""

    unknown_host = "unknown host. Use the address that mma serve printed, or start it with --allow-host NAME"

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str], limits: RequestLimits):
        super().__init__(app, hosts, limits)
        self.token = token

    def answer(self, scope: Scope) -> Response | None:
        """Return why a request goes no further; None lets it pass."""
        headers = Headers(scope=scope)
        if misfit := self.misfit(scope, headers):
            return refuse(*misfit)
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return refuse(403, "the request comes from another site")
        if scope["path"] in OPEN:
            return None
        kind, _, key = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and same(key, self.token):
            return None
        return refuse(401, "no valid key. Send the header  Authorization: Bearer KEY  with the key of mma serve")


async def predict(request: Request) -> Response:
    """POST /predict: one image as it is, or several in JSON."""
    batcher: Batcher = request.app.state.batcher
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    body = await request.body()
    try:
        if kind == "application/json":
            asked = EncodedImages.model_validate_json(body)
            files = [base64.b64decode(image, validate=True) for image in asked.images]
        elif kind.startswith("image/") or kind == "application/octet-stream":
            top = request.query_params.get("top", "1")  # /predict?top=3
            if not top.isdecimal() or not 1 <= int(top) <= 1_000:
                raise UserError("top is a number from 1 to 1000, such as /predict?top=3")
            asked, files = EncodedImages.model_construct(images=[], top=int(top)), [body]
        else:
            return refuse(415, "send an image (Content-Type: image/jpeg) or JSON with images as base64")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return refuse(422, f"{'.'.join(map(str, first['loc'])) or 'the body'}: {first['msg']}")
    except (binascii.Error, ValueError) as error:
        return refuse(422, str(error) if isinstance(error, UserError) else "images must be base64 of whole files")
    try:
        answers = await asyncio.gather(*(answer_of(batcher, data, asked.top) for data in files))
    except Busy:
        return JSONResponse({"error": "too many images wait. Send this again in a moment"}, 503, {"Retry-After": "1"})
    if kind != "application/json" and answers[0].problem:
        return refuse(422, answers[0].problem)
    single = kind != "application/json"
    return JSONResponse((answers[0] if single else PredictedImages(predictions=list(answers))).model_dump())


async def answer_of(batcher: Batcher, data: bytes, top: int) -> PredictedImage:
    """Classify one file, or say why it cannot be read."""
    try:
        prepared = await run_in_threadpool(batcher.prepare, lambda: Image.open(io.BytesIO(data), formats=FORMATS))
    except Exception as error:  # decoders raise anything at all on broken bytes
        return PredictedImage(label=None, confidence=None, top=[], problem=explain_bad_file(error))
    probs, unlike = await batcher.classify(prepared)
    order = sorted(range(len(probs)), key=lambda place: -probs[place])[:top]
    best = [(batcher.classes[place], round(probs[place], 6)) for place in order]
    return PredictedImage(label=best[0][0], confidence=best[0][1], top=best, unlike=unlike)


def openapi(request: Request) -> JSONResponse:
    """GET /openapi.json: the interface in the words other programs read."""
    document = json.loads((TEMPLATES / "serve.openapi.json").read_text("utf-8"))
    for model in (EncodedImages, PredictedImages, PredictedImage):
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        document["components"]["schemas"] |= schema.pop("$defs", {}) | {model.__name__: schema}
    return JSONResponse(document)


def make_app(model: Model) -> Starlette:
    """Return the application without its guard."""

    @contextlib.asynccontextmanager
    async def computing(app: Starlette) -> AsyncIterator[None]:
        app.state.batcher = Batcher(model)
        task = asyncio.create_task(app.state.batcher.run())
        try:
            yield
        finally:
            task.cancel()
            app.state.batcher.computer.shutdown(wait=False, cancel_futures=True)

    async def health(request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def page(request: Request) -> HTMLResponse:
        return HTMLResponse((TEMPLATES / "serve.html").read_text("utf-8"))

    async def failed(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": "the server made a mistake; its terminal says which"}, 500)

    routes = [
        Route("/", page),
        Route("/healthz", health),
        Route("/openapi.json", openapi),
        Route("/predict", predict, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=computing, exception_handlers={500: failed})


def read_or_make_token(path: Path | None) -> str:
    """Return the key kept in a file, which is made if it is missing; without a file a new one."""
    if path is not None and path.exists():
        token = path.read_text("utf-8", "replace").strip()
        if not TOKEN.fullmatch(token):
            raise UserError(
                f"{printable(str(path))} holds no key: 32 or more letters, digits, - and _. Delete it to have one made."
            )
        return token
    token = secrets.token_urlsafe(32)
    if path is not None:
        write_atomically(path, token + "\n", private=True)
    return token


def serve_model(
    model: Model,
    host: str,
    port: int | None,
    *,
    allow_remote: bool = False,
    names: Sequence[str] = (),
    token_file: Path | None = None,
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
) -> None:
    """Answer requests until the process is stopped."""
    check_address(host, allow_remote)
    token = read_or_make_token(token_file)
    with bind(host, port) as bound, quiet_decoders():
        taken = bound.getsockname()[1]
        hosts = allowed_hosts(host, taken) | {
            name.lower() if ":" in name else f"{name.lower()}:{taken}" for name in names
        }
        limits = RequestLimits(body=UPLOAD, receive=30.0)
        server = plain_server(KeyGuard(make_app(model), token, hosts, limits), lifespan="on")
        with stopped_by_signals(server):
            if not is_loopback(host):
                say(
                    f"WARNING: every machine that can reach {printable(host)} can send requests, and they are not encrypted."
                )
            say(f"the model answers at  {address(host, bound)}  (Ctrl-C stops it)")
            if token_file is not None:
                say(f"its key is in {printable(str(token_file))}")
            elif sys.stderr.isatty():
                say(f"its key:  {token}")
            else:
                say("its key is written to a terminal alone. Give --token-file FILE to have it in a file")
            server.run(sockets=[bound])

"""The outermost middleware: nothing reaches a handler that has not passed here. Loopback is not a trust boundary."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mma.web.keys import Keys, same

HEADER = "x-mma"  # every change carries it; a foreign page cannot send it without asking first, and we never allow it
POLICY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
ENTER = (
    "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content='0;url=/'>"
    "<title>mma</title><p><a href=/>Go on to the page</a></p></html>"
)
LOCKED = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>mma: closed</title><h1>This page is closed</h1>"
    "<p>Open the address that <code>mma start</code> printed in the terminal. It holds the key to this page.</p></html>"
)


@dataclass(frozen=True)
class RequestLimits:
    """What one request may cost: bytes and seconds."""

    url: int = 2_048
    headers: int = 16_384
    body: int = 262_144
    receive: float = 10.0  # seconds until the whole body must be here
    send: float = 60.0  # seconds a client may take to read what we sent


@dataclass(frozen=True)
class Refusal:
    """Why a request goes no further."""

    status: int
    why: str

    def response(self) -> Response:
        """Return it as a response."""
        return JSONResponse({"error": self.why}, self.status)


class Guard:
    """Checks host, size, method, origin, kind and key of every request, in this order, before any route is looked up."""

    def __init__(
        self, app: ASGIApp, keys: Keys, hosts: frozenset[str], project: str, limits: RequestLimits | None = None
    ):
        self.app, self.keys, self.hosts, self.project = app, keys, hosts, project
        self.limits = limits or RequestLimits()
        # The browser sends cookies to every port of a host: the port in the name keeps two projects apart.
        self.cookie = "mma-" + next(iter(hosts)).rsplit(":", 1)[1]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or hand it on."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            raise RuntimeError("only http is served here")
        send = with_policy(send, self.limits.send)
        answer = self.answer(scope) or await read_body(receive, self.limits)
        if isinstance(answer, bytes):
            return await self.hand_on(scope, replay(answer, receive), send)
        answer.headers["Connection"] = "close"
        return await answer(scope, receive, send)

    async def hand_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer; a mistake of ours is logged here, so that the connection lives on."""
        try:
            await self.app(scope, receive, send)
        except TimeoutError:
            return  # the client does not read; the server closes the connection
        except Exception:
            logging.getLogger(__name__).exception("%s %s failed", scope["method"], scope["path"])

    def answer(self, scope: Scope) -> Response | None:
        """Return a refusal or the swap of token for cookie; None lets the request pass."""
        headers = Headers(scope=scope)
        for check in CHECKS:
            if refusal := check(self, scope, headers):
                return refusal.response()
        if (token := token_of(scope)) is not None:
            return self.swap(token)
        if not self.keys.knows(cookie_parser(headers.get("cookie", "")).get(self.cookie, "")):
            return closed(scope["path"])
        return None

    def swap(self, token: str) -> Response:
        """Give the cookie for the token, and send the browser on to an address without it.

        The page itself goes on: after a redirect from elsewhere a browser would hold back a strict cookie.
        """
        if not self.keys.opens(token):
            return closed("/")
        response = HTMLResponse(ENTER)
        response.set_cookie(self.cookie, self.keys.session, path="/", httponly=True, samesite="strict")
        return response


def token_of(scope: Scope) -> str | None:
    """Return the token in the address of the page, if there is one."""
    if scope["path"] != "/" or scope["method"] != "GET":
        return None
    found = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=8).get("token")
    return found[0] if found else None


def closed(path: str) -> Response:
    """Refuse someone without a key, in words for the person at the browser."""
    if path == "/":
        return HTMLResponse(LOCKED, 401)
    return JSONResponse({"error": "no valid key. Open the address that mma start printed"}, 401)


def check_host(guard: Guard, scope: Scope, headers: Headers) -> Refusal | None:
    """Allow our own names with our port alone, so that no other name can be made to point here."""
    found = headers.getlist("host")
    return (
        None
        if len(found) == 1 and found[0].lower() in guard.hosts
        else Refusal(403, "unknown host. Open the address that mma start printed")
    )


def check_size(guard: Guard, scope: Scope, headers: Headers) -> Refusal | None:
    """Refuse what is too long before anybody reads it."""
    limits = guard.limits
    if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > limits.url:
        return Refusal(414, "the address is too long")
    if sum(len(name) + len(value) for name, value in headers.raw) > limits.headers:
        return Refusal(431, "the headers are too long")
    length = headers.get("content-length", "0")
    return None if length.isdecimal() and int(length) <= limits.body else Refusal(413, "the body is too long")


def check_method(guard: Guard, scope: Scope, headers: Headers) -> Refusal | None:
    """GET and HEAD read, POST changes; there is nothing else."""
    return None if scope["method"] in ("GET", "HEAD", "POST") else Refusal(405, "only GET and POST are served")


def check_origin(guard: Guard, scope: Scope, headers: Headers) -> Refusal | None:
    """A change comes from our own page; whatever names an origin names ours."""
    origins = headers.getlist("origin")
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none") and scope["path"] != "/":
        return Refusal(403, "the request comes from another site")
    if not origins and scope["method"] != "POST":
        return None
    ours = f"http://{headers['host'].lower()}"
    return None if origins == [ours] else Refusal(403, "the request comes from another site")


def check_kind(guard: Guard, scope: Scope, headers: Headers) -> Refusal | None:
    """A change is JSON and names the project it is meant for, in a header that a form cannot send."""
    if scope["method"] != "POST":
        return None
    if headers.get("content-type", "").split(";")[0].strip() != "application/json":
        return Refusal(415, "a change is sent as application/json")
    named = headers.get(HEADER)
    if named is None:
        return Refusal(403, f"the header {HEADER} is missing")
    return None if same(named, guard.project) else Refusal(409, "this page belongs to another project")


Check = Callable[[Guard, Scope, Headers], Refusal | None]
CHECKS: tuple[Check, ...] = (check_host, check_size, check_method, check_origin, check_kind)


def with_policy(send: Send, patience: float) -> Send:
    """Add the policy to every response, and give up on a client that does not read."""

    async def send_with_policy(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(POLICY)
            headers.setdefault("Cache-Control", "no-store")
        await asyncio.wait_for(send(message), patience)

    return send_with_policy


async def read_body(receive: Receive, limits: RequestLimits) -> bytes | Response:
    """Return the whole body, or why it is not taken: too long, too slow, or the client went away."""
    body = b""
    try:
        async with asyncio.timeout(limits.receive):
            while True:
                message = await receive()
                body += bytes(message.get("body", b""))
                if len(body) > limits.body:
                    return Refusal(413, "the body is too long").response()
                if not message.get("more_body", False):
                    return body
    except TimeoutError:
        return Refusal(408, "the body came too slowly").response()


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body once and then waits for the end of the connection."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again

"""Keys, and the outermost middleware: nothing reaches a handler that has not passed here. Loopback is no trust boundary."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import re
import secrets
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mma.errors import UserError
from mma.files import write_atomically

BYTES = 32  # 256 bits
SESSION_DAYS = 7
SHAPE = re.compile(r"[A-Za-z0-9_-]{43}")
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
HEAD = "<!doctype html><html lang=en><meta charset=utf-8><link rel=icon href=/static/icon.svg><title>mma</title>"
ENTER = f"{HEAD}<meta http-equiv=refresh content='0;url=/'><p><a href=/>Continue to the page</a></p></html>"
LOCKED = (
    f"{HEAD}<h1>This address needs a key</h1><p>Open the file <code>state/open.html</code> in the project's folder, "
    "or the full address that <code>mma start</code> printed in the terminal.</p></html>"
)
NO_KEY = "no valid key. Open the file state/open.html in the project's folder, or the address in the terminal"
ELSEWHERE = "the request comes from another site"


@dataclass(frozen=True)
class Keys:
    """The token is in the address of one start; the session is in the cookie it is swapped for."""

    token: str = field(repr=False)
    session: str = field(repr=False)


def same(one: str, other: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())


def new_keys(state: Path) -> Keys:
    """Make a token for this start. The session is kept in a file that only its owner can read, for a page to survive a
    restart of the server; a new one is made when it is missing, damaged or old."""
    path, session = state / "session", ""
    about = path.stat() if path.is_file() else None
    if about and time.time() - about.st_mtime < SESSION_DAYS * 86_400 and about.st_mode & 0o077 == 0:
        session = path.read_text("ascii", errors="replace")
    if not SHAPE.fullmatch(session):
        session = secrets.token_urlsafe(BYTES)
        write_atomically(path, session, private=True)
    return Keys(token=secrets.token_urlsafe(BYTES), session=session)


class Invitation(NamedTuple):
    """A person who may label. Of the token in their link only a hash is kept."""

    id: str
    name: str
    digest: str
    made: str
    revoked: bool = False


class Visitor(NamedTuple):
    """Who sent a request. The owner says their own name; an invited person has the one of the invitation."""

    invitation: Invitation | None = None

    @property
    def name(self) -> str | None:
        """The name of an invited person."""
        return self.invitation.name if self.invitation else None


class Invitations:
    """The people invited to a project, in a file that only its owner can read."""

    def __init__(self, state: Path) -> None:
        self.path, self._turn = state / "invitations.json", threading.Lock()
        stored = json.loads(self.path.read_text("utf-8")) if self.path.is_file() else []
        self.all = [Invitation(**each) for each in stored]

    def make(self, name: str, made: str) -> str:
        """Invite a person; return the token of their link, which is shown once."""
        token = secrets.token_urlsafe(BYTES)
        with self._turn:
            if any(each.name.casefold() == name.casefold() and not each.revoked for each in self.all):
                raise UserError(f"{name} is invited already. Choose another name, or withdraw that invitation first.")
            self._store([*self.all, Invitation(secrets.token_hex(8), name, digest_of(token), made)])
        return token

    def revoke(self, id: str) -> None:
        """Withdraw an invitation: its link and every page opened with it are refused from now on."""
        with self._turn:
            self._store([each._replace(revoked=True) if each.id == id else each for each in self.all])

    def find(self, token: str) -> Invitation | None:
        """Return the invitation that a token belongs to, unless it was withdrawn."""
        digest, found = digest_of(token), None
        for each in self.all:  # all of them, however early one fits
            if same(digest, each.digest) and not each.revoked:
                found = each
        return found

    def _store(self, invitations: list[Invitation]) -> None:
        write_atomically(self.path, json.dumps([each._asdict() for each in invitations], indent=1) + "\n", private=True)
        self.all = invitations


def digest_of(token: str) -> str:
    """Return what is kept of a token; it has too many bits to be guessed from this."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


# What an invited person may ask for. Everything else is the owner's.
ANNOTATOR_READS = ("/", "/api/state", "/api/events", "/api/recent", "/api/sheet", "/api/people", "/api/disagreements")
ANNOTATOR_SENDS = ("/api/next", "/api/answers", "/api/grid", "/api/here", "/api/measure")
OWNER_ONLY = "this is the owner's to do; with your invitation you can label"


@dataclass(frozen=True)
class RequestLimits:
    """What one request may cost: bytes and seconds."""

    url: int = 2_048
    headers: int = 16_384
    body: int = 262_144
    receive: float = 10.0  # seconds until the whole body must be here
    send: float = 60.0  # seconds a client may take to read what we sent


class HostGuard:
    """Stands before an application: checks host and size of every request, and what `answer` adds."""

    unknown_host = "unknown host. Open the address that mma start printed"

    def __init__(self, app: ASGIApp, hosts: frozenset[str], limits: RequestLimits):
        self.app, self.hosts, self.limits = app, hosts, limits

    def answer(self, scope: Scope) -> Response | None:
        """Return what is answered instead of the application; None lets the request pass."""
        raise NotImplementedError

    def misfit(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        """Return status and reason for a request that names another host, or is too long."""
        limits, host, length = self.limits, headers.getlist("host"), headers.get("content-length", "0")
        # Our own names with our port alone, so that no other name can be made to point here.
        if len(host) != 1 or host[0].lower() not in self.hosts:
            return 403, self.unknown_host
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > limits.url:
            return 414, "the address is too long"
        if sum(len(name) + len(value) for name, value in headers.raw) > limits.headers:
            return 431, "the headers are too long"
        if not length.isdecimal() or int(length) > limits.body:
            return 413, f"a request has at most {limits.body:,} bytes"
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or forward it."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            raise RuntimeError("only http is served here")
        send = with_policy(send, self.limits.send)
        answer = self.answer(scope) or await read_body(receive, self.limits)
        if isinstance(answer, bytes):
            return await self.forward(scope, replay(answer, receive), send)
        answer.headers["Connection"] = "close"
        return await answer(scope, receive, send)

    async def forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer; a mistake of ours is logged here, so that the connection lives on."""
        try:
            await self.app(scope, receive, send)
        except TimeoutError:
            return  # the client does not read; the server closes the connection
        except Exception:
            logging.getLogger(__name__).exception("%s %s failed", scope["method"], scope["path"])


class Guard(HostGuard):
    """Checks host, size, method, origin, kind and key of every request, in this order, before any route is looked up."""

    def __init__(
        self,
        app: ASGIApp,
        keys: Keys,
        hosts: frozenset[str],
        project: str,
        limits: RequestLimits | None = None,
        invitations: Invitations | None = None,
        *,
        scheme: str = "http",
    ):
        super().__init__(app, hosts, limits or RequestLimits())
        self.keys, self.project, self.invitations, self.scheme = keys, project, invitations, scheme
        # The browser sends cookies to every port of a host: the port in the name keeps two projects apart.
        self.cookie = "mma-" + next(iter(hosts)).rsplit(":", 1)[1]

    def answer(self, scope: Scope) -> Response | None:
        """Return a refusal or the exchange of token for cookie; None lets the request pass."""
        headers = Headers(scope=scope)
        if problem := self.problem(scope, headers):
            return refuse(*problem)
        if scope["path"] == "/" and scope["method"] == "GET":
            query = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=8)
            if "token" in query:
                return self.exchange_token(query["token"][0])
        cookie = cookie_parser(headers.get("cookie", "")).get(self.cookie, "")
        scope["mma.visitor"] = Visitor()
        if same(cookie, self.keys.session):
            return None
        if invited := self.invitations.find(cookie) if self.invitations else None:
            scope["mma.visitor"] = Visitor(invited)
            path = scope["path"]
            if scope["method"] == "POST":
                allowed = path in ANNOTATOR_SENDS
            else:
                allowed = path in ANNOTATOR_READS or path.startswith(("/static/", "/images/"))
            return None if allowed else refuse(403, OWNER_ONLY)
        return HTMLResponse(LOCKED, 401) if scope["path"] == "/" else refuse(401, NO_KEY)

    def problem(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        """Return status and reason for a request that nobody with a key sends either."""
        if misfit := self.misfit(scope, headers):
            return misfit
        method, host = scope["method"], headers["host"].lower()
        if method not in ("GET", "HEAD", "POST"):
            return 405, "only GET and POST are served"
        # A change comes from our own page; whatever names an origin names ours.
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none") and scope["path"] != "/":
            return 403, ELSEWHERE
        origins = headers.getlist("origin")
        if (origins or method == "POST") and origins != [f"{self.scheme}://{host}"]:
            return 403, ELSEWHERE
        if method != "POST":
            return None
        # A change is JSON and names the project it is meant for, in a header that a form cannot send.
        if headers.get("content-type", "").split(";")[0].strip() != "application/json":
            return 415, "a change is sent as application/json"
        if (named := headers.get(HEADER)) is None:
            return 403, f"the header {HEADER} is missing"
        return None if same(named, self.project) else (409, "this page belongs to another project")

    def exchange_token(self, token: str) -> Response:
        """Give the cookie for the token, and send the browser on to an address without it.

        The page itself goes on: after a redirect from elsewhere a browser would hold back a strict cookie.
        """
        invited = self.invitations.find(token) if self.invitations else None
        if not same(token, self.keys.token) and not invited:
            return HTMLResponse(LOCKED, 401)
        response, session = HTMLResponse(ENTER), token if invited else self.keys.session
        secure = self.scheme == "https"
        response.set_cookie(self.cookie, session, path="/", httponly=True, samesite="strict", secure=secure)
        return response


def refuse(status: int, why: str) -> Response:
    """Say why a request goes no further. This is no verdict on what it carries: a page may send it again later."""
    return JSONResponse({"error": why}, status)


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
                    return refuse(413, "the body is too long")
                if not message.get("more_body", False):
                    return body
    except TimeoutError:
        return refuse(408, "the body came too slowly")


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body once and then waits for the end of the connection."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again

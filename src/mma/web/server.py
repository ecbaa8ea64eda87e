"""Serve a project's page: bind, say where it is, open the browser, run until stopped. Connections have limits."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import html
import ipaddress
import logging
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Literal

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from mma.data.photos import quiet_decoders
from mma.errors import UserError
from mma.files import write_atomically
from mma.project import Project
from mma.text import printable
from mma.web.app import make_app
from mma.web.security import Guard, Invitations, Keys, RequestLimits, new_keys

HOST, PORT = "127.0.0.1", 8642
PORTS = 50  # tried one after the other where none is given
BACKLOG = 512  # connections that wait in the system
AT_ONCE = 16  # of them taken in before requests get their turn
WILDCARDS = ("0.0.0.0", "::")
KEEP_ALIVE, GRACE = 30, 1  # seconds
MAX_HEADERS = 16_384  # bytes of a request before its body
OPENSSL = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365 -subj /CN=mma"
Say = Callable[[str], None]


class Connection(H11Protocol):
    """One connection: its request must arrive in time, and the oldest silent one makes room for a new one."""

    max_connections, header_seconds = 128, 10.0
    linger_seconds = 30.0  # to read what was sent after the server wants to close
    deadline: asyncio.TimerHandle | None = None
    since = 0.0
    crowded = False  # said once

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin: whoever connects says soon what it wants."""
        super().connection_made(transport)
        self.since = self.loop.time()
        self.arm()
        if len(self.connections) > self.max_connections:
            self.make_room()

    def data_received(self, data: bytes) -> None:
        """Take bytes in; the clock runs while the head of a request is incomplete."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.arm()
        else:
            self.disarm()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self.disarm()
        super().connection_lost(exc)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection nobody uses; cut it when the client does not even read what is left."""
        super().timeout_keep_alive_handler()
        self.loop.call_later(self.linger_seconds, self.transport.abort)

    def arm(self) -> None:
        """Start the clock, unless it runs."""
        if self.deadline is None:
            self.deadline = self.loop.call_later(self.header_seconds, self.transport.abort)

    def disarm(self) -> None:
        """Stop the clock."""
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def make_room(self) -> None:
        """Cut the oldest connection that never sent a whole request; when each one did, the new one goes."""
        if not Connection.crowded:
            Connection.crowded = True
            words = "more than %d connections at once: those that ask for nothing are cut"
            logging.getLogger(__name__).warning(words, self.max_connections)
        others = (each for each in self.connections if isinstance(each, Connection) and each is not self)
        silent = [each for each in others if each.cycle is None and not each.transport.is_closing()]
        min(silent, key=lambda each: each.since, default=self).transport.abort()


class Server(uvicorn.Server):
    """A server whose queue of connections is longer than what it takes in at a time."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(BACKLOG)


def serve(
    project: Project,
    host: str = HOST,
    port: int | None = None,
    *,
    allow_remote: bool = False,
    browser: bool = True,
    by: str | None = None,
    tls: tuple[Path, Path] | None = None,
    say: Say = lambda line: print(line, file=sys.stderr, flush=True),
) -> None:
    """Serve the page until the process is stopped. Labels are on disk at every moment.

    Without a port the first free one from 8642 on is taken. `tls` is a certificate and its key: then it is encrypted.
    """
    check_address(host, allow_remote)
    keys, scheme = new_keys(project.layout.state), "https" if tls else "http"
    with bind(host, port) as bound, quiet_decoders(), entrance(project, keys, address(host, bound, scheme)) as door:
        taken = bound.getsockname()[1]
        server = server_of(guarded(project, keys, host, bound, by, scheme))
        if tls:
            server.config.ssl_certfile, server.config.ssl_keyfile = map(str, tls)
            digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(tls[0].read_text("ascii"))).digest()
            say(f"sha256 of the certificate, to compare with what the browser shows:  {digest.hex(':').upper()}")
        with stopped_by_signals(server):
            if port is None and taken != PORT:
                say(f"port {PORT} is taken, perhaps by another mma; this page has port {taken}")
            if not is_loopback(host):
                say(
                    f"WARNING: the page listens at {printable(host)}, port {taken}: EVERY MACHINE THAT CAN REACH THIS ONE "
                    "CAN TRY TO OPEN IT. Only the token in the address keeps others out"
                    + ("." if tls else ", and the connection is not encrypted. Encrypt it with --tls.")
                )
                say("invite each person with a link of their own: on the page, under People")
            # The token goes to a terminal, never into a log.
            url, file = address(host, bound, scheme), printable(str(door))
            if sys.stderr.isatty():
                say(f"the page is at  {url}?token={keys.token}  (Ctrl-C stops it; every label is saved)")
            else:
                say(f"open this file in a browser:  {file}  (it leads to {url} with its key)")
            # A browser in the terminal would get in the way.
            screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
            if browser and (screen or sys.platform in ("darwin", "win32")):
                webbrowser.open(door.as_uri())
            server.run(sockets=[bound])


def guarded(
    project: Project, keys: Keys, host: str, bound: socket.socket, by: str | None, scheme: str = "http"
) -> Guard:
    """Return the whole application, with the guard outermost."""
    invitations, hosts = Invitations(project.layout.state), allowed_hosts(host, bound.getsockname()[1])
    app = make_app(project, by or "", invitations)
    return Guard(app, keys, hosts, project.settings.id, RequestLimits(), invitations, scheme=scheme)


def server_of(app: Guard) -> uvicorn.Server:
    """Return a server that tells open pages when it ends."""
    server = plain_server(app)
    app.app.state.page.ending = lambda: server.should_exit  # type: ignore[attr-defined]
    return server


def plain_server(app: ASGIApp, lifespan: Literal["on", "off"] = "off") -> uvicorn.Server:
    """Return a server that has limits and keeps no log of requests."""
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan=lifespan,
        loop="asyncio",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=AT_ONCE,  # uvicorn takes in as many at a time, each with a file descriptor
        h11_max_incomplete_event_size=MAX_HEADERS,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
    )
    return Server(config)


@contextmanager
def stopped_by_signals(server: uvicorn.Server) -> Iterator[None]:
    """End quietly after Ctrl-C, and after SIGTERM in a way that lets whoever called us clean up.

    Ctrl-C only leaves a mark. An exception would be lost where Python swallows them, such as in a callback of an import.
    """

    def mark(number: int, frame: FrameType | None) -> None:
        server.should_exit = True

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    ours = threading.current_thread() is threading.main_thread()
    handlers = {signal.SIGINT: mark, signal.SIGTERM: leave} if ours else {}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_address(host: str, allow_remote: bool) -> None:
    """Refuse an address that others can reach, unless that is wanted in so many words."""
    if not is_loopback(host) and not allow_remote:
        raise UserError(
            f"--host {printable(host)} lets other machines reach this page, its images and labels. "
            f"If that is what you want, add --allow-remote; else leave --host out."
        )


def lan_address() -> str:
    """Return the address by which other machines of the network reach this one. Nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address that belongs to nobody: the system only looks up its route
            found = str(probe.getsockname()[0])
        except OSError:
            found = "127.0.0.1"
    if is_loopback(found):
        raise UserError(
            "--lan: this machine has no network. Connect it, or give its address with --host and --allow-remote."
        )
    return found


def certificate(state: Path, host: str) -> tuple[Path, Path]:
    """Return a certificate for this address and its key, made here once and kept in the project's private folder."""
    pair = state / f"tls-{host.replace(':', '_')}.crt", state / f"tls-{host.replace(':', '_')}.key"
    if all(each.is_file() for each in pair):
        return pair
    try:
        name = f"subjectAltName=IP:{ipaddress.ip_address(host)},DNS:localhost,IP:127.0.0.1"
    except ValueError:
        name = f"subjectAltName=DNS:{host},DNS:localhost,IP:127.0.0.1"
    command = [*OPENSSL.split(), "-addext", name, "-keyout", str(pair[1]), "-out", str(pair[0])]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(
            "--tls makes a certificate with the program openssl, and that failed. Install it, or give a certificate:  "
            "--tls-cert FILE --tls-key FILE"
        ) from error
    pair[1].chmod(0o600)
    return pair


def bind(host: str, port: int | None = None) -> socket.socket:
    """Return a socket at this address, or say why there is none. Without a port the first free one is taken."""
    if port is not None:
        return _bind(host, port)
    for number in range(PORT, PORT + PORTS):
        try:
            return _bind(host, number)
        except PortTaken:
            continue
    return _bind(host, 0)


class PortTaken(UserError):
    """Another program listens there."""


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, so that asyncio sends answers at once: otherwise a client's delayed acknowledgement holds each for 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if os.name == "posix":
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(BACKLOG)  # a port can also be taken between bind and listen
    except (OSError, OverflowError) as error:
        bound.close()
        code = getattr(error, "errno", None)
        if code == errno.EADDRINUSE:
            raise PortTaken(
                f"port {port} is taken, perhaps by another mma. Stop it, or leave --port out: then a free one is found."
            ) from error
        if code == errno.EACCES:
            raise UserError(f"port {port} may not be used by you. Choose one above 1023:  --port {PORT}") from error
        where = f"{printable(host)}, port {port}"
        raise UserError(f"cannot listen at {where}: {error}. Choose others with --host and --port.") from error
    return bound


def allowed_hosts(host: str, port: int) -> frozenset[str]:
    """Return the names, with the port, by which a browser may call us."""
    names = {"127.0.0.1", "localhost"}
    if host in WILDCARDS:
        names |= {socket.gethostname().lower()}
    elif host not in names:
        names |= {f"[{host}]" if ":" in host else host.lower()}
    return frozenset(f"{name}:{port}" for name in names)


def address(host: str, bound: socket.socket, scheme: str = "http") -> str:
    """Return the address of the page."""
    name = socket.gethostname() if host in WILDCARDS else f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}:{bound.getsockname()[1]}/"


@contextmanager
def entrance(project: Project, keys: Keys, url: str) -> Iterator[Path]:
    """Keep a file that leads to the page, for its owner alone: what a browser is started with, everybody can see."""
    door = project.layout.state / "open.html"
    link = html.escape(f"{url}?token={keys.token}")
    write_atomically(
        door,
        f'<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>mma</title>'
        f'<meta http-equiv="refresh" content="0;url={link}"><p><a href="{link}">Open the page</a></p>\n',
        private=True,
    )
    try:
        yield door
    finally:
        door.unlink(missing_ok=True)

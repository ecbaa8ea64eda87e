"""Serve a project's page: bind, print one line, open the browser, run until stopped."""

from __future__ import annotations

import errno
import getpass
import html
import ipaddress
import os
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import uvicorn

from mma.data.photos import quiet_decoders
from mma.files import write_atomically
from mma.project import Project
from mma.text import printable
from mma.web.app import make_app
from mma.web.connections import MAX_HEADERS, Connection
from mma.web.keys import Keys, new_keys
from mma.web.security import Guard, RequestLimits

HOST, PORT = "127.0.0.1", 8642
WILDCARDS = ("0.0.0.0", "::")
KEEP_ALIVE, GRACE = 30, 3  # seconds
Say = Callable[[str], None]


def say_on_stderr(message: str) -> None:
    """Print a line for the person at the terminal."""
    print(message, file=sys.stderr, flush=True)


def serve(
    project: Project,
    host: str = HOST,
    port: int = PORT,
    *,
    allow_remote: bool = False,
    browser: bool = True,
    by: str | None = None,
    say: Say = say_on_stderr,
) -> None:
    """Serve the page until the process is stopped. Labels are on disk at every moment."""
    check_address(host, allow_remote)
    keys = new_keys(project.layout.state)
    with bind(host, port) as bound, quiet_decoders(), entrance(project, keys, address(host, bound)) as door:
        server = server_of(guarded(project, keys, host, bound, by))
        with stopped_by_signals(server):
            if not is_loopback(host):
                say(warning(host, bound))
            say(announcement(address(host, bound), keys, door))
            if browser and has_screen():
                webbrowser.open(door.as_uri())
            server.run(sockets=[bound])


def guarded(project: Project, keys: Keys, host: str, bound: socket.socket, by: str | None) -> Guard:
    """Return the whole application, with the guard outermost."""
    app = make_app(project, by or login_name())
    return Guard(app, keys, allowed_hosts(host, bound.getsockname()[1]), project.settings.id, RequestLimits())


def server_of(app: Guard) -> uvicorn.Server:
    """Return a server that has limits, keeps no log of requests, and tells open pages when it ends."""
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=MAX_HEADERS,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
    )
    server = uvicorn.Server(config)
    app.app.state.ending = lambda: server.should_exit  # type: ignore[attr-defined]
    return server


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


def login_name() -> str:
    """Return who is logged in: the name under which labels are kept unless the page says another."""
    try:
        return printable(getpass.getuser())[:100] or "me"
    except (KeyError, OSError):  # a container without users
        return "me"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_address(host: str, allow_remote: bool) -> None:
    """Refuse an address that others can reach, unless that is wanted in so many words."""
    if not is_loopback(host) and not allow_remote:
        raise ValueError(
            f"--host {printable(host)} lets other machines reach this page, its images and labels. "
            f"If that is what you want, add --allow-remote; else leave --host out."
        )


def bind(host: str, port: int) -> socket.socket:
    """Return a socket at this address, or say why there is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    if os.name == "posix":
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(128)  # a port can also be taken between bind and listen
    except (OSError, OverflowError) as error:
        bound.close()
        raise ValueError(explain_bind(error, host, port)) from error
    return bound


def explain_bind(error: Exception, host: str, port: int) -> str:
    """Say why an address cannot be used, and what to type."""
    code = getattr(error, "errno", None)
    if code == errno.EADDRINUSE:
        return f"port {port} is taken, perhaps by another mma. Stop it, or choose another port:  --port {port + 1}"
    if code == errno.EACCES:
        return f"port {port} may not be used by you. Choose one above 1023:  --port {PORT}"
    return f"cannot listen at {printable(host)}, port {port}: {error}. Choose others with --host and --port."


def allowed_hosts(host: str, port: int) -> frozenset[str]:
    """Return the names, with the port, by which a browser may call us."""
    names = {"127.0.0.1", "localhost"}
    if host in WILDCARDS:
        names |= {socket.gethostname().lower()}
    elif host not in names:
        names |= {f"[{host}]" if ":" in host else host.lower()}
    return frozenset(f"{name}:{port}" for name in names)


def address(host: str, bound: socket.socket) -> str:
    """Return the address of the page."""
    name = socket.gethostname() if host in WILDCARDS else f"[{host}]" if ":" in host else host
    return f"http://{name}:{bound.getsockname()[1]}/"


def warning(host: str, bound: socket.socket) -> str:
    """Say loudly that others can reach the page."""
    return (
        f"WARNING: the page listens at {printable(host)}, port {bound.getsockname()[1]}: EVERY MACHINE THAT CAN REACH THIS ONE "
        "CAN TRY TO OPEN IT. Only the token in the address keeps others out, and the connection is not encrypted."
    )


def announcement(url: str, keys: Keys, door: Path) -> str:
    """Return the one line that leads to the page. The token goes to a terminal, never into a log."""
    if sys.stderr.isatty():
        return f"the page is at  {url}?token={keys.token}  (Ctrl-C stops it; every label is saved)"
    return f"the page is at  {url}  and its key in  {printable(str(door))}"


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


def has_screen() -> bool:
    """Return whether a browser with windows can be expected; one in the terminal would get in the way."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))

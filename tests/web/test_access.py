"""Nobody gets in: address, token, host, origin. GATE S1 to S4."""

from __future__ import annotations

import asyncio
import inspect
import re
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from sqlalchemy import select
from starlette.testclient import TestClient

from mma.project import Project
from mma.project.labels import database as db
from mma.web import security
from mma.web.app import ROUTES
from mma.web.security import new_keys
from mma.web.server import allowed_hosts, bind, check_address, serve
from tests.web.page import KEYS, OURS, PATIENCE, PORT, Running

FOREIGN = [
    "http://evil.com",
    "null",
    f"http://127.0.0.1:{PORT + 1}",
    f"https://127.0.0.1:{PORT}",
    f"{OURS}.evil.com",
    "file://",
]


def address_of(path: str) -> str:
    """A real address for a route."""
    return path.replace("{name}", "app.js").replace("{image}", "0" * 64).replace("{size}", "thumb")


def every_request() -> list[tuple[str, str]]:
    return [(method, address_of(route.path)) for route in ROUTES for method in sorted(route.methods or ())]


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example", "127.0.0.1.evil.com"])
def test_s1_an_address_that_others_can_reach_needs_two_options(host, refusal):
    with refusal():
        check_address(host, allow_remote=False)
    check_address(host, allow_remote=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.2"])
def test_s1_loopback_needs_no_option(host):
    check_address(host, allow_remote=False)


def test_s1_the_server_listens_on_loopback_alone(project: Project, start: Callable[..., Running]):
    server = start(project.folder)
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE):
        pass
    listening = Path("/proc/net/tcp")
    if not listening.exists():
        pytest.skip("/proc/net/tcp tells who listens where; this system has none")
    rows = [line.split() for line in listening.read_text().splitlines()[1:]]
    ours = {row[1].split(":")[0] for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) == server.port}
    assert ours == {"0100007F"}


def test_s1_a_remote_address_is_announced_loudly_and_keeps_the_token(project: Project, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: said.append(type(server.config.app).__name__))
    serve(project, "0.0.0.0", 0, allow_remote=True, browser=False, say=said.append)
    assert said[0].startswith("WARNING")
    assert "EVERY MACHINE" in said[0]
    assert said[-1] == "Guard"


def test_s2_a_token_has_256_bits_and_is_new_at_each_start(tmp_path: Path):
    tokens = {new_keys(tmp_path).token for _ in range(5)}
    assert len(tokens) == 5
    assert all(len(token) * 6 >= 192 for token in tokens)


def test_s2_secrets_are_compared_in_constant_time():
    assert "compare_digest" in inspect.getsource(security.same)
    assert "same(token, self.keys.token)" in inspect.getsource(security.Guard.exchange_token)
    assert "same(cookie, self.keys.session)" in inspect.getsource(security.Guard.answer)


def test_s2_the_token_is_swapped_for_a_strict_cookie_and_a_clean_address(stranger: TestClient):
    answer = stranger.get(f"/?token={KEYS.token}", follow_redirects=False)
    cookie = answer.headers["set-cookie"]
    assert answer.status_code == 200
    assert cookie.startswith(f"mma-{PORT}={KEYS.session};")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")[1:]}
    assert KEYS.token not in answer.text
    assert "content='0;url=/'" in answer.text
    assert stranger.get("/").status_code == 200


@pytest.mark.parametrize("token", ["", "x", "T" * 42, "T" * 44, "t" * 43, "ü" * 43, "%00" * 43])
def test_s2_a_wrong_token_opens_nothing(stranger: TestClient, token: str):
    answer = stranger.get(f"/?token={token}")
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("session", ["", "x", "S" * 42, "s" * 43, KEYS.token])
def test_s2_a_wrong_cookie_opens_nothing(stranger: TestClient, session: str):
    stranger.cookies.set(f"mma-{PORT}", session)
    assert stranger.get("/").status_code == 401


def test_s2_a_token_is_taken_at_the_page_alone(stranger: TestClient):
    assert stranger.get(f"/api/state?token={KEYS.token}").status_code == 401


def test_s2_secrets_are_in_files_of_their_owner_alone_and_never_in_a_text(tmp_path: Path):
    keys = new_keys(tmp_path)
    assert (tmp_path / "session").stat().st_mode & 0o777 == 0o600
    assert keys.token not in repr(keys)
    assert keys.session not in repr(keys)


def test_s2_a_session_outlives_a_restart_but_not_a_damaged_or_readable_file(tmp_path: Path):
    first = new_keys(tmp_path).session
    assert new_keys(tmp_path).session == first
    (tmp_path / "session").chmod(0o644)
    second = new_keys(tmp_path).session
    (tmp_path / "session").write_text("short")
    assert len({first, second, new_keys(tmp_path).session}) == 3


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="/proc shows the arguments of a process; this system has none")
def test_s2_the_token_is_in_no_argument_log_or_traceback(
    project: Project, start: Callable[..., Running], tmp_path: Path
):
    server = start(project.folder)
    token = server.token
    base = f"http://127.0.0.1:{server.port}"
    with httpx.Client(base_url=base, timeout=PATIENCE) as browser:
        browser.get(f"/?token={token}")
        with (
            closing(sqlite3.connect(project.layout.database)) as database,
            database,
        ):  # our own code fails over this row
            database.execute("INSERT INTO models VALUES (1, 'live', 0, 'ready', '', NULL, '', '[]')")
        failed = browser.get("/api/state")
        browser.get(f"/?token={token}&token={token}")
        browser.get(f"/api/state?token={token}")
        httpx.get(f"{base}/?token={token}x", timeout=PATIENCE)
    arguments = Path(f"/proc/{server.process.pid}/cmdline").read_bytes().decode()
    written = server.stop()
    assert failed.status_code == 500
    assert "Traceback" in written
    assert token not in arguments + written + failed.text
    assert not (project.folder / "state" / "open.html").exists()


def test_s2_the_terminal_gets_the_token_and_a_log_does_not(project: Project, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    serve(project, port=0, browser=False, say=said.append)
    assert re.search(r"/\?token=[\w-]{43} ", said[-1])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    serve(project, port=0, browser=False, say=said.append)
    assert "token" not in said[-1]
    assert str(project.folder / "state" / "open.html") in said[-1]


def test_s2_the_browser_is_started_with_a_file_and_not_with_the_token(project: Project, monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: None)
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setenv("DISPLAY", ":0")
    serve(project, port=0, say=lambda line: None)
    assert opened == [(project.folder / "state" / "open.html").as_uri()]


WRONG_HOSTS = [
    *("evil.com", f"evil.com:{PORT}", f"127.0.0.1.evil.com:{PORT}", f"0.0.0.0:{PORT}", "0.0.0.0", "", "127.0.0.1"),
    *(
        "localhost",
        f"127.0.0.1:{PORT + 1}",
        f"127.0.0.1:{PORT}.",
        f"127.0.0.1:{PORT}@evil.com",
        f"[::1]:{PORT}",
        f"127.1:{PORT}",
    ),
]


@pytest.mark.parametrize("host", WRONG_HOSTS)
def test_s3_an_unknown_host_is_refused_on_every_route(client: TestClient, host: str):
    requests = [*every_request(), ("GET", "/nothing"), ("GET", f"/?token={KEYS.token}")]
    rebound = {"host": host, "origin": f"http://{host}"}  # what a browser sends whose name for us was changed
    answers = [client.request(method, path, headers=rebound) for method, path in requests]
    assert {answer.status_code for answer in answers} == {403}
    assert not any("set-cookie" in answer.headers for answer in answers)


def test_s3_two_hosts_are_refused(client: TestClient):
    answer = client.get("/", headers=[("host", f"127.0.0.1:{PORT}"), ("host", "evil.com")])
    assert answer.status_code == 403


def test_s3_our_own_names_are_known(client: TestClient):
    assert (
        client.get("/", headers={"host": f"LOCALHOST:{PORT}", "origin": f"http://localhost:{PORT}"}).status_code == 200
    )
    assert allowed_hosts("127.0.0.1", 7) == {"127.0.0.1:7", "localhost:7"}
    assert allowed_hosts("192.168.1.5", 7) == {"127.0.0.1:7", "localhost:7", "192.168.1.5:7"}
    assert allowed_hosts("::1", 7) == {"127.0.0.1:7", "localhost:7", "[::1]:7"}
    assert "0.0.0.0:7" not in allowed_hosts("0.0.0.0", 7)


def test_s4_every_route_asks_for_the_key(stranger: TestClient, project: Project):
    headers = {"origin": OURS, "x-mma": project.settings.id, "content-type": "application/json"}
    for method, path in [*every_request(), ("GET", "/nothing"), ("POST", "/nothing")]:
        answer = stranger.request(method, path, headers=headers)
        assert answer.status_code == 401, (method, path)


def test_s4_every_change_is_a_post_and_nothing_else_is_served(client: TestClient):
    assert {method for method, _ in every_request()} == {"GET", "HEAD", "POST"}
    for path in {path for _, path in every_request()}:
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            assert client.request(method, path).status_code == 405
    posts = {path for method, path in every_request() if method == "POST"}
    assert {client.get(path).status_code for path in posts} == {405}


def contents(project: Project) -> list[object]:
    tables = (db.events, db.current, db.classes, db.leases, db.picks, db.counts, db.models, db.images, db.meta)
    with project.store.reading() as connection:
        return [connection.execute(select(table)).all() for table in tables]


def test_s4_reading_changes_nothing(client: TestClient, project: Project, photos: Path):
    image = project.images()[0].id
    before = contents(project)
    for method, path in every_request():
        if method != "POST":
            client.request(method, path.replace("0" * 64, image))
            client.request(method, f"{path.replace('0' * 64, image)}?by=anna&class_id=0&kind=label&do=add&name=x")
    assert contents(project) == before


@pytest.mark.parametrize("origin", FOREIGN)
def test_s4_a_change_from_elsewhere_is_refused(client: TestClient, project: Project, origin: str):
    body = {"do": "add", "name": "bird", "by": "eve"}
    assert client.post("/api/classes", json=body, headers={"origin": origin}).status_code == 403
    assert len(project.classes()) == 2


def test_s4_a_change_without_origin_header_or_json_is_refused(client: TestClient, project: Project):
    body = {"do": "add", "name": "bird", "by": "eve"}
    del client.headers["origin"]
    assert client.post("/api/classes", json=body).status_code == 403
    client.headers["origin"] = OURS
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        assert client.post("/api/classes", json=body, headers={"content-type": kind}).status_code == 415
    del client.headers["x-mma"]
    assert client.post("/api/classes", json=body).status_code == 403
    assert len(project.classes()) == 2
    client.headers["x-mma"] = project.settings.id
    assert client.post("/api/classes", json=body).status_code == 200


def test_s4_a_page_of_another_project_changes_nothing_here(client: TestClient, project: Project):
    answer = client.post("/api/classes", json={"do": "add", "name": "bird", "by": "eve"}, headers={"x-mma": "f" * 16})
    assert answer.status_code == 409
    assert len(project.classes()) == 2


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_s4_another_site_cannot_even_read(client: TestClient, site: str):
    assert client.get("/api/state", headers={"sec-fetch-site": site}).status_code == 403


def test_s4_no_answer_allows_another_site_to_read_it(client: TestClient):
    for method, path in [*every_request(), ("OPTIONS", "/api/answers"), ("GET", "/nothing")]:
        for origin in (OURS, "http://evil.com"):
            answer = client.request(method, path, headers={"origin": origin})
            assert not [name for name in answer.headers if name.startswith("access-control")]


def test_two_projects_in_one_browser_have_cookies_of_their_own(guard, project: Project):
    from mma.web.security import Guard

    other = Guard(guard.app, KEYS, frozenset({"127.0.0.1:9000"}), project.settings.id)
    assert other.cookie != guard.cookie


def test_without_a_port_the_next_free_one_is_taken_and_said(project: Project, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: said.append(str(sockets[0].getsockname()[1])))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        monkeypatch.setattr("mma.web.server.PORT", taken)
        serve(project, browser=False, say=said.append)
    assert int(said[-1]) > taken
    assert said[0] == f"port {taken} is taken, perhaps by another mma; this page has port {said[-1]}"
    assert f":{said[-1]}/" in said[1]


def test_answers_leave_at_once():
    """Else a client's delayed acknowledgement holds each answer back for 40 ms."""

    async def accept() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def look(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted = writer.get_extra_info("socket")
            found.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        async with await asyncio.start_server(look, sock=bound):
            _, writer = await asyncio.open_connection(*bound.getsockname())
            writer.close()
            return await found

    with bind("127.0.0.1", 0) as bound:
        assert asyncio.run(accept())


def test_a_bad_folder_is_told_before_a_taken_port(tmp_path: Path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        command = [sys.executable, "-m", "mma", "start", str(tmp_path / "no"), "--port", str(other.getsockname()[1])]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode
    assert "there is no folder" in done.stderr


def test_a_port_that_is_taken_is_told_in_a_sentence(project: Project, refusal):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with refusal():
            serve(project, port=port, browser=False)

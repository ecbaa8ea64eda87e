"""What goes out and what it may cost: policy, pictures, paths, limits, silence. GATE S5 to S9 and D5."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import resources
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image, ImageOps
from starlette.testclient import TestClient

from mma.data.photos import bounded_photo, open_photo
from mma.project import Answer, Project, create_project
from mma.web.app import ROUTES
from mma.web.views import Pictures
from tests.web import page
from tests.web.page import KEYS, PATIENCE, Running, run_apart, write_image

STATIC = resources.files("mma.web") / "static"
FILES = {each.name: each.read_text("utf-8") for each in STATIC.iterdir()}
HEADER_SECONDS = 5.0  # long enough for a browser on a busy machine


def test_s5_every_answer_carries_the_policy(client: TestClient, stranger: TestClient, project: Project):
    image = project.images()[0].id
    good = [client.get(path) for path in ("/", "/static/app.js", "/api/state", f"/images/{image}/thumb")]
    bad = [
        client.get("/nothing"),
        stranger.get("/"),
        client.get("/", headers={"host": "evil.com"}),
        client.post("/api/next", content="{"),
    ]
    assert {answer.status_code for answer in bad} == {404, 401, 403, 422}
    for answer in (*good, *bad):
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none';")
        assert not re.search(r"unsafe|\*|http:|https:|data:|blob:", policy)
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "server" not in answer.headers


@pytest.mark.parametrize("name", sorted(FILES))
def test_s5_no_file_of_the_page_makes_markup_of_text_or_asks_anybody_else(name: str):
    text = FILES[name]
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function|srcdoc", text
    )
    addresses = set(re.findall(r"(?:https?:)?//[\w.]+\.\w+[^\s\"')]*", text)) - {"http://www.w3.org/2000/svg"}
    assert not addresses
    if name.endswith(".html"):
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|<style|javascript:", text)


def test_s5_the_page_may_be_cached_but_answers_about_labels_are_not(client: TestClient, project: Project):
    assert client.get("/api/state").headers["cache-control"] == "no-store"
    assert "private" in client.get(f"/images/{project.images()[0].id}/full").headers["cache-control"]


def test_s6_no_route_takes_a_path_an_address_or_a_pattern():
    parameters = {name for route in ROUTES for name in route.param_convertors}
    assert parameters == {"name", "image", "size"}
    assert not [route.path for route in ROUTES if ":path" in route.path]


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/static/../app.py",
            "/static/%2e%2e/app.py",
            "/static/..%2fapp.py",
            "/static/%2e%2e%5capp.py",
            "/static/app.py",
            "/static/",
        ),
        *(
            "/images/../../etc/passwd/thumb",
            "/images/%2fetc%2fpasswd/full",
            "/images/photo-01.png/full",
            f"/images/{'0' * 63}/full",
        ),
        *(
            f"/images/{'A' * 64}/full",
            f"/images/{'0' * 64}/original",
            f"/images/{'0' * 64}/../full",
            f"/images/{'0' * 64}%00/full",
        ),
    ],
)
def test_s6_no_path_leads_to_a_file(client: TestClient, path: str):
    assert client.get(path).status_code == 404


def test_s6_an_unknown_id_has_no_picture(client: TestClient):
    assert client.get(f"/images/{'0' * 64}/full").status_code == 410


def test_s6_pictures_are_made_of_pixels_alone_and_stand_upright(tmp_path: Path):
    (tmp_path / "photos").mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    exif[0x010F] = "SECRET-CAMERA"
    exif.get_ifd(0x8825)[1] = "N"  # a place
    picture = Image.effect_noise((600, 300), 40).convert("RGB")
    picture.save(tmp_path / "photos" / "a.jpg", exif=exif, comment=b"SECRET-COMMENT")
    (tmp_path / "photos" / "a.jpg").write_bytes((tmp_path / "photos" / "a.jpg").read_bytes() + b"SECRET-TAIL")
    project = create_project(tmp_path / "photos", classes=["a", "b"])
    project.index()
    for size in ("thumb", "full"):
        data, media = Pictures(project).picture(project.images()[0].id, size)
        shown = Image.open(io.BytesIO(data))
        assert b"SECRET" not in data
        assert not shown.getexif()
        assert shown.height == 2 * shown.width
        assert media in ("image/jpeg", "image/png")
    project.close()


@pytest.mark.parametrize("side", [100, 900], ids=["as it is", "in strips"])
def test_s6_every_orientation_stands_upright_and_transparency_is_white(tmp_path: Path, monkeypatch, side: int):
    monkeypatch.setattr("mma.data.photos.LARGE", 100_000)
    corners = Image.new("RGBA", (side, side // 2), "red")
    corners.paste("blue", (side // 2, 0, side, side // 4))
    corners.paste((0, 0, 0, 0), (0, side // 4, side // 2, side // 2))
    for turn in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = turn
        corners.save(tmp_path / "a.png", exif=exif)
        with Image.open(tmp_path / "a.png") as image:
            upright = ImageOps.exif_transpose(image)
            wanted = Image.alpha_composite(Image.new("RGBA", upright.size, "white"), upright)
        with open_photo(tmp_path, "a.png") as (image, _):
            shown = bounded_photo(image, 100)
        wanted.thumbnail((100, 100))
        assert shown.size == wanted.size
        assert np.abs(np.asarray(shown, int) - np.asarray(wanted.convert("RGB"), int)).mean() < 3, turn


PEAK = """
import sys, threading
from mma.data.photos import quiet_decoders
from mma.project import open_project
from mma.web.views import Pictures

def most() -> int:
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) >> 10

project = open_project(sys.argv[1])
pictures, before = Pictures(project), most()
with quiet_decoders():
    image = project.images()[0].id
    threads = [threading.Thread(target=pictures.picture, args=(image, "full")) for _ in range(3)]
    for each in threads: each.start()
    for each in threads: each.join()
print(most() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc")
def test_s8_a_small_file_of_many_pixels_takes_no_more_memory_than_its_pixels(tmp_path: Path):
    (tmp_path / "photos").mkdir()
    Image.new("RGBA", (6_000, 6_000), (200, 30, 90, 128)).save(tmp_path / "photos" / "a.png")
    project = create_project(tmp_path / "photos", classes=["a", "b"])
    project.index()
    project.close()
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(project.folder)], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert int(done.stdout) < 300  # MB; one image has 137


def test_s6_a_thumbnail_is_small_and_comes_from_the_cache_the_second_time(
    client: TestClient, project: Project, photos: Path
):
    image = project.images()[0]
    first = client.get(f"/images/{image.id}/thumb")
    assert max(Image.open(io.BytesIO(first.content)).size) <= 320
    (photos / image.name).unlink()
    assert client.get(f"/images/{image.id}/thumb").content == first.content


def test_s6_drawings_with_scripts_are_not_served(tmp_path: Path):
    write_image(tmp_path / "photos" / "a.png", 1)
    (tmp_path / "photos" / "b.svg").write_text(
        "<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
    )
    project = create_project(tmp_path / "photos")
    project.index()
    assert [image.name for image in project.images()] == ["a.png"]
    project.close()


def test_s7_a_file_that_became_a_link_to_a_neighbour_is_not_served(client: TestClient, project: Project, photos: Path):
    private = write_image(photos.parent / "photos-private" / "x.png", 99)
    image = project.images()[0]
    (photos / image.name).unlink()
    (photos / image.name).symlink_to(private)
    answer = client.get(f"/images/{image.id}/full")
    assert answer.status_code == 410
    assert "photos-private" not in answer.text


def test_s7_a_folder_that_became_a_link_to_a_neighbour_is_not_served(tmp_path: Path, refusal):
    write_image(tmp_path / "photos" / "sub" / "a.png", 1)
    project = create_project(tmp_path / "photos")
    project.index()
    (tmp_path / "photos" / "sub").rename(tmp_path / "photos-private")
    (tmp_path / "photos" / "sub").symlink_to(tmp_path / "photos-private")
    with refusal():
        Pictures(project).picture(project.images()[0].id, "full")
    project.close()


def test_s7_a_pipe_in_place_of_an_image_does_not_hang_the_server(client: TestClient, project: Project, photos: Path):
    image = project.images()[0]
    (photos / image.name).unlink()
    os.mkfifo(photos / image.name)
    assert client.get(f"/images/{image.id}/full").status_code == 410


def test_s7_changed_bytes_are_reported_and_not_shown(client: TestClient, project: Project, photos: Path):
    image = project.images()[0]
    write_image(photos / image.name, 12345)
    answer = client.get(f"/images/{image.id}/full")
    assert answer.status_code == 410
    assert "has changed" in answer.json()["error"]


def test_s7_state_is_its_owners_alone(project: Project, start: Callable[..., Running]):
    start(project.folder)
    state = project.folder / "state"
    assert state.stat().st_mode & 0o777 == 0o700
    assert {(state / name).stat().st_mode & 0o777 for name in ("session", "open.html")} == {0o600}


def test_s8_what_is_too_long_is_refused(client: TestClient):
    assert client.get("/api/recent?by=" + "x" * 3_000).status_code == 414
    assert client.get("/api/state", headers={"x-long": "x" * 20_000}).status_code == 431
    assert client.post("/api/next", content=b"{" * 300_000).status_code == 413

    def pieces():
        for _ in range(30):
            yield b"x" * 10_000

    assert client.post("/api/next", content=pieces()).status_code == 413
    assert client.post("/api/next", content="[" * 100_000).status_code == 422
    assert client.post("/api/next", json={"by": "anna", "n": 10_000}).status_code == 422


def say(port: int, data: bytes) -> socket.socket:
    """Connect, send a part of a request, and wait."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    connection.sendall(data)
    return connection


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_s8_slow_clients_do_not_stop_the_others(project: Project, start: Callable[..., Running]):
    server = start(project.folder, header_seconds=HEADER_SECONDS, max_connections=20)
    slow = [say(server.port, b"GET / HTTP/1.1\r\nHost: x") for _ in range(60)]
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=PATIENCE) as browser:
        browser.get(f"/?token={server.token}")
        assert browser.get("/api/state").status_code == 200
        assert all(is_closed(each) for each in slow)
        assert browser.get("/api/state").status_code == 200
    for each in slow:
        each.close()


FEW_FILES = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
"""


def test_s8_connections_without_a_key_do_not_starve_the_page(
    project: Project, start: Callable[..., Running], monkeypatch
):
    monkeypatch.setattr(page, "SERVER", FEW_FILES + page.SERVER)
    server = start(project.folder)
    done = threading.Event()

    def churn() -> None:
        while not done.is_set():
            crowd = [socket.socket() for _ in range(100)]
            for each in crowd:
                each.setblocking(False)
                each.connect_ex(("127.0.0.1", server.port))
            for each in crowd:
                each.close()

    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            pool.submit(churn)
        try:
            for _ in range(3):
                with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=PATIENCE) as browser:
                    assert browser.get(f"/?token={server.token}").status_code == 200
        finally:
            done.set()
    written = server.stop()
    assert "Traceback" not in written
    assert len(written.splitlines()) <= 2


def test_s8_a_connection_in_use_is_not_cut_for_a_new_one(project: Project, start: Callable[..., Running], answer_for):
    server = start(project.folder, header_seconds=PATIENCE, max_connections=8)
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=PATIENCE) as browser:
        browser.get(f"/?token={server.token}")
        with browser.stream("GET", "/api/events") as news:
            lines = news.iter_lines()
            assert '"labeled": 0' in next(lines)
            crowd = [say(server.port, b"GET") for _ in range(40)]
            project.answer(Answer.model_validate_json(json.dumps(answer_for(project.images()[0].id))))
            assert any('"labeled": 1' in line for line in lines)
    assert sum(is_closed(each) for each in crowd[:30]) == 30
    for each in crowd:
        each.close()


def test_s8_a_head_that_never_ends_is_cut_off(project: Project, start: Callable[..., Running]):
    server = start(project.folder, header_seconds=PATIENCE)
    with say(server.port, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 4_000) as connection:
        answer = connection.recv(100)
    assert answer.startswith(b"HTTP/1.1 400")


def test_s8_a_body_that_comes_too_slowly_is_given_up(guard, project: Project):
    guard.limits = replace(guard.limits, receive=0.05)
    sent: list[dict] = []

    async def receive():
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    headers = {"host": "127.0.0.1:8642", "origin": "http://127.0.0.1:8642", "x-mma": project.settings.id}
    headers |= {"content-type": "application/json", "cookie": f"mma-8642={KEYS.session}"}
    scope = {"type": "http", "method": "POST", "path": "/api/next", "raw_path": b"/api/next", "query_string": b""}
    scope["headers"] = [(name.encode(), value.encode()) for name, value in headers.items()]
    run_apart(asyncio.wait_for(guard(scope, receive, send), PATIENCE))
    assert sent[0]["status"] == 408


WATCHED = """
import socket, sys
real = socket.socket.connect
def connect(self, address):
    if self.family in (socket.AF_INET, socket.AF_INET6):
        print("CONNECT", address, flush=True)
        raise OSError("blocked")
    return real(self, address)
socket.socket.connect = connect
socket.getaddrinfo = lambda *a, **k: (print("LOOKUP", a, flush=True), (_ for _ in ()).throw(OSError("blocked")))[1]
"""


def test_s9_the_server_asks_nobody_anything(project: Project, start: Callable[..., Running], monkeypatch, answer_for):
    monkeypatch.setattr(page, "SERVER", WATCHED + page.SERVER)
    server = start(project.folder)
    base = f"http://127.0.0.1:{server.port}"
    headers = {"origin": base, "x-mma": project.settings.id}
    with httpx.Client(base_url=base, headers=headers, timeout=PATIENCE) as browser:
        browser.get(f"/?token={server.token}")
        items = browser.post("/api/next", json={"by": "anna", "n": 3}).json()["items"]
        assert browser.get(f"/images/{items[0]['image']}/full").status_code == 200
        assert browser.post("/api/answers", json=answer_for(items[0]["image"])).status_code == 200
        assert browser.get("/api/sheet").status_code == 200
    written = server.stop()
    assert "CONNECT" not in written
    assert "LOOKUP" not in written


def test_d5_names_go_out_as_data_and_never_as_markup(photos: Path):
    project = create_project(photos, classes=["<img src=x onerror=alert(1)>", "b</script>"])
    assert "<img" not in FILES["index.html"]
    for text in FILES.values():
        assert "{{" not in text  # no template that a name could be put into
    assert next(each.name for each in project.classes()).startswith("<img")
    project.close()

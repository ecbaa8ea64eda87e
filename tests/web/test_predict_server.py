"""`mma serve`: a model behind HTTP, with the page's guards."""

import asyncio
import base64
import io
import shutil
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

import mma
from mma.errors import UserError
from mma.web.predict_server import OPEN, Batcher, KeyGuard, make_app, read_or_make_token, serve_model
from mma.web.security import RequestLimits

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
KEY = "k" * 43
HOST = "127.0.0.1:8642"
HEADERS = {"host": HOST, "authorization": f"Bearer {KEY}", "content-type": "image/png"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    place = tmp_path_factory.mktemp("serve")
    settings = ["growth.first=5", "growth.every=2", "growth.final=5", "growth.budget=30", "log.every=5", "log.last=1"]
    run = mma.new_run(mma.change(mma.preset("digits"), settings), place / "run")
    mma.train(run)
    return mma.load(run)


@pytest.fixture
def client(model):
    guard = KeyGuard(make_app(model), KEY, frozenset({HOST}), RequestLimits(body=2_000_000))
    with TestClient(guard, base_url=f"http://{HOST}") as client:
        yield client


def png(shade: int = 7, side: int = 8) -> bytes:
    pixels = (np.arange(side * side).reshape(side, side) * shade % 256).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def test_one_image_gets_the_answer_that_predict_gives(client, model, tmp_path) -> None:
    answer = client.post("/predict?top=3", content=png(), headers=HEADERS).json()
    (tmp_path / "one.png").write_bytes(png())
    (expected,) = model.predict([tmp_path / "one.png"]).top(3)
    assert [name for name, _ in answer["top"]] == [name for name, _ in expected]
    assert answer["confidence"] == pytest.approx(expected[0][1], abs=1e-5)
    assert answer["label"] == expected[0][0]


def test_many_images_in_one_request_keep_their_order(client) -> None:
    images = [png(shade) for shade in (3, 5, 7, 11, 13, 17)]
    body = {"images": [base64.b64encode(image).decode() for image in images]}
    many = client.post("/predict", json=body, headers={**HEADERS, "content-type": "application/json"}).json()[
        "predictions"
    ]
    alone = [client.post("/predict", content=image, headers=HEADERS).json() for image in images]
    assert [each["label"] for each in many] == [each["label"] for each in alone]
    assert [each["confidence"] for each in many] == pytest.approx([each["confidence"] for each in alone], abs=1e-5)


def test_a_bad_file_among_good_ones_has_a_problem_of_its_own(client) -> None:
    body = {"images": [base64.b64encode(data).decode() for data in (png(), b"no image", png()[:40])]}
    found = client.post("/predict", json=body, headers={**HEADERS, "content-type": "application/json"})
    first, second, third = found.json()["predictions"]
    assert found.status_code == 200
    assert first["problem"] is None
    assert second["label"] is None
    assert second["problem"]
    assert third["problem"]


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"no image", {}, 422),
        (b"", {}, 422),
        (png(), {"authorization": "Bearer wrong"}, 401),
        (png(), {"authorization": ""}, 401),
        (png(), {"authorization": f"Basic {KEY}"}, 401),
        (png(), {"host": "evil.example"}, 403),
        (png(), {"host": "127.0.0.1:1"}, 403),
        (png(), {"sec-fetch-site": "cross-site"}, 403),
        (png(), {"content-type": "text/plain"}, 415),
        (b"x" * 2_000_001, {}, 413),
        (b"{", {"content-type": "application/json"}, 422),
        (b"[" * 100_000, {"content-type": "application/json"}, 422),
        (b'{"images": []}', {"content-type": "application/json"}, 422),
        (b'{"images": ["!"]}', {"content-type": "application/json"}, 422),
        (b'{"images": ["AAAA"], "more": 1}', {"content-type": "application/json"}, 422),
        (b'{"images": ["AAAA"], "top": 0}', {"content-type": "application/json"}, 422),
    ],
)
def test_a_request_that_cannot_be_answered_gets_a_sentence(client, content, headers, status) -> None:
    found = client.post("/predict", content=content, headers={**HEADERS, **headers})
    assert found.status_code == status
    assert found.json()["error"]


def test_top_must_be_a_number(client) -> None:
    assert client.post("/predict?top=x", content=png(), headers=HEADERS).status_code == 422


def test_every_route_but_the_open_ones_needs_the_key(client, model) -> None:
    for route in make_app(model).routes:
        for method in ("GET", "POST"):
            status = client.request(method, route.path, headers={"host": HOST}).status_code
            assert (status != 401) == (route.path in OPEN), (method, route.path, status)


def test_open_pages_ask_no_other_server_and_describe_every_route(client) -> None:
    page = client.get("/", headers={"host": HOST})
    assert "https://" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    document = client.get("/openapi.json", headers={"host": HOST}).json()
    assert set(document["paths"]) == {"/predict", "/healthz"}
    assert {"EncodedImages", "PredictedImage", "PredictedImages"} <= set(document["components"]["schemas"])
    assert client.get("/healthz", headers={"host": HOST}).json() == {"status": "ok"}


def test_images_of_concurrent_requests_share_a_forward(model, monkeypatch) -> None:
    seen: list[int] = []

    async def ask_at_once() -> None:
        batcher = Batcher(model)
        for sized in batcher.sizes.values():
            real = sized.classify
            vars(sized)["classify"] = lambda images, real=real: (seen.append(len(images)), real(images))[1]
        prepared = batcher.prepare(lambda: Image.open(io.BytesIO(png())))
        asked = [asyncio.create_task(batcher.classify(prepared)) for _ in range(20)]
        await asyncio.sleep(0)  # all of them wait before the first forward
        task = asyncio.create_task(batcher.run())
        found = await asyncio.gather(*asked)
        task.cancel()
        assert np.allclose([probs for probs, _ in found], found[0][0], atol=1e-5)

    asyncio.run(ask_at_once())
    assert seen == [16, 4]


def test_more_images_than_can_wait_are_refused_for_now(model, monkeypatch) -> None:
    monkeypatch.setattr("mma.web.predict_server.WAITING", 2)
    body = {"images": [base64.b64encode(png()).decode()] * 40}
    guard = KeyGuard(make_app(model), KEY, frozenset({HOST}), RequestLimits())
    with TestClient(guard, base_url=f"http://{HOST}") as client:
        client.app.app.state.batcher.computer.submit(threading.Event().wait, 0.3)
        found = client.post("/predict", json=body, headers={**HEADERS, "content-type": "application/json"})
    assert found.status_code == 503
    assert found.headers["retry-after"] == "1"


def test_a_mistake_of_ours_is_a_500_and_the_next_request_is_answered(client, monkeypatch) -> None:
    sized = client.app.app.state.batcher.sizes[1]
    real = sized.classify

    def fail(images):
        raise RuntimeError("broken")

    vars(sized)["classify"] = fail
    quiet = TestClient(client.app, base_url=f"http://{HOST}", raise_server_exceptions=False)
    quiet.portal = client.portal
    assert quiet.post("/predict", content=png(), headers=HEADERS).status_code == 500
    vars(sized)["classify"] = real
    assert client.post("/predict", content=png(), headers=HEADERS).status_code == 200


def test_a_key_file_is_made_for_its_owner_alone_and_read_again(tmp_path) -> None:
    path = tmp_path / "key"
    token = read_or_make_token(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_or_make_token(path) == token
    path.write_text("short")
    with pytest.raises(UserError):
        read_or_make_token(path)


@pytest.fixture(scope="module")
def served(model, tmp_path_factory):
    """The address and the key of a real server."""
    key = tmp_path_factory.mktemp("key") / "key"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = {"token_file": key, "say": lambda line: None}
    threading.Thread(target=serve_model, args=(model, "127.0.0.1", port), kwargs=where, daemon=True).start()
    address = f"http://127.0.0.1:{port}"
    for _ in range(300):
        try:
            httpx.get(f"{address}/healthz", trust_env=False)
            break
        except httpx.TransportError:
            threading.Event().wait(0.1)
    return address, key


@pytest.mark.slow
def test_a_thousand_bad_requests_from_eight_clients_never_give_a_500(served) -> None:
    address, key = served
    bad = [b"", b"\xff\xd8\xff", png()[:-20], b"GIF89a" + b"\x00" * 50, b"<svg/>", b"{" * 9]
    kinds = ["image/png", "application/json", "text/plain"]
    token = key.read_text().strip()

    def send(number: int) -> int:
        headers = {"authorization": f"Bearer {token if number % 4 else 'no'}", "content-type": kinds[number % 3]}
        with httpx.Client(trust_env=False) as client:
            return client.post(f"{address}/predict", content=bad[number % len(bad)], headers=headers).status_code

    with ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(send, range(1_000)))
    assert set(codes) == {401, 415, 422}
    assert httpx.get(f"{address}/healthz", trust_env=False).status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("client", ["serve_client.py", "serve_client.mjs"])
def test_the_example_clients_classify_photos(served, client, tmp_path) -> None:
    runner = sys.executable if client.endswith("py") else shutil.which("node")
    if runner is None:
        pytest.skip("node is not installed")
    address, key = served
    for shade in (3, 5):
        (tmp_path / f"{shade}.png").write_bytes(png(shade))
    words = [runner, EXAMPLES / client, address, key, tmp_path / "3.png", tmp_path / "5.png"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == [
        str(tmp_path / "3.png"),
        str(tmp_path / "5.png"),
    ]

import hashlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mma.data.releases import Original, fetch

CONTENT = bytes(range(256)) * 2_000


class Server(BaseHTTPRequestHandler):
    """Serves CONTENT in the ways of servers and networks: `ways` says how often it breaks, and what it ignores."""

    def do_GET(self):
        ways = self.server.ways
        asked = self.headers.get("Range")
        self.server.asked.append(asked)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and not ways.get("ignores_range") else 0
        body = ways.get("content", CONTENT)[start:]
        self.send_response(ways.get("status") or (206 if start else 200))
        if start:
            claimed = start + ways.get("shift", 0)
            self.send_header("Content-Range", f"bytes {claimed}-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if ways.get("breaks", 0) > 0:
            ways["breaks"] -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def serve(monkeypatch):
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()

    def start(**ways):
        server.ways, server.asked = ways, []
        return server

    yield start
    server.shutdown()
    thread.join()
    server.server_close()


def original(server, content=CONTENT):
    url = f"http://127.0.0.1:{server.server_port}/data.bin"
    return Original("data.bin", len(content), f"md5:{hashlib.md5(content).hexdigest()}", url)


def test_a_file_is_downloaded_checked_and_not_downloaded_twice(serve, tmp_path):
    server = serve()
    path = fetch(original(server), tmp_path / "new")
    assert path.read_bytes() == CONTENT
    assert fetch(original(server), tmp_path / "new") == path
    assert server.asked == [None]
    assert [file.name for file in path.parent.iterdir()] == ["data.bin"]


def test_a_broken_download_goes_on_where_it_stopped(serve, tmp_path):
    server = serve(breaks=2)
    assert fetch(original(server), tmp_path).read_bytes() == CONTENT
    assert server.asked == [None, f"bytes={len(CONTENT) // 2}-", f"bytes={len(CONTENT) // 4 * 3}-"]


def test_the_part_of_an_earlier_command_is_used(serve, tmp_path):
    (tmp_path / "data.bin.part").write_bytes(CONTENT[:1_000])
    server = serve()
    assert fetch(original(server), tmp_path).read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-"]


def test_a_download_that_keeps_breaking_keeps_its_part_and_says_how_to_go_on(serve, tmp_path, refusal):
    server = serve(breaks=100)
    with refusal():
        fetch(original(server), tmp_path)
    part = (tmp_path / "data.bin.part").read_bytes()
    assert CONTENT.startswith(part)
    assert len(part) > len(CONTENT) // 2
    assert not (tmp_path / "data.bin").exists()


def test_a_server_that_cannot_resume_starts_over(serve, tmp_path):
    (tmp_path / "data.bin.part").write_bytes(b"x" * 1_000)
    assert fetch(original(serve(ignores_range=True)), tmp_path).read_bytes() == CONTENT


def test_a_server_that_sends_another_range_is_not_believed(serve, tmp_path, refusal):
    (tmp_path / "data.bin.part").write_bytes(CONTENT[:1_000])
    with refusal():
        fetch(original(serve(shift=7)), tmp_path)
    assert (tmp_path / "data.bin.part").read_bytes() == CONTENT[:1_000]


def test_d2_a_wrong_file_of_the_right_length_is_deleted_and_both_hashes_named(serve, tmp_path):
    wrong = bytes(reversed(CONTENT))
    server = serve(content=wrong)
    with pytest.raises(ValueError, match="did not send the official file") as error:
        fetch(original(server), tmp_path)
    assert hashlib.md5(wrong).hexdigest() in str(error.value)
    assert hashlib.md5(CONTENT).hexdigest() in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_another_file_is_found_out_by_the_hash(serve, tmp_path, refusal):
    (tmp_path / "data.bin.part").write_bytes(b"x" * 1_000)
    server = serve()
    with refusal():
        fetch(original(server), tmp_path)
    assert fetch(original(server), tmp_path).read_bytes() == CONTENT


def test_d2_a_file_that_is_too_long_is_not_kept(serve, tmp_path, refusal):
    with refusal():
        fetch(original(serve(content=CONTENT + b"more")), tmp_path)
    assert not (tmp_path / "data.bin").exists()
    assert (tmp_path / "data.bin.part").stat().st_size == 0


def test_a_file_that_is_too_short_is_cut_short(serve, tmp_path, refusal):
    with refusal():
        fetch(original(serve(content=CONTENT[:500])), tmp_path)


@pytest.mark.parametrize("status", [404, 500])
def test_a_server_that_refuses_is_named_with_what_it_said(serve, tmp_path, status, refusal):
    with refusal():
        fetch(original(serve(status=status)), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_part_longer_than_the_servers_file_is_started_over(serve, tmp_path, refusal):
    (tmp_path / "data.bin.part").write_bytes(CONTENT[:1_000])
    server = serve(status=416)
    with refusal():
        fetch(original(server), tmp_path)
    assert not (tmp_path / "data.bin.part").exists()


def test_no_server_at_all_is_an_error_with_the_way_out(serve, tmp_path, refusal):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, but nobody listens
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/data.bin"
        with refusal():
            fetch(Original("data.bin", 10, "md5:0", url), tmp_path)


@pytest.mark.parametrize("length", [10, len(CONTENT)])
def test_a_finished_file_that_has_changed_is_downloaded_again(serve, tmp_path, length):
    (tmp_path / "data.bin").write_bytes(bytes(length))
    assert fetch(original(serve()), tmp_path).read_bytes() == CONTENT

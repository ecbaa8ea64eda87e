"""Kill the server while people label, again and again: no acknowledged label is lost, and none is there twice.

    python tests/project/kills.py KILLS [postgres] [SEED]

The server is the one of `mma label`, in a process of its own that is killed with SIGKILL at random moments and started again at
once. Each person is a process that labels as fast as the server answers. It writes down what it is about to send and what was
acknowledged, and sends again, under the same id, what was not: as the page does.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.project import synthetic_project
from mma.project import open_project
from mma.project.labels.copies import read_log
from mma.project.labels.repair import doctor
from mma.web import serve
from mma.web.security import new_keys
from tests.web.page import free_port

IMAGES = 400
PEOPLE = ("ann", "bob", "cleo", "dan")
PAUSE = 0.01  # seconds until a person tries again where nobody listens
PATIENCE = 60  # seconds to wait for an answer


class Desk:
    """A person's connection to the page's server, with the headers that the page sends."""

    def __init__(self, port: int, project: str, session: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self.headers = {
            "Origin": f"http://127.0.0.1:{port}",
            "X-MMA": project,
            "Content-Type": "application/json",
            "Cookie": f"mma-{port}={session}",
        }

    def post(self, path: str, body: dict[str, object]) -> dict:
        """Send until there is an answer."""
        while True:
            try:
                self.connection.request("POST", path, json.dumps(body), self.headers)
                response = self.connection.getresponse()
                data = response.read()
            except (OSError, http.client.HTTPException):
                self.connection.close()
                time.sleep(PAUSE)
                continue
            assert response.status == 200, data
            return json.loads(data)


def label(desk: Desk, by: str, pool: list[str], notes: Path, seed: int) -> None:
    """Label until SIGTERM comes; then end as soon as the last answer is acknowledged."""
    draw, ending = random.Random(f"{by} {seed}"), []
    signal.signal(signal.SIGTERM, lambda *_: ending.append(True))
    with notes.open("w", buffering=1) as file:
        while not ending:
            found = [item["image"] for item in desk.post("/api/next", {"by": by, "n": 4, "holding": []})["items"]]
            for image in found or [draw.choice(pool)]:  # when all are labeled, labels are corrected
                answer = {
                    "id": str(uuid4()),
                    "images": [image],
                    "kind": "label",
                    "class_id": draw.randrange(2),
                    "by": by,
                }
                file.write(f"send {json.dumps(answer)}\n")
                desk.post("/api/answers", answer)
                file.write(f"saved {json.dumps(answer)}\n")


def fork(act: Callable[[], None]) -> int:
    """Start a process that does this, and return its id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        act()
    except SystemExit:  # how a server ends after SIGTERM
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def serve_project(folder: Path, port: int) -> None:
    """Serve the page as `mma label` does."""
    project = open_project(folder)
    with project.owner("kills"):
        serve(project, port=port, browser=False, say=lambda line: None)


def kill_again_and_again(folder: Path, port: int, kills: int, seed: int, saved: Callable[[], int]) -> int:
    """Start and kill the server; return the id of a last one, which lives on."""
    draw, long = random.Random(seed), 0.5
    for _ in range(kills):
        before, pid = saved(), fork(lambda: serve_project(folder, port))
        time.sleep(draw.uniform(0.05, 1.0) * long)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSIGNALED(status):
            sys.exit("the server ended by itself")
        # It lives just long enough for some labels, whatever the speed of the machine.
        long *= 1.1 if saved() < before + 6 else 0.9
    return fork(lambda: serve_project(folder, port))


def end(pid: int) -> None:
    """Let a process come to its end."""
    os.kill(pid, signal.SIGTERM)
    assert os.waitpid(pid, 0)[1] == 0, "a person or the last server failed"


def check(folder: Path, saved: dict[str, dict]) -> int:
    """Compare what was acknowledged with both copies; return how many answers are stored."""
    project = open_project(folder)
    with project.owner():
        pass  # a start brings both copies together
    events = [event for event in project.events() if event.kind == "label"]
    logged = [line.event.id for line in read_log(project.layout.log) if line.event and line.event.kind == "label"]
    stored = {event.id: event for event in events}
    assert len(stored) == len(events), "an answer is there twice"
    assert sorted(logged) == sorted(stored), "the two copies differ"
    lost = [id for id in saved if id not in stored]
    assert not lost, f"{len(lost)} acknowledged answers are lost"
    assert len(stored) == len(saved), "an answer is stored that nobody gave"
    for id, sent in saved.items():
        assert (stored[id].image, stored[id].class_id, stored[id].by) == (
            sent["images"][0],
            sent["class_id"],
            sent["by"],
        )
    project.close()
    problems = [finding.text for finding in doctor(folder) if finding.problem and "images" not in finding.text]
    assert not problems, problems
    return len(events)


def count_saved(notes: Iterable[Path]) -> int:
    return sum(path.read_bytes().count(b"saved ") for path in notes if path.exists())


def read_saved(notes: Iterable[Path]) -> dict[str, dict]:
    """Return every acknowledged answer by its id."""
    lines = [line for path in notes for line in path.read_text().splitlines() if line.startswith("saved ")]
    answers = [json.loads(line.removeprefix("saved ")) for line in lines]
    return {answer["id"]: answer for answer in answers}


def run(folder: Path, kills: int, store: str | None, seed: int) -> tuple[int, int]:
    """Return how many answers were acknowledged and how many are stored."""
    project, port = synthetic_project(folder, IMAGES, store), free_port()
    place, pool = project.folder, [image.id for image in project.images()]
    desk = Desk(port, project.settings.id, new_keys(project.layout.state).session)
    project.close()
    notes = {by: folder / f"{by}.txt" for by in PEOPLE}
    people = [fork(lambda by=by, path=path: label(desk, by, pool, path, seed)) for by, path in notes.items()]
    server = kill_again_and_again(place, port, kills, seed, lambda: count_saved(notes.values()))
    for pid in people:
        end(pid)
    end(server)
    saved = read_saved(notes.values())
    return len(saved), check(place, saved)


def main() -> None:
    """Run it and print the outcome."""
    kills, postgres = int(sys.argv[1]), "postgres" in sys.argv
    seed = int(sys.argv[-1]) if len(sys.argv) > 2 and sys.argv[-1].isdecimal() else 0
    sys.path.insert(0, str(Path(__file__).parent))
    from postgres import server

    with tempfile.TemporaryDirectory() as folder, server(fsync=True) if postgres else nullcontext() as url:
        begin = time.monotonic()
        acknowledged, stored = run(Path(folder), kills, url, seed)
    print(
        f"{'PostgreSQL' if postgres else 'SQLite'}: {kills} kills in {time.monotonic() - begin:.0f} s, {acknowledged} "
        f"answers acknowledged, {stored} stored, none lost, none twice"
    )


if __name__ == "__main__":
    main()

"""Kill processes that label, again and again, and see that nothing that was acknowledged is lost or there twice.

    python tests/project/kills.py KILLS [postgres] [SEED]

Two processes label at the same time. Each tells what it is about to send and what was acknowledged; what was sent and not
acknowledged is sent again by the next process with the same id, as the page does.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from uuid import UUID, uuid4

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.project import synthetic_project
from mma.project import Answer, open_project
from mma.project.doctor import doctor
from mma.project.second_copy import read_log

IMAGES = 400
PEOPLE = ("ann", "bob")


def answer_of(line: str) -> Answer:
    _, id, image, class_id, by = line.split()
    return Answer(id=UUID(id), images=[image], kind="label", class_id=int(class_id), by=by)


def write_labels(folder: Path, by: str, seed: int, pending: list[str], pipe: int) -> None:
    """Label until killed. A line is written before and after each answer."""
    project, draw = open_project(folder), random.Random(seed)
    pool = [image.id for image in project.images()]
    for line in pending:
        project.answer(answer_of(line))
        os.write(pipe, line.replace("send", "saved").encode() + b"\n")
    while True:
        images = [item.image for item in project.next(by, 2)] or [draw.choice(pool)]
        for image in images:
            values = f"{uuid4()} {image} {draw.randrange(2)} {by}"
            os.write(pipe, f"send {values}\n".encode())
            project.answer(answer_of(f"send {values}"))
            os.write(pipe, f"saved {values}\n".encode())


def life(folder: Path, by: str, seed: int, pending: list[str]) -> tuple[int, int]:
    """Start a labeling process; return its id and the pipe to read from."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            write_labels(folder, by, seed, pending, writer)
        finally:
            import traceback

            traceback.print_exc()
            os._exit(1)
    os.close(writer)
    return pid, reader


def end(pid: int, reader: int) -> list[str]:
    """Kill a process; return the whole lines it wrote."""
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(reader, "rb") as file:
        data = file.read()
    if not os.WIFSIGNALED(status):
        sys.exit("a labeling process failed by itself")
    return [line.decode() for line in data.split(b"\n")[:-1]]


def kill_again_and_again(folder: Path, kills: int, seed: int) -> dict[str, str]:
    """Return every acknowledged answer by its id."""
    draw, saved, pending = random.Random(seed), {}, {by: [] for by in PEOPLE}
    done, long = 0, 0.3
    while done < kills:
        before = len(saved)
        lives = {by: life(folder, by, draw.randrange(2**32), pending[by]) for by in PEOPLE}
        time.sleep(draw.uniform(0.1, 1.0) * long)
        for by, (pid, reader) in lives.items():
            lines = end(pid, reader)
            done += 1
            got = {line.split()[1]: line for line in lines if line.startswith("saved")}
            sent = {line.split()[1]: line for line in (*pending[by], *lines) if line.startswith("send")}
            saved.update(got)
            pending[by] = [line for id, line in sent.items() if id not in got]
        # Lives just long enough for a few labels, whatever the speed of the machine.
        long *= 1.3 if len(saved) < before + 8 else 0.9
    return saved


def check(folder: Path, saved: dict[str, str]) -> int:
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
    for id, line in saved.items():
        _, _, image, class_id, by = line.split()
        assert (stored[id].image, stored[id].class_id, stored[id].by) == (image, int(class_id), by)
    project.close()
    problems = [finding.text for finding in doctor(folder) if finding.problem and "images" not in finding.text]
    assert not problems, problems
    return len(events)


def run(folder: Path, kills: int, store: str | None, seed: int) -> tuple[int, int]:
    """Return how many answers were acknowledged and how many are stored."""
    project = synthetic_project(folder, IMAGES, store)
    place = project.folder
    project.close()
    saved = kill_again_and_again(place, kills, seed)
    return len(saved), check(place, saved)


def main() -> None:
    """Run it and print the outcome."""
    kills, postgres = int(sys.argv[1]), "postgres" in sys.argv
    seed = int(sys.argv[-1]) if len(sys.argv) > 2 and sys.argv[-1].isdecimal() else 0
    sys.path.insert(0, str(Path(__file__).parent))
    from postgres import server

    with tempfile.TemporaryDirectory() as folder, server() if postgres else nullcontext() as url:
        begin = time.monotonic()
        acknowledged, stored = run(Path(folder), kills, url, seed)
    print(
        f"{'PostgreSQL' if postgres else 'SQLite'}: {kills} kills in {time.monotonic() - begin:.0f} s, {acknowledged} "
        f"answers acknowledged, {stored} stored, none lost, none twice"
    )


if __name__ == "__main__":
    main()

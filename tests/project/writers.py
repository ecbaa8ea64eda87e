"""Several processes label at once:  python tests/project/writers.py WRITERS LABELS [postgres]"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from contextlib import nullcontext
from pathlib import Path
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.project import synthetic_project
from mma.project import Answer, open_project

HELD = 8  # images a page holds


def write_labels(folder: Path, by: str, labels: int) -> None:
    """Label as a page does: hold a few images, answer one, fetch the next ones."""
    project, held = open_project(folder), []
    for _ in range(labels):
        if len(held) < HELD // 2:
            held += [item.image for item in project.next(by, HELD - len(held), holding=held)]
        answer = Answer(id=uuid4(), images=[held.pop(0)], kind="label", class_id=0, by=by)
        project.answer(answer)
    project.close()


def run(folder: Path, writers: int, labels: int, store: str | None) -> tuple[int, int]:
    """Return how many writers failed and how many labels were given; but for those asked again, each image has one."""
    project = synthetic_project(folder, writers * labels + writers * HELD, store)
    place = project.folder
    project.close()
    children = []
    for number in range(writers):
        pid = os.fork()
        if pid == 0:
            try:
                write_labels(place, f"person-{number}", labels)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(pid)
    failed = sum(os.waitpid(pid, 0)[1] != 0 for pid in children)
    project = open_project(place)
    given = [event for event in project.events() if event.kind == "label"]
    events = [event for event in given if event.provenance != "again"]
    assert len({event.image for event in events}) == len(events), "an image was served to two people"
    assert len({event.by for event in events}) == writers
    assert project.counts().labeled == len(events)
    project.close()
    return failed, len(given)


def main() -> None:
    """Run it and print the outcome."""
    writers, labels, postgres = int(sys.argv[1]), int(sys.argv[2]), "postgres" in sys.argv
    sys.path.insert(0, str(Path(__file__).parent))
    from postgres import server

    with tempfile.TemporaryDirectory() as folder, server(fsync=True) if postgres else nullcontext() as url:
        begin = time.monotonic()
        failed, stored = run(Path(folder), writers, labels, url)
    took = time.monotonic() - begin
    name = "PostgreSQL" if postgres else "SQLite"
    print(f"{name}: {writers} writers x {labels} labels, {failed} errors, {stored} labels in {took:.0f} s")


if __name__ == "__main__":
    main()

"""The routes on a real project: what the page reads, sends and gets back."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from mma.errors import UserError
from mma.project import Answer, Pick, Project, create_project
from mma.project.labels import copies as second_copy
from mma.project.labels import events
from mma.project.labels.copies import Mirror, SecondCopy, read_log
from mma.project.labels.database import write_progress
from mma.project.models import PREDICTIONS, answers_file
from mma.project.records import read_settings
from mma.web import app as app_module
from mma.web import views
from mma.web.app import make_app
from mma.web.security import Guard
from mma.web.views import Newsroom, Review, Setup, labeled_images, read_news, recent_answers
from tests.web.page import PATIENCE, run_apart, write_image


def grid(project: Project, by: str, class_id: int | None, n: int = 24) -> list[str]:
    return [image.id for image in project.grid(by, class_id, n).images]


def label(project: Project, image: str, class_id: int = 0, by: str = "anna", **rest) -> str:
    given = uuid4()
    project.answer(Answer(id=given, images=[image], kind="label", class_id=class_id, by=by, **rest))
    return str(given)


def test_a_label_is_stored_when_the_page_hears_saved(client: TestClient, project: Project, answer_for):
    item = client.post("/api/next", json={"by": "anna", "n": 1}).json()["items"][0]
    reply = client.post("/api/answers", json=answer_for(item["image"], 1, seconds=1.5, shown="hidden")).json()
    assert reply["counts"]["labeled"] == 1
    assert reply["counts"]["per_class"]["1"] == 1
    assert project.labels().ids == (item["image"],)
    assert project.events()[-1].shown == "hidden"


def test_an_answer_sent_twice_is_stored_once(client: TestClient, project: Project, answer_for):
    answer = answer_for(project.images()[0].id)
    replies = [client.post("/api/answers", json=answer).json() for _ in range(3)]
    assert replies[0] == replies[1] == replies[2]
    assert project.counts().labeled == 1


def test_next_leaves_out_what_the_page_holds(client: TestClient):
    first = [item["image"] for item in client.post("/api/next", json={"by": "anna", "n": 8}).json()["items"]]
    more = [
        item["image"]
        for item in client.post("/api/next", json={"by": "anna", "n": 8, "holding": first}).json()["items"]
    ]
    assert len(set(first) | set(more)) == 16


def test_two_people_are_asked_about_different_images(client: TestClient):
    asked = [client.post("/api/next", json={"by": by, "n": 9}).json()["items"] for by in ("anna", "ben")]
    assert not {item["image"] for item in asked[0]} & {item["image"] for item in asked[1]}


@pytest.mark.parametrize(
    "change",
    [{"class_id": 99}, {"images": []}, {"class_id": None}, {"kind": "undo", "class_id": None}],
)
def test_what_the_project_will_never_take_is_refused_for_good(client: TestClient, project: Project, answer_for, change):
    reply = client.post("/api/answers", json={**answer_for(project.images()[0].id), **change})
    assert reply.status_code == 400
    assert reply.json() == {"error": reply.json()["error"], "refused": True, "project": project.settings.id}


PLACES = {
    "guard": (Guard, "problem"),
    "parse": (app_module, "parse"),
    "write": (events, "write_answer"),
    "record": (events, "record"),
    "derive": (events, "refresh"),
    "second copy": (SecondCopy, "catch_up"),
    "disk": (second_copy, "append_bytes"),
    "mirror": (Mirror, "touch"),
    "reply": (views, "counts_for_page"),
}
FAULTS = [RuntimeError("ours"), ValueError("not enough values to unpack"), OSError(28, "No space left on device")]


@pytest.mark.parametrize("place", PLACES)
def test_r2_a_mistake_of_ours_anywhere_on_the_way_of_an_answer_loses_and_doubles_nothing(
    client: TestClient, project: Project, answer_for, monkeypatch, place: str
):
    images = [image.id for image in project.images()[: len(FAULTS)]]
    for image, fault in zip(images, FAULTS, strict=True):

        def fail(*values, fault: Exception = fault, **rest):
            raise fault

        answer = answer_for(image)
        with monkeypatch.context() as patch:
            patch.setattr(*PLACES[place], fail)
            reply = client.post("/api/answers", json=answer)
        assert reply.status_code in (500, 503)
        assert "refused" not in reply.text
        assert client.post("/api/answers", json=answer).status_code == 200
    assert project.labels().ids == tuple(images)
    assert [event.image for event in project.events() if event.kind == "label"] == images
    copied = [line.event.seq for line in read_log(project.layout.log) if line.event]
    assert copied == list(range(1, project.seq() + 1))


@pytest.mark.parametrize("place", ["second copy", "disk", "mirror"])
def test_r2_an_answer_that_is_stored_is_never_refused(
    client: TestClient, project: Project, answer_for, monkeypatch, place
):
    def refuse(*values, **rest):
        raise UserError("the database is an older copy")

    answer = answer_for(project.images()[0].id)
    with monkeypatch.context() as patch:
        patch.setattr(*PLACES[place], refuse)
        reply = client.post("/api/answers", json=answer)
    assert (reply.status_code, "refused" in reply.json()) == (503, False)
    assert client.post("/api/answers", json=answer).status_code == 200
    assert project.counts().labeled == 1


def test_r2_an_older_copy_of_the_database_is_no_refusal(client: TestClient, project: Project, answer_for):
    image = project.images()[0].id
    ahead = project.events()[-1]._replace(seq=1_000, id=str(uuid4()))
    project.log.path.write_bytes(project.log.path.read_bytes() + second_copy.line_of(ahead))
    reply = client.post("/api/answers", json=answer_for(image))
    assert (reply.status_code, "refused" in reply.json()) == (503, False)
    assert "older copy" in reply.json()["error"]


def test_r2_an_image_that_is_not_indexed_yet_is_no_reason_to_give_a_label_up(
    client: TestClient, project: Project, photos: Path, answer_for
):
    new = write_image(photos / "new.png", 77)
    answer = answer_for(hashlib.sha256(new.read_bytes()).hexdigest())
    reply = client.post("/api/answers", json=answer)
    assert (reply.status_code, "refused" in reply.json()) == (503, False)
    project.index()
    assert client.post("/api/answers", json=answer).status_code == 200


@pytest.mark.parametrize(
    ("field", "value"),
    [("by", "a\x00b"), ("by", "a\tb"), ("by", "\u202eanna"), ("note", "a\x00"), ("note", "\x1b[31m")],
)
def test_control_characters_are_refused_with_a_sentence_when_they_come_in(
    client: TestClient, project: Project, answer_for, field: str, value: str
):
    reply = client.post("/api/answers", json={**answer_for(project.images()[0].id), field: value})
    assert reply.status_code == 422
    assert reply.json()["refused"] is True
    assert "control character" in reply.json()["error"]
    if field == "by":
        assert client.get("/api/recent", params={"by": value}).status_code == 422
        assert client.post("/api/next", json={"by": value, "n": 1}).status_code == 422
    else:
        assert client.post("/api/classes", json={"do": "add", "name": value, "by": "anna"}).status_code == 400


@pytest.mark.parametrize("name", ["\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\U0001f469\u200d\U0001f33e"])
def test_names_that_need_joiners_are_names(client: TestClient, project: Project, answer_for, name: str):
    made = client.post("/api/classes", json={"do": "add", "name": name, "by": name})
    assert made.status_code == 200
    answer = {**answer_for(project.images()[0].id, made.json()["made"]), "by": name, "note": f"two\nlines, {name}"}
    assert client.post("/api/answers", json=answer).status_code == 200
    assert project.events()[-1].by == name


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[]",
        "null",
        '{"by": "anna"}',
        '{"by": "", "n": 1}',
        '{"by": "a", "n": "1"}',
        '{"by":"a","n":1,"path":"x"}',
    ],
)
def test_a_body_that_is_not_understood_says_where(client: TestClient, body: str):
    reply = client.post("/api/next", content=body)
    assert reply.status_code == 422
    assert reply.json()["error"].startswith("not understood")


def test_classes_are_made_renamed_merged_and_given_keys(client: TestClient, project: Project):
    made = client.post("/api/classes", json={"do": "add", "name": "bird", "by": "anna"}).json()["made"]
    client.post("/api/classes", json={"do": "rename", "id": made, "name": "owl", "by": "anna"})
    client.post("/api/classes", json={"do": "key", "id": made, "key": "o", "by": "anna"})
    reply = client.post("/api/classes", json={"do": "merge", "id": 0, "into": 1, "by": "anna"}).json()
    assert reply["classes"] == [{"id": 1, "name": "dog", "key": None}, {"id": made, "name": "owl", "key": "o"}]
    assert reply["merged"] == read_news(project)["merged"] == [{"id": 0, "name": "cat", "into": 1}]
    twice = client.post("/api/classes", json={"do": "add", "name": "OWL", "by": "anna"})
    assert twice.status_code == 400
    assert "already" in twice.json()["error"]


def test_a_merge_is_taken_back_and_the_labels_given_before_it_count_for_their_class_again(
    client: TestClient, project: Project
):
    label(project, project.images()[0].id, 0)
    client.post("/api/classes", json={"do": "merge", "id": 0, "into": 1, "by": "anna"})
    assert project.counts().per_class == {1: 1}
    reply = client.post("/api/classes", json={"do": "merge", "id": 0, "into": None, "by": "anna"}).json()
    assert [each["name"] for each in reply["classes"]] == ["cat", "dog"]
    assert reply["merged"] == []
    assert reply["counts"]["per_class"] == {"0": 1, "1": 0}
    assert project.counts().per_class == {0: 1, 1: 0}


def test_the_last_answers_come_newest_first_and_a_grid_is_one(client: TestClient, project: Project):
    ids = [image.id for image in project.images()[:5]]
    first = label(project, ids[0])
    grid = uuid4()
    project.answer(Answer(id=grid, images=ids[1:5], kind="label", class_id=1, by="anna", source="grid"))
    answers = client.get("/api/recent?by=anna").json()["answers"]
    assert [(answer["id"], len(answer["images"])) for answer in answers] == [(str(grid), 4), (first, 1)]
    project.undo("anna")
    assert [answer["id"] for answer in recent_answers(project, "anna")] == [first]


def test_the_labels_of_a_class_include_those_of_a_class_merged_into_it(client: TestClient, project: Project):
    ids = [image.id for image in project.images()[:3]]
    for class_id, image in enumerate(ids[:2]):
        label(project, image, class_id)
    project.merge_class(0, 1, "anna")
    shown = client.get("/api/labels?class_id=1").json()
    assert [entry["images"] for entry in shown["images"]] == [[ids[1]], [ids[0]]]
    assert shown["more"] == 0
    assert labeled_images(project, 0)["images"] == []
    assert client.get("/api/labels?class_id=x").status_code == 404


def test_alike_images_with_two_labels_are_reviewed_with_their_reason(tmp_path: Path):
    same = [write_image(tmp_path / "photos" / f"same-{name}.png", 1) for name in ("one", "two")]
    with Image.open(same[1]) as picture:
        picture.putpixel((0, 0), (1, 2, 3))
        picture.save(same[1])
    for number in range(2, 12):
        write_image(tmp_path / "photos" / f"{number}.png", number)
    project = create_project(same[0].parent, classes=["cat", "dog"], seed=2)
    project.index()
    assert not any(image.audit for image in project.images() if image.name.startswith("same"))  # those are not reviewed
    for class_id, path in enumerate(same):
        label(project, next(image.id for image in project.images() if image.name == path.name), class_id)
    found = Review(project).likely_mistakes()
    assert {(each["name"], each["class_id"]) for each in found["images"]} == {("same-one.png", 0), ("same-two.png", 1)}
    assert {each["why"] for each in found["images"]} == {"alike images, labeled cat and dog"}
    assert found["notes"]
    project.close()


def test_the_sheet_shows_different_images_and_changes_nothing(project: Project):
    shown = [each["image"] for each in Setup(project).sheet()]
    assert len(set(shown)) == len(shown) > 10
    assert shown == [each["image"] for each in Setup(project).sheet()]


def test_sub_folders_and_a_labels_file_are_offered(tmp_path: Path):
    for number, name in enumerate(("cat", "cat", "dog", "dog", "dog")):
        write_image(tmp_path / "photos" / name / f"{number}.png", number)
    (tmp_path / "photos" / "labels.csv").write_text("file_name,label\ncat/0.png,big\ndog/2.png,small\n")
    project = create_project(tmp_path / "photos")
    offers = Setup(project).offers
    assert [offer["names"] for offer in offers] == [["cat", "dog"], ["big", "small"]]
    (tmp_path / "photos" / "labels.csv").write_text("file_name,label\nnowhere.png,big\n")
    assert "labels.csv was not used" in Setup(project).offers[1]["from"]
    project.close()


def propose(project: Project, chances: list[float]) -> list[str]:
    """Let a model propose class 0 for some images, with these probabilities."""
    ids = [image.id for image in project.images() if not image.audit][: len(chances)]
    project.put_picks(
        [Pick(image, suggestion=[(0, p), (1, 1 - p)]) for image, p in zip(ids, chances, strict=True)], None
    )
    return ids


def test_the_grid_of_a_class_has_the_surest_first_and_none_of_another_class(project: Project):
    ids = propose(project, [0.6, 0.9, 0.2, 0.7])
    assert grid(project, "anna", 0, 24) == [ids[1], ids[3], ids[0]]
    assert grid(project, "anna", 1, 24) == [ids[2]]


def test_the_grid_goes_by_what_the_newest_model_says_about_every_image(project: Project):
    ids = propose(project, [0.6, 0.9])
    others = [image.id for image in project.images() if image.id not in ids and not image.audit][:3]
    probs = np.array([[0.7, 0.3], [0.1, 0.9], [0.95, 0.05]])
    said = answers_file(PREDICTIONS, others, probs, (0, 1))
    project.models.add(12, said)
    assert grid(project, "anna", 0, 24) == [others[2], others[0]]
    project.models.add(12, {PREDICTIONS: b"torn"})
    assert grid(project, "anna", 0, 24) == [ids[1], ids[0]]
    project.models.add(12, said)
    project.merge_class(1, 0, "anna")
    assert set(grid(project, "anna", 0, 24)) == set(others)


def test_the_grid_has_one_image_of_each_burst(tmp_path: Path):
    first = write_image(tmp_path / "photos" / "a.png", 1, side=60)
    for number, side in enumerate((61, 62, 63)):
        write_image(tmp_path / "photos" / f"same-{number}.png", 1, side=side)
    for number in range(2, 30):
        write_image(tmp_path / "photos" / f"{number}.png", number)
    project = create_project(first.parent, classes=["a", "b"])
    project.index()
    ids = propose(project, [0.9] * 12)
    groups = {image.id: image.group for image in project.images()}
    shown = grid(project, "anna", 0, 24)
    assert sorted(groups[image] for image in shown) == sorted({groups[image] for image in ids})
    project.close()


def test_look_alikes_are_alike_to_the_model(project: Project):
    images = [image.id for image in project.images() if not image.audit]
    kinds = [place % 2 for place in range(len(images))]
    project.models.add(3, answers_file(PREDICTIONS, images, np.eye(2)[kinds], (0, 1)))
    shown = grid(project, "anna", None, 5)
    assert project.grid("anna", None, 5).alike
    assert len({kinds[images.index(image)] for image in shown}) == 1


def test_look_alikes_are_alike_to_the_eye_before_there_is_a_model(tmp_path: Path):
    for number in range(60):
        write_image(tmp_path / "photos" / f"{number}.png", number % 6)
        with (tmp_path / "photos" / f"{number}.png").open("ab") as file:
            file.write(bytes([number]))  # other bytes, the same picture
    project = create_project(tmp_path / "photos", classes=["cat"])
    project.index()
    groups = project.groups()
    found = project.grid("anna", None, 24)
    assert found.alike
    assert len({groups[image.id] for image in found.images}) == 1
    project.close()


def test_a_group_that_nothing_shows_to_be_alike_is_not_called_so(client: TestClient, project: Project):
    reply = client.post("/api/grid", json={"by": "anna", "class_id": None, "n": 24}).json()
    images = [image.id for image in project.images() if not image.audit]
    assert len(reply["items"]) == len(images)
    assert reply["alike"] is False
    project.models.add(3, answers_file(PREDICTIONS, images, np.full((len(images), 2), 0.5), (0, 1)))
    assert not project.grid("anna", None, 24).alike  # the model has no opinion


def test_grids_of_two_people_and_single_images_do_not_overlap(project: Project):
    mine = set(grid(project, "anna", None, 5))
    other = set(grid(project, "ben", None, 5))
    single = {item.image for item in project.next("anna", 9)}
    assert len(mine | other) == 10
    assert not single & (mine | other)


def test_a_grid_leaves_out_what_is_on_its_way_to_the_server(client: TestClient):
    wanted = {"by": "anna", "class_id": None, "n": 6}
    first = [item["image"] for item in client.post("/api/grid", json=wanted).json()["items"]]
    more = client.post("/api/grid", json={**wanted, "n": 48, "holding": first}).json()["items"]
    assert more
    assert not {item["image"] for item in more} & set(first)


def test_a_grid_has_no_image_that_the_person_has_answered_though_others_are_to_answer_it_too(photos: Path):
    project = create_project(photos, classes=["cat", "dog"], overlap=2)
    project.index()
    mine, put_off = propose(project, [0.9, 0.8])
    label(project, mine)
    project.answer(Answer(id=uuid4(), images=[put_off], kind="later", by="anna"))
    assert grid(project, "anna", 0, 24) == [put_off]
    assert mine not in set(grid(project, "anna", None, 48))
    assert mine in set(grid(project, "ben", 0, 24))
    project.undo("anna")  # the one that was put off
    project.undo("anna")
    project.release("anna")
    grid(project, "ben", 1, 1)  # another group: the first one is free again
    assert grid(project, "anna", 0, 24) == [mine, put_off]
    project.close()


def test_audit_images_are_never_in_a_grid(project: Project):
    audit = {image.id for image in project.images() if image.audit}
    shown = set(grid(project, "anna", None, 48))
    assert audit
    assert not shown & audit


def test_one_confirmation_of_a_grid_is_one_answer_with_one_undo(client: TestClient, project: Project, answer_for):
    images = [
        item["image"]
        for item in client.post("/api/grid", json={"by": "anna", "class_id": None, "n": 6}).json()["items"]
    ]
    given = {**answer_for(images[0]), "images": images, "source": "grid"}
    client.post("/api/answers", json=given)
    assert project.counts().labeled == 6
    assert set(project.labels().provenance) == {"grid"}
    undo = {**answer_for(images[0], None, "undo"), "images": images, "supersedes": given["id"]}
    assert client.post("/api/answers", json=undo).status_code == 200
    assert project.counts().labeled == 0


def test_a_grid_of_images_whose_ids_begin_alike_has_an_event_for_each_and_so_has_its_undo(
    client: TestClient, project: Project, answer_for
):
    images = [image.id for image in project.images()]  # more than there are first digits
    given = {**answer_for(images[0]), "images": images, "source": "grid"}
    assert client.post("/api/answers", json=given).status_code == 200
    undo = {**answer_for(images[0], None, "undo"), "images": images, "supersedes": given["id"]}
    assert client.post("/api/answers", json=undo).status_code == 200
    stored = [event for event in project.events() if event.image]
    assert len({event.id for event in stored}) == len(stored) == 2 * len(images)
    assert {event.supersedes for event in stored if event.kind == "undo"} == {
        event.id for event in stored if event.kind == "label"
    }


def test_a_correction_was_asked_for_as_the_last_answer_was(client: TestClient, project: Project, answer_for):
    image = project.images()[0].id
    for source in ("grid", "review", "label"):
        client.post("/api/answers", json={**answer_for(image), "source": source})
    assert [event.provenance for event in project.events() if event.image] == ["grid", "review", "review"]


def test_news_tell_counts_models_and_work(project: Project):
    project.models.put(state="ready", accuracy=0.8, about={"low": 0.7, "high": 0.9, "source": "from 60 audit labels"})
    work = {"name": "deep training", "done": 3, "total": 10, "left": "2.5 min"}
    project.models.put(state="training", kind="deep", about={"work": work})
    news = json.loads(json.dumps(read_news(project)))
    assert news["model"] | {"accuracy": 0.8, "low": 0.7, "state": "training", "number": 2} == news["model"]
    assert len(news["models"]) == 1
    assert news["work"] == [{**work, "name": "Training deeper"}]
    project.models.put(2, about={}, message="reading photos")
    assert read_news(project)["work"] == [{"name": "Training deeper: reading photos", "done": 0, "total": 0}]
    project.models.put(2, state="ready")
    assert read_news(project)["work"] == []


def test_before_the_first_model_photos_are_prepared_and_no_model_is_said_to_wait(project: Project):
    with project.store.writing() as connection:
        write_progress(connection, "features", 100, 300, "20 s")
    assert read_news(project)["model"] is None
    assert read_news(project)["work"] == [{"name": "Preparing photos", "done": 100, "total": 300, "left": "20 s"}]
    with project.store.writing() as connection:
        write_progress(connection, "features", 300, 300)
    assert read_news(project)["work"] == []


def test_news_come_at_once_and_again_after_a_change(project: Project):
    async def listen() -> list[int]:
        room = Newsroom(project)
        found: list[int] = []
        async for event in room.stream(lambda: len(found) == 2):
            found.append(json.loads(event.removeprefix("data: "))["counts"]["labeled"])
            label(project, project.images()[len(found)].id)
        assert room.streams == 0
        return found

    assert run_apart(asyncio.wait_for(listen(), PATIENCE)) == [0, 1]


def test_results_say_how_the_project_stands_before_there_is_a_model(client: TestClient, project: Project):
    label(project, project.images()[0].id)
    found = client.get("/api/results").json()
    assert (found["labels"], found["report"], found["stop"]) == (1, None, None)
    assert found["per_class"] == {"cat": 1, "dog": 0}
    assert found["next"][0].startswith("No forecast yet")


def test_a_deep_training_is_asked_for_and_refused_without_labels(client: TestClient, project: Project):
    assert client.post("/api/deep", json={"by": "anna"}).status_code == 400
    for class_id, image in enumerate(project.images()[:2]):
        label(project, image.id, class_id)
    assert client.post("/api/deep", json={"by": "anna"}).status_code == 200
    assert json.loads((project.layout.state / "deep-asked.json").read_text())["by"] == "anna"


def test_the_state_names_project_and_person(client: TestClient, project: Project):
    state = client.get("/api/state").json()
    about = {"id": project.settings.id, "name": "photos", "by": "anna", "role": "owner", "overlap": 1}
    assert state["project"] == about
    assert [each["name"] for each in state["classes"]] == ["cat", "dog"]


def test_every_file_the_page_asks_for_is_there(project: Project):
    import re

    files = make_app(project, "anna").state.page.files
    wanted = set(re.findall(r"/static/([\w.]+)", files["index.html"][0].decode()))
    for data, _ in files.values():
        wanted |= set(re.findall(r'from "\./([\w.]+)"', data.decode()))
    assert wanted <= set(files)
    assert set(files) - wanted <= {"index.html"}


def test_the_page_never_loads_torch():
    code = "import sys, mma.web.views, mma.web.app; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_goal_is_stored_and_the_results_begin_with_the_verdict(client: TestClient, project: Project):
    goal = {"by": "anna", "target": 95, "class_id": project.classes()[0].id}
    found = client.post("/api/goal", json=goal).json()
    assert found["verdict"]["goal"] == f"95 % of the photos of {project.classes()[0].name} found"
    assert found["verdict"]["headline"] == "Too early to say"
    assert read_settings(project.layout).target_class == goal["class_id"]
    assert client.get("/api/state").json()["goal"]["percent"] == 95.0


@pytest.mark.parametrize("goal", [{"target": 120}, {"target": 0}, {"target": 90, "class_id": 99}])
def test_a_goal_that_cannot_be_is_refused_with_a_sentence(client: TestClient, project: Project, goal):
    reply = client.post("/api/goal", json={"by": "anna", **goal})
    assert reply.status_code == 400
    assert reply.json()["error"].endswith(".")
    assert read_settings(project.layout).target is None


def test_the_model_that_a_person_chose_is_stored(client: TestClient, project: Project):
    assert client.post("/api/model", json={"by": "anna", "use": "deep"}).json()["use"] == "deep"
    assert read_settings(project.layout).use_model == "deep"
    assert client.post("/api/model", json={"by": "anna", "use": "best"}).status_code == 422


def test_heat_maps_are_made_once_until_there_is_another_model(client: TestClient, project: Project, monkeypatch):
    calls = []

    def run(module, folder, *images, **rest):
        calls.append((module, images))
        return subprocess.CompletedProcess([], 0, json.dumps({each: {"why": "none"} for each in images}), "")

    monkeypatch.setattr(views.children, "run", run)
    ids = [image.id for image in project.images()[:3]]
    wanted = {"by": "anna", "images": ids[:2]}
    assert "no model yet" in client.post("/api/heat", json=wanted).json()["error"]
    project.models.put(state="ready", accuracy=None, about={})
    for _ in range(2):
        assert client.post("/api/heat", json=wanted).json()["maps"] == {key: {"why": "none"} for key in ids[:2]}
    assert client.post("/api/heat", json={"by": "anna", "images": [ids[0], ids[2]]}).json()["maps"].keys() == {ids[0]}
    client.post("/api/heat", json={"by": "anna", "images": [ids[2], ids[0]]})
    assert calls == [("mma.project.heat", tuple(ids[:2])), ("mma.project.heat", (ids[2],))]
    project.models.put(state="ready", accuracy=None, about={})
    client.post("/api/heat", json=wanted)
    assert len(calls) == 3

"""Several answers about one image: whose counts, how reliable people are, and that all of it follows from the events."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import numpy as np
from PIL import Image

from mma.project import Answer, Project, create_project, open_project
from mma.project.labels.repair import doctor
from mma.project.labels.votes import Vote, estimate_reliability
from mma.project.quality.agreement import cohen_kappa
from mma.rng import rng


def shared_project(tmp_path: Path, images: int = 40) -> Project:
    (tmp_path / "photos").mkdir()
    for number in range(images):
        pixels = rng(number, "photo").integers(256, size=(18, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{number}.png")
    project = create_project(tmp_path / "photos", classes=["cat", "dog"], overlap=3)
    project.index()
    return project


def say(project: Project, by: str, image: str, class_id: int, source: Any = "label") -> None:
    project.answer(Answer(id=uuid4(), images=[image], kind="label", class_id=class_id, by=by, source=source))


def in_force(project: Project) -> dict[str, int]:
    labels = project.labels()
    return dict(zip(labels.ids, labels.class_ids, strict=True))


def test_two_who_agree_outvote_the_newest_answer(tmp_path: Path) -> None:
    project = shared_project(tmp_path, 3)
    image = project.images()[0].id
    for by, class_id in (("ann", 0), ("bob", 0), ("carl", 1)):
        say(project, by, image, class_id)
    assert in_force(project)[image] == 0
    assert [each.image for each in project.disagreements()] == [image]


def test_of_two_who_differ_the_newer_answer_counts_until_somebody_decides(tmp_path: Path) -> None:
    project = shared_project(tmp_path, 3)
    first, second = (each.id for each in project.images()[:2])
    for image, order in ((first, ("ann", "bob")), (second, ("bob", "ann"))):
        for by in order:
            say(project, by, image, int(by == "bob"))
    assert in_force(project) == {first: 1, second: 0}
    assert {each.image for each in project.disagreements()} == {first, second}


def test_whoever_decides_in_sight_of_the_answers_has_the_last_word(tmp_path: Path) -> None:
    project = shared_project(tmp_path, 3)
    image = project.images()[0].id
    for by, class_id in (("ann", 0), ("bob", 0), ("carl", 1)):
        say(project, by, image, class_id)
    say(project, "dora", image, 1, source="review")
    say(project, "ann", image, 0)  # said again later: the decision stands
    assert in_force(project)[image] == 1
    assert project.disagreements() == []
    assert project.how([image])[image] == "decided by dora; cat by bob, ann, dog by carl"


def test_whoever_decided_may_change_their_mind() -> None:
    said = [("ann", 0, "query"), ("bob", 1, "query"), ("dora", 1, "review"), ("dora", 0, "query"), ("ann", 1, "query")]
    rows = [
        SimpleNamespace(seq=at, kind="label", class_id=number, by=by, provenance=why)
        for at, (by, number, why) in enumerate(said)
    ]
    stand = Vote().standing(rows)
    assert stand.answer is rows[3]
    assert stand.decided


def test_somebody_who_is_mostly_wrong_still_has_a_voice() -> None:
    assert 0 < Vote(reliability={"bad": 0.2}).weight("bad") < Vote(reliability={"good": 0.6}).weight("good")


def test_answers_given_in_sight_of_others_say_nothing_of_how_reliable_somebody_is(tmp_path: Path) -> None:
    project = shared_project(tmp_path)
    for image in project.images()[:24]:
        say(project, "ann", image.id, 0)
        say(project, "bob", image.id, 0)
        say(project, "dora", image.id, 1, source="review")
    reliability = {each.name: each.reliability for each in project.people()}
    assert reliability["dora"] is None
    assert min(reliability["ann"], reliability["bob"]) >= 0.9


def test_a_person_who_slips_often_weighs_less_and_the_doctor_agrees(tmp_path: Path) -> None:
    project = shared_project(tmp_path)
    ids = [each.id for each in project.images()]
    for place, image in enumerate(ids):
        for by, slips in (("ann", 0), ("bob", 0), ("carl", place % 3 == 0)):
            say(project, by, image, int(place % 2) ^ int(slips))
    vote = next(each for each in reversed(project.events()) if each.kind == "vote")
    assert '"carl": 0.7' in (vote.value or "")
    project.undo("bob")
    for by, class_id in (("ann", 0), ("carl", 1)):  # one voice each: the reliable one counts, though it is older
        say(project, by, ids[-1], class_id)
    assert in_force(project)[ids[-1]] == 0
    before = in_force(project)
    project.close()
    assert not [each for each in doctor(project.folder) if each.problem]
    assert not [each for each in doctor(project.folder, rebuild=True) if each.problem]
    assert in_force(open_project(project.folder)) == before


def test_classes_that_are_merged_no_longer_differ(tmp_path: Path) -> None:
    project = shared_project(tmp_path, 3)
    image = project.images()[0].id
    kitten = project.add_class("kitten", "ann").id
    for by, class_id in (("ann", 0), ("bob", kitten), ("carl", 1), ("dora", 1)):
        say(project, by, image, class_id)
    assert in_force(project)[image] == 1
    say(project, "eve", image, 0)
    assert in_force(project)[image] in (0, 1)
    project.merge_class(kitten, 0, "ann")
    assert in_force(project)[image] == 0  # three cats, two dogs
    assert not [each for each in doctor(project.folder) if each.problem]


def test_reliability_is_found_without_knowing_the_truth() -> None:
    draw = rng(0, "test")
    slips = {"ann": 0.05, "bob": 0.1, "carl": 0.2}
    answers = {
        str(image): {
            by: ("label", int(draw.integers(1, 5) if draw.random() < slip else 0)) for by, slip in slips.items()
        }
        for image in range(400)
    }
    found = estimate_reliability(answers)
    assert all(abs(found[by] - (1 - slip)) < 0.04 for by, slip in slips.items()), found
    weights = [Vote(found, 5).weight(by) for by in ("ann", "bob", "carl")]
    assert weights == sorted(weights, reverse=True)


def test_agreement_is_as_it_is() -> None:
    """14 of 20 answers the same, two classes, both people name each class ten times: 70 %, kappa 0.4."""
    ann = np.array([0] * 10 + [1] * 10)
    bob = np.array([0] * 7 + [1] * 3 + [1] * 7 + [0] * 3)
    found = cohen_kappa(ann, bob)
    assert found.same == 0.7
    assert abs((found.value or 0) - 0.4) < 1e-12

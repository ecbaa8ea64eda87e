"""A search for one class: what is asked, what is stored, what is promised; and the heaps of what is left."""

from __future__ import annotations

from uuid import uuid4

import numpy as np
import pytest

from mma.project import create_project
from mma.project.find import Browser, BrowseRequest, FindRequest, class_called, search
from mma.project.models import ANSWERS, ModelReport, answers_file, report_file
from mma.project.quality.promises import record_of
from mma.project.records import Answer


@pytest.fixture(params=[100])
def searched(request, tmp_path, picture):
    """Photos of which a model takes every fifth for a cat, so sure that it answers them alone; the second of these is unlike
    anything labeled."""
    for number in range(request.param):
        picture(tmp_path / "many" / f"{number:03}.png", number)
    made = create_project(tmp_path / "many", classes=["cat", "dog", "owl"])
    made.index()
    images = sorted((image for image in made.images() if not image.audit), key=lambda image: image.name)
    cats = {image.id for image in images[::5]}
    first = Answer(id=uuid4(), images=[images[0].id], kind="label", class_id=0, by="ann")
    made.answer(first)
    sure = np.array([[0.9, 0.1] if image.id in cats else [0.2, 0.8] for image in images])
    record = record_of(np.full(60, 0.85), np.ones(60, bool), np.full(99, 0.9))
    report = ModelReport(1, "live", 1, 1, 0, ("cat", "dog"), (0, 1), {}, {}, (), record=record)
    made.models.put(1, state="ready")
    unlike = np.arange(len(images)) == 5
    made.models.create(
        1, {**answers_file(ANSWERS, [i.id for i in images], sure, (0, 1), unlike), **report_file(report)}
    )
    yield made, cats
    made.close()


def answer(project, state, cats):
    yes = [item.image for item in state.items if item.image in cats]
    return search(project, FindRequest(by="ann", class_id=0, batch=state.batch, yes=yes))


def test_likely_photos_come_first_and_become_labels(searched):
    project, cats = searched
    state = search(project, FindRequest(by="ann", class_id=0))
    asked = {item.image for item in state.items}
    assert cats - {project.labels().ids[0]} <= asked
    assert (state.found, state.at_random, state.promise < 0.2) == (1, False, True)
    after = answer(project, state, cats)
    assert (after.found, after.looked) == (len(cats), 24)
    assert set(project.labels().ids) == cats
    assert not asked & {item.image for item in after.items}


def test_a_reload_or_an_answer_sent_twice_draws_nothing_anew(searched):
    project, cats = searched
    state = search(project, FindRequest(by="ann", class_id=0))
    assert search(project, FindRequest(by="bob", class_id=0)).items == state.items
    after = answer(project, state, cats)
    assert answer(project, state, cats).items == after.items
    assert answer(project, state, cats).looked == after.looked


def test_photos_drawn_at_random_end_the_search(searched):
    project, cats = searched
    state = search(project, FindRequest(by="ann", class_id=0))
    drawn = []
    while state.items and not state.done:
        drawn += [state.at_random]
        state = answer(project, state, cats)
    assert drawn[:3] == [False, False, False]
    assert all(drawn[3:])
    assert (state.done, state.found) == (True, len(cats))
    assert "you may stop" in state.words or "All of them" in state.words


def test_photos_kept_for_measuring_are_not_searched(searched):
    project, cats = searched
    audit = {image.id for image in project.images() if image.audit}
    state = search(project, FindRequest(by="ann", class_id=0))
    assert state.kept == len(audit) > 0
    while state.items:
        assert not audit & {item.image for item in state.items}
        state = answer(project, state, cats)
    assert state.looked == 100 - len(audit) - 1


@pytest.mark.parametrize("searched", [260], indirect=True)
def test_photos_that_come_later_take_the_promise_back_and_old_draws_say_nothing_about_them(searched, picture):
    project, cats = searched
    state = search(project, FindRequest(by="ann", class_id=0))
    while not state.done:
        state = answer(project, state, cats)
    assert state.rest > 0  # what was drawn at random has made the promise
    for number in range(260, 340):
        picture(project.root / f"{number:03}.png", number)
    project.index()
    later = [image.id for image in project.images() if not image.audit and image.name >= "260"]
    cats = cats | set(later[::6])  # the model knows none of them
    state = search(project, FindRequest(by="ann", class_id=0))
    assert state.promise < 0.95
    while not state.done:
        state = answer(project, state, cats)
    assert state.found >= 0.95 * len(cats)


def test_a_search_without_class_label_or_model_says_what_to_do(searched, tmp_path, picture, refusal):
    searched_project, _ = searched
    picture(tmp_path / "few" / "1.png", 1)
    picture(tmp_path / "few" / "2.png", 2)
    project = create_project(tmp_path / "few", classes=["cat", "dog"])
    project.index()
    with refusal():
        class_called(searched_project, "cst")
    with refusal():
        search(searched_project, FindRequest(by="ann", class_id=7))
    with refusal():
        search(searched_project, FindRequest(by="ann", class_id=2))
    with refusal():
        search(project, FindRequest(by="ann", class_id=0))
    image = project.images()[0].id
    project.answer(Answer(id=uuid4(), images=[image], kind="label", class_id=0, by="ann"))
    with refusal():
        search(project, FindRequest(by="ann", class_id=0))


def test_the_two_heaps_are_what_the_model_answers_alone_and_the_rest(searched, refusal):
    project, cats = searched
    browser = Browser(project)

    def heap(which, error=0.05):
        return browser.page(BrowseRequest(by="ann", max_error=error, heap=which, n=400))

    mine, yours = heap("mine"), heap("yours")
    (strange,) = [item["image"] for item in yours["items"] if item["unlike"]]
    assert strange in cats  # however sure the model is of it
    sure = cats - {project.labels().ids[0], strange}
    assert {item["image"] for item in mine["items"]} == sure
    assert (mine["promise"]["mine"], mine["promise"]["yours"]) == (len(sure), yours["total"])
    assert mine["promise"]["words"].startswith("I answer 16 % of the photos alone, at most 5 % of those are wrong")
    strict = heap("mine", 0.02)
    assert (strict["total"], strict["promise"]["made"]) == (0, False)
    with refusal():
        heap("mine", 0.0)

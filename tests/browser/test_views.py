"""Grid, review, classes; hostile names; every view for everyone: axe-core, phone, 4K, dark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from mma.project import Answer, Pick, Project, create_project
from mma.project.models import ModelReport, report_file
from mma.project.quality.accuracy import judge, judged_images
from tests.browser.acts import (
    count_events,
    open_view,
    picture_name,
    press_and_move_on,
    stored,
    take_over,
    wait_for_picture,
    wait_until_saved,
)
from tests.browser.conftest import PHONE
from tests.web.page import free_port, write_image

VIEWS = ("label", "grid", "browse", "find", "rest", "review", "results", "try", "classes", "people")
HOSTILE = (
    "<img src=x onerror=window.hacked=1>",
    '"><script>window.hacked=1</script>',
    "{{7*7}} ${window.hacked=1} javascript:alert(1)",
    "عربى عربى",
    "W" * 100,
)


def propose(project: Project, *class_ids: int) -> None:
    """Let a model take the images for these classes in turn."""
    images = [image.id for image in project.images() if not image.audit]
    guesses = zip(images, cycle(class_ids or (0,)), strict=False)
    project.put_picks([Pick(image, why="looks like it", suggestion=[(guess, 0.9)]) for image, guess in guesses], None)
    project.models.put(state="ready", accuracy=0.9, about={"low": 0.8, "high": 0.95, "source": "from 60 audit labels"})


def test_a_grid_is_confirmed_by_keyboard_as_one_event_with_one_undo(make_project, serve_project, open_page):
    project = make_project(70)
    propose(project)
    served = serve_project(project)
    page = open_page(served.door)
    open_view(page, served, "grid")
    page.wait_for_selector(".tile")
    assert page.locator(".tile[aria-selected=true]").count() == 24
    out = page.locator(".tile img").nth(1).get_attribute("alt")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('.big-number b').textContent === '23'")
    labels = stored(project)
    assert len(labels) == 23
    assert out not in labels
    assert set(labels.values()) == {0}
    assert len({event.batch for event in project.events() if event.kind == "label"}) == 1
    page.keyboard.press("u")
    page.wait_for_function("() => document.querySelector('.big-number b').textContent === '0'")
    assert stored(project) == {}


def tile_names(page: Any) -> list[str]:
    """Wait for a grid, and return the names of its files."""
    page.wait_for_selector(".tile")
    found: list[str] = page.eval_on_selector_all(".tile img", "(all) => all.map((each) => each.alt)")
    return found


TWICE = """(key) => {
  for (let i = 0; i < 2; i += 1) document.body.dispatchEvent(new KeyboardEvent('keydown', { key, code: key, bubbles: true }));
}"""


def test_a_grid_confirmed_twice_in_a_hurry_is_one_answer(make_project, serve_project, open_page):
    project = make_project(70)
    propose(project)
    served = serve_project(project)
    page = open_page(served.door)
    open_view(page, served, "grid")
    shown = tile_names(page)
    page.evaluate(TWICE, "Enter")
    tile_names(page)
    wait_until_saved(page)
    assert stored(project) == dict.fromkeys(shown, 0)
    assert count_events(project) == 24


def test_a_confirmed_grid_does_not_come_again_while_its_answer_is_on_its_way(make_project, serve_project, open_page):
    project = make_project(70)
    propose(project)
    served = serve_project(project)
    page = open_page(served.door)
    open_view(page, served, "grid")
    page.route("**/api/answers", lambda route: route.abort())
    shown = tile_names(page)
    page.keyboard.press("Enter")
    more = tile_names(page)
    assert not set(shown) & set(more)
    page.unroute("**/api/answers")
    wait_until_saved(page)
    assert stored(project) == dict.fromkeys(shown, 0)


def test_a_late_reply_does_not_put_the_images_of_one_class_under_the_name_of_another(
    make_project, serve_project, open_page
):
    project = make_project(70)
    propose(project, 0, 1)
    served = serve_project(project)
    page = open_page(served.door)
    late: list[Any] = []

    def hold_cats(route: Any) -> None:
        cats = json.loads(route.request.post_data)["class_id"] == 0
        late.append(route) if cats else route.continue_()

    page.route("**/api/grid", hold_cats)
    page.goto(f"{served.url}#grid")
    page.click(".kind:has-text('dog')")
    dogs = tile_names(page)
    with page.expect_response("**/api/grid"):
        late[0].continue_()
    page.wait_for_function("() => !document.body.hasAttribute('data-asking')")
    assert tile_names(page) == dogs
    assert page.text_content(".grid-title").endswith("look like dog")


def test_the_grid_says_that_the_server_is_away_and_goes_on_when_it_is_back(make_project, start, open_page):
    project, port = make_project(70), free_port()
    propose(project)
    server = start(project.folder, port)
    page = open_page(server.door, view="grid")
    tile_names(page)
    server.stop(kill=True)
    page.keyboard.press("r")
    page.wait_for_selector(".tiles >> text=The server does not answer.")
    start(project.folder, port)
    tile_names(page)


def test_a_person_who_takes_over_gets_another_grid(make_project, serve_project, open_page):
    project = make_project(70)
    propose(project)
    served = serve_project(project)
    page = open_page(served.door)
    open_view(page, served, "grid")
    shown = tile_names(page)
    take_over(page, "ben")
    assert not set(shown) & set(tile_names(page))


def test_a_class_that_has_the_key_of_a_command_is_given_by_it_in_a_grid(make_project, serve_project, open_page):
    project = make_project(60)
    project.set_key(0, "u", "anna")
    project.set_key(1, "r", "anna")
    served = serve_project(project)
    page = open_page(served.door)
    open_view(page, served, "grid")
    page.click("text=any look-alikes")
    given = {}
    for class_id, key in enumerate("ur"):
        given[tile_names(page)[0]] = class_id
        page.keyboard.press("Space")
        page.keyboard.press(key)
        page.wait_for_function("n => document.querySelector('.big-number b').textContent === String(n)", arg=len(given))
    assert stored(project) == given


def test_look_alikes_are_chosen_and_labeled_with_a_key(make_project, serve_project, open_page):
    project = make_project(60)
    served = serve_project(project)
    page = open_page(served.door)
    open_view(page, served, "grid")
    page.click("text=any look-alikes")
    page.wait_for_selector(".tile")
    chosen = [page.locator(".tile img").nth(place).get_attribute("alt") for place in (0, 2)]
    page.keyboard.press("Space")
    page.locator(".tile").nth(2).click()
    page.keyboard.press("2")
    page.wait_for_function("() => document.querySelector('.big-number b').textContent === '2'")
    assert stored(project) == dict.fromkeys(chosen, 1)


def test_classes_are_renamed_merged_and_given_keys_on_the_page(make_project, serve_project, open_page):
    project = make_project(30, ("cat", "dog", "bird"))
    served = serve_project(project)
    page = open_page(served.door)
    open_view(page, served, "classes")
    page.fill("[aria-label='Name of cat']", "lion")
    page.keyboard.press("Tab")
    page.fill("[aria-label='Key of dog']", "d")
    page.keyboard.press("Tab")
    page.wait_for_function("() => document.querySelectorAll('.class-row')[0].textContent.startsWith('lion')")
    page.select_option("[aria-label='Merge bird into']", label="dog")
    page.click("[aria-label='Merge bird']")
    page.wait_for_function("() => document.querySelectorAll('.class-row').length === 2")
    open_view(page, served, "label")
    name = press_and_move_on(page, "d")
    wait_until_saved(page)
    assert stored(project) == {name: 1}
    assert [(each.name, each.key, each.merged_into) for each in project.classes()] == [
        ("lion", None, None),
        ("dog", "d", None),
        ("bird", None, 1),
    ]


def test_a_class_is_merged_by_a_button_alone_and_taken_back_by_keyboard(make_project, serve_project, open_page):
    project = make_project(30, ("cat", "dog", "bird"))
    served = serve_project(project)
    page = open_page(served.door, bypass_csp=True)
    open_view(page, served, "classes")
    page.focus("[aria-label='Merge bird into']")
    page.keyboard.press("ArrowDown")  # chooses the first class in some browsers, and opens the list in others
    page.select_option("[aria-label='Merge bird into']", label="–")
    assert page.is_hidden("[aria-label='Merge bird']")
    page.select_option("[aria-label='Merge bird into']", label="dog")
    project.answer(Answer(id=uuid4(), images=[project.images()[0].id], kind="label", class_id=1, by="ben"))
    page.wait_for_function("() => document.querySelector('.big-number b').textContent === '1'")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=counts as")
    assert not serious_violations(page)
    assert [each.merged_into for each in project.classes()] == [None, None, 1]
    page.wait_for_function("() => document.activeElement.textContent === 'Take back'")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=counts as", state="detached")
    assert page.locator(".classes tbody tr").count() == 3
    changes = [event.value for event in project.events() if event.kind == "class_merge"]
    assert changes == ["1", None]


def test_the_table_of_classes_counts_right_after_a_merge_and_after_taking_it_back(
    make_project, serve_project, open_page
):
    project = make_project(30, ("glacier", "mountain", "sea"))
    for place, image in enumerate(project.images()[:5]):
        project.answer(Answer(id=uuid4(), images=[image.id], kind="label", class_id=place % 2, by="anna"))
    served = serve_project(project)
    page = open_page(served.door)
    open_view(page, served, "classes")

    def shown() -> list[str]:
        return page.locator(".classes td.count").all_text_contents()

    assert shown() == ["3", "2", "0"]
    page.select_option("[aria-label='Merge glacier into']", label="mountain")
    page.click("[aria-label='Merge glacier']")
    page.wait_for_function("() => document.activeElement.textContent === 'Take back'")
    assert shown() == ["5", "0"]
    page.keyboard.press("Enter")
    page.wait_for_selector("text=counts as", state="detached")
    assert shown() == ["3", "2", "0"]
    project.answer(Answer(id=uuid4(), images=[project.images()[9].id], kind="label", class_id=0, by="ben"))
    page.wait_for_function("() => document.querySelector('.classes td.count').textContent === '4'")


def test_a_grid_without_a_group_says_so_in_one_line_and_offers_nothing_to_confirm(
    make_project, serve_project, open_page
):
    project = make_project(30)
    propose(project)
    served = serve_project(project)
    page = open_page(served.door)
    open_view(page, served, "grid")
    tile_names(page)
    page.click(".kind:has-text('dog')")
    page.wait_for_selector(".tiles >> text=There is no such group now.")
    message = page.locator(".tiles .message").bounding_box()
    assert message["width"] > 300
    assert page.locator("text=Confirm").count() == 0
    project.put_picks([], None)  # no model says anything now
    page.click("text=any look-alikes")
    tile_names(page)
    assert page.text_content(".grid-title").endswith("unlabeled photos, not alike")


def test_a_fresh_page_asks_for_nothing_that_is_not_there(make_project, serve_project, open_page, chromium):
    served = serve_project(make_project())
    context = chromium.new_context()
    failed: list[str] = []
    context.on("response", lambda reply: failed.append(reply.url) if reply.status >= 400 else None)
    page = open_page(served.door, context)
    for view in VIEWS:
        open_view(page, served, view)
    context.close()
    assert failed == []


def test_a_label_is_corrected_from_the_review(make_project, serve_project, open_page):
    project = make_project()
    served = serve_project(project)
    page = open_page(served.door)
    wrong = press_and_move_on(page, "1")
    wait_until_saved(page)
    open_view(page, served, "review")
    page.click(".kind:has-text('cat')")
    page.click(".past-tile")
    wait_for_picture(page, wrong)
    press_and_move_on(page, "2")
    wait_until_saved(page)
    assert stored(project) == {wrong: 1}
    assert project.events()[-1].provenance == "review"


def serious_violations(page: Any) -> list[str]:
    """Return what axe-core finds on the page as it is."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{each['id']} {each['nodes'][0]['html']}" for each in found if each["impact"] in ("serious", "critical")]


def suspects(*files: str) -> dict[str, Any]:
    """What `mma review --json` prints when it doubts these files."""
    doubt = {
        "label": "cat",
        "likely": "dog",
        "confidence": 0.03,
        "likely_confidence": 0.97,
        "neighbours": 5,
        "by": "ann",
    }
    empty = {"conflicts": [], "disagreements": [], "changed": [], "notes": [], "unknown_groups": [], "split": []}
    return {"predicted": 0.8, "suspects": [{"file": file, **doubt} for file in files], **empty}


def test_suspect_labels_are_kept_or_corrected_with_one_key_each(make_project, serve_project, open_page, monkeypatch):
    project = make_project()
    files = ["photo-001.png", "photo-002.png"]
    ids = {image.name: image.id for image in project.images()}
    for file in files:
        project.answer(Answer(id=uuid4(), images=[ids[file]], kind="label", class_id=0, by="ann"))
    monkeypatch.setattr("mma.web.views.Command.run", lambda command: suspects(*files))
    served = serve_project(project)
    page = open_page(served.door, bypass_csp=True)
    open_view(page, served, "review")
    assert "Model says dog 97 %, 5 of 5 neighbours agree" in page.wait_for_selector(".said-now .soft").text_content()
    assert "are right about 80 % of all labels" in page.text_content("main")
    assert picture_name(page) == files[0]
    assert not serious_violations(page)
    page.keyboard.press("k")
    page.wait_for_function("name => document.querySelector('img.picture')?.alt === name", arg=files[1])
    page.keyboard.press("2")
    page.wait_for_function("() => document.querySelector('.suspect').hidden")
    wait_until_saved(page)
    assert stored(project) == {files[0]: 0, files[1]: 1}
    assert [event.provenance for event in project.events()[-2:]] == ["review", "review"]


def test_news_leave_the_list_of_suspect_labels_alone(make_project, serve_project, open_page, monkeypatch):
    project = make_project()
    files = ["photo-001.png", "photo-002.png", "photo-003.png"]
    ids = {image.name: image.id for image in project.images()}
    for file in files:
        project.answer(Answer(id=uuid4(), images=[ids[file]], kind="label", class_id=0, by="ann"))
    searches = []
    monkeypatch.setattr("mma.web.views.Command.run", lambda command: searches.append(command) or suspects(*files))
    served = serve_project(project)
    page = open_page(served.door)
    open_view(page, served, "review")
    wait_for_picture(page, files[0])
    page.keyboard.press("k")
    wait_for_picture(page, files[1])
    project.answer(Answer(id=uuid4(), images=[ids["photo-009.png"]], kind="label", class_id=1, by="bob"))
    page.wait_for_function("() => document.querySelector('.count[data-class=\"1\"]').textContent === '1'")
    page.keyboard.press("+")
    page.keyboard.type("bird")
    page.keyboard.press("Enter")
    wait_for_picture(page, files[2])
    wait_until_saved(page)
    assert stored(project) == {files[0]: 0, files[1]: 2, files[2]: 0, "photo-009.png": 1}
    assert len(searches) == 1


def test_a_cell_of_the_confusion_matrix_opens_its_images(make_project, serve_project, open_page):
    project = make_project()
    wrong = judged_project(project)
    served = serve_project(project)
    page = open_page(served.door, bypass_csp=True)
    open_view(page, served, "results")
    page.wait_for_selector(".confusion")
    assert not serious_violations(page)
    page.click("[aria-label='1 cat taken for dog: show']")
    shown = page.wait_for_selector("dialog .tile img")
    assert shown.get_attribute("src") == f"/images/{wrong}/thumb"
    assert "80 % sure" in page.text_content("dialog .tile")
    assert not serious_violations(page)
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")


def test_the_model_is_exported_from_the_results(make_project, serve_project, open_page, monkeypatch):
    project = make_project()
    judged_project(project)
    exported = {"folder": "photos.mma/export/model-001", "files": [], "agreement": {"images": 20}}
    monkeypatch.setattr("mma.web.views.Command.run", lambda command: exported)
    served = serve_project(project)
    page = open_page(served.door)
    open_view(page, served, "results")
    page.click("text=Export the model")
    page.wait_for_selector("text=Exported to photos.mma/export/model-001. It agrees with the model on 20 real images.")


def test_news_leave_the_buttons_of_the_results_and_their_words_alone(
    make_project, serve_project, open_page, monkeypatch
):
    project = make_project()
    judged_project(project)
    monkeypatch.setattr("mma.web.views.Command.run", lambda command: {"folder": "export/model-001", "agreement": None})
    served = serve_project(project)
    page = open_page(served.door)
    open_view(page, served, "results")
    work = {"name": "deep training", "done": 1, "total": 9}
    number = project.models.put(kind="deep", state="training", message="step 1 of 9", about={"work": work}).number
    page.wait_for_selector("text=It is being trained.")
    page.wait_for_function("() => !document.body.hasAttribute('data-asking')")
    page.hover("text=Export the model")
    page.mouse.down()
    project.models.put(number, state="training", message="step 2 of 9", about={"work": {**work, "done": 2}})
    page.wait_for_selector(".model-state:has-text('step 2 of 9')")
    page.mouse.up()
    page.wait_for_selector("text=Exported to export/model-001.")
    project.models.put(number, state="ready", message="", accuracy=0.9, about={"low": 0.8, "high": 0.95})
    page.wait_for_selector(".model-state:has-text('ready')")
    page.wait_for_function("() => !document.body.hasAttribute('data-asking')")
    assert "Exported to export/model-001." in page.text_content(".deeper")
    assert page.locator(".deeper button:enabled").count() == 2


def judged_project(project: Project, probs: Any = ((0.9, 0.1), (0.2, 0.8), (0.1, 0.9)), labels: Any = (0, 0, 1)) -> str:
    """Give a project a model that takes one cat for a dog; return that image."""
    ids = [image.id for image in project.images()[: len(labels)]]
    probs, labels, names = np.array(probs), np.array(labels), ("cat", "dog")
    report = ModelReport(
        number=1,
        kind="live",
        seq=project.seq(),
        labels=3,
        audit=0,
        classes=names,
        class_ids=(0, 1),
        per_class={"cat": 2, "dog": 1},
        provenance={"start": 3},
        curve=(),
        quality=judge(probs, labels, names),
        judged=judged_images(ids, probs, labels, names),
    )
    project.models.create(1, report_file(report))
    return ids[1]


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[Project]:
    """A project whose folder, files and classes are named by an enemy."""
    folder = tmp_path / "<i onmouseover=window.hacked=1>photos"
    names = [
        "<img src=x onerror=window.hacked=1>.png",
        "a\x1b[31mred\u202egnp.png",
        "'\"><script>window.hacked=1<\x2fscript>.png".replace("/", "_"),
        "ציפור.png",
    ]
    for number in range(40):
        write_image(folder / (names[number] if number < len(names) else f"&lt;{number}&gt;.png"), number)
    project = create_project(folder, classes=HOSTILE)
    project.index()
    yield project
    project.close()


def test_s5_hostile_names_are_text_in_every_view(hostile: Project, serve_project, open_page):
    propose(hostile)
    disputed = next(image.id for image in hostile.images() if "onerror" in image.name)
    for place, by in enumerate(HOSTILE[:2]):
        hostile.answer(Answer(id=uuid4(), images=[disputed], kind="label", class_id=place, by=by))
    hostile.merge_class(2, 3, HOSTILE[0])
    served = serve_project(hostile)
    page = open_page(served.door)
    shown = [press_and_move_on(page, "1") for _ in range(3)]

    def look() -> None:
        assert HOSTILE[0] in page.text_content("body")
        assert page.locator("main script, main i, dialog script, dialog i, [onerror], [onmouseover]").count() == 0

    for view in VIEWS:
        open_view(page, served, view)
        look()
    wait_until_saved(page)
    page.fill("#invite-name", HOSTILE[1])
    page.click("text=Make a link")
    page.wait_for_selector(".invitations li")
    look()
    open_view(page, served, "review")
    page.click("text=people disagree")
    page.wait_for_selector(".voices")
    look()
    open_view(page, served, "browse")
    page.fill("#browse-text", "onerror")
    page.wait_for_function("() => document.querySelectorAll('.browse .tile').length === 1")
    page.dblclick(".browse .tile button")
    page.wait_for_selector("dialog .enlarged")
    look()
    page.keyboard.press("Escape")
    open_view(page, served, "grid")
    page.keyboard.press("e")
    page.wait_for_selector("dialog .choices")
    look()
    page.keyboard.press("Escape")
    open_view(page, served, "label")
    for key in ("n", "?", "+"):
        page.keyboard.press(key)
        page.wait_for_selector("dialog")
        look()
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")
    page.click(".strip .past")
    page.wait_for_selector(".why strong >> text=Correcting")
    look()
    assert shown
    assert page.evaluate("() => window.hacked") is None
    assert page.title().startswith("<i onmouseover")


def test_d5_names_with_control_characters_are_shown_as_escapes(tmp_path: Path, serve_project, open_page):
    for number in range(12):
        write_image(tmp_path / "photos" / f"{number}\x1b[31m\u202egnp.png", number)
    project = create_project(tmp_path / "photos", classes=["a", "b"])
    project.index()
    page = open_page(serve_project(project).door)
    name = picture_name(page)
    assert "\\u001b[31m\\u202e" in name
    assert "\x1b" not in page.text_content("body") + name
    assert "\u202e" not in page.text_content("body") + name
    project.close()


def busy(project: Project) -> Project:
    """A project in the middle of its life: labels, a model, suggestions, training."""
    images = [image.id for image in project.images()]
    for place, image in enumerate(images[:9]):
        project.answer(Answer(id=uuid4(), images=[image], kind="label", class_id=place % 2, by="anna"))
    propose(project)
    project.models.put(
        state="training", kind="deep", about={"work": {"name": "deep training", "done": 3, "total": 10, "left": "90 s"}}
    )
    return project


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_any_view(make_project, serve_project, open_page, scheme: str):
    from axe_playwright_python.sync_playwright import Axe

    project = busy(make_project(60, ("cat", "dog", *[f"class {n}" for n in range(4)])))
    served = serve_project(project)
    page = open_page(
        served.door, bypass_csp=True, color_scheme=scheme
    )  # axe is a script that the policy would not let in
    found: list[str] = []
    for view in (*VIEWS, "dialog"):
        if view == "dialog":
            page.keyboard.press("?")
            page.wait_for_selector("dialog[open]")
        else:
            open_view(page, served, view)
            violations = Axe().run(page).response["violations"]
        found += [
            f"{view}: {each['id']} {each['nodes'][0]['html']}"
            for each in violations
            if each["impact"] in ("serious", "critical")
        ]
    assert not found


def test_axe_finds_nothing_serious_with_many_classes_or_none(make_project, serve_project, open_page):
    from axe_playwright_python.sync_playwright import Axe

    for name, classes in (("none", ()), ("many", tuple(f"class {n}" for n in range(14)))):
        page = open_page(serve_project(make_project(40, classes, name)).door, bypass_csp=True)
        page.wait_for_selector(".sheet img" if name == "none" else "img.picture")
        violations = Axe().run(page).response["violations"]
        assert not [
            f"{each['id']} {each['nodes'][0]['html']}"
            for each in violations
            if each["impact"] in ("serious", "critical")
        ]


OVERFLOW = "() => document.documentElement.scrollWidth > innerWidth || document.querySelector('.room').scrollWidth > document.querySelector('.room').clientWidth + 1"


@pytest.mark.parametrize(
    "size", [PHONE, {"width": 768, "height": 1024}, {"width": 3840, "height": 2160}], ids=["phone", "tablet", "4K"]
)
def test_every_view_fits_the_screen_also_with_long_and_turned_names(hostile: Project, serve_project, open_page, size):
    busy(hostile).merge_class(1, 4, "anna")
    served = serve_project(hostile)
    page = open_page(served.door, viewport=size, has_touch=size is PHONE)
    for view in VIEWS:
        open_view(page, served, view)
        assert not page.evaluate(OVERFLOW), view


def test_on_a_phone_nothing_lies_on_top_of_something_else(make_project, serve_project, open_page):
    served = serve_project(busy(make_project(40)))
    page = open_page(served.door, viewport=PHONE, has_touch=True)
    for view in VIEWS:
        open_view(page, served, view)
        parts = [page.locator(name).bounding_box() for name in (".bar", "main > *", ".panel")]
        rows = [box.bounding_box() for box in page.locator("main > * > *:visible").all()]
        for above, below in [*pairwise(parts), *pairwise(rows)]:
            assert above["y"] + above["height"] <= below["y"] + 1, view


def test_on_a_phone_everything_one_answers_with_can_be_hit_with_a_thumb(make_project, serve_project, open_page):
    page = open_page(serve_project(make_project()).door, viewport=PHONE, has_touch=True, is_mobile=True)
    picture_name(page)
    boxes = [box.bounding_box() for box in page.locator(".choice, .command, .tab").all()]
    assert min(min(box["height"], box["width"]) for box in boxes) >= 37  # tabs lie in a row and count as one target
    assert min(box["height"] for box in [each.bounding_box() for each in page.locator(".choice, .command").all()]) >= 43


def test_motion_is_left_out_for_those_who_ask(make_project, serve_project, open_page):
    page = open_page(serve_project(make_project()).door, reduced_motion="reduce")
    picture_name(page)
    assert page.evaluate("() => getComputedStyle(document.querySelector('.choice')).transitionDuration") == "0s"


def test_a_click_on_a_mistake_corrects_its_label(make_project, serve_project, open_page):
    project = make_project()
    wrong = judged_project(project)
    project.answer(Answer(id=uuid4(), images=[wrong], kind="label", class_id=0, by="anna"))
    served = serve_project(project)
    page = open_page(served.door, bypass_csp=True)
    open_view(page, served, "results")
    page.click("[aria-label='1 cat taken for dog: show']")
    page.click("dialog .tile button")
    page.wait_for_selector("dialog.photo >> text=The model says dog, 80 % sure")
    assert not serious_violations(page)
    page.keyboard.press("2")
    page.wait_for_selector("dialog.photo", state="detached")
    page.wait_for_selector("dialog .tile >> text=now dog")
    wait_until_saved(page)
    event = project.events()[-1]
    assert (event.image, event.class_id, event.provenance) == (wrong, 1, "review")
    page.keyboard.press("Escape")
    open_view(page, served, "label")
    page.keyboard.press("u")
    wait_until_saved(page)
    assert stored(project) == {next(each.name for each in project.images() if each.id == wrong): 0}


def test_cells_of_the_confusion_matrix_look_as_full_as_they_are(make_project, serve_project, open_page):
    project = make_project()
    says_dog, says_cat = [0.1, 0.9], [0.8, 0.2]  # 11 of 12 cats are taken for dogs, and 1 of 12 dogs for a cat
    probs = np.repeat([says_dog, says_cat, says_dog, says_cat], [11, 1, 11, 1], axis=0)
    judged_project(project, probs=probs, labels=np.repeat([0, 1], 12))
    served = serve_project(project)
    page = open_page(served.door)
    open_view(page, served, "results")
    colours = page.eval_on_selector_all(
        ".confusion tbody .cell", "(all) => all.map((each) => getComputedStyle(each).backgroundColor)"
    )
    _, often, seldom, _ = ([float(part) for part in re.findall(r"[\d.]+", each)] for each in colours)
    assert max(abs(a - b) for a, b in zip(often, seldom, strict=True)) > 0.15
    assert page.text_content(".confusion tbody tr:first-child .count") == "12"


def test_an_unused_class_goes_with_one_click_and_a_used_one_has_no_such_button(make_project, serve_project, open_page):
    project = make_project(classes=("cat", "dog", "bird"))
    served = serve_project(project)
    page = open_page(served.door, bypass_csp=True)
    press_and_move_on(page, "1")
    page.wait_for_function("() => document.querySelector('.big-number b').textContent === '1'")
    open_view(page, served, "classes")
    assert not serious_violations(page)
    assert page.locator("[aria-label='Delete cat']").count() == 0
    page.click("[aria-label='Delete bird']")
    page.wait_for_selector("[aria-label='Delete bird']", state="detached")
    assert [each.name for each in project.classes()] == ["cat", "dog"]
    page.click("[aria-label='Delete dog']")
    page.wait_for_selector("[aria-label='Delete dog']", state="detached")
    page.reload()  # one class alone: the first minute again, with chips
    page.wait_for_selector(".chip bdi")
    page.fill("#new-class", "fox")
    page.keyboard.press("Enter")
    page.click(".chip [aria-label='Delete fox']")
    page.wait_for_selector(".chip [aria-label='Delete fox']", state="detached")


def test_groups_that_have_no_name_and_classes_that_look_like_two_are_named(
    make_project, serve_project, open_page, monkeypatch
):
    project = make_project()
    ids = {image.name: image.id for image in project.images()}
    files = [f"photo-{number:03d}.png" for number in range(9)]
    for file in files[:6]:
        project.answer(Answer(id=uuid4(), images=[ids[file]], kind="label", class_id=0, by="ann"))
    found = {**suspects(), "split": [{"label": "cat", "files": files[:2], "others": 4}], "unknown_groups": [files[6:]]}
    monkeypatch.setattr("mma.web.views.Command.run", lambda command: found)
    served = serve_project(project)
    page = open_page(served.door, bypass_csp=True)
    open_view(page, served, "review")
    page.click("text=not sure what to call these")
    page.click(".member >> nth=2")
    assert not serious_violations(page)
    page.keyboard.press("+")
    page.keyboard.type("owl")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=All of these groups are looked at.")
    page.click("text=looks like two")
    page.wait_for_selector("text=these 2 differ from the other 4")
    page.keyboard.press("2")
    page.wait_for_selector("text=All of these groups are looked at.")
    wait_until_saved(page)
    assert stored(project) == {
        **dict.fromkeys(files[:2], 1),
        **dict.fromkeys(files[2:6], 0),
        **dict.fromkeys(files[6:8], 2),
    }


def test_the_heat_map_is_shown_with_h_and_recorded(make_project, serve_project, open_page, monkeypatch):
    project = make_project()
    propose(project)
    asked = []

    def run(command, *images):
        asked.append(images)
        maps = {each: {"name": "cat", "rows": [[1.0, -0.5], [0.0, 0.2]]} for each in images}
        return maps | {images[1]: {"why": "This photo has none."}}

    monkeypatch.setattr("mma.web.views.Command.run", run)
    served = serve_project(project)
    page = open_page(served.door, bypass_csp=True)
    name = picture_name(page)
    page.keyboard.press("h")
    page.wait_for_selector(".stage .heat-words >> text=The model sees cat")
    boxes = [page.locator(each).bounding_box() for each in ("img.picture", ".stage .heat")]
    assert boxes[0] == boxes[1]
    assert (
        page.evaluate(
            "() => [...document.querySelector('.stage .heat').getContext('2d').getImageData(0, 0, 1, 1).data]"
        )[0]
        > 200
    )
    assert not serious_violations(page)
    press_and_move_on(page, "1")
    page.wait_for_selector(".stage .heat-words >> text=This photo has none.")
    page.keyboard.press("h")
    page.keyboard.press("2")
    wait_until_saved(page)
    assert len(asked) == 1  # those to come were asked for with the first one
    assert [event.shown for event in project.events() if event.kind == "label"] == ["hidden; heat map: cat", "hidden"]
    assert name

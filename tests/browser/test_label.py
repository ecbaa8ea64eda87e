"""Setup and labeling by keyboard, mouse and touch."""

from __future__ import annotations

from uuid import uuid4

import pytest

from mma.project import Answer, Pick
from tests.browser.acts import (
    count_events,
    hold_first,
    loaded_pictures,
    picture_name,
    press_and_move_on,
    stored,
    take_over,
    wait_for_another,
    wait_for_picture,
    wait_until_loaded,
    wait_until_saved,
)
from tests.browser.conftest import PHONE


def test_a_person_names_the_classes_and_labels_by_keyboard_alone(make_project, serve_project, open_page):
    project = make_project(80, classes=())
    page = open_page(serve_project(project).door)
    page.wait_for_selector(".sheet img")
    assert page.locator(".sheet img").count() == 24
    for name in ("cat", "dog", "bird"):  # nobody waits for the server between two names
        page.keyboard.type(name)
        page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelectorAll('.made .chip').length === 3")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    given = {press_and_move_on(page, key): int(key) - 1 for key in "123"}
    wait_until_saved(page)
    assert stored(project) == given
    assert [each.name for each in project.classes()] == ["cat", "dog", "bird"]


def test_sixty_labels_in_a_row_are_stored_once_each_and_as_given(make_project, serve_project, open_page):
    project = make_project(80, ("cat", "dog", "bird"))
    page = open_page(serve_project(project).door)
    given = {}
    for number in range(60):
        given[press_and_move_on(page, str(number % 3 + 1))] = number % 3
    wait_until_saved(page)
    assert stored(project) == given
    assert len(given) == count_events(project) == 60


def test_keys_pressed_faster_than_pictures_come_are_no_labels_of_unseen_images(make_project, serve_project, open_page):
    project = make_project(40)
    page = open_page(serve_project(project).door)
    first = picture_name(page)
    page.evaluate(
        "for (let i = 0; i < 3; i += 1) document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '1', code: 'Digit1', bubbles: true}))"
    )
    wait_for_another(page, first)
    wait_until_saved(page)
    assert first in stored(project)
    assert count_events(project) == len(stored(project))


KEYS_OF = """async (many) => {
  const { keysOf } = await import("/static/choices.js");
  const classes = Array.from({ length: many }, (_, id) => ({ id, name: `class ${id}`, key: id === 0 ? "a" : null }));
  return Object.fromEntries(keysOf(classes));
}"""


def test_with_more_than_ten_classes_a_letter_is_for_typing(make_project, serve_project, open_page):
    page = open_page(serve_project(make_project(4)).door)
    assert page.evaluate(KEYS_OF, 10)["a"] == 0
    assert "a" not in page.evaluate(KEYS_OF, 11)


def test_other_answers_have_keys_of_their_own(make_project, serve_project, open_page):
    project = make_project()
    page = open_page(serve_project(project).door)
    later, unsure, excluded = (press_and_move_on(page, key) for key in "lcx")
    noted = picture_name(page)
    page.keyboard.press("n")
    page.keyboard.type("a note: 1 2 u")
    page.click("text=Save note")
    page.wait_for_selector("dialog", state="detached")  # until then the note is not on its way, and all is saved
    wait_until_saved(page)
    assert picture_name(page) == noted
    names = {image.id: image.name for image in project.images()}
    found = [(event.kind, names.get(event.image), event.note) for event in project.events() if event.image]
    assert found == [
        ("later", later, None),
        ("cannot_tell", unsure, None),
        ("exclude", excluded, None),
        ("note", noted, "a note: 1 2 u"),
    ]


def test_undo_goes_back_as_far_as_there_are_labels_also_after_a_restart(make_project, serve_project, open_page):
    project = make_project(60)
    for image in project.images()[:30]:
        project.answer(Answer(id=uuid4(), images=[image.id], kind="label", class_id=1, by="anna"))
    page = open_page(serve_project(project).door)
    given = press_and_move_on(page, "1")
    page.keyboard.press("u")
    wait_for_picture(page, given)
    for left in range(29, -1, -1):
        page.keyboard.press("u")
        page.wait_for_function("n => document.querySelectorAll('.past').length === Math.min(n, 20)", arg=left)
    wait_until_saved(page)
    assert stored(project) == {}
    assert count_events(project, "undo") == 31


def test_a_click_on_the_strip_corrects_an_answer(make_project, serve_project, open_page):
    project = make_project()
    page = open_page(serve_project(project).door)
    wrong = press_and_move_on(page, "1")
    press_and_move_on(page, "1")
    page.click(".strip li:nth-child(2) button")
    wait_for_picture(page, wrong)
    assert "you said cat" in page.text_content(".why")
    press_and_move_on(page, "2")
    wait_until_saved(page)
    assert stored(project)[wrong] == 1
    assert page.locator(".past").count() == 2


def test_undoing_a_correction_brings_the_answer_before_it_back(make_project, serve_project, open_page):
    project = make_project()
    page = open_page(serve_project(project).door)
    name = press_and_move_on(page, "1")
    page.click(".strip .past")
    wait_for_picture(page, name)
    press_and_move_on(page, "2")
    page.wait_for_selector(".strip .said >> text=dog")
    page.keyboard.press("u")
    wait_for_picture(page, name)
    page.wait_for_selector(".strip .said >> text=cat")
    wait_until_saved(page)
    assert stored(project) == {name: 0}


def test_an_answer_that_waits_keeps_its_name_when_older_ones_are_fetched(make_project, serve_project, open_page):
    project = make_project(40)
    for image in project.images()[:20]:
        project.answer(Answer(id=uuid4(), images=[image.id], kind="label", class_id=1, by="anna"))
    page = open_page(serve_project(project).door)
    page.route("**/api/answers", lambda route: route.abort())
    for left in (19, 18):
        before = picture_name(page)
        page.keyboard.press("u")
        wait_for_another(page, before)
        page.wait_for_function("n => document.querySelectorAll('.past').length === n", arg=left)
    with page.expect_response("**/api/recent*"):
        waiting = press_and_move_on(page, "1")
    page.wait_for_function("() => !document.body.hasAttribute('data-asking')")
    page.click(".strip li:nth-child(1) button")
    wait_for_picture(page, waiting)
    page.unroute("**/api/answers")


@pytest.mark.parametrize("button", [".choice", ".command:nth-child(2)", ".strip button"])
def test_news_leave_a_button_under_the_pressed_mouse_alone(make_project, serve_project, open_page, button):
    project = make_project()
    page = open_page(serve_project(project).door)
    press_and_move_on(page, "1")
    wait_until_saved(page)
    shown = picture_name(page)
    page.hover(button)
    page.mouse.down()
    other = next(image.id for image in project.images() if image.name not in (shown, *stored(project)))
    project.answer(Answer(id=uuid4(), images=[other], kind="label", class_id=1, by="bob"))
    page.wait_for_function("() => document.querySelector('#panel .big-number b').textContent === '2'")
    page.mouse.up()
    wait_for_another(page, shown)


def test_with_many_classes_one_types_the_first_letters(make_project, serve_project, open_page):
    names = tuple(f"{first}{second}-sign" for first in "abcd" for second in "xyz")
    project = make_project(classes=names)
    page = open_page(serve_project(project).door)
    first = picture_name(page)
    page.keyboard.type("cy")
    page.keyboard.press("Enter")
    wait_for_another(page, first)
    second = picture_name(page)
    page.keyboard.type("b")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    wait_for_another(page, second)
    third = picture_name(page)
    page.keyboard.type("zebra")
    page.keyboard.press("Enter")
    wait_for_another(page, third)
    fourth = picture_name(page)
    page.keyboard.type("ax")
    page.keyboard.press("Enter")
    wait_for_another(page, fourth)
    wait_until_saved(page)
    assert stored(project) == {first: names.index("cy-sign"), second: names.index("by-sign"), third: 12, fourth: 0}
    page.keyboard.press("Alt+u")
    wait_for_picture(page, fourth)


def test_a_new_class_comes_with_its_first_label(make_project, serve_project, open_page):
    project = make_project()
    page = open_page(serve_project(project).door)
    name = picture_name(page)
    page.keyboard.press("+")
    page.keyboard.type("horse")
    page.keyboard.press("Enter")
    wait_for_another(page, name)
    wait_until_saved(page)
    assert stored(project) == {name: 2}


HOLD_CLASSES = """() => {
  const ask = window.fetch;
  const open = new Promise((resolve) => { window.letClassesPass = resolve; });
  window.fetch = async (path, ...rest) => { if (path === "/api/classes") await open; return ask(path, ...rest); };
}"""


def test_a_new_class_goes_to_the_image_it_was_typed_for_though_another_one_is_shown_meanwhile(
    make_project, serve_project, open_page
):
    project = make_project()
    page = open_page(serve_project(project).door)
    earlier = press_and_move_on(page, "1")
    page.evaluate(HOLD_CLASSES)
    meant = picture_name(page)
    page.keyboard.press("+")
    page.keyboard.type("horse")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog", state="detached")
    page.keyboard.press("2")  # the class is on its way: this must not become another answer to the same image
    page.keyboard.press("u")
    wait_for_picture(page, earlier)
    page.evaluate("() => window.letClassesPass()")
    page.wait_for_selector(".choice >> text=horse")
    press_and_move_on(page, "2")
    wait_until_saved(page)
    assert stored(project) == {earlier: 1, meant: 2}
    assert meant not in {press_and_move_on(page, "1") for _ in range(3)}


def test_a_note_goes_to_the_image_it_was_written_for_though_another_one_is_shown_meanwhile(
    make_project, serve_project, open_page
):
    project = make_project()
    served = serve_project(project)
    page = open_page(served.door)
    earlier = press_and_move_on(page, "1")
    meant = picture_name(page)
    page.keyboard.press("n")
    page.keyboard.type("torn")
    page.evaluate("() => document.querySelector('.strip button').click()")  # a program can, behind the open window
    wait_for_picture(page, earlier)
    page.click("text=Save note")
    page.wait_for_selector("dialog", state="detached")
    wait_until_saved(page)
    names = {image.id: image.name for image in project.images()}
    assert [(names[event.image], event.note) for event in project.events() if event.kind == "note"] == [(meant, "torn")]


def test_a_note_on_an_answer_that_is_being_corrected_leaves_it_in_the_strip(make_project, serve_project, open_page):
    project = make_project()
    page = open_page(serve_project(project).door)
    first, second = press_and_move_on(page, "1"), press_and_move_on(page, "1")
    page.click(".strip li:nth-child(1) button")
    wait_for_picture(page, second)
    page.keyboard.press("n")
    page.keyboard.type("torn")
    page.click("text=Save note")
    page.wait_for_selector("dialog", state="detached")
    page.click("text=Leave it")
    wait_for_another(page, second)
    assert page.locator(".past").count() == 2
    page.keyboard.press("u")
    wait_for_picture(page, second)
    wait_until_saved(page)
    assert stored(project) == {first: 0}
    assert [event.supersedes for event in project.events() if event.kind == "note"] == [None]


@pytest.mark.parametrize(
    ("mode", "recorded"),
    [("hidden", "hidden"), ("shown", "shown: 1=0.900 0=0.100"), ("after", "after: 1=0.900 0=0.100")],
)
def test_every_label_records_what_was_shown(make_project, serve_project, open_page, mode, recorded):
    project = make_project()
    ids = [image.id for image in project.images()]
    project.put_picks([Pick(image, why="torn", suggestion=[(1, 0.9), (0, 0.1)]) for image in ids], None)
    page = open_page(serve_project(project).door)
    page.keyboard.press("?")
    page.check(f"input[value={mode}]")
    page.keyboard.press("Escape")
    marks = 0
    for _ in range(4):
        picture_name(page)
        marks += page.locator(".choice .mark").count()
        press_and_move_on(page, "1")
    wait_until_saved(page)
    assert {event.shown for event in project.events() if event.kind == "label" and event.provenance == "query"} == {
        recorded
    }
    assert (marks > 0) == (mode == "shown")


def test_a_new_model_changes_only_what_comes_after_the_preloaded_images(make_project, serve_project, open_page):
    project = make_project(60)
    page = open_page(serve_project(project).door)
    wait_until_loaded(page, 9)
    names = {image.id: image.name for image in project.images()}
    ready = loaded_pictures(page)
    fresh = [image.id for image in project.images() if image.id not in ready and not image.audit]
    project.put_picks([Pick(image, why="new pick") for image in fresh], 1)
    shown = [press_and_move_on(page, "1") for _ in range(12)]
    assert set(shown[:9]) == {names[image] for image in ready}
    assert set(shown[9:]) - {names[image.id] for image in project.images() if image.audit} <= {
        names[image] for image in fresh
    }


def test_news_from_elsewhere_arrive_without_a_reload(make_project, serve_project, open_page):
    project = make_project(budget=10)
    page = open_page(serve_project(project).door)
    picture_name(page)
    project.models.put(
        state="ready",
        accuracy=0.86,
        about={"low": 0.79, "high": 0.91, "source": "from 61 audit labels", "forecast": "next 50: +2.0 (0.1 to 4.0)"},
    )
    project.answer(Answer(id=uuid4(), images=[project.images()[-1].id], kind="label", class_id=1, by="ben"))
    page.wait_for_selector("text=86 %")
    page.wait_for_selector("text=between 79 and 91, from 61 audit labels")
    page.wait_for_selector("text=1 of 10 labels")


def test_a_person_who_takes_over_gets_images_of_their_own(make_project, serve_project, open_page):
    project = make_project(60)
    page = open_page(serve_project(project).door)
    wait_until_loaded(page, 9)
    late = hold_first(page, "next")
    with page.expect_request("**/api/next"):
        press_and_move_on(page, "1")  # asks for one more image
    shown = picture_name(page)
    take_over(page, "ben")
    late[0].continue_()
    wait_for_another(page, shown)
    hers = {item.image for item in project.next("anna", 9)}  # they wait for her
    for _ in range(4):
        press_and_move_on(page, "2")
    wait_until_saved(page)
    answered = {event.image for event in project.events() if event.by == "ben"}
    assert len(answered) == 4
    assert not answered & hers


def test_a_person_who_takes_over_in_one_tab_gets_images_of_their_own_in_every_tab(
    make_project, serve_project, open_page
):
    served = serve_project(make_project(60))
    one = open_page(served.door)
    picture_name(one)
    other = open_page(served.url, one.context)
    shown = picture_name(other)
    take_over(one, "ben")
    wait_for_another(other, shown)


@pytest.mark.parametrize("slow", ["answers", "next"])
def test_the_last_image_comes_back_when_it_was_put_off(make_project, serve_project, open_page, slow):
    project = make_project(4)
    for image in project.images()[1:]:
        project.answer(Answer(id=uuid4(), images=[image.id], kind="label", class_id=1, by="anna"))
    page = open_page(serve_project(project).door)
    picture_name(page)
    page.wait_for_function("() => !document.body.hasAttribute('data-asking')")
    late = hold_first(page, slow)
    name = press_and_move_on(page, "l")
    page.wait_for_selector("text=Nothing left to ask" if slow == "answers" else "text=All saved")
    late[0].continue_()
    wait_for_picture(page, name)
    wait_until_saved(page)
    press_and_move_on(page, "1")
    page.wait_for_selector("text=Nothing left to ask")


def test_images_that_another_person_gave_back_come_without_a_reload(make_project, serve_project, open_page, chromium):
    project = make_project(8)
    project.next("ben", 8)
    context = chromium.new_context()
    context.clock.install()
    page = open_page(serve_project(project).door, context)
    page.wait_for_selector("text=Nothing left to ask")
    project.release("ben")
    page.clock.fast_forward("00:31")
    picture_name(page)
    context.close()


def test_zoom_and_pan_move_the_picture(make_project, serve_project, open_page):
    project = make_project()
    page = open_page(serve_project(project).door)
    picture_name(page)
    before = page.locator("img.picture").bounding_box()
    page.keyboard.press("z")
    page.wait_for_selector(".stage.zoomed")
    zoomed = page.locator("img.picture").bounding_box()
    page.mouse.move(600, 300)
    page.mouse.down()
    page.mouse.move(640, 330)
    page.mouse.up()
    page.wait_for_function(
        "() => document.querySelector('img.picture').style.transform.startsWith('translate(40px, 30px)')"
    )
    moved = page.locator("img.picture").bounding_box()
    assert zoomed["width"] > 2 * before["width"]
    assert moved["width"] == zoomed["width"]
    assert count_events(project) == 0


def swipe(page, distance: int) -> None:
    """Draw a finger over the picture."""
    client = page.context.new_cdp_session(page)
    box = page.locator(".stage").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    client.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
    for part in range(1, 6):
        client.send(
            "Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [{"x": x + distance * part / 5, "y": y}]}
        )
    client.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def test_two_classes_are_swiped_on_a_phone(make_project, serve_project, open_page):
    project = make_project()
    page = open_page(serve_project(project).door, viewport=PHONE, has_touch=True, is_mobile=True)
    given = {}
    for distance, class_id in ((-120, 0), (120, 1), (-120, 0)):
        name = picture_name(page)
        swipe(page, distance)
        wait_for_another(page, name)
        given[name] = class_id
    wait_until_saved(page)
    assert stored(project) == given

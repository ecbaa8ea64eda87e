"""The page never loses a key press. GATE R2 in a real browser."""

from __future__ import annotations

import json

import pytest

from mma.errors import TemporarilyUnavailable
from mma.project.labels import events
from mma.project.labels.copies import SecondCopy
from tests.browser.acts import (
    count_events,
    hold_first,
    open_view,
    picture_name,
    press_and_move_on,
    stored,
    wait_for_picture,
    wait_for_words,
    wait_until_loaded,
    wait_until_saved,
)
from tests.web.page import free_port


def press(page, key: str) -> str:
    """Answer without waiting for another picture: offline there may be none."""
    name = picture_name(page)
    page.keyboard.press(key)
    return name


def test_r2_the_server_is_killed_and_restarted_while_a_browser_labels(make_project, start, open_page):
    project, port = make_project(60), free_port()
    server = start(project.folder, port)
    page = open_page(server.door)
    given = {press_and_move_on(page, "1"): 0 for _ in range(3)}
    wait_until_loaded(page, 9)  # six more pictures than were answered
    server.stop(kill=True)
    given |= {press_and_move_on(page, "2"): 1 for _ in range(6)}
    wait_for_words(page, "Offline, ")
    wait_for_words(page, "labels waiting")
    start(project.folder, port)
    wait_until_saved(page)
    given |= {press_and_move_on(page, "1"): 0 for _ in range(6)}
    wait_until_saved(page)
    assert stored(project) == given
    assert count_events(project) == len(given) == 15


def test_r2_labels_given_offline_survive_a_closed_tab(make_project, serve_project, open_page):
    project = make_project()
    served = serve_project(project)
    page = open_page(served.door)
    context = page.context
    given = {press_and_move_on(page, "1"): 0}
    wait_until_saved(page)
    wait_until_loaded(page, 9)
    context.set_offline(True)
    given |= {press_and_move_on(page, "2"): 1 for _ in range(3)}
    wait_for_words(page, "Offline, 3 labels waiting")
    assert len(stored(project)) == 1
    page.close()
    context.set_offline(False)
    page = open_page(served.url, context)
    wait_until_saved(page)
    assert stored(project) == given
    assert count_events(project) == 4


def test_r2_offline_and_online_again_needs_no_hand(make_project, serve_project, open_page):
    project = make_project()
    page = open_page(serve_project(project).door)
    press_and_move_on(page, "1")
    wait_until_saved(page)
    wait_until_loaded(page, 9)
    page.context.set_offline(True)
    wrong = press_and_move_on(page, "1")
    page.keyboard.press("u")
    wait_for_picture(page, wrong)
    press_and_move_on(page, "2")
    wait_for_words(page, "3 labels waiting")
    page.context.set_offline(False)
    wait_until_saved(page)
    assert sorted(stored(project).values()) == [0, 1]
    assert count_events(project, "undo") == 1


def test_r2_two_tabs_share_the_work_and_nothing_is_doubled(make_project, serve_project, open_page):
    project = make_project(60)
    served = serve_project(project)
    one = open_page(served.door)
    picture_name(one)
    other = open_page(served.url, one.context)
    given: dict[str, int] = {}
    for _ in range(8):
        first, second = press_and_move_on(one, "1"), press_and_move_on(other, "2")
        assert first not in given
        assert second not in given
        given |= {first: 0, second: 1}
    wait_until_saved(one)
    wait_until_saved(other)
    wait_until_loaded(one, 10)  # two more pictures than were answered
    wait_until_loaded(other, 10)
    one.context.set_offline(True)
    given |= {press_and_move_on(one, "1"): 0, press_and_move_on(other, "2"): 1}
    wait_for_words(one, "2 labels waiting")
    wait_for_words(other, "2 labels waiting")
    one.context.set_offline(False)
    wait_until_saved(one)
    wait_until_saved(other)
    assert stored(project) == given
    assert count_events(project) == len(given) == 18


def test_r2_an_answer_whose_reply_is_lost_is_sent_again_and_stored_once(make_project, serve_project, open_page):
    project = make_project()
    page = open_page(serve_project(project).door)
    lost: list[str] = []

    def lose_reply(route) -> None:
        if len(lost) < 2:
            lost.append(json.loads(route.request.post_data)["id"])
            route.fetch()  # the server stores it
            route.abort()  # and the page never hears of it
        else:
            route.continue_()

    page.route("**/api/answers", lose_reply)
    name = press_and_move_on(page, "1")
    wait_until_saved(page)
    assert len(lost) == 2
    assert lost[0] == lost[1]
    assert stored(project) == {name: 0}
    assert count_events(project) == 1


SLOW_READING = """() => {
  const getAll = IDBObjectStore.prototype.getAll;
  const success = Object.getOwnPropertyDescriptor(IDBRequest.prototype, "onsuccess");
  IDBObjectStore.prototype.getAll = function (...values) {
    const request = getAll.apply(this, values);
    Object.defineProperty(request, "onsuccess", { set(listener) { success.set.call(request, () => setTimeout(listener, 400)); } });
    return request;
  };
}"""


def test_r2_an_image_answered_while_the_page_asks_for_more_does_not_come_again(make_project, serve_project, open_page):
    project = make_project(60)
    page = open_page(serve_project(project).door)
    picture_name(page)
    page.evaluate(SLOW_READING)
    given = [press_and_move_on(page, "1") for _ in range(20)]
    wait_until_saved(page)
    assert len(set(given)) == count_events(project) == 20


CLOSED_CONNECTIONS = """(times) => {
  const transaction = IDBDatabase.prototype.transaction;
  let closed = 0;
  IDBDatabase.prototype.transaction = function (...values) {
    if ((closed += 1) <= times) this.close();
    return transaction.apply(this, values);
  };
}"""


@pytest.mark.parametrize("times", [1, 1_000_000], ids=["once", "always"])
def test_r2_a_browser_that_closes_its_database_loses_no_label(make_project, serve_project, open_page, times):
    project = make_project()
    page = open_page(serve_project(project).door)
    given = {press_and_move_on(page, "1"): 0}
    wait_until_saved(page)
    wait_until_loaded(page, 9)
    page.evaluate(CLOSED_CONNECTIONS, times)
    given |= {press_and_move_on(page, "2"): 1 for _ in range(3)}
    wait_until_saved(page)
    assert stored(project) == given
    assert count_events(project) == 4


FULL = """() => { IDBObjectStore.prototype.add = () => { throw new DOMException("full", "QuotaExceededError"); }; }"""


def test_r2_the_browsers_disk_fills_up_while_a_label_is_on_its_way_and_none_is_lost(
    make_project, serve_project, open_page
):
    project = make_project()
    page = open_page(serve_project(project).door)
    given = {press_and_move_on(page, "1"): 0}
    wait_until_saved(page)
    late = hold_first(page, "answers")
    with page.expect_request("**/api/answers"):
        given[press_and_move_on(page, "2")] = 1
    page.evaluate(FULL)
    given[press_and_move_on(page, "1")] = 0
    wait_for_words(page, "2 labels waiting, keep this page open")
    late[0].continue_()
    wait_until_saved(page)
    assert stored(project) == given
    assert count_events(project) == 3


def test_r2_labels_that_wait_when_the_browsers_disk_fills_up_are_sent_with_the_next_one(
    make_project, serve_project, open_page
):
    project = make_project()
    page = open_page(serve_project(project).door)
    given = {press_and_move_on(page, "1"): 0}
    wait_until_saved(page)
    wait_until_loaded(page, 9)
    page.context.set_offline(True)
    given |= {press_and_move_on(page, "2"): 1 for _ in range(2)}
    wait_for_words(page, "Offline, 2 labels waiting")
    page.evaluate(FULL)
    given[press_and_move_on(page, "1")] = 0
    wait_for_words(page, "3 labels waiting")
    page.context.set_offline(False)
    wait_until_saved(page)
    assert stored(project) == given
    assert count_events(project) == 4


def test_r2_a_label_that_is_refused_for_good_is_shown_and_lets_the_others_pass(make_project, serve_project, open_page):
    project = make_project()
    page = open_page(serve_project(project).door)
    refused: list[str] = []

    def spoil(route) -> None:
        body = json.loads(route.request.post_data)
        if not refused or body["id"] in refused:
            refused.append(body["id"])
            route.continue_(post_data=json.dumps({**body, "class_id": 77}))
        else:
            route.continue_()

    page.route("**/api/answers", spoil)
    first = press_and_move_on(page, "1")
    good = press_and_move_on(page, "2")
    wait_for_words(page, "1 label refused")
    page.wait_for_function("() => document.querySelector('.big-number b').textContent === '1'")
    assert stored(project) == {good: 1}
    page.click("#saved")
    page.wait_for_selector("text=no class with the number 77")
    page.click("text=Delete 1 refused")
    page.wait_for_selector("text=Delete 1 label?")
    page.keyboard.press("Escape")  # not meant
    page.wait_for_selector("dialog", state="detached")
    page.unroute("**/api/answers")
    page.click("#saved")
    page.click("text=Send again")
    wait_until_saved(page)
    assert stored(project) == {first: 0, good: 1}
    assert count_events(project) == 2


def test_r2_refused_labels_are_deleted_on_purpose_alone(make_project, serve_project, open_page):
    project = make_project()
    page = open_page(serve_project(project).door)
    page.route(
        "**/api/answers",
        lambda route: route.continue_(post_data=json.dumps({**json.loads(route.request.post_data), "class_id": 77})),
    )
    press_and_move_on(page, "1")
    wait_for_words(page, "1 label refused")
    page.click("#saved")
    page.click("text=Delete 1 refused")
    page.click("dialog >> text='Delete'")
    wait_until_saved(page)
    assert stored(project) == {}


FOREIGN = [
    (404, {"error": "nothing here"}),
    (422, {"detail": "what?"}),
    (400, {"error": "no", "refused": True}),
    (400, {"error": "no", "refused": True, "project": "f" * 16}),
    (200, {}),
]


def test_r2_another_program_at_our_port_is_not_believed(make_project, serve_project, open_page):
    project = make_project()
    page = open_page(serve_project(project).door)
    replies = iter(FOREIGN)

    def answer(route) -> None:
        status, body = next(replies, (0, None))
        route.fulfill(status=status, json=body) if status else route.continue_()

    page.route("**/api/answers", answer)
    name = press_and_move_on(page, "1")
    wait_until_saved(page)
    assert next(replies, None) is None
    assert stored(project) == {name: 0}
    assert count_events(project) == 1


@pytest.mark.parametrize("place", [(events, "record"), (SecondCopy, "catch_up")], ids=["before", "after the commit"])
def test_r2_a_mistake_of_ours_on_the_way_of_an_answer_loses_no_label(
    make_project, serve_project, open_page, monkeypatch, place
):
    project = make_project()
    page = open_page(serve_project(project).door)
    given = {press_and_move_on(page, "1"): 0}
    wait_until_saved(page)

    def fail(*values, **rest):
        raise ValueError("not enough values to unpack (expected 3, got 2)")

    with monkeypatch.context() as patch:
        patch.setattr(*place, fail)
        given |= {press_and_move_on(page, "2"): 1 for _ in range(2)}
        wait_for_words(page, "The server cannot save, 2 labels waiting")
    wait_until_saved(page)
    assert stored(project) == given
    assert count_events(project) == 3


def test_r2_an_answer_that_fails_again_and_again_lets_the_others_pass_and_is_kept(
    make_project, serve_project, open_page, monkeypatch
):
    project = make_project()
    page = open_page(serve_project(project).door)
    names = {image.id: image.name for image in project.images()}
    poison = picture_name(page)
    store = project.answer

    def fail(answer):
        if names[answer.images[0]] == poison:
            raise ValueError("a mistake of ours")
        return store(answer)

    with monkeypatch.context() as patch:
        patch.setattr(project, "answer", fail)
        press_and_move_on(page, "1")
        page.keyboard.press("u")  # about the same image: it must not overtake the label
        wait_for_picture(page, poison)
        press_and_move_on(page, "2")
        given = {press_and_move_on(page, "2"): 1 for _ in range(4)}
        wait_for_words(page, "The server cannot save, 3 labels waiting")
        assert stored(project) == given
        page.click("#saved")
        page.wait_for_selector("dialog >> text=Sent again by itself: the server made a mistake")
        page.click("dialog >> text=Close")
    wait_until_saved(page)
    assert stored(project) == given | {poison: 1}
    assert (count_events(project), count_events(project, "undo")) == (6, 1)


def test_r2_answers_about_one_image_keep_their_order_though_the_first_one_fails(
    make_project, serve_project, open_page, monkeypatch
):
    project = make_project()
    page = open_page(serve_project(project).door)
    name, store, tries = picture_name(page), project.answer, []

    def fail(answer):
        if answer.class_id == 0:
            tries.append(answer)
            raise ValueError("a mistake of ours")
        return store(answer)

    with monkeypatch.context() as patch:
        patch.setattr(project, "answer", fail)
        press_and_move_on(page, "1")
        page.keyboard.press("u")
        wait_for_picture(page, name)
        press_and_move_on(page, "2")
        while len(tries) < 6:
            page.wait_for_timeout(100)
        wait_for_words(page, "3 labels waiting")
    wait_until_saved(page)
    assert stored(project) == {name: 1}
    assert [event.kind for event in project.events()[-3:]] == ["label", "undo", "label"]


TWO_AT_ONCE = """async () => {
  const { Outbox } = await import("/static/outbox.js");
  const box = new Outbox("another", { changed() {}, saved() {} });
  await box.open();
  IDBObjectStore.prototype.add = () => { throw new DOMException("full", "QuotaExceededError"); };
  await Promise.all(["a", "b", "c"].map((id) => box.add({ id, images: [id] })));
  return (await box.answers()).map((each) => each.id).sort();
}"""


def test_r2_several_answers_that_find_the_browsers_disk_full_at_once_are_all_kept(
    make_project, serve_project, open_page
):
    page = open_page(serve_project(make_project()).door)
    assert page.evaluate(TWO_AT_ONCE) == ["a", "b", "c"]


def test_r2_a_full_disk_is_named_and_the_label_is_saved_when_there_is_room(
    make_project, serve_project, open_page, monkeypatch
):
    project = make_project()
    page = open_page(serve_project(project).door)

    def full(answer) -> None:
        raise TemporarilyUnavailable("cannot write to labels.jsonl: No space left on device.")

    with monkeypatch.context() as patch:
        patch.setattr(project, "answer", full)
        name = press_and_move_on(page, "2")
        wait_for_words(page, "The server cannot save, 1 label waiting")
        page.click("#saved button")
        page.wait_for_selector("dialog >> text=No space left on device")
        page.click("dialog >> text=Close")
    wait_until_saved(page)
    assert stored(project) == {name: 1}


def test_r2_a_page_without_its_key_says_so_and_keeps_the_labels(make_project, serve_project, open_page):
    project = make_project()
    page = open_page(serve_project(project).door)
    press_and_move_on(page, "1")
    wait_until_saved(page)
    cookies = page.context.cookies()
    page.context.clear_cookies()
    name = press(page, "2")
    wait_for_words(page, "Locked: open the address in the terminal, 1 label waiting")
    page.context.add_cookies(cookies)
    wait_until_saved(page)
    assert stored(project)[name] == 1


def test_s2_the_address_is_clean_and_scripts_cannot_read_the_key(make_project, serve_project, open_page):
    page = open_page(serve_project(make_project()).door)
    assert "token" not in page.url
    assert "token" not in page.evaluate("() => document.referrer + document.cookie + JSON.stringify({...localStorage})")
    assert page.evaluate("() => document.cookie") == ""
    assert page.context.cookies()[0]["sameSite"] == "Strict"


def test_s2_the_file_that_a_browser_is_started_with_leads_to_the_page(make_project, start, open_page):
    project = make_project()
    server = start(project.folder)
    page = open_page((project.layout.state / "open.html").as_uri())
    assert page.url == f"http://127.0.0.1:{server.port}/#label" or page.url == f"http://127.0.0.1:{server.port}/"
    press_and_move_on(page, "1")
    wait_until_saved(page)


def test_s9_the_page_asks_nobody_but_its_own_server(make_project, serve_project, open_page, chromium):
    served = serve_project(make_project())
    context = chromium.new_context()
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    page = open_page(served.door, context)
    for view in ("grid", "review", "results", "classes", "label"):
        open_view(page, served, view)
    press_and_move_on(page, "1")
    wait_until_saved(page)
    context.close()
    assert asked
    assert {url for url in asked if not url.startswith(served.url)} == set()

"""Several people in real browsers: names, invitations, disagreements."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from mma.project import Answer, Project
from tests.browser.acts import picture_name


def say(project: Project, by: str, image: str, class_id: int) -> None:
    project.answer(Answer(id=uuid4(), images=[image], kind="label", class_id=class_id, by=by))


def invite(owner: Any, name: str) -> str:
    owner.fill("#invite-name", name)
    owner.click("text=Make a link")
    owner.wait_for_selector(f".invite-words strong:has-text('{name}')")
    assert owner.query_selector(".qr path")
    return str(owner.inner_text(".address"))


def count_of(project: Project, by: str) -> int:
    return sum(event.by == by and event.kind == "label" for event in project.events())


def wait_for(page: Any, project: Project, by: str, count: int) -> None:
    for _ in range(200):
        if count_of(project, by) >= count:
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"{by} has {count_of(project, by)} labels, not {count}")


def test_two_invited_people_label_and_one_is_sent_away_meanwhile(make_project, serve_project, open_page) -> None:
    project = make_project(overlap=2)
    served = serve_project(project)
    owner = open_page(served.door, view="people")
    doors = {name: invite(owner, name) for name in ("ann", "bob")}
    pages = {name: open_page(door) for name, door in doors.items()}
    for name, page in pages.items():
        picture_name(page)
        assert page.query_selector_all("a[href='#results'], a[href='#classes']") == []
        for count in range(1, 4):
            page.keyboard.press("1")
            wait_for(page, project, name, count)
    owner.click("[aria-label='Withdraw the invitation of ann']")
    owner.wait_for_selector(".invitations .revoked")
    pages["ann"].keyboard.press("1")
    pages["ann"].wait_for_selector("#saved[data-kind=bad]")  # the label waits in her browser, and says so
    for count in range(4, 6):
        pages["bob"].keyboard.press("2")
        wait_for(pages["bob"], project, "bob", count)
    assert count_of(project, "ann") == 3
    owner.wait_for_selector(".people-table th:has-text('bob')")


def test_the_first_visit_asks_for_a_name_and_remembers_it(make_project, serve_project, open_page) -> None:
    served = serve_project(make_project())
    served.server.config.app.app.state.page.by = ""
    page = open_page(served.door)
    page.wait_for_selector("#my-name")
    page.keyboard.press("Escape")
    page.wait_for_selector("#my-name")  # nobody is nameless
    page.fill("#my-name", "ann")
    page.click("text=Start labeling")
    picture_name(page)
    page.keyboard.press("1")
    wait_for(page, served.project, "ann", 1)
    again = open_page(served.url, context=page.context)
    picture_name(again)
    assert again.query_selector("#my-name") is None


def test_a_disagreement_is_decided_with_one_key(make_project, serve_project, open_page) -> None:
    project = make_project(overlap=2)
    image = project.images()[0].id
    say(project, "ann", image, 0)
    say(project, "bob", image, 1)
    page = open_page(serve_project(project).door, view="review")
    page.click("text=people disagree")
    page.wait_for_selector(".voices li:has-text('bob')")
    page.keyboard.press("1")
    wait_for(page, project, "anna", 1)
    assert project.labels().class_ids == (0,)
    assert project.disagreements() == []

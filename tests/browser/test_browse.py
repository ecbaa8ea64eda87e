"""Browse and try in a real browser."""

from __future__ import annotations

from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
from safetensors.numpy import save

from mma.project.map import FILE
from mma.web import views
from tests.browser.acts import open_view, stored, wait_until_saved
from tests.browser.test_views import propose
from tests.web.page import write_image


def captions(page):
    return page.eval_on_selector_all(".tiles.browse .caption", "(all) => all.map((each) => each.textContent)")


def test_photos_are_chosen_and_labeled_with_a_key_and_it_can_be_undone(make_project, serve_project, open_page):
    project = make_project(80)
    propose(project, 0, 1)
    served = serve_project(project)
    page = open_page(served.door)
    open_view(page, served, "browse")
    page.select_option("#browse-class", label="dog")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.tiles.browse .caption')].every((each) => each.textContent === 'dog 90 %')"
    )
    tiles = page.locator(".tiles.browse .past-tile")
    names = [tiles.nth(number).get_attribute("title") for number in range(4)]
    tiles.nth(0).click()
    tiles.nth(3).click(modifiers=["Shift"])
    page.keyboard.press("1")
    wait_until_saved(page)
    assert stored(project) == dict.fromkeys(names, 0)
    assert captions(page)[:4] == ["catmodel: dog 90 %"] * 4
    page.keyboard.press("u")
    wait_until_saved(page)
    assert stored(project) == {}


def test_a_label_is_corrected_and_photos_are_found_by_name_and_by_another(make_project, serve_project, open_page):
    project = make_project(80)
    propose(project)
    served = serve_project(project)
    page = open_page(served.door)
    open_view(page, served, "browse")
    for key in ("1", "2"):
        page.locator(".tiles.browse .past-tile").nth(1).click()
        page.keyboard.press(key)
        wait_until_saved(page)
    name = page.locator(".tiles.browse .past-tile").nth(1).get_attribute("title")
    assert stored(project) == {name: 1}
    page.fill("#browse-text", name)
    page.wait_for_function("() => document.querySelectorAll('.tiles.browse .tile').length === 1")
    page.locator(".tiles.browse .past-tile").first.click()
    page.fill("#browse-text", "")
    page.wait_for_function("() => document.querySelectorAll('.tiles.browse .tile').length > 20")
    page.locator(f".tiles.browse .past-tile[title='{name}']").click()
    page.click("text=More like this")
    page.wait_for_selector("text=Show all again")
    assert page.locator(".tiles.browse .past-tile").first.get_attribute("title") == name


def test_more_photos_come_while_one_scrolls(make_project, serve_project, open_page):
    project = make_project(320)
    served = serve_project(project)
    page = open_page(served.door)
    open_view(page, served, "browse")
    page.wait_for_selector(".tiles.browse .tile")
    shown = page.locator(".tiles.browse .tile").count()
    total = sum(not image.audit for image in project.images())
    assert shown < total
    for _ in range(4):
        page.evaluate("() => { const s = document.querySelector('.browse-scroll'); s.scrollTop = s.scrollHeight; }")
        page.wait_for_function("() => !document.body.hasAttribute('data-asking')")
    page.wait_for_function("total => document.querySelectorAll('.tiles.browse .tile').length === total", arg=total)
    titles = page.eval_on_selector_all(".tiles.browse .past-tile", "(all) => all.map((each) => each.title)")
    assert len(set(titles)) == total


def test_a_dropped_picture_gets_an_answer(make_project, serve_project, open_page, tmp_path, monkeypatch):
    project = make_project(30)
    propose(project)
    row = '{"file": "photo.png", "label": "dog", "confidence": 0.9, "label_2": "cat", "confidence_2": 0.1, "problem": null}'

    def run(module, *command, **rest):
        Path(command[5]).write_text(row + "\n")
        return CompletedProcess([], 0, "{}", "")

    monkeypatch.setattr(views.children, "run", run)
    served = serve_project(project)
    page = open_page(served.door)
    open_view(page, served, "try")
    page.set_input_files("#try-file", str(write_image(tmp_path / "new.png", 7, side=300)))
    page.wait_for_selector(".try-best")
    assert page.text_content(".try-best") == "dog90 %"
    with page.expect_download() as download:
        page.click("a.button")
    assert download.value.suggested_filename == "photos.zip"


def test_a_tile_of_a_grid_is_enlarged_and_given_its_right_class_in_place(make_project, serve_project, open_page):
    project = make_project(70)
    propose(project)
    served = serve_project(project)
    page = open_page(served.door)
    open_view(page, served, "grid")
    page.wait_for_selector(".tile")
    shown = page.eval_on_selector_all(".tile img", "(all) => all.map((each) => each.alt)")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("e")
    assert page.get_attribute("dialog .enlarged img", "alt") == shown[1]
    page.click("dialog .choice:has-text('dog')")
    page.wait_for_function("() => document.querySelectorAll('.tile').length === 23")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('.big-number b').textContent === '24'")
    assert stored(project) == {**dict.fromkeys(shown, 0), shown[1]: 1}


def test_photos_are_chosen_on_the_map_by_a_line_around_them_and_labeled(make_project, serve_project, open_page):
    project = make_project()
    pool = [image.id for image in project.images() if not image.audit]
    keys = np.frombuffer(bytes.fromhex("".join(pool)), np.uint8).reshape(-1, 32).copy()
    places = np.array([[0.1, 0.1] if at < 3 else [0.9, 0.9] for at in range(len(pool))], np.float32)
    (project.folder / "cache" / FILE).write_bytes(save({"keys": keys, "places": places}))
    page = open_page(serve_project(project).door, view="browse")
    page.click("text=Map by class")
    page.wait_for_function(
        "count => document.querySelector('.map-canvas').ariaLabel.includes(`${count} photos,`)", arg=len(pool)
    )
    box = page.locator(".map-canvas").bounding_box()
    x, y, width, height = (box[name] for name in ("x", "y", "width", "height"))
    page.mouse.move(x + 3, y + 3)
    page.mouse.down()
    for right, down in ((0.5, 0.01), (0.5, 0.5), (0.01, 0.5)):
        page.mouse.move(x + right * width, y + down * height, steps=3)
    page.mouse.up()
    page.wait_for_selector("text=3 chosen")
    page.keyboard.press("2")
    wait_until_saved(page)
    labels = project.labels()
    assert set(labels.ids) == set(pool[:3])
    assert set(labels.class_ids) == {1}
    assert len({event.batch for event in project.events() if event.kind == "label"}) == 1
    page.click("text=Tiles")
    page.wait_for_selector(".browse .tile")

"""What a person does at the page, in words."""

from __future__ import annotations

from typing import Any

from mma.project import Project


def picture_name(page: Any) -> str:
    """Wait for a picture, and return the name of its file."""
    found: str = page.wait_for_selector("img.picture").get_attribute("alt")
    return found


def press_and_move_on(page: Any, key: str) -> str:
    """Answer the picture on the screen with a key; return its name when it is gone."""
    name = picture_name(page)
    page.keyboard.press(key)
    wait_for_another(page, name)
    return name


def wait_for_another(page: Any, name: str) -> None:
    """Wait until this picture is no longer on the screen."""
    page.wait_for_function("before => document.querySelector('img.picture')?.alt !== before", arg=name)


def wait_for_picture(page: Any, name: str) -> None:
    """Wait until this picture is on the screen."""
    page.wait_for_function("name => document.querySelector('img.picture')?.alt === name", arg=name)


def loaded_pictures(page: Any) -> list[str]:
    """Return the ids of the large pictures that the browser has loaded."""
    found: list[str] = page.evaluate(
        "performance.getEntriesByType('resource').filter(each => each.name.endsWith('/full')).map(each => each.name.split('/').at(-2))"
    )
    return found


def wait_until_loaded(page: Any, count: int) -> None:
    """Wait until so many large pictures were loaded: without a server there are no others."""
    page.wait_for_function(
        "count => performance.getEntriesByType('resource').filter(each => each.name.endsWith('/full')).length >= count",
        arg=count,
    )


def open_view(page: Any, served: Any, view: str) -> None:
    """Turn to a view, and wait until it shows what it asked the server for."""
    page.goto(f"{served.url}#{view}")
    page.wait_for_function("view => document.body.dataset.view === view", arg=view)
    if view == "label":
        picture_name(page)
    page.wait_for_function("() => !document.body.hasAttribute('data-asking')")


def hold_first(page: Any, name: str) -> list[Any]:
    """Hold the next request of this name; it is in the list, to be let through later."""
    held: list[Any] = []
    page.route(f"**/api/{name}", lambda route: route.continue_() if held else held.append(route))
    return held


def take_over(page: Any, by: str) -> None:
    """Change the name under which answers are given."""
    page.keyboard.press("?")
    page.fill("#who", by)
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")


def wait_until_saved(page: Any) -> None:
    page.wait_for_function("() => document.getElementById('saved').textContent === 'All saved'")


def wait_for_words(page: Any, words: str) -> None:
    """Wait until the page says how many labels wait."""
    page.wait_for_function("words => document.getElementById('saved').textContent.includes(words)", arg=words)


def stored(project: Project) -> dict[str, int]:
    """Return the label of each image by the name of its file."""
    labels = project.labels()
    names = {image.id: image.name for image in project.images()}
    return {names[image]: class_id for image, class_id in zip(labels.ids, labels.class_ids, strict=True)}


def count_events(project: Project, kind: str = "label") -> int:
    return sum(event.kind == kind for event in project.events())

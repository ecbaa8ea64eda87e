"""What a person does at the page, in words."""

from __future__ import annotations

from typing import Any

from mma.project import Project


def picture_name(page: Any) -> str:
    """Wait for a picture, and return the name of its file."""
    found: str = page.wait_for_selector("img.picture").get_attribute("alt")
    return found


def press_and_move_on(page: Any, key: str) -> str:
    """Answer the picture on the screen with a key; return its name when the next one is there."""
    name = picture_name(page)
    page.keyboard.press(key)
    page.wait_for_function("before => document.querySelector('img.picture')?.alt !== before", arg=name)
    return name


def saved_words(page: Any) -> str:
    words: str = page.text_content("#saved")
    return words


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

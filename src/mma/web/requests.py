"""What the page may send. Ids and names only: no path, address or pattern."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from mma.project.records import Key, Person

MAX_ITEMS = 32
MAX_HELD = 1_000


class PageRequest(BaseModel):
    """Something a page sends; a field nobody knows is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    by: Person


class NextRequest(PageRequest):
    """Ask for images besides those the page holds."""

    n: int = Field(ge=0, le=MAX_ITEMS)
    holding: list[Key] = Field(default_factory=list, max_length=MAX_HELD)


class GridRequest(PageRequest):
    """Ask for images that look like a class, or like each other, besides those whose answers are on their way."""

    n: int = Field(ge=1, le=48)
    class_id: int | None
    holding: list[Key] = Field(default_factory=list, max_length=MAX_HELD)


class AddClass(PageRequest):
    """Make a class."""

    do: Literal["add"]
    name: str = Field(max_length=1_000)


class RenameClass(PageRequest):
    """Give a class another name."""

    do: Literal["rename"]
    id: int
    name: str = Field(max_length=1_000)


class MergeClass(PageRequest):
    """Count a class's labels for another one; null takes that back."""

    do: Literal["merge"]
    id: int
    into: int | None


class SetKey(PageRequest):
    """Give a class a key, or none."""

    do: Literal["key"]
    id: int
    key: str | None


ClassChange = TypeAdapter[AddClass | RenameClass | MergeClass | SetKey](
    Annotated[AddClass | RenameClass | MergeClass | SetKey, Field(discriminator="do")]
)

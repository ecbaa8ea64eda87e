"""Groups of settings: frozen, strict about types, closed to unknown names; and groups chosen by name from a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from mma.extensions import load_plugin
from mma.text import did_you_mean

CHOICE = "choice"  # the type of an error inside a group that was chosen by name


class Settings(BaseModel):
    """A group of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def chosen_from(table: Mapping[str, type[Settings]], plugins: str = "") -> Callable[[Any], Any]:
    """Return a validator that reads a group as the entry of `table` that its name says; entries may be added at any time.

    `plugins` is the group of entry points that installed packages add entries by.
    """

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        name = str(value.get("name"))
        if plugins:
            load_plugin(plugins, name, table)
        if name not in table:
            raise PydanticCustomError(CHOICE, "name: {problem}", {"problem": no_entry(name, table)})
        try:
            return table[name].model_validate_json(json.dumps(value))
        except ValidationError as error:
            raise PydanticCustomError(CHOICE, "{problem}", {"problem": explain(error)}) from None

    return read


def no_entry(name: object, table: Mapping[str, object]) -> str:
    """Say that a table has no such entry, and that user code can add one."""
    return (
        f"there is no '{name}'.{did_you_mean(str(name), table)} Choose one of: {', '.join(table)}. One from your "
        "own code needs  mma --use MODULE"
    )


def explain(error: ValidationError) -> str:
    """Name each wrong setting, what it holds and what it should hold."""
    sentences = []
    for item in error.errors():
        where, value = ".".join(str(part) for part in item["loc"]), item["input"]
        message = item["msg"].removeprefix("Value error, ")
        given = "" if isinstance(value, dict) else f" (it is {json.dumps(value, default=str)})"
        if where:
            message = f"{where}.{message}" if item["type"] == CHOICE else f"{where}: {message}{given}"
        sentences.append(message)
    return "; ".join(sentences)

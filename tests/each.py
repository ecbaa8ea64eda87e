"""Say one thing about many values as one test: the cases are a loop, and a failure names its case."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from itertools import product
from typing import Any

Test = Callable[..., None]


def each(**tables: Mapping[str, Any] | Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test with every combination of values. A mapping's keys are how its values are called in a failure."""
    named = {
        argument: list(values.items()) if isinstance(values, Mapping) else [(str(value), value) for value in values]
        for argument, values in tables.items()
    }
    cases = list(product(*named.values()))
    assert cases, f"nothing to test: {', '.join(tables)}"

    def decorate(test: Test) -> Test:
        @wraps(test)
        def loop(*positional: Any, **given: Any) -> None:
            for case in cases:
                values = {argument: value for argument, (_, value) in zip(named, case, strict=True)}
                try:
                    test(*positional, **given, **values)
                except BaseException as error:
                    error.add_note(
                        ", ".join(f"{name} = {called}" for name, (called, _) in zip(named, case, strict=True))
                    )
                    raise

        signature = inspect.signature(test)
        rest = [parameter for name, parameter in signature.parameters.items() if name not in named]
        loop.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]  # fixtures remain
        return loop

    return decorate

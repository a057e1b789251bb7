"""Where modules have parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

__all__ = ["Place", "places_of"]

Place = tuple[Any, str]  # a module, and the name it has a parameter by


def places_of(
    modules: Sequence[Any],
    stops: Callable[[Any], bool],
    ignored_modules: Collection[Any] = (),
    ignored_params: Collection[Any] = (),
) -> dict[Any, list[Place]]:
    """The parameters of modules and of those below, in order, with all the places where they are; nothing of modules
    that ``stops`` says are units of their own."""
    found: dict[int, tuple[Any, list[Place]]] = {}
    ignored = {id(parameter) for parameter in ignored_params}
    seen = {id(module) for module in ignored_modules}
    waiting = list(reversed(modules))
    while waiting:
        module = waiting.pop()
        if id(module) in seen or stops(module):
            continue
        seen.add(id(module))
        for name, parameter in module._parameters.items():
            if parameter is not None and id(parameter) not in ignored:
                found.setdefault(id(parameter), (parameter, []))[1].append((module, name))
        waiting.extend(reversed(list(module.children())))
    return dict(found.values())

"""The operators of the native registry, as Python functions by name."""

from __future__ import annotations

import functools
import sys

from tesserack import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["aliases", "facts", "operators", "public_functions", "reduced", "said"]

_functions, _shown = _native._install_operators()


def operators() -> dict[str, Any]:
    """Every operator, hidden ones included, by Python name."""
    return _functions  # type: ignore[no-any-return]


def public_functions(namespace: str | None = None) -> dict[str, Any]:
    """The operators that ``tesserack``, or a namespace such as ``"special"``, shows as functions."""
    names = _shown if namespace is None else _native._names_in(namespace)
    return {name: _functions[name] for name in names}


_facts: dict[str, frozenset[str]] = {}


def facts() -> dict[str, frozenset[str]]:
    """What the declarations say of operators beyond their schemas, by name: the words of ``ops/common/facts.h``."""
    if not _facts:
        _facts.update((name, frozenset(words.split())) for name, words in _native._facts().items())
    return _facts


@functools.cache
def said(*words: str) -> frozenset[str]:
    """The names of operators whose declarations say one of the words; pointwise ones are ``"elementwise"``."""
    return frozenset(name for name, known in facts().items() if not known.isdisjoint(words))


def aliases() -> dict[str, str]:
    """Which operator a name is another one for."""
    words = ((name, word) for name, known in facts().items() for word in known if word.startswith("alias:"))
    return {name: word.removeprefix("alias:") for name, word in words}


def reduced(operator: Any) -> str | tuple[Any, tuple[str]]:
    """How an operator pickles: as what ``tesserack`` shows under its name, else by its name here."""
    name = operator.__name__
    shown = getattr(sys.modules["tesserack"], name, None)
    return name if shown is operator else (_named, (name,))


def _named(name: str) -> Any:
    return _functions[name]

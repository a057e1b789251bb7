"""Unknowns, and what they stand for so that two structures are the same."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

__all__ = ["Var", "isvar", "reify", "unify", "var", "vars"]

_numbers = itertools.count(1)


class Var:
    """An unknown; those of one token are one and the same.

    >>> Var(3), Var(3) is Var(3)
    (~3, True)
    """

    token: Any
    _unknown_type = True  # a type that is consistent with every other
    _made: ClassVar[dict[Any, Var]] = {}

    def __new__(cls, token: Any = None) -> Var:
        if token is None:
            token = f"_{next(_numbers)}"
        if token not in cls._made:
            cls._made[token] = super().__new__(cls)
            cls._made[token].token = token
        return cls._made[token]

    def __str__(self) -> str:
        return f"~{self.token}"

    __repr__ = __str__


def var(token: Any = None) -> Var:
    """An unknown, a new one without a token."""
    return Var(token)


def vars(n: int) -> list[Var]:
    """New unknowns."""
    return [Var() for _ in range(n)]


def isvar(n: Any) -> bool:
    """Whether it is an unknown."""
    return isinstance(n, Var)


def _walk(value: Any, known: dict[Any, Any]) -> Any:
    while isinstance(value, Var) and value in known:
        value = known[value]
    return value


def unify(u: Any, v: Any, s: dict[Any, Any] | None = None) -> dict[Any, Any] | bool:
    """What unknowns stand for, beside ``s``, so that both are the same; False where nothing does it.

    >>> unify((Var("x"), 2), (1, 2))
    {~x: 1}
    """
    known = {} if s is None else s
    u, v = _walk(u, known), _walk(v, known)
    if u is v:
        return known
    if isinstance(u, Var):
        return {**known, u: v}
    if isinstance(v, Var):
        return {**known, v: u}
    if type(u) is type(v) and isinstance(u, (tuple, list)):
        return _unified(zip(u, v, strict=True), known) if len(u) == len(v) else False
    if isinstance(u, dict) and isinstance(v, dict):
        return _unified(((u[key], v[key]) for key in u), known) if u.keys() == v.keys() else False
    return known if u == v else False


def _unified(pairs: Any, known: dict[Any, Any]) -> dict[Any, Any] | bool:
    for a, b in pairs:
        found = unify(a, b, known)
        if not isinstance(found, dict):
            return False
        known = found
    return known


def reify(e: Any, s: dict[Any, Any]) -> Any:
    """A structure with what its unknowns stand for in their places.

    >>> reify([Var("x"), Var("y")], {Var("x"): 1})
    [1, ~y]
    """
    e = _walk(e, s)
    if isinstance(e, (tuple, list)):
        return type(e)(reify(item, s) for item in e)
    if isinstance(e, dict):
        return {key: reify(value, s) for key, value in e.items()}
    return e

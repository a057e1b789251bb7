"""What a run is about to read, so that it is seen whether the run changes it."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

from tesserack.jit._compile import code as _code
from tesserack.jit._compile.errors import NotProved
from tesserack.jit._compile.state import Tokens, is_ours
from tesserack.nn.modules.module import Module

__all__ = ["Before", "cells", "inner", "tokens_along"]


def inner(code: types.CodeType) -> Iterator[types.CodeType]:
    """The codes of functions that are made within a function."""
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield const
            yield from inner(const)


def cells(function: types.FunctionType) -> tuple[Any, ...]:
    """What a function closes over."""
    return tuple(_contents(cell) for cell in function.__closure__ or ())


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet
        return None


def tokens_along(tokens: Tokens, values: list[Any]) -> Any:
    """Tokens of a global and of what is read of it, attribute by attribute."""
    *way, last = values
    found = [tokens.module(v, whole=False) if isinstance(v, types.ModuleType) else tokens.of(v) for v in way]
    return (*found, tokens.of(last))


def _token(values: Any) -> Any:
    try:
        return Tokens().of(tuple(values))
    except NotProved:
        return None


def _token_along(values: list[Any]) -> Any:
    try:
        return tokens_along(Tokens(), values)
    except NotProved:
        return None


class Before:
    """Tokens of globals and of what functions close over, as far as they can be reached from where a run begins.

    ``seeds`` are functions' codes, with their globals, that an earlier run has come to in another way.
    """

    def __init__(self, roots: list[Any], seeds: dict[types.CodeType, dict[str, Any]]) -> None:
        self.globals: dict[Any, Any] = {}
        self.closures: dict[int, Any] = {}
        self._seen: set[int] = set()
        self._pending: list[Any] = [*roots]
        for code, space in seeds.items():
            self._read(code, space)
        while self._pending:
            self._visit(self._pending.pop())

    def _visit(self, value: Any) -> None:
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        if isinstance(value, types.MethodType):
            self._pending += [value.__func__, value.__self__]
        elif isinstance(value, types.FunctionType):
            self.closures[id(value)] = _token(cells(value))
            self._pending += cells(value)
            if not is_ours(value):
                for code in (value.__code__, *inner(value.__code__)):
                    self._read(code, value.__globals__)
        elif isinstance(value, Module):
            for module in value.modules():
                self._pending += [type(module), *vars(module).values()]
        elif isinstance(value, type) and not is_ours(value):
            for base in value.__mro__:
                members = vars(base).values() if not is_ours(base) else ()
                self._pending += [getattr(member, "__func__", getattr(member, "fget", member)) for member in members]
        elif isinstance(value, (list, tuple)) and len(value) < 1000:
            self._pending += value
        elif type(value).__flags__ & (1 << 9) and not is_ours(type(value)):
            self._pending += [type(value), *getattr(value, "__dict__", {}).values()]

    def _read(self, code: types.CodeType, space: dict[str, Any]) -> None:
        for read in _code.reads(code).globals:
            values = _code.resolve(space, read)
            self.globals[code, read] = _token_along(values)
            self._pending += values

    def check(self, codes: dict[types.CodeType, dict[str, Any]], functions: list[types.FunctionType]) -> None:
        """``NotProved`` where a run has changed what it read; passing where it was not known that it would read it."""
        for code, space in codes.items():
            for read in _code.reads(code).globals:
                if (code, read) not in self.globals:
                    raise NotProved(f"{code.co_name} is reached in a way that is known only now", passing=True)
                if _token_along(_code.resolve(space, read)) != self.globals[code, read]:
                    raise NotProved(f"line {read.line}: the run changes {'.'.join((read.name, *read.path))}, a global")
        for function in functions:
            if id(function) not in self.closures:
                raise NotProved(f"{function.__name__} is reached in a way that is known only now", passing=True)
            if _token(cells(function)) != self.closures[id(function)]:
                raise NotProved(f"the run changes what {function.__name__} closes over")

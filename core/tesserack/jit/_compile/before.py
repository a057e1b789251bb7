"""What a run is about to read, so that it is seen whether the run changes it."""

from __future__ import annotations

import builtins
import functools
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tesserack import _native
from tesserack.autograd._whole import own_state
from tesserack.jit._compile import code as _code
from tesserack.jit._compile.errors import NotProved
from tesserack.jit._compile.look import is_a, items_of, length_of, own_dict, pairs_of
from tesserack.jit._compile.state import ATOMS, TENSORS, Tokens, is_ours, spaces
from tesserack.jit._compile.watch import is_trusted
from tesserack.nn.modules.module import Module

if TYPE_CHECKING:
    from tesserack.jit._compile.dependencies import Dependencies

__all__ = ["Before", "Seeds", "inner", "tokens_along", "tokens_of_cells", "watch_way"]


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
    found = [tokens.module(v, whole=False) if is_a(v, types.ModuleType) else tokens.of(v) for v in way]
    return (*found, tokens.of(last))


def watch_way(tokens: Tokens, space: dict[str, Any], read: _code.Read, values: list[Any]) -> None:
    """Note the dicts in which a global and its attributes are found."""
    tokens.entry(space, read.name)
    if read.name not in space:
        tokens.entry(vars(builtins), read.name)
    _watch_path(tokens, read.path, values)


def _watch_path(tokens: Tokens, path: tuple[str, ...], values: list[Any]) -> None:
    for name, owner in zip(path, values, strict=False):
        if is_a(owner, types.ModuleType):
            for space in spaces(owner):
                tokens.entry(space, name)
        elif is_a(owner, type):
            tokens.watch("class", owner)


def tokens_of_cells(tokens: Tokens, function: types.FunctionType) -> list[Any]:
    """Tokens of what a function closes over: of a module, what is read of it."""
    found: list[Any] = []
    for cell in function.__closure__ or ():
        tokens.watch("cell", cell)
    for value, ways in _ways_of_cells(function):
        found += [tokens.of(value)] if ways is None else []
        for path, values in ways or ():
            _watch_path(tokens, path, values)
            found.append(tokens_along(tokens, values))
    return found


def _ways_of_cells(
    function: types.FunctionType,
) -> Iterator[tuple[Any, list[tuple[tuple[str, ...], list[Any]]] | None]]:
    """What a function closes over, and of modules that are never used whole each path that is read of them, with what
    lies along it."""
    code = function.__code__
    for name, value in zip(code.co_freevars, cells(function), strict=True):
        paths = _code.free_paths(code, name) if is_a(value, types.ModuleType) else frozenset({()})
        yield value, None if () in paths else [(path, _code.along(value, path)) for path in sorted(paths)]


# Of what classes hold, what is not looked into: what does not change, and functions, which are seen as they run.
_NO_STATE = (type, types.FunctionType, classmethod, property)


def held_by(cls: type) -> Iterator[tuple[str, Any]]:
    """What the program's classes hold, by name, that may change while they are the same."""
    for base in () if is_ours(cls) else cls.__mro__:
        if base.__flags__ & (1 << 9) and not is_ours(base):
            for name, value in list(vars(base).items()):
                if not (name.startswith("__") or type(value) in ATOMS or isinstance(value, _NO_STATE)):
                    yield name, value


class Seeds:
    """What earlier runs have come to: functions' codes, with their globals, functions that close over something,
    classes, and what was read that no code tells.
    """

    def __init__(self) -> None:
        self.classes: dict[int, type] = {}
        self.codes: dict[types.CodeType, dict[str, Any]] = {}
        self.functions: dict[int, types.FunctionType] = {}
        self.reads: dict[tuple[types.CodeType, _code.Read], dict[str, Any]] = {}
        self.divides = True  # whether functions without gradients are looked into
        self.alone = False  # whether the next run is looked at without what others depend on


_SKIPPED = ATOMS.union(TENSORS)  # which lead to nothing
_MOST = 3000  # values that are looked at for what a run may come to


class Before:
    """Tokens of globals and of what functions close over, as far as they can be reached from where a run begins.

    Where much can be reached, only what earlier runs have come to is looked at, the ``seeds``.
    """

    def __init__(self, roots: list[Any], given: list[Any], seeds: Seeds) -> None:
        self.kept = Tokens()
        self.roots = [self.kept.of(root) for root in roots]  # of these alone, first
        self.guard = _native._Guard(self.kept.watched, [*self.kept.tensors.values()])  # of the roots
        self._split = self.kept.split()
        self.reads: dict[tuple[types.CodeType, _code.Read], dict[str, Any]] = {}
        self.functions: dict[int, types.FunctionType] = dict(seeds.functions)
        # What the roots hold has been looked at: what is left is what functions and classes there lead to.
        self._seen: set[int] = {*self.kept.modules}
        self._pending: list[Any] = [*given, *seeds.functions.values(), *self.kept.classes.values()]
        self._pending += {type(module) for module in self.kept.modules.values()}
        self.classes = {id(cls): cls for cls in (*seeds.classes.values(), *self._pending) if is_a(cls, type)}
        self._pending += [function for functions in self.kept.functions.values() for function in functions]
        most = len(self._seen) + _MOST
        self._begin(seeds)
        while self._pending and len(self._seen) < most:
            value = self._pending.pop()
            if type(value) not in _SKIPPED and id(value) not in self._seen:
                self._visit(value)
        if self._pending:
            self._keep_to(seeds)
        looked = len(self.kept.watched)
        self._tokens = self._all(self.kept)
        self._held = self._of_classes(self.kept)
        self._rest = self._guard_of_rest(looked) if all(token is not None for _, _, token in self._tokens) else None

    def _guard_of_rest(self, looked: int) -> Any:
        """Of what there is besides the roots."""
        tensors = self.kept.tensors
        rest = [*self.kept.watched[looked:], *(("class", cls) for cls in {type(m) for m in self.kept.modules.values()})]
        return _native._Guard(rest, [*tensors.values()], self.guard)

    def _keep_to(self, seeds: Seeds) -> None:
        self.reads, self.functions = {}, dict(seeds.functions)
        self._begin(seeds)

    def _begin(self, seeds: Seeds) -> None:
        for code, space in seeds.codes.items():
            self._read(code, space)
        for (code, read), space in seeds.reads.items():
            self._note(code, read, space)

    def _visit(self, value: Any) -> None:
        self._seen.add(id(value))
        cls = type(value)  # asked directly: there are a thousand
        if issubclass(cls, Module):
            self._pending += [cls, *(own := own_dict(value) or {}).values(), *own.get("_modules", {}).values()]
        elif issubclass(cls, types.MethodType):
            self._pending += [value.__func__, value.__self__]
        elif issubclass(cls, types.FunctionType):
            if is_trusted(value):
                return
            self.functions[id(value)] = value
            for held, ways in _ways_of_cells(value):
                self._pending.append(held)
                self._pending += [reached for _, values in ways or () for reached in values]
            if not is_ours(value):
                for code in (value.__code__, *inner(value.__code__)):
                    self._read(code, value.__globals__)
        elif issubclass(cls, types.BuiltinFunctionType):
            self._pending += [] if is_a(value.__self__, types.ModuleType) else [value.__self__]
        elif issubclass(cls, functools.partial):
            self._pending += [value.func, *value.args, *value.keywords.values()]
        elif issubclass(cls, type) and not is_ours(value):
            self.classes[id(value)] = value
            metaclass: type = cls
            for base in (*value.__mro__, *metaclass.__mro__):
                members = vars(base).values() if base.__flags__ & (1 << 9) and not is_ours(base) else ()
                self._pending += [getattr(member, "__func__", getattr(member, "fget", member)) for member in members]
        elif issubclass(cls, (list, tuple)) and length_of(value) < 1000:
            self._pending += [cls, *items_of(value)]
        elif issubclass(cls, dict) and length_of(value) < 1000:
            self._pending += [cls, *(item for _, item in pairs_of(value))]
        elif issubclass(cls, tuple(own_state)):
            self._pending.append(cls)
        elif cls.__flags__ & (1 << 9) and not is_ours(cls):
            self._pending += [cls, *(own_dict(value) or {}).values()]

    def _read(self, code: types.CodeType, space: dict[str, Any]) -> None:
        for read in _code.reads(code).globals:
            self._note(code, read, space)

    def _note(self, code: types.CodeType, read: _code.Read, space: dict[str, Any]) -> None:
        self.reads[code, read] = space
        self._pending += _code.resolve(space, read)

    def _all(self, tokens: Tokens) -> list[tuple[types.CodeType, str, Any]]:
        """Each with its code and what it is called. What a token has been made of is not looked at again."""
        found = []
        for (code, read), space in self.reads.items():
            values = _code.resolve(space, read)
            watch_way(tokens, space, read, values)
            told = f"line {read.line}: the run changes {'.'.join((read.name, *read.path))}, a global"
            found.append((code, told, _tried(tokens_along, tokens, values)))
        for function in self.functions.values():
            token = _tried(tokens_of_cells, tokens, function)
            found.append((function.__code__, f"the run changes what {function.__name__} closes over", token))
        return found

    def _of_classes(self, tokens: Tokens) -> list[tuple[str, str, Any]]:
        """What classes hold, each with its name and the class."""
        return [
            (name, cls.__qualname__, _tried(Tokens.of, tokens, value))
            for cls in list(self.classes.values())
            for name, value in held_by(cls)
        ]

    def after_roots(self) -> Tokens:
        """What has made the tokens of the roots, and no others."""
        return self._split.split()

    def check(
        self, run: Dependencies, functions: list[types.FunctionType], roots: Tokens, apart: set[types.CodeType]
    ) -> None:
        """``NotProved`` where a run has changed what it may read; passing where it was not known that it would come
        to a function or a class. ``roots`` has made the tokens of the roots, and no others. What codes ``apart`` read,
        which run as Python every time, does not count.
        """
        for code, _, read in run.found:
            if (code, read) not in self.reads:
                raise NotProved(f"{code.co_name} is reached in a way that is known only now", passing=True)
        for function in functions:
            if id(function) not in self.functions:
                raise NotProved(f"{function.__name__} is reached in a way that is known only now", passing=True)
        for cls in run.classes.values():
            if id(cls) not in self.classes and any(name in run.attributes for name, _ in held_by(cls)):
                raise NotProved(f"the class {cls.__name__} is reached in a way that is known only now", passing=True)
        if self._rest is not None and self._rest.holds([]):
            return  # none is another, nor has changed
        for (code, reason, before), (_, _, now) in zip(self._tokens, self._all(roots), strict=True):
            if before != now and code not in apart:
                raise NotProved(reason, passing=True, own=True)  # as what is kept for the next run is
        for (name, owner, before), (_, _, now) in zip(self._held, self._of_classes(roots), strict=False):
            if before != now and name in run.attributes:
                raise NotProved(f"the run changes {owner}.{name}, of a class", passing=True, own=True)


def _tried(make: Any, tokens: Tokens, what: Any) -> Any:
    done = tokens.progress()
    try:
        return make(tokens, what)
    except NotProved:
        tokens.go_back(done)
        return None

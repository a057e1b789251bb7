"""Everything outside of its arguments that a run has read."""

from __future__ import annotations

import abc
import enum
import functools
import threading
import types
from collections import OrderedDict
from typing import Any

from tesserack import Tensor, _native
from tesserack._tensor import printing as _printing
from tesserack.amp import _autocast
from tesserack.jit._compile import code as _code
from tesserack.jit._compile.before import Before, inner, tokens_along, tokens_of_cells, watch_way
from tesserack.jit._compile.errors import NotProved
from tesserack.jit._compile.look import is_a
from tesserack.jit._compile.state import Tokens, autocast_dtypes, is_ours
from tesserack.jit._compile.steps import TELLING
from tesserack.jit._compile.watch import Watch, answer_of, computes, is_of_library
from tesserack.nn.parameter import Parameter
from tesserack.utils import settings as _settings

__all__ = ["Dependencies"]

# Classes that are not written in Python, and whose making only computes.
_MAKERS = frozenset({
    bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, range, slice, object, type, super,
    enumerate, zip, reversed, map, filter, property, staticmethod, classmethod, OrderedDict, functools.partial,
    *(cls for cls in vars(types).values() if isinstance(cls, type)),
})  # fmt: skip
_TAKEN = ("collections", "itertools", "functools", "operator", "numpy", "weakref")  # which PyTorch's graphs follow
_ROOTS = (Tensor, Parameter)
_AUTOCAST = _autocast.__file__
_WRAPPER = types.WrapperDescriptorType


class Dependencies:
    """What a run has read, with its token.

    A guard compares what can be compared by identity, as long as that holds; else tokens are made anew.
    """

    def __init__(self, roots: list[Any], watch: Watch, inputs: Tokens, before: Before) -> None:
        self.roots, self.codes, self.own = roots, watch.codes, watch.own
        self.closely = watch.steps is not None
        self.found, self.attributes, self.abstract = watch.found(), watch.attributes(), watch.abstract
        self._catcher = next((code.co_name for code in watch.catchers()), None)
        self.inputs = inputs
        self.given = [*inputs.tensors.values()]
        self.classes: dict[int, type] = {}
        self._settle(before)
        self._check_changing()
        self._check_calls()

    def _settle(self, before: Before) -> None:
        """What there was before the run is not looked at again where all of it is the same."""
        if before.guard.holds([]):
            tokens, base = before.after_roots(), before.guard
            self.token = self._token(tokens, before.roots)
        else:
            tokens, base = Tokens(), None
            self.token = self._token(tokens)
            if self.token[: len(self.roots)] != tuple(before.roots):
                told = "the run changes what it reads: an attribute, a list, or how a tensor lies in memory"
                raise NotProved(told, passing=True, own=True)
        self._settled = tokens, self._guard_of(tokens, base)
        if threading.active_count() > 1 and not self._equal(Tokens()):
            raise NotProved("another thread changes what the run reads", passing=True)

    @staticmethod
    def _guard_of(tokens: Tokens, base: Any = None) -> Any:
        return _native._Guard(tokens.watched, [*tokens.tensors.values()], base)

    @property
    def tokens(self) -> Tokens:
        """What was looked at."""
        return self._settled[0]

    @property
    def guard(self) -> Any:
        """What compares by identity."""
        return self._settled[1]

    def hold(self, tensors: list[Tensor]) -> Any:
        """The guard, if all is as it was, for a call with these tensors; else None."""
        tokens, guard = self._settled
        if guard.holds(tensors):
            return guard
        if any(id(tensor) in tokens.tensors for tensor in tensors):
            return None  # an argument that the program holds as well: Python may tell that
        tokens = Tokens()
        if not self._equal(tokens):
            return None
        guard = self._guard_of(tokens)
        # What another thread has changed before the guard was made it would take as it found it.
        if threading.active_count() > 1 and not self._equal(Tokens()):
            return None
        self._settled = tokens, guard  # equal, but not the same: these are what is looked at from now on
        return guard

    def serves(self, tensors: list[Tensor]) -> bool:
        """Whether all is as it was, for a run of other arguments, where these were plain."""
        return not self.closely and self.inputs.is_plain() and self.guard.holds(tensors)

    def cover(self, watch: Watch, tensors: list[Tensor]) -> bool:
        """Whether a run that began with all as it was has read nothing else, and has changed nothing."""
        spaces = [(watch.codes, self.codes), (watch.own, self.own)]
        known = all(there.get(code) is space for ran, there in spaces for code, space in ran.items())
        return known and (self.abstract or not watch.abstract) and self.guard.holds(tensors)

    def _equal(self, tokens: Tokens) -> bool:
        try:
            return bool(self._token(tokens) == self.token)
        except NotProved:
            return False

    def _token(self, tokens: Tokens, of_roots: list[Any] | None = None) -> Any:
        found = [tokens.of(root) for root in self.roots] if of_roots is None else [*of_roots]
        found += [self._of_global(tokens, code, space, read) for code, space, read in self.found]
        found += self._closures(tokens)
        classes = {**tokens.classes, **self.inputs.classes}
        classes.update((id(type(m)), type(m)) for t in (tokens, self.inputs) for m in t.modules.values())
        classes.update((id(root), root) for root in _ROOTS)
        found.append(self._of_own(tokens, classes))
        done: set[int] = set()
        found += self._of_holders(tokens, classes, done)
        found += self._closures(tokens)
        found += self._of_holders(tokens, classes, done)
        self.classes = classes  # of which something may have been read
        tokens.watch("dict", _settings._state)
        tokens.watch("attributes", _printing._options)
        if self.abstract:
            found.append(abc.get_cache_token())
            tokens.watch("answer", abc.get_cache_token)
        if any(code.co_filename == _AUTOCAST for code in self.own):
            found.append(autocast_dtypes())
            tokens.watch("answer", autocast_dtypes)
        for code, space in self.own.items():
            if (answer := answer_of(code, space)) is not None:
                found.append(answer())
                tokens.watch("answer", answer)
        return tuple(found)

    def _of_holders(self, tokens: Tokens, classes: dict[int, type], done: set[int]) -> list[Any]:
        """What is read of classes, and of modules that are used whole, which may lead to others."""
        found: list[Any] = []
        while True:
            classes.update(tokens.classes)
            modules = {**self.inputs.handed, **tokens.handed}
            left = [(key, tokens.of_class(cls, self._read_of(cls))) for key, cls in classes.items() if key not in done]
            left += [(key, tokens.of_module(m, self.attributes)) for key, m in modules.items() if key not in done]
            if not left:
                return found
            done.update(key for key, _ in left)
            found += [token for _, token in left]

    def _read_of(self, cls: type) -> frozenset[str]:
        """The attributes that may have been read of a class: by patterns also those that it names."""
        patterns = "__match_args__" in self.attributes
        return self.attributes.union(getattr(cls, "__match_args__", ())) if patterns else self.attributes

    def _of_global(self, tokens: Tokens, code: types.CodeType, space: dict[str, Any], read: _code.Read) -> Any:
        try:
            values = _code.resolve(space, read)
            watch_way(tokens, space, read, values)
            tells = self.closely and any(values[0] is told and read.name == told.__name__ for told in TELLING)
            if tells or is_of_library(code, (read.name, *read.path)[-1]):
                return values[0]  # which is called there, and each call is seen
            if _is_named(read, values):
                return (*tokens_along(tokens, values[:-1]), tokens._same(values[-1]))
            return tokens_along(tokens, values)
        except NotProved as error:
            told = f"{code.co_filename}:{read.line} reads {'.'.join((read.name, *read.path))}: {error.reason}"
            raise error.told_as(told) from None

    def _of_own(self, tokens: Tokens, classes: dict[int, type]) -> Any:
        """Which functions, classes and settings the package's own functions read: programs put others there."""
        found = []
        seen: set[tuple[int, str, tuple[str, ...]]] = set()
        for code, space in self.own.items():
            for read in _code.reads(code).globals:
                key = (id(space), read.name, read.path)
                if key in seen:
                    continue
                seen.add(key)
                values = _code.resolve(space, read)
                if not _counts(values[-1]):
                    continue
                watch_way(tokens, space, read, values)
                found += [_identity(tokens, value) for value in values]
                classes.update((id(value), value) for value in values if is_a(value, type) and _changes(value))
        return tuple(found)

    def _closures(self, tokens: Tokens) -> list[Any]:
        """What functions that ran close over: cells of functions that ran as well are theirs."""
        made = {const for code in self.codes for const in inner(code)}
        found: list[Any] = []
        pending = [code for code in self.codes if code.co_freevars and code not in made]
        for code in pending:
            functions = [*tokens.functions.get(code, ()), *self.inputs.functions.get(code, ())]
            if functions:
                for function in functions:
                    found += tokens_of_cells(tokens, function)
        return found

    def ran(self) -> list[types.FunctionType]:
        """The functions whose codes ran, as far as they are known."""
        known = {**self.inputs.functions, **self.tokens.functions}
        return [function for code in self.codes for function in known.get(code, ())]

    def check_closures(self) -> None:
        """``NotProved`` where a function that closes over something ran, and which one is not known."""
        made = {const for code in self.codes for const in inner(code)}
        for code in self.codes:
            known = code in self.tokens.functions or code in self.inputs.functions
            if code.co_freevars and code not in made and not known:
                raise NotProved(
                    f"{code.co_filename}:{code.co_firstlineno} ({code.co_name}) closes over something unknown"
                )

    def read_names(self) -> frozenset[str]:
        """Names that the program reads: globals, and attributes of whatever."""
        names = {name for _, _, read in self.found for name in (read.name, *read.path)}
        return self.attributes | names

    def _check_changing(self) -> None:
        """``NotProved`` where the program looks at what changes with every call, as steps of optimizers do."""
        known = {**self.inputs.changing, **self.tokens.changing}
        read = self.read_names() if known else frozenset()
        for value in known.values():
            for name, item in vars(value).items():
                if name in read and id(item) not in known and not callable(item):
                    raise NotProved(
                        f"the attribute {name!r} is read, of what may be the {type(value).__name__}, where it changes "
                        "with every step"
                    )

    def catches(self) -> str | None:
        """The name of a function that ran and goes on after errors."""
        return self._catcher

    def _check_calls(self) -> None:
        """``NotProved`` where something may have been called that is not seen to be called."""
        indirect = self.tokens.partials or self.inputs.partials
        indirect = indirect or any(map(_code.calls_what_it_is_given, self.codes))
        for code, space, read in self.found:
            value = _code.resolve(space, read)[-1]
            if is_a(value, type) and not _only_makes(value):
                raise NotProved(
                    f"{code.co_filename}:{read.line} ({code.co_name}) reads the class {value.__qualname__}, "
                    "whose making may do anything",
                    own=value.__module__ in _TAKEN,
                )
        for value in (*self.tokens.builtins.values(), *self.inputs.builtins.values()) if indirect else ():
            if not computes(value):
                raise NotProved(f"{value.__name__}, which may do anything, is at hand where calls are not seen")


def _is_named(read: _code.Read, values: list[Any]) -> bool:
    """Whether the code itself names a method of C whose calls nothing sees, so that it is looked at there."""
    return bool(read.path) and type(values[-1]) is _WRAPPER and values[-1].__name__ == read.path[-1]


def _identity(tokens: Tokens, value: Any) -> Any:
    """Which object a value is; of a bound method, which every look makes anew, what it is made of."""
    if is_a(value, types.MethodType):
        return (tokens._same(value.__func__), _identity(tokens, value.__self__))
    if is_a(value, types.BuiltinFunctionType):
        return value  # equal where it is of the same object
    return tokens._same(value)


def _counts(value: Any) -> bool:
    """Whether it matters which object a global of the package is: of what it counts or keeps it does not."""
    return not is_a(value, (int, list, dict, set, Tensor)) or is_a(value, bool)


def _changes(cls: type) -> bool:
    return cls is not type and bool(cls.__flags__ & (1 << 9))


_IN_C = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)


def _only_makes(cls: type) -> bool:
    """Whether making an object runs nothing that is not seen."""
    return all(
        base in _MAKERS
        or is_ours(base)
        or issubclass(base, enum.Enum)  # which finds a member
        or (base.__flags__ & (1 << 9) and not any(isinstance(member, _IN_C) for member in vars(base).values()))
        or issubclass(base, BaseException)
        or base.__module__ in ("typing", "_typing")
        or (base.__module__ == "numpy" and "generic" in [b.__name__ for b in cls.__mro__])
        for base in cls.__mro__
    )

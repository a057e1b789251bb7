"""Reads the pickles in PyTorch's files without running anything: an interpreter of its own, with an exact list of what
the names in them may stand for.

Python's own unpickler is not used, since no restriction of it bounds what a few bytes can make it allocate or compute.
"""

from __future__ import annotations

import io
import pickletools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from tesserack.serialization._torch_names import Call, Hint, NumberType, PickleRefused, Reading, key_of, named

__all__ = ["end_of", "interpret"]


def end_of(data: bytes, start: int) -> int:
    """Where the pickle that begins at ``start`` ends."""
    end = start
    for _, _, position in _operations(data, start):
        end = position + 1
    return end


def _operations(data: bytes, start: int = 0) -> Any:
    file = io.BytesIO(data)
    file.seek(start)
    return pickletools.genops(file)


def interpret(
    data: bytes,
    persistent: Callable[[Any], Any],
    start: int = 0,
    outline: bool = False,
    encoding: str | None = None,
) -> Any:
    """The object that a pickle describes. ``persistent`` makes objects of persistent ids; with ``outline`` their memory
    is not there yet, and what is made of tensors stays one of them. Strings of Python 2 are text in ``encoding``, stay
    ``"bytes"``, or without one are text in UTF-8 or else Latin-1.

    Raises :class:`PickleRefused`, or for damaged ones ``ValueError``, ``TypeError``, ``LookupError`` and their like.
    """
    return _Machine(len(data), persistent, outline, encoding).run(_operations(data, start))


_MARK = object()
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_LITERALS = frozenset(
    (
        *("INT", "LONG", "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING"),
        *("SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES"),
        *("BINBYTES8", "BYTEARRAY8"),
    )
)
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple, "EMPTY_SET": set}


_STRINGS_OF_PYTHON_2 = frozenset(("STRING", "BINSTRING", "SHORT_BINSTRING"))


def _text(read: str, encoding: str | None) -> str | bytes:
    """Bytes that were read as Latin-1, as the caller wants them: text in UTF-8 if they are, where he does not say."""
    if encoding == "bytes":
        return read.encode("latin-1")
    try:
        return read.encode("latin-1").decode(encoding or "utf-8")
    except UnicodeError:
        if encoding is not None:
            raise
        return read


class _Machine(Reading):
    """Pickle's stack machine. Every operation takes time and memory bounded by its own bytes, or by the budget."""

    def __init__(
        self, size: int, persistent: Callable[[Any], Any], outline: bool = False, encoding: str | None = None
    ) -> None:
        super().__init__(size, outline)
        self._encoding = encoding
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._persistent = persistent

    def run(self, operations: Any) -> Any:
        """The object on top at the end."""
        for opcode, argument, _ in operations:
            name = opcode.name
            if name == "STOP":
                return self._pop()
            if name in _STRINGS_OF_PYTHON_2:
                self._stack.append(_text(argument, self._encoding))
            elif name in _LITERALS:
                self._stack.append(argument)
            elif name in _CONSTANTS:
                self._stack.append(_CONSTANTS[name])
            elif name in _EMPTY:
                self._stack.append(_EMPTY[name]())
            else:
                step = getattr(self, f"_do_{name.lower()}", None)
                if step is None:
                    raise PickleRefused(f"it uses the operation {name}, which plain data does not need")
                step(argument)
        raise PickleRefused("it has no end")

    def _pop(self) -> Any:
        value = self._stack.pop()
        if value is _MARK:
            raise PickleRefused("it takes what is not there")
        return value

    def _above_mark(self) -> list[Any]:
        for position in range(len(self._stack) - 1, -1, -1):
            if self._stack[position] is _MARK:
                found = self._stack[position + 1 :]
                del self._stack[position:]
                return found
        raise PickleRefused("it closes what it did not open")

    def _top(self, *kinds: type) -> Any:
        if not self._stack or not isinstance(self._stack[-1], kinds):
            raise PickleRefused("it fills something that is no container")
        return self._stack[-1]

    # --- the stack and the memo -----------------------------------------------------------------------------------

    def _do_proto(self, version: int) -> None:
        if version > 5:
            raise PickleRefused(f"it is of protocol {version}")

    def _do_frame(self, _: Any) -> None:
        pass

    def _do_mark(self, _: Any) -> None:
        self._stack.append(_MARK)

    def _do_pop(self, _: Any) -> None:
        self._stack.pop()

    def _do_pop_mark(self, _: Any) -> None:
        self._above_mark()

    def _do_dup(self, _: Any) -> None:
        value = self._pop()
        self._stack += [value, value]

    def _do_put(self, index: int) -> None:
        value = self._pop()
        self._stack.append(value)
        self._memo[index] = value

    _do_binput = _do_long_binput = _do_put

    def _do_memoize(self, _: Any) -> None:
        self._do_put(len(self._memo))

    def _do_get(self, index: int) -> None:
        self._stack.append(self._memo[index])

    _do_binget = _do_long_binget = _do_get

    # --- containers -----------------------------------------------------------------------------------------------

    def _do_append(self, _: Any) -> None:
        value = self._pop()
        self._top(list).append(value)

    def _do_appends(self, _: Any) -> None:
        values = self._above_mark()
        self._top(list).extend(values)

    def _do_list(self, _: Any) -> None:
        self._stack.append(self._above_mark())

    def _do_tuple(self, _: Any) -> None:
        self._stack.append(tuple(self._above_mark()))

    def _take_tuple(self, size: int) -> None:
        values = [self._pop() for _ in range(size)]
        self._stack.append(tuple(reversed(values)))

    def _do_tuple1(self, _: Any) -> None:
        self._take_tuple(1)

    def _do_tuple2(self, _: Any) -> None:
        self._take_tuple(2)

    def _do_tuple3(self, _: Any) -> None:
        self._take_tuple(3)

    def _do_setitem(self, _: Any) -> None:
        value, key = self._pop(), self._pop()
        self._top(dict)[key_of(key)] = value

    def _do_setitems(self, _: Any) -> None:
        values = self._above_mark()
        self._fill(self._top(dict), values)

    def _do_dict(self, _: Any) -> None:
        values = self._above_mark()
        made: dict[Any, Any] = {}
        self._fill(made, values)
        self._stack.append(made)

    def _fill(self, mapping: dict[Any, Any], values: list[Any]) -> None:
        for key, value in zip(values[::2], values[1::2], strict=True):
            mapping[key_of(key)] = value

    def _do_additems(self, _: Any) -> None:
        values = self._above_mark()
        self._top(set).update(map(key_of, values))

    def _do_frozenset(self, _: Any) -> None:
        self._stack.append(frozenset(map(key_of, self._above_mark())))

    # --- names and calls ------------------------------------------------------------------------------------------

    def _do_global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._stack.append(named(module, name))

    def _do_stack_global(self, _: Any) -> None:
        name, module = self._pop(), self._pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise PickleRefused("a name in it is no text")
        self._stack.append(named(module, name))

    def _do_reduce(self, _: Any) -> None:
        arguments, function = self._pop(), self._pop()
        if not isinstance(function, Call) or type(arguments) is not tuple:
            raise PickleRefused("it calls something that is no known name")
        self.spend(0)
        self._stack.append(function.call(self, *arguments))

    _do_newobj = _do_reduce

    def _do_build(self, _: Any) -> None:
        state = self._pop()
        target = self._stack[-1]
        if isinstance(target, NumberType):
            target.big_endian = isinstance(state, tuple) and len(state) > 1 and state[1] == ">"
            return
        if isinstance(target, Hint):
            return  # what a compiler marked
        if not isinstance(target, OrderedDict) or not isinstance(state, dict):
            raise PickleRefused(f"it sets attributes of a {type(target).__name__}")
        versions = state.get("_metadata")
        if isinstance(versions, dict):
            target._metadata = versions  # type: ignore[attr-defined]

    def _do_binpersid(self, _: Any) -> None:
        self.spend(0)
        self._stack.append(self._persistent(self._pop()))

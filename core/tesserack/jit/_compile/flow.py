"""Where a value goes that a call gives: whether the function does nothing with it but return it."""

from __future__ import annotations

import dis
import functools
import types

__all__ = ["only_returned"]

_SKIPPED = frozenset({"CACHE", "NOP", "PRECALL", "EXTENDED_ARG", "RESUME", "KW_NAMES"})
_LOADS = frozenset({"LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_CONST", "LOAD_GLOBAL", "LOAD_DEREF", "PUSH_NULL"})
_CALLS = {"CALL": 2, "CALL_METHOD": 2, "CALL_FUNCTION": 1}  # what they take besides arguments


@functools.lru_cache(maxsize=4096)
def only_returned(code: types.CodeType, offset: int) -> bool:
    """Whether what the call at this place of the code gives is returned at once, alone or in a tuple, list or dict."""
    above = 0  # how much lies on it
    for instruction in dis.get_instructions(code):
        name, arg = instruction.opname, instruction.arg or 0
        if instruction.offset <= offset or name in _SKIPPED:
            continue
        if name == "RETURN_VALUE":
            return above == 0
        takes = _taken(name, arg)
        if takes is None:
            return False
        effect = dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
        if takes <= above:
            above += effect
        elif name.startswith("BUILD_"):
            above = 0  # it is part of what lies on top now
        else:
            return False
    return False


def _taken(name: str, arg: int) -> int | None:
    """How much an instruction takes; None of one that may do anything."""
    if name in _LOADS:
        return 0
    if name in ("LOAD_ATTR", "LOAD_METHOD"):
        return 1
    if name in _CALLS:
        return arg + _CALLS[name]
    if name in ("BUILD_TUPLE", "BUILD_LIST"):
        return arg
    if name == "BUILD_MAP":
        return 2 * arg
    return arg + 1 if name == "BUILD_CONST_KEY_MAP" else None

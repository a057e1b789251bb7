"""What functions may do, read from their code: what they read that is not theirs, and what they must not do."""

from __future__ import annotations

import builtins
import dis
import functools
import itertools
import types
from typing import Any, NamedTuple

from tesserack.jit._compile.errors import NotProved
from tesserack.jit._compile.look import ABSENT, asked, is_a
from tesserack.ops import OperatorNamespace

__all__ = [
    "HIDDEN",
    "REACHING",
    "REFUSED",
    "Read",
    "Reads",
    "along",
    "asks_by_constant_names",
    "calls_told",
    "calls_what_it_is_given",
    "catches",
    "check",
    "free_paths",
    "hidden_at",
    "instructions_of",
    "lines_of",
    "path_after",
    "reads",
    "resolve",
    "writes",
]

REFUSED = {
    "STORE_GLOBAL": "writes the global", "DELETE_GLOBAL": "deletes the global", "STORE_NAME": "writes the name",
    "DELETE_NAME": "deletes the name", "LOAD_NAME": "reads the name", "STORE_ATTR": "sets the attribute",
    "DELETE_ATTR": "deletes the attribute", "IMPORT_NAME": "imports", "IMPORT_FROM": "imports",
    "LOAD_BUILD_CLASS": "makes a class", "SETUP_ANNOTATIONS": "annotates", "LOAD_FROM_DICT_OR_GLOBALS": "reads a name",
}  # fmt: skip

# What reads a variable of the function around.
_FREE = ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")

# Of tensors: what changes though they are the same, or differs though they are alike.
HIDDEN = frozenset({
    "grad", "_grad", "grad_fn", "_grad_fn", "is_leaf", "retains_grad", "output_nr", "_backward_hooks", "_tensor_hooks",
    "_base", "_is_view", "_version", "storage_offset", "is_set_to", "is_shared", "is_pinned", "is_inference",
    "_storage_id", "_storage_ptr", "_storage_nbytes", "_cdata", "__hash__", "__dict__",
})  # fmt: skip
# What asks for an attribute of anything, where the name or the object is known only to C.
REACHING = frozenset({"__getattribute__", "__get__"})
_ASKING = ("__getattribute__", "__getattr__")  # of the program's own: they ask for what was asked of them


class Read(NamedTuple):
    """A global, and the attributes that are read of it one after another."""

    name: str
    path: tuple[str, ...]
    line: int


class Reads(NamedTuple):
    """All that a code object reads: globals, and attributes of whatever."""

    globals: tuple[Read, ...]
    attributes: frozenset[str]


def instructions_of(code: types.CodeType) -> list[dis.Instruction]:
    """Those that do something."""
    return [i for i in dis.get_instructions(code) if i.opname not in ("PUSH_NULL", "PRECALL", "CACHE")]


@functools.lru_cache(maxsize=4096)
def reads(code: types.CodeType) -> Reads:
    """What the code reads."""
    found: list[Read] = []
    attributes: set[str] = set()
    instructions = instructions_of(code)
    lines = lines_of(instructions, code)
    for place, instruction in enumerate(instructions):
        if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
            attributes.add(str(instruction.argval))
        if instruction.opname == "MATCH_CLASS":
            attributes.update(matched(instructions, place))
        if instruction.opname == "LOAD_GLOBAL":
            if instruction.argval in _BY_NAME:
                attributes |= asks_by_constant_names(code) or frozenset()
            found.append(Read(str(instruction.argval), path_after(instructions, place), lines[place]))
    if code.co_name in _ASKING:
        attributes.update(const for const in code.co_consts if isinstance(const, str))
    return Reads(tuple(found), frozenset(attributes))


def matched(instructions: list[dis.Instruction], place: int) -> tuple[str, ...]:
    """The attributes that a pattern of a class names; that by which the class names others."""
    names = instructions[place - 1].argval
    return (*(names if isinstance(names, tuple) else ()), *(["__match_args__"] if instructions[place].arg else []))


def reaches(code: types.CodeType, name: str) -> bool:
    """Whether reading an attribute of that name gives what asks for others unseen."""
    return name in REACHING and code.co_name not in _ASKING


@functools.lru_cache(maxsize=4096)
def free_paths(code: types.CodeType, name: str) -> frozenset[tuple[str, ...]]:
    """The attributes, one after another, that a function and those made in it read of what it closes over."""
    instructions = instructions_of(code)
    found = {
        path_after(instructions, place)
        for place, instruction in enumerate(instructions)
        if instruction.opname in _FREE and instruction.argval == name
    }
    within = (const for const in code.co_consts if isinstance(const, types.CodeType) and name in const.co_freevars)
    return frozenset(found).union(*(free_paths(const, name) for const in within))


def check(code: types.CodeType) -> Reads:
    """What the code reads. ``NotProved``, with the line, if it does what a graph would not repeat."""
    refused = _refusal(code)
    if refused is not None:
        where, what = refused
        raise NotProved(f"{where} {what}", own=writes(what) or what.startswith("reads the attribute "))
    return reads(code)


def writes(what: str) -> bool:
    """Whether what is refused is that something is written, or deleted."""
    return what.startswith(("writes ", "deletes ", "sets the attribute "))


@functools.lru_cache(maxsize=4096)
def _refusal(code: types.CodeType) -> tuple[str, str] | None:
    """The line of what a graph would not repeat, and what it does."""
    instructions = instructions_of(code)
    lines = lines_of(instructions, code)
    for place, instruction in enumerate(instructions):
        where = f"{code.co_filename}:{lines[place]} ({code.co_name})"
        name = instruction.opname
        if name in REFUSED:
            return where, f"{REFUSED[name]} {instruction.argval!r}"
        hidden = hidden_at(code, instructions, place)
        if hidden is not None:
            return where, f"reads the attribute {hidden!r}, which is no part of what is compared"
        if name in ("STORE_DEREF", "DELETE_DEREF") and instruction.argval in code.co_freevars:
            return where, f"writes {instruction.argval!r} of the function around it"
    return None


def hidden_at(code: types.CodeType, instructions: list[dis.Instruction], place: int) -> str | None:
    """The attribute that an instruction reads, if it may be one that is not compared."""
    name, what = instructions[place].opname, instructions[place].argval
    if name == "MATCH_CLASS":
        return next((each for each in matched(instructions, place) if each in HIDDEN), None)
    read = name in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR") and (what in HIDDEN or reaches(code, what))
    return str(what) if read else None


def lines_of(instructions: list[dis.Instruction], code: types.CodeType) -> list[int]:
    """The line of each instruction."""
    lines, line = [], code.co_firstlineno
    for instruction in instructions:
        positions = getattr(instruction, "positions", None)
        begun = positions.lineno if positions is not None else instruction.starts_line
        line = begun or line
        lines.append(int(line))
    return lines


def path_after(instructions: list[dis.Instruction], place: int) -> tuple[str, ...]:
    path = []
    for instruction in instructions[place + 1 :]:
        if instruction.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            break
        path.append(str(instruction.argval))
    return tuple(path)


@functools.lru_cache(maxsize=4096)
def catches(code: types.CodeType) -> bool:
    """Whether the code does something of its own after errors: a graph would not."""
    if code.co_name == "__exit__":
        return True
    names = [i.opname for i in instructions_of(code)]
    if "SETUP_FINALLY" in names:
        return True
    # An error is over where its place is left other than to raise it again; a block of `with` has one such way.
    left = sum(name == "POP_EXCEPT" and after != "RERAISE" for name, after in itertools.pairwise(names))
    return left > names.count("WITH_EXCEPT_START")


# What calls what it is given from C, where no call is seen.
_CALLERS = frozenset({
    "map", "filter", "reduce", "partial", "starmap", "accumulate", "takewhile", "dropwhile", "groupby",
})  # fmt: skip


@functools.lru_cache(maxsize=4096)
def calls_what_it_is_given(code: types.CodeType) -> bool:
    """Whether the code has a function of C call another function."""
    keyed = any("key" in const for const in code.co_consts if isinstance(const, tuple))
    return keyed or not _CALLERS.isdisjoint(code.co_names)


_BY_NAME = frozenset({"getattr", "hasattr"})
_SIMPLE = ("LOAD_FAST", "LOAD_DEREF", "LOAD_GLOBAL", "LOAD_ATTR", "LOAD_CONST", "LOAD_CLOSURE")


@functools.lru_cache(maxsize=4096)
def asks_by_constant_names(code: types.CodeType) -> frozenset[str] | None:
    """The names by which ``getattr`` and ``hasattr`` ask; None where one does not stand in the code."""
    names: set[str] = set()
    instructions = instructions_of(code)
    for place, instruction in enumerate(instructions):
        if instruction.opname != "LOAD_GLOBAL" or instruction.argval not in _BY_NAME:
            continue
        name = _constant_name(instructions, place)
        if name is None or name in HIDDEN:
            return None
        names.add(name)
    return frozenset(names)


@functools.lru_cache(maxsize=4096)
def calls_told(code: types.CodeType) -> frozenset[int]:
    """Where ``getattr`` and ``hasattr`` are called under these names, and the names they ask by stand in the code."""
    instructions = instructions_of(code)
    begun = [place for place, i in enumerate(instructions) if i.opname == "LOAD_GLOBAL" and i.argval in _BY_NAME]
    told = [place for place in begun if _constant_name(instructions, place) not in (None, *HIDDEN)]
    return frozenset(next(i.offset for i in instructions[p:] if i.opname.startswith("CALL")) for p in told)


def _constant_name(instructions: list[dis.Instruction], place: int) -> str | None:
    """Of ``getattr(x.y, "name", default)``."""
    loads: list[dis.Instruction] = []
    for instruction in instructions[place + 1 :]:
        if instruction.opname.startswith("CALL"):
            break
        if instruction.opname not in _SIMPLE:
            return None
        loads.append(instruction)
    starts = [k for k, load in enumerate(loads) if load.opname != "LOAD_ATTR"]
    if not 2 <= len(starts) <= 3:
        return None
    named = loads[starts[1]]
    whole = len(starts) == 2 or starts[2] == starts[1] + 1
    return named.argval if whole and named.opname == "LOAD_CONST" and isinstance(named.argval, str) else None


def resolve(space: dict[str, Any], read: Read) -> list[Any]:
    """What a global is, and what each attribute of a module or class along the way is."""
    return along(space.get(read.name, vars(builtins).get(read.name, ABSENT)), read.path)


def along(value: Any, path: tuple[str, ...]) -> list[Any]:
    """A value, and what each attribute of a module or class along the way is."""
    values = [value]
    for name in path:
        if is_a(owner := values[-1], OperatorNamespace):
            values.append(getattr(owner, name, ABSENT))
        elif is_a(owner, (types.ModuleType, type)):
            values.append(asked(owner, name))
        else:
            break
    return values

"""Where a code reads or does something that counts for a graph: looked up for each instruction as it runs."""

from __future__ import annotations

import dis
import functools
import types
from typing import Any, NamedTuple

from tesserack.jit._compile.code import REFUSED, Read, hidden_at, lines_of, path_after

__all__ = ["Imported", "Owner", "Point", "points"]

_WRITES = ("STORE_ATTR", "DELETE_ATTR")
_NOTHING = ("PUSH_NULL", "PRECALL", "CACHE", "EXTENDED_ARG", "RESUME", "COPY_FREE_VARS", "MAKE_CELL", "NOP")


class Owner(NamedTuple):
    """Where the object stands whose attribute is meant: a local or global, and attributes of it one after another."""

    space: str
    name: str
    path: tuple[str, ...]

    def find(self, frame: types.FrameType) -> Any:
        """The object."""
        if self.space == "global":
            value = frame.f_globals.get(self.name, frame.f_builtins.get(self.name))
        else:
            value = frame.f_locals[self.name]
        return functools.reduce(getattr, self.path, value)


class Imported(NamedTuple):
    """A module that is imported: its name, how many packages up that is, and what is taken of it."""

    name: str
    level: int
    names: tuple[str, ...] | None
    whole: bool  # bound by its whole name, as in ``import a.b as c``

    def module(self, space: dict[str, Any]) -> str:
        """Its whole name, for code with these globals."""
        if not self.level:
            return self.name
        package = str(space.get("__package__") or space.get("__name__", "")).split(".")
        base = package[: len(package) - self.level + 1]
        return ".".join([*base, self.name] if self.name else base)


class Point(NamedTuple):
    """An instruction that counts: ``kind`` is ``read``, ``local``, ``write``, ``hidden``, ``import`` or ``refused``."""

    kind: str
    line: int
    name: str = ""
    read: Read | None = None
    owner: Owner | None = None
    imported: Imported | None = None


@functools.lru_cache(maxsize=4096)
def points(code: types.CodeType) -> dict[int, Point]:
    """The instructions that count, by where the interpreter says that it is when they run."""
    whole = [*dis.get_instructions(code)]
    instructions = [i for i in whole if i.opname not in _NOTHING]
    lines = dict(zip((i.offset for i in whole), lines_of(whole, code), strict=True))
    modules = _modules(instructions)
    found: dict[int, Point] = {}
    for place, instruction in enumerate(instructions):
        point = _point(code, instructions, place, lines[instruction.offset], modules)
        if point is not None:
            found[instruction.offset] = point
    return _with_prefixes(whole, found)


def _with_prefixes(whole: list[dis.Instruction], found: dict[int, Point]) -> dict[int, Point]:
    """Long arguments stand before their instruction, and some interpreters say that they are there."""
    prefixes: list[int] = []
    for instruction in whole:
        if instruction.opname == "EXTENDED_ARG":
            prefixes.append(instruction.offset)
            continue
        if instruction.offset in found:
            found.update(dict.fromkeys(prefixes, found[instruction.offset]))
        prefixes = []
    return found


def _point(
    code: types.CodeType,
    instructions: list[dis.Instruction],
    place: int,
    line: int,
    modules: dict[str, Imported | None],
) -> Point | None:
    instruction = instructions[place]
    name, arg = instruction.opname, instruction.argval
    if name == "LOAD_GLOBAL":
        return Point("read", line, read=Read(str(arg), path_after(instructions, place), line))
    if name == "IMPORT_NAME":
        return Point("import", line, str(arg), imported=_imported(instructions, place))
    if name in _WRITES:
        return Point("write", line, str(arg), owner=_owner(instructions, place))
    hidden = hidden_at(code, instructions, place)
    if hidden is not None:  # of what a pattern names more than its subject is read, and that lies deeper
        return Point("hidden", line, hidden, owner=None if name == "MATCH_CLASS" else _owner(instructions, place))
    local = _local(instruction)
    if modules and local in modules:
        imported = modules[local]
        if imported is None:
            return Point("refused", line, f"reads {local!r}, which is a module or something else,")
        return Point("local", line, local, Read(local, path_after(instructions, place), line), imported=imported)
    if name in ("STORE_DEREF", "DELETE_DEREF") and arg in code.co_freevars:
        return Point("refused", line, f"writes {arg!r} of the function around it")
    if name in REFUSED and name != "IMPORT_FROM":
        return Point("refused", line, f"{REFUSED[name]} {arg!r}")
    return None


def _local(instruction: dis.Instruction) -> str | None:
    """The local that an instruction leaves on top."""
    name, arg = instruction.opname, instruction.argval
    if not name.startswith("LOAD_FAST") and name not in ("STORE_FAST_LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE"):
        return None
    return str(arg[-1] if isinstance(arg, tuple) else arg)


def _owner(instructions: list[dis.Instruction], place: int) -> Owner | None:
    """Of ``x.y`` right before an instruction that takes an attribute of it; None for what is computed."""
    if instructions[place].opname == "STORE_ATTR" and _swaps(instructions[place - 1]):
        return _owner_of_augmented(instructions, place)
    path: list[str] = []
    for instruction in reversed(instructions[:place]):
        if instruction.opname == "LOAD_ATTR":
            path.insert(0, str(instruction.argval))
            continue
        if instruction.opname == "LOAD_GLOBAL":
            return Owner("global", str(instruction.argval), tuple(path))
        local = _local(instruction)
        return Owner("local", local, tuple(path)) if local is not None else None
    return None


def _swaps(instruction: dis.Instruction) -> bool:
    """Whether what a value is set at lies below it: in ``x.y += z`` it was looked at before."""
    return instruction.opname == "ROT_TWO" or (instruction.opname == "SWAP" and instruction.argval == 2)


def _owner_of_augmented(instructions: list[dis.Instruction], place: int) -> Owner | None:
    """The ``x`` of ``x.y += z``: what is doubled before ``y`` is read of it, unless it is another one by then."""
    name = instructions[place].argval
    for at in range(place - 1, 0, -1):
        doubled = instructions[at - 1].opname in ("COPY", "DUP_TOP")
        if doubled and instructions[at].opname == "LOAD_ATTR" and instructions[at].argval == name:
            owner = _owner(instructions, at - 1)
            stored = owner is not None and any(_stores(i, owner.name) for i in instructions[at:place])
            return None if stored else owner
    return None


def _imported(instructions: list[dis.Instruction], place: int) -> Imported | None:
    """What an import takes; None where what becomes of it is not plain to see."""
    taken, after = instructions[place - 1], instructions[place + 1]
    level = instructions[place - 2].argval
    names = taken.argval
    if not isinstance(level, int):
        return None
    name = str(instructions[place].argval)
    if names is None and after.opname.startswith("STORE_FAST"):
        return Imported(name, level, None, whole="." not in name)
    if names is None and after.opname == "IMPORT_FROM":
        return Imported(name, level, None, whole=True)
    if isinstance(names, tuple) and "*" not in names:
        return Imported(name, level, names, whole=True)
    return None


def _modules(instructions: list[dis.Instruction]) -> dict[str, Imported | None]:
    """Locals that are modules, as far as they are one import's alone; None: something else, too."""
    found: dict[str, Imported | None] = {}
    counts: dict[str, int] = {}
    for place, instruction in enumerate(instructions):
        if instruction.opname != "IMPORT_NAME":
            continue
        imported = _imported(instructions, place)
        if imported is None or imported.names is not None:
            continue
        stored = next((i for i in instructions[place + 1 :] if i.opname.startswith("STORE_")), None)
        if stored is None or stored.opname != "STORE_FAST":
            continue
        local = str(stored.argval)
        found[local] = imported if found.get(local, imported) == imported else None
        counts[local] = counts.get(local, 0) + 1
    for local, count in counts.items():
        if sum(_stores(i, local) for i in instructions) != count:
            found[local] = None
    return found


def _stores(instruction: dis.Instruction, local: str) -> bool:
    arg = instruction.argval
    first = arg[0] if isinstance(arg, tuple) else arg
    if instruction.opname == "STORE_FAST_STORE_FAST":
        return local in arg
    return instruction.opname.startswith("STORE_FAST") and first == local

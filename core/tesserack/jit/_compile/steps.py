"""A run looked at instruction by instruction: what its functions read and write, and of what, where their codes alone
do not tell. It takes some tenths of a second, so it is what a run is given that could not be proved at once.
"""

from __future__ import annotations

import builtins
import gc
import sys
import threading
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tesserack import Tensor, _native
from tesserack.jit._compile.code import HIDDEN, REACHING, Read, catches, writes
from tesserack.jit._compile.points import Imported, Point, points
from tesserack.jit._compile.state import is_ours, is_written
from tesserack.nn.modules.module import Module

if TYPE_CHECKING:
    from tesserack.jit._compile.watch import Watch

__all__ = ["TELLING", "Steps"]

_MOST = 3_000_000  # instructions that are looked at
_lock = threading.Lock()
_asking: dict[int, list[Steps]] = {}  # by thread
_plain: dict[str, Any] = {}  # what the builtins are while others stand in for them


class Steps:
    """As a context, within a ``Watch``'s: sees every instruction of the program's functions that counts.

    ``reads`` are globals and modules that were read, with where they were looked up; ``names`` attributes that were
    asked for by names that are in no code.
    """

    def __init__(self, watch: Watch, known: dict[int, Any]) -> None:
        self.watch, self.known = watch, known
        self.reads: dict[tuple[types.CodeType, Read], dict[str, Any]] = {}
        self.names: set[str] = set()
        self.catchers: set[types.CodeType] = set()  # what goes on after errors of operators
        self._count = 0
        self._old: Any = None  # the objects that there were
        self._collects = False

    @staticmethod
    def possible() -> bool:
        """Whether runs can be looked at: no debugger does, and no object is hidden from the collector of garbage."""
        return sys.gettrace() is None and not gc.get_freeze_count()

    def __enter__(self) -> Steps:
        self._old = _native._Existing()
        _begin(self)
        self._collects = gc.isenabled()
        gc.disable()  # what is garbage would give its place to what the run makes
        sys.settrace(self._enters)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.settrace(None)
        if self._collects:
            gc.enable()
        _end(self)

    def is_new(self, value: Any) -> bool:
        """Whether an object with attributes, or a container, was made in this run."""
        if gc.is_tracked(value):
            return not self._old.knows(value)
        # A dict of plain values alone: nothing that was there before holds it.
        return type(value) is dict and not self._old.knows_holder(value)

    def _enters(self, frame: types.FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        if not self.watch.follows(frame):
            return None
        found, before = points(frame.f_code), self.watch.count()
        frame.f_trace_opcodes, frame.f_trace_lines = bool(found), False

        def step(frame: types.FrameType, event: str, arg: Any) -> Any:
            if event == "opcode":
                self._count += 1
                point = found.get(frame.f_lasti)
                if point is not None:
                    self._at(frame, point)
            elif event == "return" and catches(frame.f_code) and self._is_around(frame.f_code, before):
                self.catchers.add(frame.f_code)
            return step

        return step

    def _is_around(self, code: types.CodeType, before: int) -> bool:
        """Whether operators have run within a function, or may have within a block that it ends."""
        return self.watch.count() != before or code.co_name == "__exit__"

    def _at(self, frame: types.FrameType, point: Point) -> None:
        watch = self.watch
        if watch.reason is not None or self._count > _MOST:
            sys.settrace(None)
            watch.refuse("it runs so much Python that looking at all of it would take longer than is gained")
        elif point.kind == "read":
            self.reads[frame.f_code, point.read] = frame.f_globals  # type: ignore[index]  # which such a point has
        elif point.kind == "local":
            self._of_module(frame, point)
        elif point.kind == "import":
            self._imports(frame, point)
        elif point.kind == "refused":
            watch.refuse(f"{_where(frame, point)} {point.name}", own=writes(point.name))
        else:
            self._attribute(frame, point)

    def _imports(self, frame: types.FrameType, point: Point) -> None:
        imported = point.imported
        if imported is None:
            self.watch.refuse(f"{_where(frame, point)} imports {point.name!r}")
            return
        name = imported.module(frame.f_globals)
        if name not in sys.modules:
            self.watch.refuse(f"{_where(frame, point)} imports {name!r}", passing=True)  # once
        for taken in imported.names or ():
            self._read(frame, Read(name, (taken,), point.line))
        self._read(frame, Read(name, ("__name__",), point.line))

    def _of_module(self, frame: types.FrameType, point: Point) -> None:
        """What is read of a module that a local is."""
        imported, read = point.imported, point.read
        assert isinstance(imported, Imported) and read is not None
        name = imported.module(frame.f_globals)
        self._read(frame, read._replace(name=name if imported.whole else name.partition(".")[0]))

    def _read(self, frame: types.FrameType, read: Read) -> None:
        self.reads[frame.f_code, read] = sys.modules

    def _attribute(self, frame: types.FrameType, point: Point) -> None:
        if point.owner is None:
            verb = "sets" if point.kind == "write" else "reads"
            told = f"{_where(frame, point)} {verb} the attribute {point.name!r} of what is computed there"
            self.watch.refuse(told, own=point.kind == "write")
            return
        owner = point.owner.find(frame)
        if point.kind == "write":
            self.writes(frame, owner, point.name)
        elif _hides(owner, point.name):
            self._refuse_hidden(frame, point.name)

    def _refuse_hidden(self, frame: types.FrameType, name: str) -> None:
        where = f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"
        self.watch.refuse(f"{where} reads the attribute {name!r}, which is no part of what is compared", own=True)

    def writes(self, frame: types.FrameType, owner: Any, name: str) -> None:
        """Something sets, or deletes, an attribute. Of what was there before it is compared afterwards."""
        cls = type(owner)
        own = (Tensor, type, types.ModuleType, types.FunctionType, _native._CompiledFunction)
        plain = not isinstance(owner, own) and not is_ours(cls)
        known = id(owner) in self.known  # and kept alive
        if plain and bool(cls.__flags__ & (1 << 9)) and not known and self.is_new(owner):
            return
        if isinstance(owner, _native.FunctionCtx):  # each call has one
            return
        if isinstance(owner, Tensor) and name == "requires_grad":  # which stands whole
            return
        where = f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"
        if not (isinstance(owner, Module) or (plain and is_written(cls))):
            told = f"{where} sets the attribute {name!r} of an object of class {cls.__qualname__}"
            self.watch.refuse(told, passing=plain, own=True)  # it may lie where another one was
        elif not known:
            told = f"{where} sets the attribute {name!r} of what was not known to be read"
            self.watch.refuse(told, passing=True, own=True)

    def hashes(self, frame: types.FrameType, value: Any) -> None:
        """Something asks for a hash."""
        if not _hash_is_plain(value):
            self._refuse_hidden(frame, "__hash__")

    def asks(self, frame: types.FrameType, owner: Any, name: Any) -> None:
        """Something asks for an attribute by a name."""
        if (name in HIDDEN or name in REACHING) and _hides(owner, str(name)):
            self._refuse_hidden(frame, str(name))
        elif isinstance(owner, types.ModuleType) and sys.modules.get(owner.__name__) is owner:
            self._read(frame, Read(owner.__name__, (str(name),), frame.f_lineno))
        self.names.add(str(name))


def _hides(owner: Any, name: str) -> bool:
    """Whether an attribute of that name is not compared: of tensors, of their class, and what asks for others."""
    if name in REACHING:
        return not (name == "__get__" and isinstance(owner, types.FunctionType))
    if isinstance(owner, type):
        return name == "__dict__" or issubclass(owner, Tensor)
    return isinstance(owner, Tensor)


def _hash_is_plain(value: Any) -> bool:
    """Whether the hash of a value does not tell which tensor it is."""
    if isinstance(value, (tuple, frozenset)):
        return all(map(_hash_is_plain, value))
    return not isinstance(value, Tensor)


def _where(frame: types.FrameType, point: Point) -> str:
    return f"{frame.f_code.co_filename}:{point.line} ({frame.f_code.co_name})"


def _begin(steps: Steps) -> None:
    """Have the builtins that take names, or tell objects apart, tell this thread's steps."""
    with _lock:
        _asking.setdefault(threading.get_ident(), []).append(steps)
        if not _plain:
            _plain.update((name, vars(builtins)[name]) for name in _STAND_INS)
            vars(builtins).update(_STAND_INS)


def _end(steps: Steps) -> None:
    with _lock:
        there = _asking[threading.get_ident()]
        there.remove(steps)
        if not there:
            del _asking[threading.get_ident()]
        if not _asking:
            vars(builtins).update(_plain)
            _plain.clear()


def _telling(
    name: str, least: int, told: Callable[[Steps, types.FrameType, tuple[Any, ...]], None]
) -> Callable[..., Any]:
    """What stands in for a builtin that takes no fewer arguments than this."""
    real = vars(builtins)[name]

    def call(*args: Any) -> Any:
        for steps in _asking.get(threading.get_ident(), ()):
            frame = sys._getframe(1)
            if len(args) >= least and steps.watch.follows(frame):
                told(steps, frame, args)
        return real(*args)

    return call


_STAND_INS = {
    "hash": _telling("hash", 1, lambda steps, frame, args: steps.hashes(frame, args[0])),
    "getattr": _telling("getattr", 2, lambda steps, frame, args: steps.asks(frame, args[0], args[1])),
    "hasattr": _telling("hasattr", 2, lambda steps, frame, args: steps.asks(frame, args[0], args[1])),
    "setattr": _telling("setattr", 2, lambda steps, frame, args: steps.writes(frame, args[0], args[1])),
    "delattr": _telling("delattr", 2, lambda steps, frame, args: steps.writes(frame, args[0], args[1])),
}
# Of which each call is seen.
TELLING = tuple(vars(builtins)[name] for name in _STAND_INS)

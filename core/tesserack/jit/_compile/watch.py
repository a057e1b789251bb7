"""What a run does: which functions it calls, written in Python and not."""

from __future__ import annotations

import copy
import enum
import functools
import gc
import inspect
import re
import string
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from tesserack import Tensor, _native
from tesserack._tensor import printing
from tesserack._tensor.overrides import is_tensor_method_or_property
from tesserack.autograd._whole import entries
from tesserack.jit._compile.code import HIDDEN, REACHING, Read, calls_told, catches, check, instructions_of, reads
from tesserack.jit._compile.errors import NotProved
from tesserack.jit._compile.inside import Inside
from tesserack.jit._compile.steps import Steps

__all__ = ["PACKAGE", "Watch", "computes", "is_trusted", "tell", "trust"]

# As codes name their files, so without following links.
PACKAGE = str(Path(__file__).parents[2])
_OWN = str(Path(__file__).parent)  # whose calls are those of the program
_LIBRARY = str(Path(types.__file__).parent)
# Folders of this package whose functions only compute; what others do is not repeated by a graph.
_COMPUTE = (
    "nn", "ops", "_tensor", "aten", "jit", "fx", "utils/_pytree.py", "func", "_subclasses", "__init__.py", "compat",
    "library", "utils/homes.py", "distributions", "utils/warnings.py", "backends/_accessors.py", "autograd/_whole.py",
    "autograd/_decorator.py", "autograd/function.py", "amp/_autocast.py", "amp/_policies.py", "amp/autocast_mode.py",
)  # fmt: skip
_NOT = ("nn/parallel", "ops/random.py")
# Functions of other folders that only tell of what there is; and the function there whose answer changes with it.
_TELLING = {
    "distributed/_world.py": (
        {
            "is_available",
            "is_initialized",
            "get_rank",
            "get_world_size",
            "get_default_group",
            "resolve",
            "names_of_groups",
        },
        "names_of_groups",
    ),
    "distributed/_group.py": ({"rank", "size"}, None),
}
# Not getattr, hasattr and hash: by which name, and of what, is not seen, so nothing could be asked again.
_BUILTINS = frozenset({
    "abs", "all", "any", "bin", "callable", "chr", "divmod", "format", "isinstance",
    "issubclass", "iter", "len", "max", "min", "next", "ord", "pow", "repr", "round", "sorted", "sum",
})  # fmt: skip
_MODULES = frozenset({"math", "_operator", "itertools", "_functools", "_collections", "cmath", "collections"})
# Methods of classes that make an object of what they are given, and of which classes.
_OTHER_MAKERS = frozenset({"fromkeys", "from_iterable", "from_bytes", "fromhex", "maketrans"})
_HOLDERS = ("itertools", "collections")
_VALUES = (
    list,
    dict,
    set,
    frozenset,
    tuple,
    str,
    bytes,
    int,
    float,
    complex,
    range,
    slice,
    types.GeneratorType,
    types.MappingProxyType,
    ContextVar,
)
# Methods of tensors and functions of the core that hand out, or take, what no graph sees, or change more than values.
_REFUSED = frozenset({
    "tolist", "numpy", "_numpy", "data_ptr", "untyped_storage", "storage", "set_", "resize_",
    "register_hook", "share_memory_", "_manual_seed_all", "set_rng_state", "__array__", "__dlpack__",
    "retain_grad", "__setstate__", "_set_data", "set_grad_enabled", "_from_numpy", "from_numpy", "apply",
    "_get_num_threads", "is_anomaly_enabled", "is_anomaly_check_nan_enabled", "_default_generator", "memory_stats",
    "current_stream", "default_stream", "synchronize", "_register_hook", "_register_prehook", "_register_post_hook",
})  # fmt: skip
# Of what PyTorch's graphs take, and these do not: a function that has to be one graph runs as plain Python then.
_TAKEN = ("utils/profiler/_record.py", "utils/settings.py")
_TAKEN_CALLS = frozenset({
    "_register_hook", "_register_post_hook", "inference_mode", "tolist", "no_grad", "enable_grad", "set_grad_enabled",
})  # fmt: skip
_TAKEN_MODULES = ("collections", "functools", "random", "re", "_sre", "numpy")  # whose functions do no more
_DRAWS = f"{PACKAGE}/ops/torch_random/"  # numbers as PyTorch draws them
_OF_NUMPY = frozenset({"numpy", "_numpy", "_from_numpy", "from_numpy", "__array__"})  # of these, what arrays go through
_FORMATS = ("format", "format_map")
_WARNINGS = warnings.__file__
_HISTORY = printing._history.__code__  # of each tensor whose text is made
# What of tensors is not compared and this package's Python tells; it is called by whatever name.
_GETTERS = frozenset(
    function.__code__
    for name in HIDDEN & {*dir(Tensor)}
    if isinstance(function := getattr(getattr(Tensor, name), "fget", getattr(Tensor, name)), types.FunctionType)
)
_BY_NAME = frozenset({"getattr", "hasattr", "setattr", "delattr", "hash"})
_OF_ABC = frozenset({"_abc_instancecheck", "_abc_subclasscheck", "get_cache_token"})
# By ids these tell objects apart within a run; how deep functions may be wrapped matters to none.
_OF_LIBRARY = {
    inspect.unwrap.__code__.co_filename: frozenset({"id", "getrecursionlimit"}),
    copy.deepcopy.__code__.co_filename: frozenset({"id", "__reduce_ex__"}),
    enum.unique.__code__.co_filename: frozenset({"hash"}),  # of a member's name
}
# Contexts that switch gradients.
_SWITCHES = frozenset({"no_grad", "enable_grad", "set_grad_enabled", "inference_mode", "set_inference_mode"})
_AFTERWARDS = ("c_return", "c_exception")
_trusted: set[types.CodeType] = set()


def trust(function: Any) -> None:
    """Take a function's word that it only computes."""
    code = getattr(function, "__code__", None)
    if code is not None:
        _trusted.add(code)


def is_trusted(function: types.FunctionType) -> bool:
    """Whether a function's word is taken."""
    return function.__code__ in _trusted


def computes(function: Any) -> bool:
    """Whether a function that is not written in Python is known to only compute."""
    module = getattr(function, "__module__", None)
    name = str(getattr(function, "__name__", function))
    if module == "builtins":
        return name in _BUILTINS
    if module == "_abc":
        return name in _OF_ABC
    if type(getattr(function, "__self__", None)) in (frozenset, tuple, str, bytes):
        return True  # of what does not change
    if isinstance(owner := getattr(function, "__self__", None), type) and name in ("__new__", *_OTHER_MAKERS):
        return owner.__module__ in ("builtins", "functools", *(_HOLDERS if name in _OTHER_MAKERS else ()))
    return module in _MODULES or str(module).partition(".")[0] == "tesserack"


def answer_of(code: types.CodeType, space: dict[str, Any]) -> Callable[[], Any] | None:
    """For a function of this package that tells of what there is: what has the same answer while that is the same."""
    name = _TELLING.get(code.co_filename[len(PACKAGE) + 1 :], ((), None))[1]
    return None if name is None else space[name]


def is_of_library(code: types.CodeType, name: str) -> bool:
    """Whether a function of Python's library calls this where it means nothing outside of it."""
    return name in _OF_LIBRARY.get(code.co_filename, ())


_running: list[Watch] = []


def tell(reason: str) -> None:
    """Have a run that is being captured be no graph."""
    for watch in _running:
        watch.refuse(reason)


class Watch:
    """As a context: notes the codes of the program's functions that run, with their globals; ``reason`` tells what was
    done that a graph would not repeat.
    """

    def __init__(self, known: dict[int, Any] | None = None, divides: bool = True) -> None:
        """With what is ``known`` before the run, by its id, each step of it is looked at.

        ``divides``: of functions without gradients what they do is looked at, too.
        """
        self.divides = divides
        self.steps = None if known is None else Steps(self, known)
        self.codes: dict[types.CodeType, dict[str, Any]] = {}
        self.own: dict[types.CodeType, dict[str, Any]] = {}  # of this package's functions
        self.reason: NotProved | None = None
        self.names: set[str] = set()  # by which texts ask for attributes
        self.abstract = False  # whether abstract classes were asked who belongs to them
        self._importing = 0
        self.inside = False  # within a call that stands whole
        self.inner: dict[types.CodeType, Inside] = {}  # what runs there
        self.opaque = 0  # how deep the run is in operators that programs define
        self.count: Callable[[], int] = int  # how many operators have been written down
        self.native = False  # whether it is written down where gradients are switched off
        self._recorded = _native.is_grad_enabled()  # as the run begins
        self.paused = False  # while an operator runs, and is written down
        self._thread = threading.get_ident()
        self._collecting = False  # garbage, at a place that is not the program's: whatever that calls
        self._opaque = _opaque_codes()

    def __enter__(self) -> Watch:
        self._before = sys.getprofile()
        _running.append(self)
        # Making either may collect: no start may be told whose stop is not.
        starts, stops = self._collection_starts, self._collection_stops
        gc.callbacks.append(stops)
        gc.callbacks.insert(0, starts)
        if self.steps is not None:
            self.steps.__enter__()
        sys.setprofile(self._event)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(self._before)
        if self.steps is not None:
            self.steps.__exit__(*exc)
        gc.callbacks.remove(self._collection_starts)
        gc.callbacks.remove(self._collection_stops)
        _running.remove(self)

    def _collection_starts(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start" and threading.get_ident() == self._thread:
            self._collecting = True

    def _collection_stops(self, phase: str, _: dict[str, int]) -> None:
        if phase == "stop" and threading.get_ident() == self._thread:
            self._collecting = False

    def found(self) -> list[tuple[types.CodeType, dict[str, Any], Read]]:
        """What was read by names: by which code, where it is looked up, and what. ``NotProved``, with the line, where
        the program did what a graph would not repeat.
        """
        if self.steps is not None:
            return [(code, space, read) for (code, read), space in self.steps.reads.items()]
        return [(code, space, read) for code, space in self.codes.items() for read in check(code).globals]

    def attributes(self) -> frozenset[str]:
        """Attributes that may have been read, of whatever."""
        names = self.steps.names if self.steps is not None else ()
        return frozenset(names).union(self.names, *(reads(code).attributes for code in self.codes))

    def is_new(self, value: Any) -> bool | None:
        """Whether an object was made in this run; None where that is not known."""
        return None if self.steps is None else self.steps.is_new(value)

    def catchers(self) -> Iterable[types.CodeType]:
        """Functions that go on after errors, of operators if that is known."""
        return self.steps.catchers if self.steps is not None else filter(catches, self.codes)

    def line(self) -> str:
        """The line of the program that runs."""
        return _line(sys._getframe(1))

    def refuse(self, reason: str, passing: bool = False, final: bool = True, own: bool = False) -> None:
        """Note a reason; the first counts. What a backend does is no part of the program."""
        if self.reason is None and not _native._within_backend():
            self.reason = NotProved(reason, passing, final, own)

    def branches(self) -> bool:
        """Whether the program's line that runs goes by the value that it asks for, as ``if x.sum() > 0`` does."""
        return _goes_by(sys._getframe(1))

    def refuse_outside(self, reason: str) -> None:
        """Note a reason that is none within calls that stand whole."""
        if not (self.inside or self.opaque):
            self.refuse(reason)

    def is_first(self, frame: types.FrameType) -> bool:
        """Whether a frame is that of the function whose run is watched."""
        back = frame.f_back
        return self.follows(frame) and back is not None and back.f_code.co_filename.startswith(_OWN)

    def follows(self, frame: types.FrameType) -> bool:
        """Whether a frame is the program's, or of a library that it calls, and what it does counts."""
        if self.paused or self.inside or self.opaque or self._collecting or self._importing:
            return False
        code = frame.f_code
        away = code.co_filename.startswith((PACKAGE, "<frozen importlib"))
        return not (away or code in _trusted or _is_help(frame) or _native._within_backend())

    def _event(self, frame: types.FrameType, event: str, arg: Any) -> None:
        if event in _AFTERWARDS or self.paused or self._collecting:
            return
        code = frame.f_code
        if code.co_name == "_find_and_load" and code.co_filename.startswith("<frozen importlib"):
            self._importing += {"call": 1, "return": -1}.get(event, 0)
        if self.inside:
            if self._importing:
                return
            if event == "call" and code not in self.inner and not code.co_filename.startswith(PACKAGE):
                self.inner[code] = Inside.of(frame)
            return
        if code in self._opaque and event in ("call", "return"):
            self.opaque += 1 if event == "call" else -1
            return
        if self.opaque:
            return
        if self.reason is not None:
            if event == "call" and not self.reason.final and self.follows(frame):
                self.codes.setdefault(code, frame.f_globals)  # which is known to the next run
            return
        if self._importing:
            return  # of a module of this package, on first need: who imports by himself is refused for that
        if event == "call":
            if code not in self.own and code not in self.codes:
                self._called(frame)
        elif event == "c_call":
            self._called_native(frame, arg)

    def _formats(self, frame: types.FrameType, template: str) -> None:
        """A text may name attributes of what it is filled with."""
        asked = _asked_by(template)
        self.names |= asked
        if hidden := asked & (HIDDEN | REACHING):
            self.refuse(f"{_line(frame)} formats {min(hidden)!r}, which is no part of what is compared", own=True)

    def _called(self, frame: types.FrameType) -> None:
        code = frame.f_code
        name = code.co_filename
        if code in entries or _native._within_backend():
            return  # of which the first stands whole
        if code is _HISTORY:
            if frame.f_locals["tensor"].requires_grad:
                self.refuse(f"{_line(frame)} makes a text that tells how a tensor was computed", own=True)
        elif code in _GETTERS:
            if frame.f_back is not None and self.follows(frame.f_back):
                self.refuse(f"{_line(frame)} calls {code.co_name}, which is no part of what is compared", own=True)
        elif name.startswith(PACKAGE):
            inside = name[len(PACKAGE) + 1 :]
            if code.co_name in _TELLING.get(inside, ((), None))[0]:
                self.own.setdefault(code, frame.f_globals)
            elif not inside.startswith(_COMPUTE) or inside.startswith(_NOT):
                taken = inside in _TAKEN or _is_drawing(frame.f_back)
                self.refuse(f"{_line(frame.f_back)} calls {code.co_name} of {inside}", own=taken)
            elif not name.startswith(_OWN):
                self.own.setdefault(code, frame.f_globals)
        elif name.startswith("<frozen importlib"):
            return  # of what is loaded already
        elif name == _WARNINGS:  # called by the core, which mostly warns once
            self.refuse(f"{_line(frame.f_back)} has this package warn", passing=True, own=True)
        elif code.co_name == "import_module" and not _is_help(frame):
            self.refuse(f"{_line(frame.f_back)} imports a module")
        elif name == "<string>" and str(frame.f_globals.get("__name__")).startswith("namedtuple_"):
            return  # the making of a named tuple
        elif code not in _trusted and not _is_help(frame):
            self.codes.setdefault(code, frame.f_globals)

    def _is_noted(self, switch: Any) -> bool:
        """Whether operators are written down with what this does to recording: a graph switches it off, not on. Of a
        graph below autograd it is seen whether that matters to any operator.
        """
        if not self.native:
            return isinstance(switch, (_native.no_grad, _native.enable_grad, _native.set_grad_enabled))
        if isinstance(switch, _native.set_grad_enabled):  # which has acted when it was made
            return self._recorded or not _native.is_grad_enabled()
        return isinstance(switch, _native.no_grad) or (self._recorded and isinstance(switch, _native.enable_grad))

    def _called_native(self, frame: types.FrameType, function: Any) -> None:
        name = str(getattr(function, "__name__", function))
        owner = getattr(function, "__self__", None)
        if self._is_noted(owner):
            return
        if name in ("warn", "warn_explicit") and getattr(function, "__module__", None) == "_warnings":
            self.refuse(f"{_line(frame)} warns", passing=True)  # some do so once
        if self.native and name == "tolist" and isinstance(owner, Tensor):
            return  # which tells what it reads
        if name in _REFUSED or type(owner).__name__ in _SWITCHES:
            taken = {name, type(owner).__name__} & (_OF_NUMPY | _TAKEN_CALLS) or _is_drawing(frame)
            self.refuse(f"{_line(frame)} calls {name}", own=bool(taken))
        if frame.f_code.co_filename.startswith(PACKAGE) or frame.f_code in _trusted or _is_help(frame):
            return
        if isinstance(owner, Tensor) and name in HIDDEN:
            self.refuse(f"{_line(frame)} calls {name}, which is no part of what is compared", own=True)
        if isinstance(owner, str) and name in _FORMATS:
            self._formats(frame, owner)
        if isinstance(owner, (Tensor, *_VALUES)) or is_tensor_method_or_property(function):
            return
        if name == "__new__" and isinstance(owner, type):
            return  # a named tuple, or an object, whose making is Python's or none's
        if computes(function):
            self.abstract = self.abstract or name in _OF_ABC
            return
        if is_of_library(frame.f_code, name):
            return
        if name in _BY_NAME:
            # Steps are told of calls by these names, so that one seen here was kept under another.
            if self.steps is not None or frame.f_lasti not in calls_told(frame.f_code):
                self.refuse(f"{_line(frame)} calls {name}, which may do anything", final=self.steps is not None)
            return
        kind = type(owner)
        if getattr(kind, "__module__", None) in ("itertools", "builtins", "collections") and name in (
            "__next__",
            "get",
        ):
            return
        of = {str(each).partition(".")[0] for each in (kind.__module__, getattr(function, "__module__", None))}
        own = not of.isdisjoint(_TAKEN_MODULES) or name in ("id", "intern")
        self.refuse(f"{_line(frame)} calls {name}, which may do anything", own=own)


def _asked_by(template: str) -> set[str]:
    """The attributes that a text names which is to be formatted."""
    found: set[str] = set()
    try:
        for _, name, spec, _ in string.Formatter().parse(template):
            found.update(re.split(r"[.\[\]]", name or "")[1:], _asked_by(spec) if spec else ())
    except ValueError:  # which formatting raises as well
        return found
    return found


@functools.cache
def _opaque_codes() -> frozenset[types.CodeType]:
    """What runs the program's own operators, whose insides are no part of graphs."""
    from tesserack import library
    from tesserack.library import _gradient, definitions

    kernels = [code for code in _inner(_gradient.autograd_kernel.__code__) if code.co_name == "kernel"]
    of_keys = [code for code in _inner(definitions._set.__code__) if code.co_name == "<lambda>"]
    return frozenset([library._run_kernel.__code__, *kernels, *of_keys])


def _inner(code: types.CodeType) -> Iterable[types.CodeType]:
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield const
            yield from _inner(const)


def _is_drawing(frame: types.FrameType | None) -> bool:
    """Whether a frame draws numbers in PyTorch's place: a graph of its steps would draw the same ones again."""
    return frame is not None and frame.f_code.co_filename.startswith(_DRAWS)


def _is_help(frame: types.FrameType | None) -> bool:
    """Whether a frame is of Python's library, called by this package for itself."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(PACKAGE):
            return not name.startswith(_OWN)
        if not name.startswith((_LIBRARY, "<frozen")) or "site-packages" in name:
            return False
        frame = frame.f_back
    return False


def _goes_by(frame: types.FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    if frame is None:
        return False
    names = [(i.offset, i.opname) for i in instructions_of(frame.f_code)]
    after = [name for offset, name in names if offset >= frame.f_lasti]
    jumps = [k for k, name in enumerate(after[:2]) if "JUMP" in name]
    if jumps and {*after[jumps[0] + 1 : jumps[0] + 2]} & {"LOAD_ASSERTION_ERROR", "LOAD_COMMON_CONSTANT"}:
        return False  # what is asserted only stops the run
    return bool(jumps) or after[0] in ("TO_BOOL", "UNARY_NOT")


def _line(frame: types.FrameType | None) -> str:
    """The line of the program that a frame comes from."""
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})" if frame else "?"

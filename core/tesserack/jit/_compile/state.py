"""What a result depends on besides its tensors, as values that can be compared: a token is equal as long as nothing
that was seen has changed.
"""

from __future__ import annotations

import enum
import functools
import gc
import linecache
import sys
import types
import weakref
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.autograd._whole import own_state
from tesserack.jit._compile.code import HIDDEN, REACHING
from tesserack.jit._compile.errors import NotProved
from tesserack.jit._compile.look import ANSWERED, is_a, items_of, length_of, own_dict, pairs_of
from tesserack.library import CustomOp
from tesserack.nn.modules._registry import Registry
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import Buffer, Parameter
from tesserack.ops import OperatorNamespace

__all__ = [
    "ATOMS",
    "PLAIN",
    "TENSORS",
    "Tokens",
    "is_ours",
    "is_written",
    "keeps_casts",
    "modes",
    "quick_settings",
    "settings",
    "spaces",
]

# Classes of objects whose tokens they are themselves.
ATOMS = frozenset((
    type(None), bool, int, str, bytes, type(...), object, ts.dtype, ts.device, type(NotImplemented), range,
    type(ts.strided), type(ts.contiguous_format), types.MethodDescriptorType, types.GetSetDescriptorType,
    types.MemberDescriptorType, _native.Operator, _native.OperatorMethod,
    type(vars(namedtuple("_Named", "field"))["field"]),
))  # fmt: skip
# What functions of C are bound to that no call changes.
_SPACES = (type(None), types.ModuleType)
_ANNOTATIONS = (types.GenericAlias, types.UnionType)
_CONTAINERS = frozenset((dict, OrderedDict, list, set))
# Values that do not change, whoever holds them.
PLAIN = (
    type(None), bool, int, float, complex, str, bytes, type(...), ts.dtype, ts.device, ts.Size, range, enum.Enum,
)  # fmt: skip
_NUMBERS = (float, complex)
_MOST, _LONGEST = 100_000, 10_000  # objects that a token may be of, items of one
# What objects of the package's classes keep for themselves and no computation reads. By class: a program's own may
# use the same names.
_PRIVATE = {
    _native._CompiledFunction: frozenset({"_compiled", "_torchdynamo_orig_callable"}),  # what runs it: see `_compound`
    "tesserack.fx.graph_module.GraphModule": frozenset({
        "_graph", "_lineno_map", "_tracer_cls", "_tracer_extras", "_in_spec", "_out_spec",  # of which `forward` is made
    }),
    "tesserack.jit.compiler.OptimizedModule": frozenset({"_compiled"}),  # runs `_orig_mod`
}  # fmt: skip
_CALL = "_compiled_call_impl"  # of any module: what this package calls in its place
TENSORS = (Tensor, Parameter, Buffer)


def is_ours(cls: Any) -> bool:
    """Whether a class or function is this package's."""
    name = type.__getattribute__(cls, "__module__") if is_a(cls, type) else getattr(cls, "__module__", "")
    return str(name).partition(".")[0] in ("tesserack", "torch")


_private_of: weakref.WeakKeyDictionary[type, frozenset[str]] = weakref.WeakKeyDictionary()


def _private(value: Any, attributes: dict[str, Any]) -> frozenset[str]:
    """The attributes of an object that no computation reads."""
    cls = type(value)
    if (found := _private_of.get(cls)) is None:
        names = [key for base in cls.__mro__ for key in (base, f"{base.__module__}.{base.__qualname__}")]
        found = _private_of[cls] = frozenset().union(*(_PRIVATE.get(key, ()) for key in names))
    called = _CALL in attributes and is_ours(type(attributes[_CALL]))
    return found | {_CALL} if called else found


class _Written:
    """How large objects of classes are that a class statement makes without more."""


def is_written(cls: type) -> bool:
    """Whether objects of a class hold nothing but attributes: it is written in Python, and not made of one in C."""
    most = _Written.__basicsize__ + sum(_POINTER for _ in slots(cls))
    return bool(cls.__flags__ & (1 << 9)) and cls.__basicsize__ <= most and not cls.__itemsize__


_POINTER = tuple.__itemsize__


def slots(cls: type) -> Iterator[types.MemberDescriptorType]:
    """Attributes that have a place of their own in objects of a class."""
    for base in cls.__mro__:
        for member in vars(base).values() if base.__flags__ & (1 << 9) else ():
            if type(member) is types.MemberDescriptorType and member.__objclass__ is base:
                yield member


class _Unset:
    """What a variable of contexts has that has no value."""


_OWN: Any = vars(types.ModuleType)["__dict__"]  # which classes of modules may hide


def spaces(module: types.ModuleType) -> list[dict[str, Any]]:
    """The dicts of a module's names: its own, and those of the modules that it stands for, as ``torch`` does."""
    own: dict[str, Any] = _OWN.__get__(module)
    shown = getattr(type(module), "_tesserack_load", None)
    return [own] if shown is None else [own, *(each.__dict__ for each in shown(module))]


class Tokens:
    """Makes tokens. Objects that are told apart by identity are kept, so that none takes the place of another.

    ``tensors`` and ``modules`` are those that were met, ``functions`` those written in Python, by their code, and
    ``builtins`` those that are not. ``watched`` tells what was looked at, for a guard: if all of it is the same, so
    would all tokens be.
    """

    def __init__(self, keep: bool = True) -> None:
        self.keep = keep
        self.kept: dict[int, Any] = {}
        self.tensors: dict[int, Tensor] = {}
        self.modules: dict[int, Module] = {}
        self.classes: dict[int, type] = {}
        self.functions: dict[types.CodeType, list[types.FunctionType]] = {}
        self.builtins: dict[int, Any] = {}
        self.changing: dict[int, Any] = {}
        self.handed: dict[int, types.ModuleType] = {}  # modules of libraries that are used whole
        self._ours: dict[type, tuple[int, ...]] = {}  # what classes of this package hold
        self.partials = False
        self.watched: list[tuple[Any, ...]] = []
        self._open: dict[int, int] = {}  # what is being looked at, or was, by the order of that

    def of(self, value: Any) -> Any:
        """The token of a value. ``NotProved`` for one whose changes cannot be seen."""
        kind = type(value)
        if kind in ATOMS:
            return (kind, value)
        if kind is types.BuiltinFunctionType:
            return self._builtin(value)
        if kind is types.WrapperDescriptorType:
            return self._wrapper(value)
        if kind in _CONTAINERS:
            if not value:
                return self._empty(kind, value)
        elif kind in TENSORS:
            return self.tensor(value)
        if id(value) in self._open:
            return ("again", self._open[id(value)])
        if kind is Registry:
            return self._registry(value)
        if not (kind in _CONTAINERS or kind is tuple or issubclass(kind, Module)):
            if kind.__module__ == "typing" or is_a(value, _ANNOTATIONS):
                return ("annotation", self._same(value))
            if is_a(value, types.ModuleType):
                return self.module(value, whole=True)
            if is_a(value, _NUMBERS) and not own_dict(value):
                base: Any = float if is_a(value, float) else complex
                return (kind.__name__, self._same(kind), base.__repr__(value))
            if is_a(value, Tensor):
                return self.tensor(value)
        self._begin(value)
        return self._compound(value)

    def _builtin(self, value: types.BuiltinFunctionType) -> Any:
        """A function of C: what it is bound to is read, or written, by calling it."""
        self.builtins[id(value)] = value
        owner = value.__self__
        return (type(value), value, None if is_a(owner, _SPACES) else self.of(owner))

    def _wrapper(self, value: types.WrapperDescriptorType) -> Any:
        """A method of C whose calls nothing sees."""
        if value.__name__ in REACHING or value.__name__ in HIDDEN:
            raise NotProved(f"{value.__qualname__} is at hand, and by which name it asks is not seen")
        return (type(value), value)

    def _begin(self, value: Any) -> None:
        self._open[id(value)] = len(self._open)
        if len(self._open) > _MOST or (is_a(value, (list, tuple, dict, set)) and length_of(value) > _LONGEST):
            raise NotProved("so much is held, in long lists or dicts, that comparing it would take longer than a run")
        if self.keep:
            self.kept[id(value)] = value

    def _registry(self, value: Registry) -> Any:
        """What a module holds by name."""
        self.classes[id(Registry)] = Registry
        if not value:
            return self._empty(Registry, value)
        self._begin(value)
        self.watch("dict", value)
        of = self.of
        return (
            Registry,
            id(value),
            tuple([(key if type(key) is str else of(key), of(item)) for key, item in list(value.items())]),
        )

    def _empty(self, kind: type, value: Any) -> Any:
        if self.keep:
            self.watched.append(("sequence" if kind is list or kind is set else "dict", value))
            self.kept[id(value)] = value
        return (kind, id(value))

    def split(self) -> Tokens:
        """One that has made the same tokens, and goes on by itself, with what it watches from then on."""
        made = Tokens()
        for name in ("kept", "tensors", "modules", "classes", "builtins", "changing", "handed", "_open"):
            setattr(made, name, dict(getattr(self, name)))
        made.functions = {code: [*functions] for code, functions in self.functions.items()}
        made.partials = self.partials
        return made

    def progress(self) -> tuple[int, int]:
        """How much was looked at."""
        return len(self._open), len(self.tensors)

    def go_back(self, progress: tuple[int, int]) -> None:
        """Look anew at what has been looked at since: it is in no token."""
        opened, tensors = progress
        for key in list(self._open)[opened:]:
            del self._open[key]
        for key in list(self.tensors)[tensors:]:
            del self.tensors[key]

    def is_plain(self) -> bool:
        """Whether no more than values and tensors were met, that hold nothing."""
        met = (self.tensors, self.modules, self.classes, self.functions, self.builtins, self.changing, self.handed)
        return not (self.partials or self.watched or any(met))

    def watch(self, kind: str, *what: Any) -> None:
        """Note what was looked at."""
        if self.keep:
            self.watched.append((kind, *what))

    def entry(self, space: dict[str, Any], name: str) -> None:
        """Note that a dict was asked for a name."""
        self.watch("entry", space, name)

    def module(self, value: types.ModuleType, whole: bool) -> Any:
        """The token of a module of Python: which it is. ``NotProved`` for one of the program's that is used whole."""
        first = value.__name__.partition(".")[0]
        if whole and first not in ("tesserack", "torch") and first not in sys.stdlib_module_names:
            raise NotProved(f"the module {value.__name__} is handed on, so that what is read of it cannot be seen")
        if whole:
            self.handed[id(value)] = value
        return ("module object", self._same(value))

    def _same(self, value: Any) -> int:
        if self.keep:
            self.kept[id(value)] = value
        return id(value)

    def tensor(self, x: Tensor, identity: bool = True) -> Any:
        """The token of a tensor: which it is, if asked, and what it is like."""
        if identity and id(x) in self.tensors:
            return ("again", id(x))
        if type(x) not in TENSORS or x.layout is not ts.strided:
            raise NotProved(f"a tensor of class {type(x).__name__} and layout {x.layout} is used", own=True)
        own = own_dict(x)
        attributes = tuple((name, self.of(item)) for name, item in list(own.items())) if own else None
        if identity:
            self._same(x)
            self.tensors[id(x)] = x
            self.watch("tensor", x)
            if own is not None:
                self.watch("dict", own)
        same = id(x) if identity else None
        return ("tensor", same, _native._likeness(x) or _like(x), attributes)

    def _compound(self, value: Any) -> Any:
        if is_a(value, Module) and not is_a(value, (dict, list, tuple, set, frozenset)):
            self.modules[id(value)] = value
            kind = self._same(type(value)), self._same(type(value).forward)
            return ("module", id(value), kind, self._attributes(value))
        if is_a(value, type):
            return self._class(value)
        if is_a(value, types.FunctionType):
            return self._function(value)
        if type(value) is _native._CompiledFunction:
            return ("compiled", id(value), self._attributes(value))  # which lead to the function
        if is_a(value, types.MethodType):
            return ("method", self.of(value.__func__), self.of(value.__self__))
        if is_a(value, enum.Enum):
            return self._member_of_enum(value)
        if is_a(value, dict):
            if value is linecache.cache:  # which the library fills as it likes, also while this looks at it
                return ("lines of source", self._same(value))
            self.watch("dict", value)
            of = self.of
            pairs = tuple([(key if type(key) is str else of(key), of(item)) for key, item in pairs_of(value)])
            return (type(value), id(value), pairs, self._of_subclass(value))
        if is_a(value, (list, tuple, set, frozenset)):
            if not is_a(value, (tuple, frozenset)):
                self.watch("sequence", value)
            items = tuple([self.of(item) for item in items_of(value)])
            own = id(value) if is_a(value, (list, set)) else None
            return (type(value).__name__, own, items, self._of_subclass(value))
        if is_a(value, (property, classmethod, staticmethod)):
            return self._wrapped(value)
        if type(value) is functools.partial:
            self.partials = True
            parts = (value.func, value.args, value.keywords, value.__dict__)
            self.watch("dict", value.keywords)
            self.watch("dict", value.__dict__)
            return ("partial", id(value), tuple(self.of(part) for part in parts))
        if is_a(value, types.MappingProxyType):
            return ("proxy", *(self.of(behind) for behind in gc.get_referents(value)))
        if is_a(value, ContextVar):
            self.watch("answer", functools.partial(value.get, _Unset))
            held = value.get(_Unset)
            return ("context", self._same(value), None if held is _Unset else (self.of(held),))
        return self._object(value)

    def _class(self, cls: type) -> Any:
        if cls is ANSWERED:
            raise NotProved("an attribute of a module or class is read that Python of the program's tells")
        self.classes[id(cls)] = cls
        if type(cls) is not type:
            self.classes[id(type(cls))] = type(cls)
        return ("class", id(cls))

    def _of_subclass(self, value: Any) -> Any:
        """What a container of a class of the program has besides its items."""
        cls = type(value)
        if cls in _CONTAINERS or cls in (tuple, frozenset):
            return None
        self.classes[id(cls)] = cls
        made = ()
        if is_a(value, defaultdict):  # an attribute that lies in no dict
            self.watch("answer", functools.partial(getattr, value, "default_factory"))
            made = self.of(value.default_factory)
        return (self._same(cls), self._attributes(value), made)

    def _member_of_enum(self, value: enum.Enum) -> Any:
        self._class(type(value))
        self.watch("attributes", value)
        own = tuple(
            (name, self.of(item)) for name, item in list(vars(value).items()) if name not in ("__objclass__", "_name_")
        )
        return ("enum", id(value), own)

    def _wrapped(self, value: Any) -> Any:
        parts = (value.fget,) if is_a(value, property) else (value.__func__,)
        return (type(value).__name__, id(value), tuple(self.of(part) for part in parts if part is not None))

    def _function(self, function: types.FunctionType) -> Any:
        self.functions.setdefault(function.__code__, []).append(function)
        self.watch("function", function)
        parts = (function.__defaults__, function.__kwdefaults__)
        own = self._attributes(function) if function.__dict__ and not is_ours(function) else ()
        return ("function", id(function), self._same(function.__code__), tuple(self.of(part) for part in parts), own)

    def _attributes(self, value: Any) -> Any:
        found = own_dict(value)
        if found is None:
            return ()
        if is_a(value, types.FunctionType):
            self.watch("dict", found)
        else:
            self.watch("attributes", value)
        watched = self.watched if self.keep else None
        return _native._attribute_tokens(found, ATOMS, _CONTAINERS, _private(value, found), self.of, watched, self.kept)

    def _object(self, value: Any) -> Any:
        """A plain object of a class written in Python: its attributes."""
        cls = type(value)
        if is_a(value, tuple(own_state)):
            return self._changing(value)
        if is_a(value, OperatorNamespace):
            return ("operators", *sorted(vars(value)))
        if is_a(value, CustomOp):  # what it runs, and how gradients flow, is looked up by every call
            self.entry(vars(value), "vmap")
            return ("operator", id(value), id(value.vmap))
        if not is_written(cls) or is_ours(cls):
            raise NotProved(f"an object of class {cls.__qualname__} is used, whose changes cannot be seen", own=True)
        self._class(cls)
        return ("object", id(value), self._same(cls), self._attributes(value), self._slots(value))

    def _changing(self, value: Any) -> Any:
        """An object that only calls use which stand whole: all that counts is what these calls are."""
        self.changing[id(value)] = value
        self._class(type(value))
        own = vars(value)
        methods = ("step", "zero_grad", "scale", "unscale_", "update")
        for name in methods:
            self.entry(own, name)
        return ("changing", id(value), tuple(id(own.get(name)) for name in methods))

    def _slots(self, value: Any) -> Any:
        found = [(slot.__name__, slot.__get__(value, type(value))) for slot in slots(type(value)) if _has(value, slot)]
        if found:
            self.watch("slots", value)
        return tuple((name, self.of(item)) for name, item in found)

    def of_class(self, cls: type, read: frozenset[str]) -> Any:
        """The token of what a class holds: of the program's its functions, and what is read of the rest."""
        self.watch("class", cls)
        return tuple(
            self._members_of_ours(base)
            if base in self._ours or is_ours(base)
            else tuple((name, self._member(name in read, value)) for name, value in list(vars(base).items()))
            for base in cls.__mro__
            if base.__flags__ & (1 << 9)
        )

    def of_module(self, module: types.ModuleType, read: frozenset[str]) -> Any:
        """The token of what may be read of a module that is used whole, by a name that is read of anything."""
        places = spaces(module)
        found = []
        for name in sorted(read & set().union(*places)):
            for space in places:
                self.entry(space, name)
            value = getattr(module, name)
            whole = type(value) is not types.BuiltinFunctionType and callable(value)
            found.append((name, self._same(value) if whole else self.of(value)))
        return (id(module), *found)

    def _members_of_ours(self, base: type) -> Any:
        if (found := self._ours.get(base)) is None:
            version = _native._class_version(base)
            found, members = _members(base, version) if version else _members.__wrapped__(base, version)
            if self.keep:
                self.kept.update(members)
            self._ours[base] = found
        return found

    def _member(self, read: bool, value: Any) -> Any:
        plain = isinstance(value, (types.FunctionType, _native._CompiledFunction, property, classmethod, staticmethod))
        return self.of(value) if plain or read else self._same(value)


@functools.lru_cache(maxsize=128)
def _members(base: type, version: int) -> tuple[tuple[int, ...], dict[int, Any]]:
    """Functions and switches of a class in that version; not what classes count. Which they are, and they by that."""
    members = [v for v in vars(base).values() if callable(v) or hasattr(v, "__get__") or isinstance(v, bool)]
    ids = tuple(map(id, members))
    return ids, dict(zip(ids, members, strict=True))


def _like(x: Tensor) -> tuple[Any, ...]:
    return (type(x), tuple(x.shape), x.stride(), x.dtype, x.device, x.requires_grad, x.is_conj(), x.is_neg())


def _has(value: Any, slot: types.MemberDescriptorType) -> bool:
    try:
        slot.__get__(value, type(value))
    except AttributeError:
        return False
    return True


def modes() -> bool:
    """Whether something sees this thread's operators that a graph must not do in the place of Python's calls."""
    from tesserack._tensor.overrides import function_modes
    from tesserack.aten.modes import stack
    from tesserack.nn.modules._hooks import GLOBAL

    if function_modes() or stack() or GLOBAL or _native._is_tracing():
        return True
    return not callable(sys.getprofile() or callable)  # one in C sees calls, and nothing could put it back


def keeps_casts() -> bool:
    """Whether a region of this thread keeps casts of parameters from one call to the next: gradients meet in them, in
    half precision, which a graph below autograd does not know of."""
    from tesserack.amp import _autocast

    return any(_autocast._state.enabled.values()) and _autocast._state.cache and ts.is_grad_enabled()


def settings() -> Iterator[Any]:
    """What this thread's computations depend on everywhere."""
    yield ts.is_grad_enabled()
    yield ts.is_inference_mode_enabled()
    yield ts.is_anomaly_enabled()
    yield ts.get_default_dtype()
    yield str(ts.get_default_device())
    yield from quick_settings()


def quick_settings() -> tuple[Any, ...]:
    """What of these a signature of a call does not have."""
    from tesserack._tensor import printing
    from tesserack.amp import _autocast
    from tesserack.utils import settings

    return (
        *settings._state.values(),
        *vars(printing._options).items(),  # graphs may have read a text
        _autocast._state.cache,
        _autocast._state.depth > 0,
        _autocast.entered_regions(),
    )


def autocast_dtypes() -> tuple[Any, ...]:
    """The dtypes that this thread's regions would have, where they are not the usual ones; equal ones are the same."""
    from tesserack.amp import _autocast

    found = _autocast._state.dtypes.items()
    return _same_tuple(tuple(sorted((k, str(v)) for k, v in found if v != _autocast._default_dtype(k))))


@functools.lru_cache(maxsize=64)
def _same_tuple(value: tuple[Any, ...]) -> tuple[Any, ...]:
    return value

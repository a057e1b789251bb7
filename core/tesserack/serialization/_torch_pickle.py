"""Reads the pickles in PyTorch's files without running anything: an interpreter of its own, with an exact list of what
the names in them may stand for.

Python's own unpickler is not used, since no restriction of it bounds what a few bytes can make it allocate or compute.
"""

from __future__ import annotations

import io
import math
import pickletools
import struct
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack._tensor.pending import with_bits

__all__ = ["STORAGES", "NameRefused", "PickleRefused", "Storage", "StorageKind", "call_named", "end_of", "interpret"]

_MAX_NDIM = 64
_MAX_NUMEL = 2**48  # more than any memory; strides of 0 may show many elements of a small storage


class PickleRefused(ValueError):
    """A pickle that is damaged, or that holds something else than plain data and tensors."""


class NameRefused(PickleRefused):
    """A pickle that holds an object of a class or a function."""


@dataclass(frozen=True)
class StorageKind:
    """The class of a storage, by name."""

    name: str

    @property
    def dtype(self) -> ts.dtype:
        """Of its elements."""
        return getattr(ts, STORAGES[self.name])  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Storage:
    """A storage of a file: its elements as a tensor of one dimension."""

    elements: Tensor


class _Global:
    """What a name stands for: a function of ours that is called instead, and that may spend of the reader's budget."""

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        self.name = name
        self.call = call


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


def interpret(data: bytes, persistent: Callable[[Any], Any], start: int = 0, outline: bool = False) -> Any:
    """The object that a pickle describes. ``persistent`` makes objects of persistent ids; with ``outline`` their memory
    is not there yet, and what is made of tensors stays one of them.

    Raises :class:`PickleRefused`, or for damaged ones ``ValueError``, ``TypeError``, ``LookupError`` and their like.
    """
    return _Machine(len(data), persistent, outline).run(_operations(data, start))


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


class _Machine:
    """Pickle's stack machine. Every operation takes time and memory bounded by its own bytes, or by the budget."""

    def __init__(self, size: int, persistent: Callable[[Any], Any], outline: bool = False) -> None:
        self.outline = outline
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._persistent = persistent
        self._budget = 64 * size + 65536

    def run(self, operations: Any) -> Any:
        """The object on top at the end."""
        for opcode, argument, _ in operations:
            name = opcode.name
            if name == "STOP":
                return self._pop()
            if name in _LITERALS:
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

    def spend(self, amount: int) -> None:
        """Of what calls may make out of things that are there already."""
        self._budget -= amount + 1
        if self._budget < 0:
            raise PickleRefused("it makes more than its size allows")

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
        self._top(dict)[_key(key)] = value

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
            mapping[_key(key)] = value

    def _do_additems(self, _: Any) -> None:
        values = self._above_mark()
        self._top(set).update(map(_key, values))

    def _do_frozenset(self, _: Any) -> None:
        self._stack.append(frozenset(map(_key, self._above_mark())))

    # --- names and calls ------------------------------------------------------------------------------------------

    def _do_global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._stack.append(_named(module, name))

    def _do_stack_global(self, _: Any) -> None:
        name, module = self._pop(), self._pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise PickleRefused("a name in it is no text")
        self._stack.append(_named(module, name))

    def _do_reduce(self, _: Any) -> None:
        arguments, function = self._pop(), self._pop()
        if not isinstance(function, _Global) or type(arguments) is not tuple:
            raise PickleRefused("it calls something that is no known name")
        self.spend(0)
        self._stack.append(function.call(self, *arguments))

    _do_newobj = _do_reduce

    def _do_build(self, _: Any) -> None:
        state = self._pop()
        target = self._stack[-1]
        if isinstance(target, _NumberType):
            target.big_endian = isinstance(state, tuple) and len(state) > 1 and state[1] == ">"
            return
        if isinstance(target, _Hint):
            return  # what a compiler marked
        if not isinstance(target, OrderedDict) or not isinstance(state, dict):
            raise PickleRefused(f"it sets attributes of a {type(target).__name__}")
        versions = state.get("_metadata")
        if isinstance(versions, dict):
            target._metadata = versions  # type: ignore[attr-defined]

    def _do_binpersid(self, _: Any) -> None:
        self.spend(0)
        self._stack.append(self._persistent(self._pop()))


def _key(value: Any) -> Any:
    """Only keys whose hash takes a moment: plain ones, and flat tuples of those."""
    plain = (str, int, float, bytes, complex, type(None), ts.dtype, ts.device)
    if isinstance(value, plain) or (type(value) is tuple and all(isinstance(part, plain) for part in value)):
        return value
    raise PickleRefused(f"a key in it is a {type(value).__name__}")


# --- what names stand for ------------------------------------------------------------------------------------------


def _whole(numbers: Any) -> list[int]:
    """A list of sizes, checked."""
    if not isinstance(numbers, (tuple, list)) or len(numbers) > _MAX_NDIM:
        raise PickleRefused("a shape in it is none")
    if any(type(n) is not int or not 0 <= n < 2**62 for n in numbers):
        raise PickleRefused("a shape in it is none")
    return [*numbers]


def _tensor(_: _Machine, storage: Any, offset: Any, size: Any, stride: Any, *rest: Any) -> Tensor:
    """``_rebuild_tensor`` and ``_rebuild_tensor_v2(..., requires_grad, hooks, metadata)``."""
    if not isinstance(storage, Storage):
        raise PickleRefused("a tensor in it has no storage")
    made = _view(storage.elements, offset, size, stride, bool(rest[:1] and rest[0] is True))
    return _with_metadata(made, rest[2:3])


def _tensor_v3(
    _: _Machine, storage: Any, offset: Any, size: Any, stride: Any, grad: Any, hooks: Any, dtype: Any, *rest: Any
) -> Tensor:
    if not isinstance(storage, Storage) or not isinstance(dtype, ts.dtype):
        raise PickleRefused("a tensor in it has no storage or dtype")
    elements = storage.elements
    if elements.dtype is not dtype:
        elements = elements.view(ts.uint8)
        if dtype is ts.bool:
            elements = elements != 0
        # What no element of the dtype has room in is not seen.
        elements = elements[: len(elements) - len(elements) % dtype.itemsize]
    return _with_metadata(_view(elements.view(dtype), offset, size, stride, grad is True), rest[:1])


def _with_metadata(made: Tensor, metadata: tuple[Any, ...]) -> Tensor:
    """A tensor whose conjugation or negation was pending when it was written has it pending again."""
    said = metadata[0] if metadata and isinstance(metadata[0], dict) else {}
    bits = ",".join(name for name in ("conj", "neg") if said.get(name) is True)
    if not bits:
        return made
    if "conj" in bits and not made.is_complex():
        raise PickleRefused("a tensor in it is the conjugate of real numbers")
    if "neg" in bits and made.dtype is ts.bool:
        raise PickleRefused("a tensor in it is the negative of truth values")
    return with_bits(made, bits).requires_grad_(made.requires_grad)


def _view(elements: Tensor, offset: Any, size: Any, stride: Any, requires_grad: bool) -> Tensor:
    sizes, strides = _whole(size), _whole(stride)
    (offset,) = _whole([offset])
    if len(sizes) != len(strides) or math.prod(sizes) >= _MAX_NUMEL:
        raise PickleRefused("a tensor in it has wrong strides")
    last = offset + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
    if math.prod(sizes) and last >= elements.numel():
        raise PickleRefused(f"a tensor in it reaches element {last} of a storage of {elements.numel()}")
    if not math.prod(sizes):
        return ts.empty(sizes, dtype=elements.dtype, device=elements.device).requires_grad_(requires_grad)
    return elements.as_strided(sizes, strides, offset).detach().requires_grad_(requires_grad)


def _checked_tensor(value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise PickleRefused("a parameter in it has no tensor")
    return value.detach()


def _parameter(_: _Machine, data: Any, requires_grad: Any, hooks: Any = None, state: Any = None) -> Tensor:
    return ts.nn.Parameter(_checked_tensor(data), requires_grad=requires_grad is True)


def _from_type(machine: _Machine, function: Any, kind: Any, arguments: Any, state: Any = None) -> Tensor:
    """``_rebuild_from_type_v2``: a subclass of Tensor, as far as it is one of ours."""
    if not isinstance(function, _Global) or not isinstance(kind, _Global) or type(arguments) is not tuple:
        raise PickleRefused("a tensor in it is of no known class")
    made = function.call(machine, *arguments)
    if kind.name == "torch.nn.parameter.Buffer":
        return ts.nn.Buffer(_checked_tensor(made))
    if kind.name == "torch.nn.parameter.Parameter":
        return ts.nn.Parameter(_checked_tensor(made), requires_grad=made.requires_grad)
    nested = kind.name == "torch.nested._internal.nested_tensor.NestedTensor"
    if nested and isinstance(made, Tensor) and (made.is_nested or machine.outline):
        return made
    if kind.name != "torch.Tensor" or not isinstance(made, Tensor):
        raise PickleRefused("a tensor in it is of no known class")
    return made


def _meta(_: _Machine, dtype: Any, size: Any, stride: Any, requires_grad: Any) -> Tensor:
    return ts.empty_strided(_whole(size), _whole(stride), dtype=dtype, device="meta").requires_grad_(
        requires_grad is True
    )


def _size(_: _Machine, sizes: Any = ()) -> Any:
    return ts.Size(_whole(sizes))


def _device(_: _Machine, kind: Any, index: Any = None) -> Any:
    """A device if it is here, else its name."""
    if not isinstance(kind, str) or not isinstance(index, (int, type(None))):
        raise PickleRefused("a device in it has no name")
    name = kind if index is None else f"{kind}:{index}"
    return ts.device(name) if kind in ("cpu", "meta") else name


def _ordered(machine: _Machine, items: Any = ()) -> Any:
    machine.spend(len(items))
    return OrderedDict((_key(key), value) for key, value in (items.items() if isinstance(items, dict) else items))


def _counter(machine: _Machine, items: Any = ()) -> Any:
    machine.spend(len(items))
    return Counter({_key(key): int(n) for key, n in items.items()} if items else {})


def _default(machine: _Machine, factory: Any = None) -> Any:
    kinds = {"builtins.list": list, "builtins.dict": dict, "builtins.set": set, "builtins.int": int}
    if factory is not None and (not isinstance(factory, _Global) or factory.name not in kinds):
        raise PickleRefused("a defaultdict in it makes something unknown")
    return defaultdict(None if factory is None else kinds[factory.name])


def _container(kind: type) -> Callable[..., Any]:
    def make(machine: _Machine, items: Any = ()) -> Any:
        if not isinstance(items, (list, tuple, set, frozenset)):
            raise PickleRefused(f"a {kind.__name__} in it is made of a {type(items).__name__}")
        machine.spend(len(items))
        return kind(map(_key, items)) if kind in (set, frozenset) else kind(items)

    return make


def _bytes(machine: _Machine, text: Any = "", encoding: Any = "latin1") -> bytes:
    """``_codecs.encode(text, "latin1")``, which is how older protocols write bytes."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise PickleRefused("bytes in it are in no known encoding")
    machine.spend(len(text))
    return text.encode("latin-1")


def _bytearray(machine: _Machine, content: Any = b"", *encoding: Any) -> bytearray:
    if isinstance(content, str):
        return bytearray(_bytes(machine, content, *encoding))
    if not isinstance(content, (bytes, bytearray)):
        raise PickleRefused("a bytearray in it is made of no bytes")
    machine.spend(len(content))
    return bytearray(content)


def _complex(_: _Machine, real: Any = 0, imaginary: Any = 0) -> complex:
    return complex(float(real), float(imaginary))


def _number_type(_: _Machine, code: Any, *rest: Any) -> Any:
    """``numpy.dtype``; its byte order follows."""
    if not isinstance(code, str):
        raise PickleRefused("a dtype of NumPy in it has no name")
    return _NumberType(code)


class _NumberType(OrderedDict[str, Any]):
    """The dtype of a NumPy scalar; takes state, as mappings do here."""

    def __init__(self, code: str = "") -> None:
        super().__init__()
        self.code = code
        self.big_endian = False


_FORMATS = {"f8": "<d", "f4": "<f", "f2": "<e", "b1": "<?", "i8": "<q", "i4": "<i", "i2": "<h", "i1": "<b"}
_FORMATS |= {"u8": "<Q", "u4": "<I", "u2": "<H", "u1": "<B"}


def _number(_: _Machine, kind: Any, content: Any) -> Any:
    """A NumPy scalar, as a number of Python's."""
    if not isinstance(kind, _NumberType) or kind.code not in _FORMATS or not isinstance(content, bytes):
        raise PickleRefused("a scalar of NumPy in it is of no known kind")
    form = _FORMATS[kind.code]
    return struct.unpack(form.replace("<", ">") if kind.big_endian else form, content)[0]


_LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")


def _layout(_: _Machine, name: Any) -> Any:
    if not isinstance(name, str) or name.removeprefix("torch.") not in _LAYOUTS:
        raise PickleRefused(f"a tensor in it has the layout {name!r}")
    return getattr(ts, name.removeprefix("torch."))


def _sparse(machine: _Machine, layout: Any, data: Any) -> Any:
    from tesserack.sparse._saving import rebuild_checked

    if not isinstance(layout, ts.layout) or layout is ts.strided or not isinstance(data, tuple):
        raise PickleRefused("a sparse tensor in it has no known layout")
    tensors = [part for part in data if isinstance(part, ts.Tensor)]
    machine.spend(sum(part.nbytes for part in tensors))
    if machine.outline and tensors:
        return tensors[0]
    try:
        return rebuild_checked(layout, data)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise PickleRefused(f"a sparse tensor in it is none: {error}") from None


class _Hint(str):
    """What PyTorch's compiler notes beside the sizes of nested tensors; ignored."""


def _hint(_: _Machine, *arguments: Any) -> _Hint:
    return _Hint()


def _distributed(machine: _Machine, *parts: Any) -> Any:
    """A rank's part of a DTensor, and where it lies."""
    from tesserack.distributed.tensor._saving import rebuilt

    try:
        return rebuilt(*parts)
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        raise PickleRefused(f"a DTensor in it is none: {error}") from None


def _nested(machine: _Machine, *parts: Any) -> Any:
    """``_rebuild_nested_tensor`` of a buffer and the places of its rows, ``_rebuild_njt`` of a dict of parts."""
    from tesserack.nested._saving import rebuild_jagged, rebuild_strided

    given = [*parts[0].values()] if len(parts) == 1 and isinstance(parts[0], dict) else parts
    tensors = [part for part in given if isinstance(part, ts.Tensor)]
    machine.spend(sum(part.nbytes for part in tensors[1:] or tensors))
    if machine.outline and tensors:
        return tensors[0]
    try:
        return rebuild_jagged(parts[0]) if len(parts) == 1 else rebuild_strided(*parts)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise PickleRefused(f"a nested tensor in it is none: {error}") from None


def _class_only(_: _Machine, *arguments: Any) -> Any:
    raise PickleRefused("it makes an object of a class that is only named in tensors")


_CALLS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._utils._rebuild_meta_tensor_no_storage": _meta,
    "torch._utils._rebuild_sparse_tensor": _sparse,
    "torch._utils._rebuild_nested_tensor": _nested,
    "torch.nested._internal.nested_tensor._rebuild_njt": _nested,
    "torch.nested._internal.nested_tensor.NestedTensor": _class_only,
    "tesserack.distributed.tensor._saving.rebuilt": _distributed,
    "torch._dynamo.decorators._DimRange": _hint,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch.Tensor": _class_only,
    "torch.nn.parameter.Parameter": _class_only,
    "torch.nn.parameter.Buffer": _class_only,
    "torch.Size": _size,
    "torch.device": _device,
    "torch.serialization._get_layout": _layout,
    "collections.OrderedDict": _ordered,
    "collections.Counter": _counter,
    "collections.defaultdict": _default,
    "builtins.set": _container(set),
    "builtins.frozenset": _container(frozenset),
    "builtins.list": _container(list),
    "builtins.tuple": _container(tuple),
    "builtins.dict": lambda machine, items=(): dict(_ordered(machine, items)),
    "builtins.int": _class_only,
    "builtins.bytearray": _bytearray,
    "builtins.bytes": lambda machine: b"",
    "builtins.complex": _complex,
    "_codecs.encode": _bytes,
    "numpy.dtype": _number_type,
    "numpy.core.multiarray.scalar": _number,
    "numpy._core.multiarray.scalar": _number,
}
STORAGES = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "ByteStorage": "uint8",
    "CharStorage": "int8",
    "ShortStorage": "int16",
    "IntStorage": "int32",
    "LongStorage": "int64",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "UntypedStorage": "uint8",
}


def call_named(name: str) -> Callable[..., Any]:
    """What builds tensors under a name of PyTorch's, for other unpicklers. ``PickleRefused`` for other names."""
    if name not in _CALLS:
        raise PickleRefused(f"it builds something by {name[:200]}")
    call, machine = _CALLS[name], _Machine(0, lambda identity: None)
    return lambda *arguments: call(machine, *arguments)


def _named(module: str, name: str) -> Any:
    """What a name in a pickle stands for; nothing is imported."""
    module = {"__builtin__": "builtins"}.get(module, module)
    full = f"{module}.{name}"
    if full in _CALLS:
        return _Global(full, _CALLS[full])
    if module in ("torch", "torch.storage", "torch.cuda") and name in STORAGES:
        return StorageKind(name)
    if module == "torch" and isinstance(getattr(ts, name, None), ts.dtype):
        return getattr(ts, name)
    raise NameRefused(
        f"it holds an object of {full[:200]}, which is not plain data; only tensors, numbers, text and containers of "
        "them are read: save a model's state_dict() instead of the model"
    )

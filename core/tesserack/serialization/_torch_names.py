"""What the names in pickles of PyTorch's files stand for: an exact list of functions of ours, called instead."""

from __future__ import annotations

import math
import struct
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack._tensor.pending import with_bits
from tesserack.serialization._safe import today
from tesserack.storage import TypedStorage, UntypedStorage

__all__ = [
    "STORAGES", "Call", "Hint", "NameRefused", "NumberType", "PickleRefused", "Reading", "Storage",
    "StorageKind", "call_named", "key_of", "named", "quantized_name",
]  # fmt: skip

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


class Storage:
    """A storage of a file: its elements as a tensor of one dimension. Where a program saved the storage itself, this is
    what it gets."""

    elements: Tensor

    @staticmethod
    def of(kind: StorageKind, elements: Tensor) -> Storage:
        """The storage of the class that the file names."""
        return (_UntypedOfFile if kind.name == "UntypedStorage" else _TypedOfFile)(elements)


class _TypedOfFile(Storage, TypedStorage):
    def __init__(self, elements: Tensor) -> None:
        TypedStorage.__init__(self, elements)
        self.elements = elements


class _UntypedOfFile(Storage, UntypedStorage):
    def __init__(self, elements: Tensor) -> None:
        UntypedStorage.__init__(self, elements)
        self.elements = elements


class Call:
    """What a name stands for: a function of ours that is called instead, and that may spend of the reader's budget."""

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        self.name = name
        self.call = call


class Reading:
    """What is known of a pickle that is read: how much it may make, and whether memory is there yet."""

    def __init__(self, size: int, outline: bool = False) -> None:
        self.outline = outline
        self._budget = 64 * size + 65536

    def spend(self, amount: int) -> None:
        """Of what calls may make out of things that are there already."""
        self._budget -= amount + 1
        if self._budget < 0:
            raise PickleRefused("it makes more than its size allows")


def key_of(value: Any) -> Any:
    """Only keys whose hash takes a moment: plain ones, and flat tuples of those."""
    plain = (str, int, float, bytes, complex, type(None), ts.dtype, ts.device)
    if isinstance(value, plain) or (type(value) is tuple and all(isinstance(part, plain) for part in value)):
        return value
    raise PickleRefused(f"a key in it is a {type(value).__name__}")


def _whole(numbers: Any) -> list[int]:
    """A list of sizes, checked."""
    if not isinstance(numbers, (tuple, list)) or len(numbers) > _MAX_NDIM:
        raise PickleRefused("a shape in it is none")
    if any(type(n) is not int or not 0 <= n < 2**62 for n in numbers):
        raise PickleRefused("a shape in it is none")
    return [*numbers]


def _tensor(_: Reading, storage: Any, offset: Any, size: Any, stride: Any, *rest: Any) -> Tensor:
    """``_rebuild_tensor`` and ``_rebuild_tensor_v2(..., requires_grad, hooks, metadata)``."""
    if not isinstance(storage, Storage):
        raise PickleRefused("a tensor in it has no storage")
    made = _view(storage.elements, offset, size, stride, bool(rest[:1] and rest[0] is True))
    return _with_metadata(made, rest[2:3])


def _tensor_v3(
    _: Reading, storage: Any, offset: Any, size: Any, stride: Any, grad: Any, hooks: Any, dtype: Any, *rest: Any
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


def _with_state(made: Tensor, state: Any) -> Tensor:
    """A tensor with the attributes that a program gave it; what its class says of tensors is not replaced."""
    if isinstance(state, dict):
        vars(made).update((key, value) for key, value in state.items() if type(key) is str and not hasattr(made, key))
    return made


def _parameter(_: Reading, data: Any, requires_grad: Any, hooks: Any = None, state: Any = None) -> Tensor:
    return _with_state(ts.nn.Parameter(_checked_tensor(data), requires_grad=requires_grad is True), state)


def _from_type(reading: Reading, function: Any, kind: Any, arguments: Any, state: Any = None) -> Tensor:
    """``_rebuild_from_type_v2``: a subclass of Tensor, as far as it is one of ours."""
    if not isinstance(function, Call) or not isinstance(kind, Call) or type(arguments) is not tuple:
        raise PickleRefused("a tensor in it is of no known class")
    made = function.call(reading, *arguments)
    if kind.name == "torch.nn.parameter.Buffer":
        return _with_state(ts.nn.Buffer(_checked_tensor(made)), state)
    if kind.name == "torch.nn.parameter.Parameter":
        return _with_state(ts.nn.Parameter(_checked_tensor(made), requires_grad=made.requires_grad), state)
    nested = kind.name == "torch.nested._internal.nested_tensor.NestedTensor"
    if nested and isinstance(made, Tensor) and (made.is_nested or reading.outline):
        return made
    if kind.name != "torch.Tensor" or not isinstance(made, Tensor):
        raise PickleRefused("a tensor in it is of no known class")
    return _with_state(made, state)


def _meta(_: Reading, dtype: Any, size: Any, stride: Any, requires_grad: Any) -> Tensor:
    return ts.empty_strided(_whole(size), _whole(stride), dtype=dtype, device="meta").requires_grad_(
        requires_grad is True
    )


def _size(_: Reading, sizes: Any = ()) -> Any:
    return ts.Size(_whole(sizes))


def _device(_: Reading, kind: Any, index: Any = None) -> Any:
    """A device if it is here, else its name."""
    if not isinstance(kind, str) or not isinstance(index, (int, type(None))):
        raise PickleRefused("a device in it has no name")
    name = kind if index is None else f"{kind}:{index}"
    return ts.device(name) if kind in ("cpu", "meta") else name


def _ordered(reading: Reading, items: Any = ()) -> Any:
    reading.spend(len(items))
    return OrderedDict((key_of(key), value) for key, value in (items.items() if isinstance(items, dict) else items))


def _counter(reading: Reading, items: Any = ()) -> Any:
    reading.spend(len(items))
    return Counter({key_of(key): int(n) for key, n in items.items()} if items else {})


def _default(reading: Reading, factory: Any = None) -> Any:
    kinds = {"builtins.list": list, "builtins.dict": dict, "builtins.set": set, "builtins.int": int}
    if factory is not None and (not isinstance(factory, Call) or factory.name not in kinds):
        raise PickleRefused("a defaultdict in it makes something unknown")
    return defaultdict(None if factory is None else kinds[factory.name])


def _container(kind: type) -> Callable[..., Any]:
    def make(reading: Reading, items: Any = ()) -> Any:
        if not isinstance(items, (list, tuple, set, frozenset)):
            raise PickleRefused(f"a {kind.__name__} in it is made of a {type(items).__name__}")
        reading.spend(len(items))
        return kind(map(key_of, items)) if kind in (set, frozenset) else kind(items)

    return make


def _bytes(reading: Reading, text: Any = "", encoding: Any = "latin1") -> bytes:
    """``_codecs.encode(text, "latin1")``, which is how older protocols write bytes."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise PickleRefused("bytes in it are in no known encoding")
    reading.spend(len(text))
    return text.encode("latin-1")


def _bytearray(reading: Reading, content: Any = b"", *encoding: Any) -> bytearray:
    if isinstance(content, str):
        return bytearray(_bytes(reading, content, *encoding))
    if not isinstance(content, (bytes, bytearray)):
        raise PickleRefused("a bytearray in it is made of no bytes")
    reading.spend(len(content))
    return bytearray(content)


def _complex(_: Reading, real: Any = 0, imaginary: Any = 0) -> complex:
    return complex(float(real), float(imaginary))


def _number_type(_: Reading, code: Any, *rest: Any) -> Any:
    """``numpy.dtype``; its byte order follows."""
    if not isinstance(code, str):
        raise PickleRefused("a dtype of NumPy in it has no name")
    return NumberType(code)


class NumberType(OrderedDict[str, Any]):
    """The dtype of a NumPy scalar; takes state, as mappings do here."""

    def __init__(self, code: str = "") -> None:
        super().__init__()
        self.code = code
        self.big_endian = False


_FORMATS = {"f8": "<d", "f4": "<f", "f2": "<e", "b1": "<?", "i8": "<q", "i4": "<i", "i2": "<h", "i1": "<b"}
_FORMATS |= {"u8": "<Q", "u4": "<I", "u2": "<H", "u1": "<B"}


def _number(_: Reading, kind: Any, content: Any) -> Any:
    """A NumPy scalar, as a number of Python's."""
    if not isinstance(kind, NumberType) or kind.code not in _FORMATS or not isinstance(content, bytes):
        raise PickleRefused("a scalar of NumPy in it is of no known kind")
    form = _FORMATS[kind.code]
    return struct.unpack(form.replace("<", ">") if kind.big_endian else form, content)[0]


_LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")


def _layout(_: Reading, name: Any) -> Any:
    if not isinstance(name, str) or name.removeprefix("torch.") not in _LAYOUTS:
        raise PickleRefused(f"a tensor in it has the layout {name!r}")
    return getattr(ts, name.removeprefix("torch."))


def _sparse(reading: Reading, layout: Any, data: Any) -> Any:
    from tesserack.sparse._saving import rebuild_checked

    if not isinstance(layout, ts.layout) or layout is ts.strided or not isinstance(data, tuple):
        raise PickleRefused("a sparse tensor in it has no known layout")
    tensors = [part for part in data if isinstance(part, ts.Tensor)]
    reading.spend(sum(part.nbytes for part in tensors))
    if reading.outline and tensors:
        return tensors[0]
    try:
        return rebuild_checked(layout, data)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise PickleRefused(f"a sparse tensor in it is none: {error}") from None


class Hint(str):
    """What PyTorch's compiler notes beside the sizes of nested tensors; ignored."""


def _hint(_: Reading, *arguments: Any) -> Hint:
    return Hint()


def _distributed(reading: Reading, *parts: Any) -> Any:
    """A rank's part of a DTensor, and where it lies."""
    from tesserack.distributed.tensor._saving import rebuilt

    try:
        return rebuilt(*parts)
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        raise PickleRefused(f"a DTensor in it is none: {error}") from None


def _nested(reading: Reading, *parts: Any) -> Any:
    """``_rebuild_nested_tensor`` of a buffer and the places of its rows, ``_rebuild_njt`` of a dict of parts."""
    from tesserack.nested._saving import rebuild_jagged, rebuild_strided

    given = [*parts[0].values()] if len(parts) == 1 and isinstance(parts[0], dict) else parts
    tensors = [part for part in given if isinstance(part, ts.Tensor)]
    reading.spend(sum(part.nbytes for part in tensors[1:] or tensors))
    if reading.outline and tensors:
        return tensors[0]
    try:
        return rebuild_jagged(parts[0]) if len(parts) == 1 else rebuild_strided(*parts)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise PickleRefused(f"a nested tensor in it is none: {error}") from None


def quantized_name(name: str) -> Any:
    """The dtype or scheme of quantized tensors of that name in PyTorch; None if it is of none."""
    if not name.startswith(("per_", "qint", "quint")):
        return None
    from tesserack.nn.quantized.tensor import SAVED  # which few files need

    return SAVED.get(name)


def _quantized(
    reading: Reading, storage: Any, offset: Any, size: Any, stride: Any, parameters: Any, *rest: Any
) -> Tensor:
    """``_rebuild_qtensor``: of ``parameters`` (scheme, scale, zero point), and the axis where there are several."""
    from tesserack.nn.quantized.tensor import rebuilt

    if not isinstance(parameters, tuple) or len(parameters) not in (3, 4):
        raise PickleRefused("a quantized tensor in it has no scheme")
    integers = _tensor(reading, storage, offset, size, stride)
    scheme, *numbers = parameters
    try:
        return rebuilt(integers, scheme, *numbers)
    except (TypeError, ValueError, RuntimeError, IndexError, OverflowError) as error:
        raise PickleRefused(f"a quantized tensor in it is none: {error}") from None


def _class_only(_: Reading, *arguments: Any) -> Any:
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
    "torch._utils._rebuild_qtensor": _quantized,
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
    "builtins.dict": lambda reading, items=(): dict(_ordered(reading, items)),
    "builtins.int": _class_only,
    "builtins.bytearray": _bytearray,
    "builtins.bytes": lambda reading: b"",
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
    "QInt8Storage": "int8",
    "QUInt8Storage": "uint8",
    "QInt32Storage": "int32",
}


def call_named(name: str) -> Callable[..., Any]:
    """What builds tensors under a name of PyTorch's, for other unpicklers. ``PickleRefused`` for other names."""
    if name not in _CALLS:
        raise PickleRefused(f"it builds something by {name[:200]}")
    call, reading = _CALLS[name], Reading(0)
    return lambda *arguments: call(reading, *arguments)


def named(module: str, name: str) -> Any:
    """What a name in a pickle stands for; nothing is imported."""
    module, name = today(module, name)
    full = f"{module}.{name}"
    if full in _CALLS:
        return Call(full, _CALLS[full])
    if module in ("torch", "torch.storage", "torch.cuda") and name in STORAGES:
        return StorageKind(name)
    if module == "torch" and isinstance(getattr(ts, name, None), ts.dtype):
        return getattr(ts, name)
    if module == "torch" and (found := quantized_name(name)) is not None:
        return found
    raise NameRefused(
        f"it holds an object of {full[:200]}, which is not plain data; only tensors, numbers, text and containers of "
        "them are read: save a model's state_dict() instead of the model"
    )

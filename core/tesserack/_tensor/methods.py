"""Methods of Tensor that are called rarely enough to be written in Python; ``install`` hangs them on the class."""

from __future__ import annotations

from tesserack import _native
from tesserack._native import Stream, Tensor
from tesserack._tensor.copying import deep_copy_of
from tesserack._tensor.handles import HookHandle
from tesserack._tensor.subclass import as_subclass, has_no_memory, make_wrapper_subclass, no_dispatch, no_override

TYPE_CHECKING = False  # typing takes a good part of the time to import the package
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from tesserack._native import dtype

__all__ = ["install"]


def register_hook(self: Tensor, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
    """Call ``hook(grad)`` whenever this tensor's gradient is computed; what it returns, unless None, replaces it.

    Raises ``RuntimeError`` if the tensor requires no gradient.
    """
    if not callable(hook):
        raise TypeError(f"register_hook: expected a callable, got {type(hook).__name__}")
    return HookHandle(self._register_hook(hook))


def register_post_accumulate_grad_hook(self: Tensor, hook: Callable[[Tensor], None]) -> HookHandle:
    """Call ``hook(tensor)`` after the gradient of this leaf was added to ``.grad``."""
    if not callable(hook):
        raise TypeError(f"register_post_accumulate_grad_hook: expected a callable, got {type(hook).__name__}")
    return HookHandle(self._register_post_hook(hook))


# --- copies --------------------------------------------------------------------------------------------------------


def __deepcopy__(self: Tensor, memo: dict[int, Any]) -> Tensor:
    if id(self) in memo:
        return memo[id(self)]  # type: ignore[no-any-return]
    if not self.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment; "
            "use .detach().clone() for this one"
        )
    import copy

    from tesserack._tensor.pickling import slots_of

    with _native.no_grad():
        result = _copied(self, memo)
    memo[id(self)] = result
    if self.grad is not None:
        result.grad = copy.deepcopy(self.grad, memo)
    if type(self) is not Tensor or self.__dict__:
        result.__dict__.update(copy.deepcopy(self.__dict__, memo))
    for name, value in slots_of(self).items():
        setattr(result, name, copy.deepcopy(value, memo))
    return result


def _copied(self: Tensor, memo: dict[int, Any]) -> Tensor:
    """A copy of the elements, as one of its class; a class that holds them itself has to make it by ``clone``."""
    cls = type(self)
    if cls is Tensor or not (self.is_meta or has_no_memory(self)):
        return Tensor._make_subclass(cls, deep_copy_of(self.detach(), memo), self.requires_grad)
    made = self.clone()
    if type(made) is not cls:
        raise RuntimeError(
            f"__deepcopy__: expected clone() of {cls.__name__}, which has no memory of its own, to return another one, "
            f"got {type(made).__name__}; define clone() or __deepcopy__() in the class"
        )
    return made.requires_grad_() if self.requires_grad else made


def __copy__(self: Tensor) -> Tensor:
    from tesserack._tensor.pickling import slots_of

    result = Tensor._make_subclass(type(self), self.detach(), self.requires_grad)
    result.__dict__.update(self.__dict__)
    for name, value in slots_of(self).items():
        setattr(result, name, value)
    return result


def __reduce_ex__(self: Tensor, protocol: int) -> Any:
    from tesserack._tensor.pickling import reduce_tensor

    return reduce_tensor(self, protocol)


def _generator_reduce(self: Any) -> Any:
    from tesserack._tensor.pickling import reduce_generator

    return reduce_generator(self)


# --- shared memory -------------------------------------------------------------------------------------------------


def share_memory_(self: Tensor) -> Tensor:
    """Move the storage, with every view of it, to memory that other processes can share; returns the tensor.

    Sent to another process through :mod:`tesserack.multiprocessing`, it is the same memory there. ``RuntimeError`` for
    memory of a device.
    """
    from tesserack.multiprocessing._shared import share

    return share(self)


def is_shared(self: Tensor) -> bool:
    """Whether other processes can share the memory: see :meth:`share_memory_`."""
    import sys

    module = sys.modules.get("tesserack.multiprocessing._shared")
    return module is not None and module.is_shared(self)


# --- text ----------------------------------------------------------------------------------------------------------


def __format__(self: Tensor, format_spec: str) -> str:
    if self.dim() == 0 and not self.is_meta:
        return format(self.item(), format_spec)
    return object.__format__(self, format_spec)


# --- streams --------------------------------------------------------------------------------------------------------


def record_stream(self: Tensor, stream: Stream) -> None:
    """Say that another stream than the one it was made on uses this tensor: its memory is not reused before both are
    done. ``TypeError`` unless given a Stream.
    """
    if not isinstance(stream, Stream):
        raise TypeError(f"record_stream: expected a Stream, got {type(stream).__name__}")
    _native._record_stream(self, stream)


# --- classes that derive from Tensor ---------------------------------------------------------------------------------


def __torch_function__(cls: type, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    from tesserack._tensor.overrides import _default

    return _default(cls, func, types, args, kwargs)


def __init_subclass__(cls: type[Any], /, **kwargs: Any) -> None:
    """Have operators look at their arguments from now on, unless the class says that it overrides nothing.

    A class that defines ``__torch_dispatch__`` alone is asked there, and not twice.
    """
    given = getattr(cls.__dict__.get("__torch_function__", cls.__torch_function__), "__func__", None)
    if "__torch_dispatch__" in cls.__dict__ and given is __torch_function__:
        cls.__torch_function__ = no_override
    if getattr(cls, "__torch_function__", None) is not no_override:
        _native._watch_overrides()


# --- NumPy ---------------------------------------------------------------------------------------------------------


def numpy(self: Tensor, *, force: bool = False) -> Any:
    """A numpy.ndarray sharing this tensor's memory; with ``force``, a copy where sharing is impossible.

    Raises ``RuntimeError`` if it requires grad, or if its conjugation or negation is pending (see ``resolve_conj``),
    and ``TypeError`` unless its memory is the host's or for bfloat16.
    """
    if force:
        return self.detach().cpu().resolve_conj().resolve_neg()._numpy()
    return self._numpy()


def __array__(self: Tensor, dtype: Any = None, copy: bool | None = None) -> Any:
    array = self._numpy()
    if dtype is not None and array.dtype != dtype:
        return array.astype(dtype, copy=True)
    return array.copy() if copy else array


def __array_wrap__(self: Tensor, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
    if array.dtype == bool:
        return _native.from_numpy(array.astype("bool"))
    return _native.as_tensor(array)


# --- types ---------------------------------------------------------------------------------------------------------


def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The historical name of device and dtype, such as ``"tesserack.FloatTensor"`` or ``"tesserack.acme.FloatTensor"``;
    or the tensor as one of such a name, of a dtype, or of a class like ``FloatTensor`` itself.
    """
    if dtype is None:
        package, _, name = str(self.dtype).rpartition(".")
        return ".".join((package, *_legacy_place(self), _LEGACY_NAMES.get(self.dtype, name)))
    if isinstance(dtype, str):
        return self.to(*_named(dtype), non_blocking=non_blocking)
    elif isinstance(dtype, type) and isinstance(getattr(dtype, "dtype", None), _native.dtype):
        place = getattr(dtype, "device", None)  # of classes that stand for a card; the others are the cpu's
        kind: Any = dtype
        return self.to(place if isinstance(place, str) else "cpu", kind.dtype, non_blocking=non_blocking)
    elif dtype is Tensor:
        dtype = _native.get_default_dtype()
    return self.to(dtype, non_blocking=non_blocking)


_LEGACY_NAMES = {
    _native.float32: "FloatTensor",
    _native.float64: "DoubleTensor",
    _native.float16: "HalfTensor",
    _native.bfloat16: "BFloat16Tensor",
    _native.uint8: "ByteTensor",
    _native.int8: "CharTensor",
    _native.int16: "ShortTensor",
    _native.int32: "IntTensor",
    _native.int64: "LongTensor",
    _native.bool: "BoolTensor",
    _native.complex64: "ComplexFloatTensor",
    _native.complex128: "ComplexDoubleTensor",
    _native.complex32: "ComplexHalfTensor",
    **{kind: f"F{str(kind).rpartition('.f')[2]}Tensor" for kind in _native._dtypes if "float8" in str(kind)},
}


def _legacy_place(self: Tensor) -> list[str]:
    """What historical names of tensor types say of device and layout: nothing of dense ones on the cpu."""
    place = [] if self.device.type in ("cpu", "meta") else [self.device.type]
    return place if self.layout is _native.strided else [*place, "sparse"]


def _named(text: str) -> tuple[Any, ...]:
    """The dtype of a name, and before it the device of a historical one."""
    *_, place, name = f"..{text}".split(".")
    legacy = {legacy: kind for kind, legacy in _LEGACY_NAMES.items()}.get(name)
    found = legacy or getattr(_native, name, None)
    if not isinstance(found, _native.dtype):
        raise ValueError(f"type: expected the name of a dtype, got {text!r}")
    if legacy is None:
        return (found,)
    return ("cpu" if place in ("", "torch", "tesserack", "sparse") else place, found)


def new_tensor(
    self: Tensor, data: Any, *, dtype: dtype | None = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A new tensor of ``data`` with this one's dtype and device unless given."""
    kind, place = dtype or self.dtype, device if device is not None else self.device
    if isinstance(data, Tensor):
        import warnings

        warnings.warn("new_tensor: to copy a tensor, use source.detach().clone()", UserWarning, stacklevel=2)
        return data.detach().clone().to(place, kind).requires_grad_(requires_grad)
    return _native.tensor(data, dtype=kind, device=place, requires_grad=requires_grad)


def new(self: Tensor, *args: Any, size: Any = None, device: Any = None) -> Tensor:
    """A new tensor of this one's dtype and device: of sizes, not initialised, or of data. Prefer ``new_tensor``.

    Of a sparse tensor also one of ``(indices, values)`` or ``(indices, values, size)``.
    """
    place = self.device if device is None else device
    if self.layout is not _native.strided and args and not isinstance(args[0], (int, _native.Size)):
        if len(args) == 1 or not isinstance(args[0], Tensor):
            raise TypeError(f"new: expected indices and values, or sizes, of a sparse tensor, got "
                            f"{type(args[0]).__name__}; try a Size, or sparse_coo_tensor()")  # fmt: skip
        from tesserack.sparse._construct import sparse_coo_tensor

        return sparse_coo_tensor(*args, dtype=self.dtype, device=place)  # indices, values and perhaps a size
    if size is not None and not args:
        args = tuple(size)
    source: Any = args[0] if len(args) == 1 else None
    if isinstance(source, Tensor):
        if source.layout is not self.layout:
            raise TypeError(f"new: expected a tensor of layout {self.layout}, got {source.layout}; try .to_dense()")
        if source.dtype is not self.dtype:
            raise TypeError(f"new: expected a tensor of {self.dtype}, got {source.dtype}; try new_tensor, or .to()")
        return source.view_as(source)
    if hasattr(source, "_storage_numbers"):
        return _native.tensor([], dtype=self.dtype, device=place).set_(source)
    if source is not None and not isinstance(source, (int, _native.Size)):
        return _native.tensor(args[0], dtype=self.dtype, device=place)
    sizes = tuple(args[0]) if args and isinstance(args[0], _native.Size) else args or (0,)
    return self.new_empty(sizes, device=place)


# --- storage -------------------------------------------------------------------------------------------------------


def _check_storage(self: Tensor) -> None:
    if self.layout is not _native.strided:
        raise NotImplementedError("Cannot access storage of a sparse tensor; see .indices() and .values()")


def untyped_storage(self: Tensor) -> Any:
    """The storage this tensor is a view of."""
    from tesserack.storage._untyped import storage_of

    _check_storage(self)
    return storage_of(self)


def storage(self: Tensor) -> Any:
    """The storage this tensor is a view of, as numbers of its dtype."""
    from tesserack.storage import TypedStorage

    _check_storage(self)
    return TypedStorage(self.detach())


def storage_type(self: Tensor) -> Any:
    """The class of this tensor's storage, by its dtype."""
    from tesserack.storage._typed import class_for

    return class_for(self.dtype)


def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """The values in host memory that a device copies from by itself, so that ``to(device, non_blocking=True)`` only
    queues the copy. ``device`` names whose memory; the default device's, or the first in use that gives any. The
    tensor itself where it is pinned already, or no device in use gives pinned memory. ``RuntimeError`` for a tensor
    that is not on the cpu, and for a named device that gives none.

    >>> import tesserack as ts
    >>> ts.ones(2).pin_memory().tolist()
    [1.0, 1.0]
    """
    name = _pinning_name(device)
    if not name and not _native._can_pin_memory():
        return self
    pinned: Tensor = _native._pin_memory(self.detach().resolve_conj().resolve_neg().contiguous(), name)
    return pinned


def is_pinned(self: Tensor, device: Any = None) -> bool:
    """Whether ``pin_memory()`` made it: for ``device``, or for any."""
    return bool(_native._is_pinned(self, _pinning_name(device)))


def _pinning_name(device: Any) -> str:
    return "" if device is None else str(_native.device(device).type)


def __reversed__(self: Tensor) -> Tensor:
    return self if self.dim() == 0 else self.flip(0)


def refuse_gradients(op: str, *tensors: Tensor) -> None:
    """``RuntimeError`` for what a function of Python, which nothing records, would take out of its history."""
    if any(each.requires_grad for each in tensors):
        raise RuntimeError(f"{op}: expected tensors that do not require grad; try x.detach().{op}(...)")


def __repr__(self: Tensor, *, tensor_contents: str | None = None) -> str:
    """The text of the tensor; classes that hold values elsewhere give that of their contents."""
    from tesserack._tensor.printing import tensor_repr

    return tensor_repr(self, tensor_contents)


def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replace every element by ``callable(element)``, in Python; returns the tensor."""
    refuse_gradients("apply_", self)
    flat = [callable(value) for value in self.detach().reshape(-1).tolist()]
    return self.copy_(_native.tensor(flat, dtype=self.dtype, device=self.device).reshape(self.shape))


def map_(self: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replace every element by ``callable(element, element of tensor)``, in Python; returns the tensor."""
    refuse_gradients("map_", self, tensor)
    others = tensor.detach().expand(self.shape).reshape(-1).tolist()
    flat = [callable(a, b) for a, b in zip(self.detach().reshape(-1).tolist(), others, strict=True)]
    return self.copy_(_native.tensor(flat, dtype=self.dtype, device=self.device).reshape(self.shape))


def is_nonzero(self: Tensor) -> bool:
    """Whether the only element is not zero."""
    return bool(self)


def is_same_size(self: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape."""
    return self.shape == other.shape


# --- Fourier transforms and factors ---------------------------------------------------------------------------------


def stft(self: Tensor, n_fft: int, *args: Any, **kwargs: Any) -> Tensor:
    """``tesserack.stft`` of this signal."""
    from tesserack.ops import spectral as _spectral

    return _spectral.stft(self, n_fft, *args, **kwargs)


def istft(self: Tensor, n_fft: int, *args: Any, **kwargs: Any) -> Tensor:
    """``tesserack.istft`` of these spectra."""
    from tesserack.ops import spectral as _spectral

    return _spectral.istft(self, n_fft, *args, **kwargs)


def lu(self: Tensor, pivot: bool = True, get_infos: bool = False) -> Any:
    """``tesserack.lu`` of these matrices."""
    from tesserack.ops import lowrank as _lowrank

    return _lowrank.lu(self, pivot, get_infos)


def igamma(self: Tensor, other: Tensor) -> Tensor:
    """``tesserack.igamma(self, other)``."""
    from tesserack.ops import special

    return special.gammainc(self, other)


def igammac(self: Tensor, other: Tensor) -> Tensor:
    """``tesserack.igammac(self, other)``."""
    from tesserack.ops import special

    return special.gammaincc(self, other)


def mvlgamma(self: Tensor, p: int) -> Tensor:
    """``tesserack.mvlgamma(self, p)``."""
    from tesserack.ops import special

    return special.multigammaln(self, p)


def nextafter(self: Tensor, other: Tensor) -> Tensor:
    """``tesserack.nextafter(self, other)``."""
    from tesserack.ops import floats as _floats

    return _floats.nextafter(self, other)


def nextafter_(self: Tensor, other: Tensor) -> Tensor:
    """``nextafter`` in place."""
    return self.copy_(nextafter(self, other))


def frexp(self: Tensor) -> Any:
    """``tesserack.frexp(self)``."""
    from tesserack.ops import floats as _floats

    return _floats.frexp(self)


def narrow_copy(self: Tensor, dim: int, start: int, length: int) -> Tensor:
    """``narrow`` in memory of its own."""
    if self.layout is not _native.strided and not (0 <= dim < self.dim() and start >= 0):
        raise RuntimeError(f"narrow_copy: expected a dim in [0, {self.dim()}) and a start of 0 or more, as a sparse "
                           f"tensor takes, got {dim} and {start}; try narrow()")  # fmt: skip
    return self.narrow(dim, start, length).clone()


def resize_as_(self: Tensor, the_template: Tensor, memory_format: Any = None) -> Tensor:
    """``resize_`` to the shape of another tensor, and to its memory format where that is ``preserve_format``."""
    if self.layout is _native.sparse_coo and the_template.layout is _native.sparse_coo:
        return self.resize_as_sparse_(the_template)
    if memory_format is None:
        return self.resize_(the_template.shape)
    if memory_format is _native.preserve_format:
        memory_format = _format_of(the_template)
    return self.resize_(the_template.shape, memory_format=memory_format)


def _format_of(x: Tensor) -> Any:
    """The format that a tensor's elements lie in, contiguous if in none."""
    formats = {4: _native.channels_last, 5: _native.channels_last_3d}
    kind = formats.get(x.dim())
    other = kind is not None and not x.is_contiguous() and x.is_contiguous(memory_format=kind)
    return kind if other else _native.contiguous_format


def new_empty_strided(self: Tensor, size: Any, stride: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """``tesserack.empty_strided`` with this tensor's dtype and device where none is given."""
    from tesserack import empty_strided

    return empty_strided(size, stride, dtype=dtype or self.dtype, device=device or self.device)


# --- gradient nodes ------------------------------------------------------------------------------------------------


def _node_register_hook(self: Any, fn: Callable[..., Any]) -> HookHandle:
    """Call ``fn(grad_inputs, grad_outputs)`` after this node ran; its result, unless None, replaces grad_inputs."""
    return HookHandle(self._register_hook(fn))


def _node_register_prehook(self: Any, fn: Callable[..., Any]) -> HookHandle:
    """Call ``fn(grad_outputs)`` before this node runs; what it returns, unless None, replaces them."""
    return HookHandle(self._register_prehook(fn))


# --- generators ----------------------------------------------------------------------------------------------------


def _generator_get_state(self: Any) -> Tensor:
    """The state, a uint8 tensor for ``set_state``."""
    from tesserack.ops.random import _pack

    return _pack(self)


def _generator_set_state(self: Any, new_state: Tensor) -> Any:
    """Restore what ``get_state`` returned; returns the generator."""
    from tesserack.ops.random import _unpack

    return self._set_position(*_unpack(new_state))


def _generator_clone_state(self: Any) -> Any:
    """A generator of its own at the same place."""
    return type(self)(self.device)._set_position(*self._position())


def _generator_get_offset(self: Any) -> int:
    """How many numbers of 32 bits were drawn, rounded up to four."""
    return int(self._position()[1])


def _generator_set_offset(self: Any, offset: int) -> None:
    """Go on after so many numbers of 32 bits. ``ValueError`` unless a multiple of 4."""
    self._set_position(self._position()[0], offset)


def _generator_take_state(self: Any, state: Any) -> Any:
    """Go on where another generator is, as ``graphsafe_get_state`` returns it."""
    return self._set_position(*state._position())


_NAMES = (
    *("register_hook", "register_post_accumulate_grad_hook", "__deepcopy__", "__copy__", "__reduce_ex__", "__format__"),
    "__repr__",
    *("numpy", "__array__", "__array_wrap__", "new_tensor", "untyped_storage", "storage", "pin_memory", "is_pinned"),
    "storage_type",
    *("__reversed__", "apply_", "map_", "is_nonzero", "is_same_size", "record_stream"),
    *("share_memory_", "is_shared", "stft", "istft", "lu", "new", "igamma", "igammac", "mvlgamma"),
    *("nextafter", "nextafter_", "frexp", "narrow_copy", "resize_as_", "new_empty_strided"),
)


def _members() -> Iterator[tuple[str, Any]]:
    for name in _NAMES:
        yield name, globals()[name]
    yield "as_subclass", as_subclass
    yield "type", type_
    yield "name", property(lambda self: None, doc="None: tensors have no names of their own.")
    yield "__torch_function__", classmethod(__torch_function__)
    yield "__init_subclass__", classmethod(__init_subclass__)
    yield "__torch_dispatch__", staticmethod(no_dispatch)
    yield "_make_wrapper_subclass", staticmethod(make_wrapper_subclass)
    yield "__array_priority__", 1000  # above numpy.ndarray's: array + tensor gives a tensor


def install(cls: type[Tensor]) -> None:
    """Hang the methods of this module on the native classes."""
    _native._set_overrides_disabled(no_override)
    for name, member in _members():
        setattr(cls, name, member)
    _native.Node.register_hook = _node_register_hook
    _native.Node.register_prehook = _node_register_prehook
    _native._add_generator_method("get_state", _generator_get_state)
    _native._add_generator_method("set_state", _generator_set_state)
    _native._add_generator_method("__reduce__", _generator_reduce)
    for name in ("clone_state", "graphsafe_get_state"):
        _native._add_generator_method(name, _generator_clone_state)
    _native._add_generator_method("graphsafe_set_state", _generator_take_state)
    _native._add_generator_method("get_offset", _generator_get_offset)
    _native._add_generator_method("set_offset", _generator_set_offset)

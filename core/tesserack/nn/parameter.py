"""Tensors that a Module registers when they are assigned to it."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor, _native, empty
from tesserack._tensor.copying import deep_copy_of
from tesserack._tensor.overrides import DisableTorchFunctionSubclass
from tesserack._tensor.pickling import dtype_named, name_of
from tesserack._tensor.subclass import no_override
from tesserack.backends._discovery import claims

__all__ = [
    "Buffer",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "UninitializedTensorMixin",
    "is_lazy",
]


class _ParameterType(type(Tensor)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: object) -> bool:
        """Parameters, and tensors of other classes that :class:`Parameter` was given."""
        if type.__instancecheck__(cls, instance):
            return True
        return cls is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False)


class Parameter(Tensor, metaclass=_ParameterType):
    """A leaf tensor that a :class:`Module` lists among its parameters.

    Shares memory with ``data``; gradients are recorded unless ``requires_grad=False``.
    Integer data needs ``requires_grad=False``, otherwise the tensor core raises ``RuntimeError``.

    >>> import tesserack
    >>> w = Parameter(tesserack.zeros(2, 3))
    >>> tuple(w.shape), w.requires_grad, w.is_leaf
    ((2, 3), True, True)
    """

    __torch_function__ = no_override

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        if data is None:
            data = empty(0)
        elif not isinstance(data, Tensor):
            raise TypeError(
                f"Parameter: expected a Tensor, got {type(data).__name__}; wrap it with tesserack.tensor(...)"
            )
        if type(data) is Tensor or type.__instancecheck__(Parameter, data) or isinstance(data, Buffer):
            return Tensor._make_subclass(cls, data, requires_grad)
        kept = data.detach().requires_grad_(requires_grad)
        if type(kept) is not type(data):
            raise RuntimeError(
                f"Parameter: expected detach() of {type(data).__name__} to return one of its kind, got "
                f"{type(kept).__name__}; have its __torch_dispatch__ wrap what it computes"
            )
        kept._is_param = True  # type: ignore[attr-defined]
        return kept  # type: ignore[return-value]

    def __repr__(self) -> str:
        return "Parameter containing:\n" + repr(_plain(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) not in memo:
            memo[id(self)] = type(self)(deep_copy_of(self.detach(), memo), self.requires_grad)
        return memo[id(self)]  # type: ignore[no-any-return]


class Buffer(Tensor):
    """A tensor that a :class:`Module` keeps as a buffer: saved with it, moved with it, never trained.

    ``persistent=False`` leaves it out of ``state_dict``.

    >>> import tesserack
    >>> from tesserack import nn
    >>> m = nn.Module()
    >>> m.mean = nn.Buffer(tesserack.zeros(3))
    >>> [name for name, _ in m.named_buffers()]
    ['mean']
    """

    persistent: bool
    __torch_function__ = no_override

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        if data is None:
            data = empty(0)
        elif not isinstance(data, Tensor):
            raise TypeError(f"Buffer: expected a Tensor, got {type(data).__name__}; wrap it with tesserack.tensor(...)")
        buffer = Tensor._make_subclass(cls, data, data.requires_grad)
        buffer.persistent = persistent
        return buffer

    def __repr__(self) -> str:
        return repr(_plain(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Buffer:
        if id(self) not in memo:
            memo[id(self)] = type(self)(deep_copy_of(self.detach(), memo), persistent=self.persistent)
        return memo[id(self)]  # type: ignore[no-any-return]


def _plain(tensor: Tensor) -> Tensor:
    """The same values as a base Tensor, keeping the requires_grad mark that repr shows."""
    return Tensor._make_subclass(Tensor, tensor, tensor.requires_grad)


# What may be asked of a tensor that has no shape yet: where it is, and that another place or dtype be meant.
_ALLOWED = frozenset(
    ("bfloat16", "bool", "char", "copy_", "cpu", "double", "float", "get_device", "half", "int")
    + ("is_complex", "is_floating_point", "long", "requires_grad_", "short", "size", "to", "type")
)
_REFUSED = (
    *("__array__", "__getitem__", "__iter__", "__len__", "data_ptr", "dim", "item", "ndimension", "nelement", "numel"),
    *("numpy", "storage", "stride", "tolist", "untyped_storage"),
)


def _refusal(name: str) -> ValueError:
    return ValueError(
        f"Attempted to use an uninitialized parameter in {name}. This error happens when you are using a `LazyModule` "
        "or explicitly manipulating `UninitializedParameter` objects. When using LazyModules, call `forward` with a "
        "dummy batch to initialize the parameters before calling torch functions"
    )


class UninitializedTensorMixin:
    """A tensor whose shape is not known yet; :meth:`materialize` gives it memory and its usual class.

    Whatever needs its elements or shape raises ``ValueError`` until then.
    """

    cls_to_become: type[Any]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(getattr(func, "__name__", func))
        if name not in _ALLOWED and name not in claims():
            raise _refusal(name)
        with DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Take uninitialised memory of ``shape``; device and dtype are those of the placeholder if None."""
        tensor: Any = self
        device = tensor.data.device if device is None else device
        dtype = tensor.data.dtype if dtype is None else dtype
        tensor.data = empty(shape, device=device, dtype=dtype)
        tensor.__class__ = self.cls_to_become

    @property
    def shape(self) -> Any:
        """Not known yet."""
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
            "`load_state_dict` when trying to load an uninitialized parameter into an initialized module. "
            "Call `forward` to initialize the parameters before accessing their attributes."
        )

    def share_memory_(self) -> Any:
        """Refused: there is no memory yet."""
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters "
            "before calling `module.share_memory()`."
        )

    @property
    def ndim(self) -> Any:
        """Not known yet."""
        raise _refusal("ndim")

    @property
    def nbytes(self) -> Any:
        """Not known yet."""
        raise _refusal("nbytes")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        tensor: Any = self
        return (
            _placeholder,
            (type(self), tensor.requires_grad, str(tensor.device), name_of(tensor.dtype)),
            tensor.__dict__,
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            tensor: Any = self
            memo[id(self)] = type(self)(  # type: ignore[call-arg]
                requires_grad=tensor.requires_grad, device=tensor.device, dtype=tensor.dtype
            )
        return memo[id(self)]


def _refuses(name: str) -> Any:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise _refusal(name)

    refuse.__name__ = name
    return refuse


for _name in _REFUSED:
    setattr(UninitializedTensorMixin, _name, _refuses(_name))


def _placeholder(cls: Any, requires_grad: bool, device: str, dtype: str) -> Any:
    """What a pickled placeholder calls."""
    return cls(requires_grad=requires_grad, device=device, dtype=dtype_named(dtype))


class UninitializedParameter(UninitializedTensorMixin, Parameter):  # type: ignore[override, misc]
    """A parameter that a lazy module gives its shape at the first forward.

    >>> w = UninitializedParameter()
    >>> w.materialize((2, 3))
    >>> type(w).__name__, tuple(w.shape)
    ('Parameter', (2, 3))
    """

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> UninitializedParameter:
        return Tensor._make_subclass(cls, empty(0, device=device, dtype=dtype), requires_grad)


class UninitializedBuffer(UninitializedTensorMixin, Buffer):  # type: ignore[override, misc]
    """A buffer that a lazy module gives its shape at the first forward."""

    cls_to_become = Buffer

    def __new__(
        cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> UninitializedBuffer:
        buffer = Tensor._make_subclass(cls, empty(0, device=device, dtype=dtype), requires_grad)
        buffer.persistent = persistent
        return buffer


def is_lazy(param: Any) -> bool:
    """Whether ``param`` has no shape yet."""
    return isinstance(param, UninitializedTensorMixin)


for _class in (Parameter, Buffer):
    _native._add_plain_class(_class)

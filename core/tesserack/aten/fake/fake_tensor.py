"""Fake tensors: sizes, strides, dtype and device of a tensor, without memory; operators run by their rules alone."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack._tensor.subclass import make_wrapper_subclass
from tesserack.aten.fake.constants import Constants
from tesserack.aten.layers import META
from tesserack.aten.modes import TorchDispatchMode, disabled_modes, stack
from tesserack.aten.whole import by_values
from tesserack.utils._pytree import tree_leaves, tree_map

__all__ = [
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorConverter",
    "FakeTensorMode",
    "UnsupportedFakeTensorException",
]


class UnsupportedFakeTensorException(RuntimeError):
    """A tensor that has no fake form."""


class DataDependentOutputException(RuntimeError):
    """A number was asked for that follows from values, which fake tensors do not have; ``func`` is the operator."""

    def __init__(self, func: Any, message: str = "") -> None:
        super().__init__(message or str(func))
        self.func = func


class DynamicOutputShapeException(RuntimeError):
    """Sizes of a result follow from values, which fake tensors do not have; ``func`` is the operator."""

    def __init__(self, func: Any, message: str = "") -> None:
        super().__init__(message or str(func))
        self.func = func


_LIFTED = frozenset({"lift", "lift_fresh", "lift_fresh_copy"})
_NUMBERS = frozenset({"_local_scalar_dense", "item", "equal", "allclose", "is_nonzero"})


class FakeTensor(Tensor):
    """A tensor without memory; ``fake_mode`` is the mode that made it, and within which its calls run.

    Where sizes are known to vary, as in ``meta["val"]`` of an exported program, ``shape`` shows them by their names.
    """

    fake_mode: FakeTensorMode
    constant: Tensor | None = None  # the value, where the program wrote it down
    _outline: Tensor  # the same on the meta device: rules run on it
    _symbolic: tuple[Any, ...] | None = None

    @staticmethod
    def __new__(cls, fake_mode: FakeTensorMode, elem: Tensor, device: Any, constant: Any = None) -> FakeTensor:
        made: Any = make_wrapper_subclass(
            cls,
            elem.shape,
            strides=elem.stride(),
            storage_offset=elem.storage_offset(),
            dtype=elem.dtype,
            device=device,
            requires_grad=elem.requires_grad,
        )
        made.fake_mode, made._outline = fake_mode, elem
        if constant is not None:
            made.constant = constant
        return made  # type: ignore[no-any-return]

    @property
    def fake_device(self) -> ts.device:
        """The device it says it is on."""
        return self.device

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = next(x for x in _fakes((args, kwargs or {})))
        if any(mode is found.fake_mode for mode in stack()):
            return NotImplemented
        with found.fake_mode:
            return func(*args, **(kwargs or {}))

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        sizes = self._symbolic if self._symbolic is not None else tuple(super().shape)
        dtype = "" if self.dtype is ts.get_default_dtype() else f", dtype={self.dtype}"
        device = "" if self.device == ts.get_default_device() else f", device='{self.device}'"
        comma = "," if len(sizes) == 1 else ""
        return f"FakeTensor(..., size=({', '.join(map(str, sizes))}{comma}){dtype}{device})"

    @property
    def shape(self) -> Any:  # type: ignore[override]
        """The sizes; those that vary are known by name."""
        if self._symbolic is not None:
            return ts.Size(self._symbolic)
        shown = self.fake_mode.shown_sizes
        return super().shape if shown is None else shown(super().shape)

    def size(self, dim: int | None = None) -> Any:
        """The sizes, or one of them."""
        return self.shape if dim is None else self.shape[dim]

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of a 0-d tensor")
        return int(self.shape[0])

    def tolist(self) -> Any:
        """The values where they are known; else ``DataDependentOutputException``."""
        if self.constant is not None:
            return self.constant.tolist()
        if self.fake_mode.unknown is not None and self.ndim < 2:
            return [self[k].item() for k in range(len(self))] if self.ndim else self.item()
        raise DataDependentOutputException("aten._local_scalar_dense.default", "tolist: a fake tensor has no values")

    def item(self) -> Any:
        """The element where it is known; one that tells what it is compared with where someone follows that."""
        unknown = None if self.constant is not None else self.fake_mode.unknown
        found = super().item()
        return found if unknown is None else unknown.watch.watched(found)

    def _decides(self, conversion: str) -> Any:
        """A number that is Python's own from then on, so that nobody sees what it decides."""
        if self.fake_mode.unknown is None or self.constant is not None or self.numel() != 1:
            return getattr(Tensor, conversion)(self)
        raise DataDependentOutputException(
            "aten._local_scalar_dense.default", f"{conversion}: a fake tensor has no values"
        )

    def __bool__(self) -> bool:
        return bool(self._decides("__bool__"))

    def __int__(self) -> int:
        return int(self._decides("__int__"))

    def __index__(self) -> int:
        return int(self._decides("__index__"))

    def __float__(self) -> float:
        return float(self._decides("__float__"))

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UnsupportedFakeTensorException("a fake tensor has no values to be pickled")


def _fakes(tree: Any) -> Iterator[FakeTensor]:
    if isinstance(tree, FakeTensor):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            yield from _fakes(item)
    elif isinstance(tree, dict):
        yield from _fakes([*tree.values()])


class FakeTensorConverter:
    """Fake forms of tensors, one each as long as the tensor lives."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, FakeTensor]] = {}

    def from_real_tensor(self, fake_mode: FakeTensorMode, t: Tensor, **options: Any) -> FakeTensor:
        """The fake form of a tensor."""
        known = self._known.get(id(t))
        if known is not None and known[0]() is t:
            return known[1]
        if t.layout is not ts.strided:
            raise UnsupportedFakeTensorException(f"fake tensors: expected a strided tensor, got {t.layout}")
        made = fake_mode._without_memory(t)
        key = id(t)
        self._known[key] = weakref.ref(t, lambda _: self._known.pop(key, None)), made
        return made

    def from_meta_and_device(self, fake_mode: FakeTensorMode, t: Tensor, device: Any, **options: Any) -> FakeTensor:
        """An outline on the meta device as a fake tensor on another."""
        if t.device.type != "meta":
            raise RuntimeError(f"fake tensors: expected a tensor on the meta device, got one on {t.device}")
        known = self._known.get(id(t))
        if known is not None and known[0]() is t and known[1].device == ts.device(device):
            return known[1]
        with disabled_modes():
            made = FakeTensor(fake_mode, t, device)
        key = id(t)
        self._known[key] = weakref.ref(t, lambda _: self._known.pop(key, None)), made
        return made

    def __call__(self, fake_mode: FakeTensorMode, t: Tensor, device: Any = None, **options: Any) -> FakeTensor:
        """The fake form of a tensor; with a device, of an outline on the meta device."""
        if device is None:
            return self.from_real_tensor(fake_mode, t, **options)
        return self.from_meta_and_device(fake_mode, t, device, **options)


class FakeTensorMode(TorchDispatchMode):
    """As a context: operators give fake tensors, on the device that the real call would give them on.

    >>> import tesserack as ts
    >>> with FakeTensorMode():
    ...     x = ts.zeros(2, 3)
    ...     y = (x @ ts.rand(3, 4)).relu()
    >>> y
    FakeTensor(..., size=(2, 4))

    Args:
        allow_non_fake_inputs: whether operators may be given real tensors too, whose fake forms are then taken.
        shape_env: kept for who asks; sizes here are plain numbers.
    """

    def __init__(
        self,
        *,
        allow_fallback_kernels: bool = True,
        allow_non_fake_inputs: bool = True,
        shape_env: Any = None,
        static_shapes: bool | None = None,
        export: bool = False,
    ) -> None:
        super().__init__()
        self.allow_non_fake_inputs = allow_non_fake_inputs
        self.allow_fallback_kernels, self.shape_env, self.export = allow_fallback_kernels, shape_env, export
        self.static_shapes = shape_env is None if static_shapes is None else static_shapes
        self.fake_tensor_converter = FakeTensorConverter()
        self.constants = Constants()
        self.whole = by_values()
        self.unknown: Any = None  # what takes numbers for what follows from values
        self.shown_sizes: Any = None  # what sizes are shown as, for who follows what is done with them

    @classmethod
    def is_infra_mode(cls) -> bool:
        """True: it is part of the framework."""
        return True

    def from_tensor(self, tensor: Tensor, **options: Any) -> FakeTensor:
        """The fake form of a tensor; a fake one as it is."""
        if isinstance(tensor, FakeTensor):
            return tensor
        return self.fake_tensor_converter.from_real_tensor(self, tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name in _LIFTED and not isinstance(args[0], FakeTensor):
            return self.constants.keep(self._without_memory(args[0]), args[0].detach().clone())
        real = self.constants.computed(func, args, kwargs)
        if real is not None and name in _NUMBERS:
            return real
        if real is None:
            self.constants.written(func, args, kwargs)
        fake = self._outlined(func, args, kwargs)
        for made, known in zip(tree_leaves(fake), tree_leaves(real), strict=True) if real is not None else ():
            if isinstance(made, FakeTensor) and made.constant is None:
                self.constants.keep(made, known)
        return fake

    def _without_memory(self, real: Tensor) -> FakeTensor:
        with disabled_modes():
            outline = ts.empty_strided(tuple(real.shape), real.stride(), dtype=real.dtype, device="meta")
            made = FakeTensor(self, outline, real.device)
            return made.requires_grad_() if real.requires_grad else made

    def _outlined(self, func: Any, args: Any, kwargs: Any) -> Any:
        operands: list[FakeTensor] = []
        known: dict[int, FakeTensor] = {}

        def outline(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            if not isinstance(x, FakeTensor):
                if not self.allow_non_fake_inputs:
                    raise RuntimeError(
                        f"{func}: Please convert all Tensors to FakeTensors first or instantiate FakeTensorMode with "
                        f"'allow_non_fake_inputs'; got a real tensor of shape {tuple(x.shape)}"
                    )
                x = self.from_tensor(x)
            operands.append(x)
            known[id(x._outline)] = x
            return x._outline

        args, kwargs = tree_map(outline, (tuple(args), dict(kwargs or {})))
        device = kwargs.get("device")
        if device is None and not operands and any(a.name == "device" for a in func._schema.arguments):
            device = ts.get_default_device()
        if device is not None:
            kwargs["device"] = "meta"
        result = self._run(func, args, kwargs)
        where = ts.device(device) if device is not None else _common(operands)

        def fake(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            return known[id(x)] if id(x) in known else FakeTensor(self, x, where)

        return tree_map(fake, result)

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = func.overloadpacket.__name__
        unknown = self.unknown
        if name in _NUMBERS:
            if unknown is not None and name == "_local_scalar_dense" and unknown.takes(args[0].dtype):
                return unknown.number(args[0].dtype)
            raise DataDependentOutputException(
                func, f"{func}: a number was asked for that follows from the values of a tensor, which fake tensors do "
                "not have"
            )  # fmt: skip
        try:
            with disabled_modes():
                return META.get(name, func)(*args, **kwargs)
        except NotImplementedError as error:
            if "sizes of the result follow from values" not in str(error):
                raise
            if unknown is not None and unknown.knows(name):
                with disabled_modes():
                    return unknown.outline(name, args, kwargs)
            raise DynamicOutputShapeException(func, f"{func}: {error}") from error
        except RuntimeError as error:
            if "cannot be called on meta tensors" not in str(error):
                raise
            raise DataDependentOutputException(func, f"{func}: {error}") from error


def _common(operands: list[FakeTensor]) -> ts.device:
    """The device of a result: the operands', of which those without dims give way."""
    found = next((x for x in operands if x.ndim), operands[0] if operands else None)
    return found.device if found is not None else ts.get_default_device()

"""Parameters computed from others: constraints such as symmetry or norm, put on a module from outside."""

from __future__ import annotations

import contextlib
import copy
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nn.modules.container import ModuleDict, ModuleList
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import Parameter

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]

_cache_depth = 0
_cache: dict[tuple[int, str], Tensor] = {}


@contextlib.contextmanager
def cached() -> Iterator[None]:
    """Within the block every parametrized tensor is computed once, at its first use.

    >>> from tesserack import nn
    >>> with nn.utils.parametrize.cached():
    ...     pass
    """
    global _cache_depth
    _cache_depth += 1
    try:
        yield
    finally:
        _cache_depth -= 1
        if not _cache_depth:
            _cache.clear()


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, and what it is computed from: ``original``, or ``original0``,
    ``original1``...

    Made by :func:`register_parametrization`. Calling it computes the tensor.
    """

    original: Tensor

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        value: Any = original
        with ts.no_grad():
            for module in reversed(list(self)):
                value = _inverted(module, value)
        if not isinstance(value, (Tensor, Sequence)):
            raise ValueError(
                f"'right_inverse' must return a Tensor or a Sequence of tensors, got {type(value).__name__}"
            )
        self.is_tensor = isinstance(value, Tensor)
        self.ntensors = 1 if isinstance(value, Tensor) else len(value)
        if isinstance(value, Tensor):
            _check_alike(original, value, unsafe, "right_inverse")
            with ts.no_grad():
                if value is not original:
                    original.data = value.detach().data
            _register(self, "original", original)
        else:
            for k, part in enumerate(value):
                if not isinstance(part, Tensor):
                    raise ValueError(
                        "'right_inverse' must return a Tensor or a Sequence of tensors, got a "
                        f"{type(part).__name__} at {k}"
                    )
                kept = part.detach()
                if isinstance(original, Parameter):
                    kept = Parameter(kept, original.requires_grad and kept.is_floating_point())
                _register(self, f"original{k}", kept)
        if not unsafe:
            _check_alike(original, self(), False, "forward")

    def right_inverse(self, value: Tensor) -> None:
        """Set the originals so that the tensor becomes ``value``, where the parametrizations can be inverted."""
        with ts.no_grad():
            inverse: Any = value
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                inverse = module.right_inverse(inverse)
            parts = [inverse] if self.is_tensor else list(inverse)
            if not self.is_tensor and len(parts) != self.ntensors:
                raise ValueError(f"'right_inverse' must return {self.ntensors} tensors, got {len(parts)}")
            for k, part in enumerate(parts):
                name = "original" if self.is_tensor else f"original{k}"
                held = getattr(self, name)
                _check_alike(held, part, False, "right_inverse")
                held.data = part.detach().data if part is not held else held.data

    def forward(self) -> Tensor:
        originals = [self.original] if self.is_tensor else [getattr(self, f"original{k}") for k in range(self.ntensors)]
        modules = iter(self)
        value = next(modules)(*originals)
        for module in modules:
            value = module(value)
        return value  # type: ignore[no-any-return]


def _inverted(module: Module, value: Any) -> Any:
    if not hasattr(module, "right_inverse"):
        return value
    try:
        return module.right_inverse(value)
    except NotImplementedError:
        return value


def _check_alike(expected: Tensor, value: Any, unsafe: bool, what: str) -> None:
    if unsafe:
        return
    if not isinstance(value, Tensor):
        raise ValueError(f"A parametrization's {what} must return a tensor, got {type(value).__name__}")
    if value.dtype != expected.dtype:
        raise ValueError(
            "Registering a parametrization may not change the dtype of the tensor, unless the `unsafe` flag is enabled"
            f": {what} gives {value.dtype} for {expected.dtype}"
        )
    if value.shape != expected.shape:
        raise ValueError(
            "Registering a parametrization may not change the shape of the tensor, unless the `unsafe` flag is enabled"
            f": {what} gives {tuple(value.shape)} for {tuple(expected.shape)}"
        )


def _register(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Have ``module.<tensor_name>`` computed as ``parametrization(original)`` from now on; returns the module.

    The original tensor is ``module.parametrizations.<tensor_name>.original``. Several parametrizations of one tensor
    are
    applied one after the other. ``right_inverse`` of a parametrization lets the tensor be assigned. ``unsafe`` allows
    another shape or dtype than the tensor had. Raises ``ValueError`` if there is no such parameter or buffer.

    >>> import tesserack as ts
    >>> from tesserack import nn
    >>> class Symmetric(nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).mT
    >>> layer = register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
    >>> bool((layer.weight == layer.weight.mT).all())
    True
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        known: Any = module.parametrizations[tensor_name]
        if not unsafe:
            before = getattr(module, tensor_name)
            after = parametrization(before)
            _check_alike(before, after, False, "forward")
            if hasattr(parametrization, "right_inverse"):
                with contextlib.suppress(NotImplementedError):
                    _check_alike(before, parametrization.right_inverse(after), False, "right_inverse")
        known.append(parametrization)
        known.unsafe |= unsafe
    elif tensor_name in module._parameters or tensor_name in module._buffers:
        original = getattr(module, tensor_name)
        held = ParametrizationList([parametrization], original, unsafe)
        table = module._parameters if tensor_name in module._parameters else module._buffers
        del table[tensor_name]
        if not is_parametrized(module):
            _become_parametrized(module)
            module.parametrizations = ModuleDict()
        _add_property(module, tensor_name)
        module.parametrizations[tensor_name] = held
    else:
        raise ValueError(f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
                         f"'{tensor_name}'")  # fmt: skip
    return module


def _become_parametrized(module: Module) -> None:
    """Give the module a class of its own, so that properties can be put on it."""
    plain: Any = type(module)
    bases: tuple[type, ...] = (plain,)

    def getstate(self: Any) -> Any:
        raise RuntimeError(
            "Serialization of parametrized modules is only supported through state_dict(); "
            "or remove the parametrizations first"
        )

    def deepcopy(self: Any, memo: dict[int, Any]) -> Any:
        kind: Any = type(self)
        twin = memo[id(self)] = kind.__new__(kind)
        twin.__setstate__(copy.deepcopy(dict(self.__dict__), memo))
        return twin

    members = {"__getstate__": getstate, "__deepcopy__": deepcopy, "__module__": plain.__module__}
    made: type[Any] = type(f"Parametrized{plain.__name__}", bases, members)
    module.__class__ = made


def _add_property(module: Module, name: str) -> None:
    def read(self: Any) -> Tensor:
        held = self.parametrizations[name]
        if not _cache_depth:
            return held()  # type: ignore[no-any-return]
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = held()
        return _cache[key]

    def write(self: Any, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(read, write))


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module, or this tensor of it, has parametrizations.

    >>> from tesserack import nn
    >>> is_parametrized(nn.Linear(1, 1))
    False
    """
    held = module._modules.get("parametrizations")
    if not isinstance(held, ModuleDict):
        return False
    return len(held) > 0 if tensor_name is None else tensor_name in held


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Take the parametrizations off again; the tensor keeps its computed value, or with False its original one.

    Raises ``ValueError`` if the tensor is not parametrized, or has several originals and should not keep its value.

    >>> from tesserack import nn
    >>> layer = register_parametrization(nn.Linear(1, 1), "weight", nn.ReLU())
    >>> type(remove_parametrizations(layer, "weight")).__name__
    'Linear'
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    everything: Any = module.parametrizations
    held = everything[tensor_name]
    if held.is_tensor:
        original = held.original
        if leave_parametrized:
            with ts.no_grad():
                value = getattr(module, tensor_name)
                original.data = value.detach().clone().data
    elif leave_parametrized:
        value = getattr(module, tensor_name).detach()
        trained = any(isinstance(p, Parameter) and p.requires_grad for p in held.parameters(recurse=False))
        original = Parameter(value.clone(), trained) if list(held.parameters(recurse=False)) else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a "
            "sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del everything[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class the module had before it was parametrized.

    >>> from tesserack import nn
    >>> type_before_parametrizations(register_parametrization(nn.Linear(1, 1), "weight", nn.ReLU())).__name__
    'Linear'
    """
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Put the parametrizations of ``from_module``, or of one tensor of it, on ``to_module``, with the originals.

    >>> from tesserack import nn
    >>> a, b = register_parametrization(nn.Linear(1, 1), "weight", nn.ReLU()), nn.Linear(1, 1)
    >>> is_parametrized(transfer_parametrizations_and_params(a, b), "weight")
    True
    """
    if not is_parametrized(from_module):
        return to_module
    everything: Any = from_module.parametrizations
    if tensor_name is not None and tensor_name not in everything:
        raise ValueError(f"{from_module} has no parametrization on {tensor_name}")
    for name in list(everything) if tensor_name is None else [tensor_name]:
        held = everything[name]
        if not is_parametrized(to_module, name) and not hasattr(to_module, name):
            _register(to_module, name, copy.deepcopy(held.original if held.is_tensor else held.original0))
        for parametrization in held:
            register_parametrization(to_module, name, parametrization, unsafe=held.unsafe)
        target: Any = to_module.parametrizations[name]
        for own in OrderedDict(held._parameters) | OrderedDict(held._buffers):
            setattr(target, own, getattr(held, own))
    return to_module

"""Pruning: parameters with a mask, which keeps some of their elements at zero."""

from __future__ import annotations

import abc
import numbers
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nn.modules.module import Module

__all__ = [
    "BasePruningMethod",
    "CustomFromMask",
    "Identity",
    "L1Unstructured",
    "LnStructured",
    "PruningContainer",
    "RandomStructured",
    "RandomUnstructured",
    "custom_from_mask",
    "global_unstructured",
    "identity",
    "is_pruned",
    "l1_unstructured",
    "ln_structured",
    "random_structured",
    "random_unstructured",
    "remove",
]


class BasePruningMethod(abc.ABC):
    """A way to choose masks, and the hook that applies one before each forward.

    The parameter ``<name>`` becomes the parameter ``<name>_orig`` and the buffer ``<name>_mask``. A subclass defines
    ``compute_mask(t, default_mask)`` and ``PRUNING_TYPE``: "unstructured", "structured" or "global".
    """

    _tensor_name: str
    PRUNING_TYPE: str = "unstructured"

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @property
    def computes(self) -> str:
        """The name of the tensor that it sets before each forward."""
        return str(self._tensor_name)

    @abc.abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask for ``t`` (by which to choose), at most ``default_mask``."""

    def apply_mask(self, module: Module) -> Tensor:
        """The parameter times its mask."""
        mask = getattr(module, self._tensor_name + "_mask")
        original = getattr(module, self._tensor_name + "_orig")
        return mask.to(dtype=original.dtype) * original  # type: ignore[no-any-return]

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> BasePruningMethod:
        """Prune ``module.<name>``, in addition to what is pruned already; ``importance_scores`` choose in its place."""
        known = [hook for hook in module._forward_pre_hooks.values() if _prunes(hook, name)]
        if len(known) > 1:
            raise AssertionError(f"Avoid adding multiple pruning hooks to the same tensor {name} of module {module}")
        _drop_hooks(module, name)
        method: Any = cls(*args, **kwargs)
        method._tensor_name = name
        parameter = getattr(module, name)
        if importance_scores is None:
            scores = parameter
        elif importance_scores.shape != parameter.shape:
            raise AssertionError(f"importance_scores should have the same shape as parameter {name} of {module}")
        else:
            scores = importance_scores
        if known:
            before = known[0]
            default = getattr(module, name + "_mask").detach().clone()
            container = before if isinstance(before, PruningContainer) else PruningContainer(before)
            container.add_pruning_method(method)
            method = container
        else:
            default = ts.ones_like(parameter.detach())
        if not known and not isinstance(method, PruningContainer):
            parameter = module._parameters[name]
            del module._parameters[name]
            module.register_parameter(name + "_orig", parameter)
        try:
            mask = method.compute_mask(scores.detach(), default_mask=default)
            module.register_buffer(name + "_mask", mask)
            setattr(module, name, method.apply_mask(module))
            module.register_forward_pre_hook(method)
        except Exception:
            if not known:
                parameter = module._parameters.pop(name + "_orig")
                module.__dict__.pop(name, None)
                module.register_parameter(name, parameter)
            else:
                module.register_forward_pre_hook(known[0])
            raise
        return method  # type: ignore[no-any-return]

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """``t`` with the mask applied, outside of any module."""
        if importance_scores is not None and importance_scores.shape != t.shape:
            raise AssertionError("importance_scores should have the same shape as tensor t")
        scores = t if importance_scores is None else importance_scores
        default = ts.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=default)

    def remove(self, module: Module) -> None:
        """Make the masked values the parameter again, for good."""
        name = self._tensor_name
        weight = self.apply_mask(module)
        original = module._parameters[name + "_orig"]
        original.data = weight.detach().data
        module.__dict__.pop(name, None)
        del module._parameters[name + "_orig"]
        del module._buffers[name + "_mask"]
        setattr(module, name, original)


def _prunes(hook: Any, name: str) -> bool:
    return isinstance(hook, BasePruningMethod) and hook._tensor_name == name


def _drop_hooks(module: Module, name: str) -> None:
    for key in [key for key, hook in module._forward_pre_hooks.items() if _prunes(hook, name)]:
        del module._forward_pre_hooks[key]


class PruningContainer(BasePruningMethod):
    """Several prunings of one parameter, each on what those before it left."""

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        if len(args) == 1 and not isinstance(args[0], Iterable):
            self._tensor_name = args[0]._tensor_name
        methods = args[0] if len(args) == 1 and isinstance(args[0], Iterable) else args
        for method in methods:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod | None) -> None:
        """Add one more; ``TypeError`` unless it is a method, ``ValueError`` for another parameter."""
        if method is None:
            return
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if getattr(self, "_tensor_name", method._tensor_name) != method._tensor_name:
            raise ValueError(
                f"Can only add pruning methods acting on the parameter named '{self._tensor_name}' to this container, "
                f"found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        method = self._pruning_methods[-1]
        mask = default_mask.to(dtype=t.dtype)
        if method.PRUNING_TYPE == "unstructured":
            chosen: Any = mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = method.dim % t.ndim  # type: ignore[attr-defined]
            alive = mask.flatten() if t.ndim == 1 else mask.movedim(dim, 0).flatten(1).sum(1)
            chosen = (slice(None),) * dim + (alive != 0,)
        elif method.PRUNING_TYPE == "global":
            chosen = (slice(None),) * t.ndim
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        part = method.compute_mask(t[chosen], default_mask=mask[chosen])
        mask = mask.clone()
        mask[chosen] = part.to(dtype=mask.dtype)
        return mask


class Identity(BasePruningMethod):
    """Prunes nothing, but makes the mask and the hook."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


def _validate_pruning_amount_init(amount: Any) -> None:
    """``TypeError`` unless it is a number, ``ValueError`` unless a count or a fraction."""
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if (isinstance(amount, numbers.Integral) and amount < 0) or (
        not isinstance(amount, numbers.Integral) and not 0 <= float(amount) <= 1
    ):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _validate_pruning_amount(amount: Any, tensor_size: int) -> None:
    """``ValueError`` for a count of more than there are."""
    if isinstance(amount, numbers.Integral) and int(amount) > tensor_size:
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={tensor_size}")


def _compute_nparams_toprune(amount: Any, tensor_size: int) -> int:
    """How many of ``tensor_size`` to prune."""
    return int(amount) if isinstance(amount, numbers.Integral) else round(float(amount) * tensor_size)


def _count(amount: Any, size: int) -> int:
    """How many of ``size`` to prune; ``ValueError`` for more than there are."""
    count = _compute_nparams_toprune(amount, size)
    _validate_pruning_amount(count, size)
    return count


class _Amount(BasePruningMethod):
    """Keeps how much to prune: a count, or a fraction."""

    def __init__(self, amount: Any) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount


class RandomUnstructured(_Amount):
    """Prunes elements at random."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _count(self.amount, t.numel())
        mask = default_mask.clone()
        if count:
            chosen = ts.rand_like(t).reshape(-1).topk(count)[1]
            mask = mask.reshape(-1).index_fill(0, chosen, 0).reshape(mask.shape)
        return mask


class L1Unstructured(_Amount):
    """Prunes the elements of least absolute value."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _count(self.amount, t.numel())
        mask = default_mask.clone()
        if count:
            chosen = t.abs().reshape(-1).topk(count, largest=False)[1]
            mask = mask.reshape(-1).index_fill(0, chosen, 0).reshape(mask.shape)
        return mask


class _Structured(_Amount):
    """Prunes the slices along ``dim`` of the lowest scores."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    @abc.abstractmethod
    def _scores(self, t: Tensor) -> Tensor:
        """A number for each slice."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if t.ndim < 2:
            raise ValueError(f"Structured pruning can only be applied to multidimensional tensors, got {t.ndim} dims")
        if not -t.ndim <= self.dim < t.ndim:
            raise IndexError(f"Invalid index {self.dim} for tensor of size {tuple(t.shape)}")
        count = _count(self.amount, t.shape[self.dim])
        if not count:
            return default_mask
        chosen = self._scores(t).topk(count, largest=False)[1]
        return default_mask.index_fill(self.dim, chosen, 0)


class RandomStructured(_Structured):
    """Prunes whole slices along ``dim`` at random."""

    def _scores(self, t: Tensor) -> Tensor:
        return ts.rand(t.shape[self.dim], device=t.device)


class LnStructured(_Structured):
    """Prunes the slices along ``dim`` of the least norm of order ``n``."""

    def __init__(self, amount: Any, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t: Tensor) -> Tensor:
        rows = t.movedim(self.dim, 0)
        return rows.norm(self.n, dim=tuple(range(1, t.ndim)))


class CustomFromMask(BasePruningMethod):
    """Prunes where the mask given is zero."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if default_mask.shape != self.mask.shape:
            raise AssertionError(f"expected a mask of shape {tuple(default_mask.shape)}, got {tuple(self.mask.shape)}")
        return default_mask * self.mask.to(dtype=default_mask.dtype, device=default_mask.device)


# --- as functions --------------------------------------------------------------------------------------------------


def identity(module: Module, name: str) -> Module:
    """Give ``module.<name>`` a mask of ones."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: Any) -> Module:
    """Prune ``amount`` elements (a count, or a fraction) of ``module.<name>`` at random.

    >>> from tesserack import nn
    >>> layer = random_unstructured(nn.Linear(2, 3), "weight", amount=2)
    >>> layer.weight_mask.sum().item()
    4.0
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: Any, importance_scores: Tensor | None = None) -> Module:
    """Prune the ``amount`` elements of least absolute value, or of least ``importance_scores``.

    >>> import tesserack as ts
    >>> from tesserack import nn
    >>> layer = l1_unstructured(nn.Linear(4, 1), "weight", 0.5, ts.tensor([[4.0, 1.0, 3.0, 2.0]]))
    >>> layer.weight_mask.tolist()
    [[1.0, 0.0, 1.0, 0.0]]
    """
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: Any, dim: int) -> Module:
    """Prune ``amount`` slices along ``dim`` at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Module, name: str, amount: Any, n: Any, dim: int, importance_scores: Tensor | None = None
) -> Module:
    """Prune the ``amount`` slices along ``dim`` of least norm of order ``n``."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: Callable[..., Any],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prune among the elements of all ``parameters``, pairs of a module and a name, taken together.

    >>> from tesserack import nn
    >>> a, b = nn.Linear(2, 1), nn.Linear(2, 1)
    >>> global_unstructured([(a, "weight"), (b, "weight")], L1Unstructured, amount=3)
    >>> (a.weight_mask.sum() + b.weight_mask.sum()).item()
    1.0
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    listed = list(parameters)
    given = importance_scores or {}
    if not isinstance(given, dict):
        raise TypeError("global_unstructured(): importance_scores is not a dict")
    scores = [given.get((module, name), getattr(module, name)).detach().reshape(-1) for module, name in listed]
    masks = [
        getattr(module, name + "_mask", ts.ones_like(getattr(module, name))).reshape(-1) for module, name in listed
    ]
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. '
            f"Found method {pruning_method} of type {method.PRUNING_TYPE}"
        )
    container = PruningContainer()
    container._tensor_name = "temp"
    container.add_pruning_method(method)
    final = container.compute_mask(ts.cat(scores), ts.cat([mask.detach() for mask in masks]))
    start = 0
    for module, name in listed:
        parameter = getattr(module, name)
        count = parameter.numel()
        custom_from_mask(module, name, mask=final[start : start + count].reshape(parameter.shape))
        start += count


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prune ``module.<name>`` where ``mask`` is zero."""
    CustomFromMask.apply(module, name, mask)
    return module


def remove(module: Module, name: str) -> Module:
    """Make the pruning of ``module.<name>`` permanent: hook and mask go. ``ValueError`` if there is none."""
    for key, hook in module._forward_pre_hooks.items():
        if _prunes(hook, name):
            hook.remove(module)  # type: ignore[attr-defined]
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module: Module) -> bool:
    """Whether a parameter of the module, or of one below it, is pruned.

    >>> from tesserack import nn
    >>> is_pruned(nn.Linear(1, 1))
    False
    """
    return any(
        isinstance(hook, BasePruningMethod) for below in module.modules() for hook in below._forward_pre_hooks.values()
    )

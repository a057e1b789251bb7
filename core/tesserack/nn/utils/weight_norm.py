"""Weight normalisation by a hook; :func:`tesserack.nn.utils.parametrizations.weight_norm` is the newer form."""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

from tesserack import Tensor
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import Parameter
from tesserack.nn.utils.parametrizations import norm_except_dim

__all__ = ["WeightNorm", "remove_weight_norm", "weight_norm"]

M = TypeVar("M", bound=Module)


class WeightNorm:
    """The hook: computes the weight before each forward."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = -1 if dim is None else dim

    @property
    def computes(self) -> str:
        """The name of the tensor that it sets before each forward."""
        return self.name

    def compute_weight(self, module: Module) -> Tensor:
        """Direction times norm."""
        g, v = getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        return v * (g / norm_except_dim(v, self.dim))  # type: ignore[no-any-return]

    @staticmethod
    def apply(module: Module, name: str, dim: int | None) -> WeightNorm:
        """Put the hook on the module."""
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm) and hook.name == name:
                raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
        fn = WeightNorm(name, dim)
        weight = getattr(module, name)
        del module._parameters[name]
        module.register_parameter(name + "_g", Parameter(norm_except_dim(weight.detach(), fn.dim)))
        module.register_parameter(name + "_v", Parameter(weight.detach()))
        setattr(module, name, fn.compute_weight(module))
        module.register_forward_pre_hook(fn)
        return fn

    def remove(self, module: Module) -> None:
        """Make the computed weight a parameter again."""
        weight = self.compute_weight(module).detach()
        delattr(module, self.name)
        del module._parameters[self.name + "_g"]
        del module._parameters[self.name + "_v"]
        setattr(module, self.name, Parameter(weight))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Replace a parameter by its norm ``<name>_g`` and direction ``<name>_v`` (arXiv:1602.07868).

    ``dim`` keeps one norm for each of its indices; None takes one of all. Warns that the newer form is there.

    >>> import warnings
    >>> from tesserack import nn
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     layer = weight_norm(nn.Linear(2, 3))
    >>> sorted(layer.state_dict())
    ['bias', 'weight_g', 'weight_v']
    """
    warnings.warn(
        "nn.utils.weight_norm is deprecated in favor of nn.utils.parametrizations.weight_norm.",
        FutureWarning,
        stacklevel=2,
    )
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Undo :func:`weight_norm`; ``ValueError`` if it was not applied."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}")

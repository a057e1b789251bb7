"""Spectral normalisation by a hook; :func:`tesserack.nn.utils.parametrizations.spectral_norm` is the newer form."""

from __future__ import annotations

from typing import Any, TypeVar

import tesserack as ts
from tesserack import Tensor
from tesserack.nn import functional as F
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import Parameter

__all__ = ["SpectralNorm", "remove_spectral_norm", "spectral_norm"]

M = TypeVar("M", bound=Module)


class SpectralNorm:
    """The hook: divides the weight by its largest singular value before each forward."""

    _version = 1

    def __init__(self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.name = name
        self.dim = dim
        self.n_power_iterations = n_power_iterations
        self.eps = eps

    @property
    def computes(self) -> str:
        """The name of the tensor that it sets before each forward."""
        return self.name

    def reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        """The dim of the outputs first, the others flattened."""
        return weight.movedim(self.dim, 0).flatten(1)

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        """The normalised weight; power iterations update the module's two vectors."""
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with ts.no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(ts.mv(matrix.mT, u), dim=0, eps=self.eps))
                    u.copy_(F.normalize(ts.mv(matrix, v), dim=0, eps=self.eps))
            u, v = u.clone(), v.clone()
        return weight / u.dot(ts.mv(matrix, v))  # type: ignore[no-any-return]

    def remove(self, module: Module) -> None:
        """Make the computed weight a parameter again."""
        with ts.no_grad():
            weight = self.compute_weight(module, False)
        delattr(module, self.name)
        for suffix in ("_u", "_v", "_orig"):
            delattr(module, self.name + suffix)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))

    @staticmethod
    def apply(module: Module, name: str, n_power_iterations: int, dim: int, eps: float) -> SpectralNorm:
        """Put the hook on the module."""
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, SpectralNorm) and hook.name == name:
                raise RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
        fn = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        rows, columns = fn.reshape_weight_to_matrix(weight.detach()).shape
        u = F.normalize(weight.detach().new_empty(rows).normal_(), dim=0, eps=eps)
        v = F.normalize(weight.detach().new_empty(columns).normal_(), dim=0, eps=eps)
        del module._parameters[name]
        module.register_parameter(name + "_orig", weight)
        setattr(module, name, weight.detach())
        module.register_buffer(name + "_u", u)
        module.register_buffer(name + "_v", v)
        module.register_forward_pre_hook(fn)
        module._register_state_dict_hook(_Versioned(fn))
        module._register_load_state_dict_pre_hook(_Older(fn))
        return fn


class _Versioned:
    """Writes the form of the saved state beside it, as PyTorch does."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(self, module: Module, state_dict: Any, prefix: str, local_metadata: dict[str, Any]) -> None:
        versions = local_metadata.setdefault("spectral_norm", {})
        versions[self.fn.name + ".version"] = self.fn._version


class _Older:
    """Makes what a state dict of before version 1 lacks: the vector on the right, of the weight and that on the left.

    The weight that was saved is the original one over its singular value; the vector solves the least squares problem
    that its iteration would.
    """

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: list[str], *rest: Any
    ) -> None:
        key = prefix + self.fn.name
        version = local_metadata.get("spectral_norm", {}).get(self.fn.name + ".version")
        complete = key not in state_dict and all(key + suffix in state_dict for suffix in ("_orig", "_u", "_v"))
        if (version is not None and version >= 1) or (version is None and complete):
            return
        missing = [key + suffix for suffix in ("_orig", "", "_u") if key + suffix not in state_dict]
        if missing:
            missing_keys += missing if strict else []
            return
        with ts.no_grad():
            original, u = state_dict[key + "_orig"], state_dict[key + "_u"]
            sigma = (original / state_dict.pop(key)).mean()
            matrix = self.fn.reshape_weight_to_matrix(original)
            v = ts.linalg.pinv(matrix.mT @ matrix) @ (matrix.mT @ u)
            state_dict[key + "_v"] = v * (sigma / u.dot(matrix @ v))


def spectral_norm(
    module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> M:
    """Divide a parameter by its largest singular value before each forward (Miyato et al., arXiv:1802.05957).

    The parameter is then ``<name>_orig``; ``dim`` is that of the outputs, 0 if None, and 1 of transposed convolutions.

    >>> from tesserack import nn
    >>> sorted(spectral_norm(nn.Linear(2, 3)).state_dict())
    ['bias', 'weight_orig', 'weight_u', 'weight_v']
    """
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    SpectralNorm.apply(module, name, n_power_iterations, dim, eps)
    return module


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Undo :func:`spectral_norm`; ``ValueError`` if it was not applied."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, SpectralNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            break
    else:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    for key, hook in module._state_dict_hooks.items():
        if isinstance(hook, _Versioned) and hook.fn.name == name:
            del module._state_dict_hooks[key]
            break
    return module

"""Ready-made parametrizations: orthogonal matrices, weight and spectral normalisation."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nn import functional as F
from tesserack.nn.modules.module import Module
from tesserack.nn.utils import parametrize
from tesserack.nn.utils._orthogonal import orthogonal

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def norm_except_dim(v: Tensor, dim: int) -> Tensor:
    """The 2-norm over all dims but one, which keeps its size; over all for -1, without dims."""
    if dim == -1:
        return v.norm(2)
    others = [d for d in range(v.ndim) if d != dim % v.ndim]
    return ts.linalg.vector_norm(v, 2, others, True) if others else v.abs()


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norm_except_dim(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """The tensor as its norm times a direction (Salimans and Kingma, arXiv:1602.07868), both of them trained.

    ``parametrizations.<name>.original0`` is the norm over all dims but ``dim`` (over all for None), ``original1`` the
    direction. State dicts of the older :func:`tesserack.nn.utils.weight_norm` load as well.

    >>> from tesserack import nn
    >>> layer = weight_norm(nn.Linear(2, 3))
    >>> tuple(layer.parametrizations.weight.original0.shape)
    (3, 1)
    """
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def accept_older(state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        older, newer = f"{prefix}{name}", f"{prefix}parametrizations.{name}.original"
        if f"{older}_g" in state_dict and f"{older}_v" in state_dict:
            state_dict[f"{newer}0"] = state_dict.pop(f"{older}_g")
            state_dict[f"{newer}1"] = state_dict.pop(f"{older}_v")

    module._register_load_state_dict_pre_hook(accept_older)
    return module


class _SpectralNorm(Module):
    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        if dim >= weight.ndim or dim < -weight.ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [-{weight.ndim}, {weight.ndim - 1}] but got {dim})"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.dim = dim % weight.ndim
        self.eps = eps
        self.n_power_iterations = n_power_iterations
        if weight.ndim > 1:
            matrix = self._matrix(weight.detach())
            rows, columns = matrix.shape
            self.register_buffer("_u", F.normalize(matrix.new_empty(rows).normal_(), dim=0, eps=eps))
            self.register_buffer("_v", F.normalize(matrix.new_empty(columns).normal_(), dim=0, eps=eps))
            self._iterate(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).flatten(1)

    def _iterate(self, matrix: Tensor, times: int) -> None:
        u: Any = self._u
        v: Any = self._v
        with ts.no_grad():
            for _ in range(times):
                u.copy_(F.normalize(ts.mv(matrix, v), dim=0, eps=self.eps))
                v.copy_(F.normalize(ts.mv(matrix.mH, u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()  # what the gradient sees does not change at the next call
        return weight / ts.vdot(u, ts.mv(matrix, v))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """The tensor over its largest singular value (Miyato et al., arXiv:1802.05957), estimated by power iterations.

    ``dim`` is that of the outputs, 0 if None, and 1 of transposed convolutions.

    >>> from tesserack import nn
    >>> layer = spectral_norm(nn.Linear(2, 3))
    >>> sorted(name for name, _ in layer.named_buffers())
    ['parametrizations.weight.0._u', 'parametrizations.weight.0._v']
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    made = _SpectralNorm(weight, n_power_iterations, dim, eps)
    return parametrize.register_parametrization(module, name, made)

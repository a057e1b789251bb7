"""``torch.optim.optimizer``: what optimizers written after PyTorch's own take from it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import tesserack as ts
from tesserack import Tensor
from tesserack.optim._kept_names import group_by_device_and_dtype as _group_tensors_by_device_and_dtype

__all__: list[str] = []

F = TypeVar("F", bound=Callable[..., Any])
ParamsT = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
StateDict = dict[str, Any]
DeviceDict = dict[ts.device | None, Tensor]

_params_doc = "params (iterable): parameters, pairs of names and parameters, or dicts that define groups"
_foreach_doc = "foreach (bool, optional): whether to step on lists of tensors (default: None)"
_fused_doc = "fused (bool, optional): whether to step in one kernel (default: None)"
_capturable_doc = "capturable (bool, optional): whether steps may be captured in a graph (default: False)"
_differentiable_doc = "differentiable (bool, optional): whether gradients pass through a step (default: False)"
_maximize_doc = "maximize (bool, optional): whether to maximize the objective (default: False)"


class _RequiredParameter:
    """Stands for an option without a default."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _RequiredParameter()


def _use_grad_for_differentiable(func: F) -> F:
    """A step that records gradients only if ``self.defaults["differentiable"]``."""

    @functools.wraps(func)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        with ts.enable_grad() if self.defaults.get("differentiable") else ts.no_grad():
            return func(self, *args, **kwargs)

    return step  # type: ignore[return-value]


def _disable_dynamo_if_unsupported(single_tensor_fn: Any = None) -> Callable[[F], F]:
    """The function as it is: nothing is compiled."""
    return lambda func: func


def _get_value(x: Any) -> Any:
    """A number, of a tensor too."""
    return x.item() if isinstance(x, Tensor) else x


_to_scalar = _get_value


def _stack_if_compiling(x: Any) -> Any:
    """The list as it is: nothing is compiled."""
    return x


def _view_as_real(params: list[Tensor], *state_and_grads: list[Tensor]) -> None:
    """Complex tensors in the lists become pairs of real numbers, in the same memory."""
    for i, param in enumerate(params):
        if param.is_complex():
            for tensors in (params, *state_and_grads):
                tensors[i] = ts.view_as_real(tensors[i])


def _get_scalar_dtype(is_fused: bool | None = None) -> Any:
    """The dtype of counts of steps."""
    return ts.float64 if ts.get_default_dtype() == ts.float64 and not is_fused else ts.float32


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """Types of devices whose steps may be captured."""
    return ["cuda"]


def _default_to_fused_or_foreach(
    params: list[Tensor], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Neither: an optimizer written in Python steps tensor by tensor."""
    return False, False


def _device_dtype_check_for_fused(p: Tensor, cuda_unsupported: bool = False) -> None:
    """``RuntimeError`` for what no fused step takes."""
    if not p.is_floating_point():
        raise RuntimeError(f"`fused=True` requires all the params to be floating point Tensors, got {p.dtype}")


_ = _group_tensors_by_device_and_dtype

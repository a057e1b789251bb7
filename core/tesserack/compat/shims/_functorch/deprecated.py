"""``torch._functorch.deprecated``: what ``functorch`` shows, with the warning that it has moved."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from tesserack import func as _func
from tesserack.compat.shims._functorch import make_functional as _modules

__all__ = [
    "combine_state_for_ensemble",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "make_functional",
    "make_functional_with_buffers",
    "vjp",
    "vmap",
]

F = TypeVar("F", bound=Callable[..., Any])


def _moved(function: F, place: str = "") -> F:
    name = getattr(function, "__name__", "")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(
            f"We've integrated functorch into PyTorch. functorch.{name} is deprecated; please use "
            f"{place or f'torch.func.{name}'} instead.",
            FutureWarning,
            stacklevel=2,
        )
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


vmap = _moved(_func.vmap, "torch.vmap")
grad = _moved(_func.grad)
grad_and_value = _moved(_func.grad_and_value)
vjp = _moved(_func.vjp)
jvp = _moved(_func.jvp)
jacrev = _moved(_func.jacrev)
jacfwd = _moved(_func.jacfwd)
hessian = _moved(_func.hessian)
functionalize = _moved(_func.functionalize)
make_functional = _moved(_modules.make_functional, "torch.func.functional_call")
make_functional_with_buffers = _moved(_modules.make_functional_with_buffers, "torch.func.functional_call")
combine_state_for_ensemble = _moved(_modules.combine_state_for_ensemble, "torch.func.stack_module_state")

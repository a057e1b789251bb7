"""``torch._functorch.eager_transforms``: the transforms, where packages take them from."""

from __future__ import annotations

from typing import Any

from tesserack.func import functionalize, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from tesserack.func._gradients import chosen

__all__ = ["functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "vjp"]


def _slice_argnums(args: tuple[Any, ...], argnums: int | tuple[int, ...], as_tuple: bool = True) -> Any:
    """The arguments that a transform differentiates by; the only one by itself without ``as_tuple``.

    ``RuntimeError`` for places that there are not, or that are named twice.
    """
    places, single = chosen("argnums", args, argnums)
    return args[places[0]] if single and not as_tuple else tuple(args[place] for place in places)

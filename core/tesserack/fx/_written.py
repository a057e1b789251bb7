"""The arguments of calls as graphs of PyTorch's have them."""

from __future__ import annotations

import inspect
from typing import Any

__all__ = ["as_written"]

# Of nn.functional, but without a Python function around them in PyTorch: their arguments are noted as they were given.
_BARE = frozenset(
    (
        *("bilinear", "channel_shuffle", "cosine_similarity", "gelu", "hardshrink", "linear", "logsigmoid", "one_hot"),
        *("pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle", "prelu", "scaled_dot_product_attention"),
        *("softplus", "softshrink"),
    )
)


def _of_functional(func: Any) -> bool:
    """Whether ``nn.functional`` has a function, wherever it is written."""
    if not inspect.isfunction(func):
        return False
    if func.__module__ in ("tesserack.nn.functional", "torch.nn.functional"):
        return True
    from tesserack.nn import functional

    ours = func.__module__.startswith(("tesserack.nn.", "torch.nn."))
    own = getattr(functional, func.__name__, None)  # within a trace, around it
    return ours and own is not None and inspect.unwrap(own) is inspect.unwrap(func)


def as_written(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments as graphs of PyTorch's have them: what has a default in ``nn.functional`` by name, given or not."""
    if not _of_functional(func) or func.__name__ in _BARE or func.__name__.startswith(("conv", "avg_pool")):
        return args, kwargs
    bound = inspect.signature(func).bind(*args, **kwargs)
    bound.apply_defaults()
    found = inspect.signature(func).parameters
    plain = [name for name, parameter in found.items() if parameter.default is parameter.empty]
    if any(parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) for parameter in found.values()):
        return args, kwargs
    given = bound.arguments
    return tuple(given[name] for name in plain), {name: value for name, value in given.items() if name not in plain}

"""Random numbers: each rank takes those of its part out of the whole's, so that one process draws the same."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor
from tesserack.distributed.tensor._api import DTensor, wrapped
from tesserack.distributed.tensor._call import handler
from tesserack.distributed.tensor._random import drawn
from tesserack.distributed.tensor._spec import DTensorSpec, TensorMeta
from tesserack.distributed.tensor.placement_types import Replicate

R = Replicate()


def _reduced(given: DTensor) -> DTensor:
    """With sums finished: each rank draws for values."""
    if not any(p.is_partial() for p in given.placements):
        return given
    return given.redistribute(placements=[R if p.is_partial() else p for p in given.placements])


def _spec(given: DTensor, dtype: Any) -> DTensorSpec:
    return DTensorSpec(given._spec.mesh, given.placements, TensorMeta(given._spec.shape, given._spec.stride, dtype))


@handler("native_dropout")
def _dropout(func: Any, args: Any, kwargs: Any) -> Any:
    given = _reduced(args[0])
    local = given._local_tensor
    p, train = args[1], args[2] if len(args) > 2 else True
    if train is False or p == 0:
        result = func(local, p, train)
        return wrapped(result[0], given._spec), wrapped(result[1], _spec(given, result[1].dtype))
    mask = drawn(given._spec, lambda shape: func(local.new_ones(()).expand(shape), p, True)[1])
    kept = local * mask.to(local.dtype) * (1 / (1 - p) if p < 1 else 0.0)
    return wrapped(kept, given._spec), wrapped(mask, _spec(given, mask.dtype))


@handler("rand_like", "randn_like", "randint_like", "bernoulli")
def _like(func: Any, args: Any, kwargs: Any) -> Any:
    given = _reduced(args[0])
    local, options = given._local_tensor, dict(kwargs)
    if func._packet.__name__ == "bernoulli" and len(args) == 1:  # of probabilities, which may differ
        chance = drawn(given._spec, lambda shape: local.new_empty(shape).uniform_(**options), options.get("generator"))
        return wrapped((chance < local).to(local.dtype), given._spec)
    made = drawn(
        given._spec,
        lambda shape: func(local.new_empty(()).expand(shape), *args[1:], **options),
        options.get("generator"),
    )
    return wrapped(made, _spec(given, made.dtype))


@handler(
    "uniform_", "normal_", "bernoulli_", "random_", "exponential_", "log_normal_", "cauchy_", "geometric_",
)  # fmt: skip
def _fill(func: Any, args: Any, kwargs: Any) -> Any:
    given = args[0]
    if not isinstance(given, DTensor) or any(isinstance(a, Tensor) for a in args[1:]):
        raise RuntimeError(f"{func}: expected a DTensor and numbers; draw with uniform_ and compare")
    if any(p.is_partial() for p in given.placements) or given.__dict__.get("_moved"):
        raise RuntimeError(f"{func}: expected Shard or Replicate for what is written to, got {given.placements}")
    local = given._local_tensor
    local.copy_(
        drawn(given._spec, lambda shape: func(local.new_empty(shape), *args[1:], **kwargs), kwargs.get("generator"))
    )
    return given

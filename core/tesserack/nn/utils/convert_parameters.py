"""All parameters as one vector, and back."""

from __future__ import annotations

import math
from collections.abc import Iterable

import tesserack as ts
from tesserack import Tensor

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters, which must share one device, as one 1-d tensor.

    >>> from tesserack import nn
    >>> tuple(parameters_to_vector(nn.Linear(3, 2).parameters()).shape)
    (8,)
    """
    listed = list(parameters)
    devices = {str(parameter.device) for parameter in listed}
    if len(devices) != 1:
        raise TypeError(f"parameters_to_vector: expected parameters on one device, got {sorted(devices)}")
    return ts.cat([parameter.reshape(-1) for parameter in listed])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Give the parameters the elements of ``vec`` (1-d), in order; they become views of it.

    Raises ``ValueError`` when the vector has not exactly as many elements as the parameters.
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"vector_to_parameters: expected a Tensor, got {type(vec).__name__}")
    listed = list(parameters)
    needed = sum(math.prod(parameter.shape) for parameter in listed)
    if tuple(vec.shape) != (needed,):
        raise ValueError(f"vector_to_parameters: expected shape ({needed},), got {tuple(vec.shape)}")
    start = 0
    for parameter in listed:
        count = math.prod(parameter.shape)
        parameter.data = vec[start : start + count].view(parameter.shape).data
        start += count

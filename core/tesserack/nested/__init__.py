"""Nested tensors: batches of rows of different sizes, without padding.

In the layout ``tesserack.jagged`` rows differ in one dimension and share their offsets; in ``tesserack.strided``, the
default as in PyTorch, they may differ in all.

>>> import tesserack as ts
>>> nt = ts.nested.nested_tensor([ts.ones(2, 3), ts.ones(4, 3)], layout=ts.jagged)
>>> (nt * 2).sum(dim=1)
tensor([[4., 4., 4.],
        [8., 8., 8.]])
"""

# All that have functions of nested tensors, so that there are none of these without.
from tesserack.nested import (  # noqa: F401
    _attention,
    _layers,
    _misc,
    _pointwise,
    _reduce,
    _shape,
    _strided_layers,
    _strided_shape,
)
from tesserack.nested._construct import (
    as_nested_tensor,
    masked_select,
    narrow,
    nested_tensor,
    nested_tensor_from_jagged,
)
from tesserack.nested._padding import to_padded_tensor

__all__ = [
    "as_nested_tensor",
    "masked_select",
    "narrow",
    "nested_tensor",
    "nested_tensor_from_jagged",
    "to_padded_tensor",
]

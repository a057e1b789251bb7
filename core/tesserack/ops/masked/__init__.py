"""Reductions that leave elements out, and tensors that know which of their elements count.

>>> import tesserack as ts
>>> from tesserack import masked
>>> masked.mean(ts.tensor([1.0, 2.0, 9.0]), mask=ts.tensor([True, True, False]))
tensor(1.5000)
"""

from tesserack.ops.masked._masks import (
    _canonical_dim as _canonical_dim,
)
from tesserack.ops.masked._masks import (
    _combine_input_and_mask as _combine_input_and_mask,
)
from tesserack.ops.masked._masks import (
    _input_mask as _input_mask,
)
from tesserack.ops.masked._masks import (
    _output_mask as _output_mask,
)
from tesserack.ops.masked._masks import (
    _where as _where,
)
from tesserack.ops.masked._reductions import (
    amax,
    amin,
    argmax,
    argmin,
    cumprod,
    cumsum,
    log_softmax,
    logaddexp,
    logsumexp,
    mean,
    median,
    norm,
    normalize,
    prod,
    softmax,
    softmin,
    std,
    sum,
    var,
)  # fmt: skip
from tesserack.ops.masked._tensor import MaskedTensor, as_masked_tensor, is_masked_tensor, masked_tensor

__all__ = [
    "MaskedTensor", "amax", "amin", "argmax", "argmin", "as_masked_tensor", "cumprod", "cumsum", "is_masked_tensor",
    "log_softmax", "logaddexp", "logsumexp", "masked_tensor", "mean", "median", "norm", "normalize", "prod", "softmax",
    "softmin", "std", "sum", "var",
]  # fmt: skip

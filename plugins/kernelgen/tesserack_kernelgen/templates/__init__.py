"""The templates: one function from a call to a plan for every operator that the generator answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tesserack_kernelgen.templates.attention import attention, attention_backward
from tesserack_kernelgen.templates.conv import backward_input, backward_weight, convolution
from tesserack_kernelgen.templates.embedding import embedding, embedding_backward
from tesserack_kernelgen.templates.indexing import gather, scatter
from tesserack_kernelgen.templates.join import cat
from tesserack_kernelgen.templates.losses import nll_loss, nll_loss_backward
from tesserack_kernelgen.templates.matmul import linear, matmul
from tesserack_kernelgen.templates.normalisation import (
    batch_norm,
    batch_norm_backward,
    layer_norm,
    layer_norm_backward,
    rms_norm,
)
from tesserack_kernelgen.templates.optimizer import adam_step, sgd_step
from tesserack_kernelgen.templates.pointwise import copy_cast, fill, iota, pointwise
from tesserack_kernelgen.templates.pool import avg_pool2d, avg_pool2d_backward, max_pool2d, max_pool2d_backward
from tesserack_kernelgen.templates.random import dropout, rand_fill, randint_fill, randn_fill, random_bits
from tesserack_kernelgen.templates.reduce import reduce
from tesserack_kernelgen.templates.scan import scan
from tesserack_kernelgen.templates.search import searchsorted
from tesserack_kernelgen.templates.select import topk
from tesserack_kernelgen.templates.softmax import log_softmax, log_softmax_backward, softmax, softmax_backward
from tesserack_kernelgen.templates.sort import sort

if TYPE_CHECKING:
    from tesserack_kernelgen.call import Call

__all__ = ["TAKES", "TEMPLATES"]

#: By operator, as ``tesserack/abi.h`` and ``tesserack ops`` name them.
TEMPLATES: dict[str, Callable[[Call], Any]] = {
    "copy_cast": copy_cast,
    "fill": fill,
    "iota": iota,
    "pointwise": pointwise,
    "reduce": reduce,
    "scan": scan,
    "matmul": matmul,
    "gather": gather,
    "scatter": scatter,
    "sort": sort,
    "random_bits": random_bits,
    "rand_fill": rand_fill,
    "randn_fill": randn_fill,
    "randint_fill": randint_fill,
    "native_dropout": dropout,
    "cat": cat,
    "topk": topk,
    "searchsorted": searchsorted,
    "linear": linear,
    "convolution": convolution,
    "convolution_backward_input": backward_input,
    "convolution_backward_weight": backward_weight,
    "max_pool2d_with_indices": max_pool2d,
    "max_pool2d_backward": max_pool2d_backward,
    "avg_pool2d": avg_pool2d,
    "avg_pool2d_backward": avg_pool2d_backward,
    "softmax": softmax,
    "softmax_backward": softmax_backward,
    "log_softmax": log_softmax,
    "log_softmax_backward": log_softmax_backward,
    "native_layer_norm": layer_norm,
    "native_layer_norm_backward": layer_norm_backward,
    "rms_norm": rms_norm,
    "native_batch_norm": batch_norm,
    "native_batch_norm_backward": batch_norm_backward,
    "nll_loss_forward": nll_loss,
    "nll_loss_backward": nll_loss_backward,
    "attention_blocks": attention,
    "attention_blocks_backward": attention_backward,
    "embedding": embedding,
    "embedding_backward": embedding_backward,
    "sgd_step_": sgd_step,
    "adam_step_": adam_step,
}

#: What a kernel takes beyond the least, see ``Backend.kernel``.
TAKES: dict[str, tuple[str, ...]] = {"random_bits": ("device_random",)}

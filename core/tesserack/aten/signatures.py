"""Operators that take their arguments in another order in ATen, or more of them: functions of ATen's arguments, and how
they are declared there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.ops.layers import REDUCTIONS
from tesserack.ops.registry import operators

__all__ = ["CDIST_MODES", "SCHEMAS", "SIGNATURES"]

CDIST_MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")

_BITWISE = ("and", "or", "xor", "lshift", "rshift")  # as Python writes them, which ATen has too

# As ATen declares them; what it ignores here has a default.
SCHEMAS = {
    "_assert_scalar": "_assert_scalar(Scalar self, str assert_msg) -> ()",
    "sym_constrain_range": "sym_constrain_range(Scalar size, *, int? min=None, int? max=None) -> ()",
    "sym_constrain_range_for_size": "sym_constrain_range_for_size(Scalar size, *, int? min=None, int? max=None) -> ()",
    "embedding": "embedding(Tensor weight, Tensor indices, int padding_idx=-1, bool scale_grad_by_freq=False, "
    "bool sparse=False) -> Tensor",
    "layer_norm": "layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
    "float eps=1e-05, bool cudnn_enable=True) -> Tensor",
    "group_norm": "group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, "
    "bool cudnn_enabled=True) -> Tensor",
    "instance_norm": "instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, "
    "Tensor? running_var, bool use_input_stats, float momentum, float eps, bool cudnn_enabled) -> Tensor",
    "batch_norm": "batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, "
    "bool training, float momentum, float eps, bool cudnn_enabled) -> Tensor",
    "dropout": "dropout(Tensor input, float p, bool train) -> Tensor",
    "softmax": "softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
    "log_softmax": "log_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
    "cross_entropy_loss": "cross_entropy_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, "
    "int ignore_index=-100, float label_smoothing=0.0) -> Tensor",
    "nll_loss_nd": "nll_loss_nd(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, "
    "int ignore_index=-100) -> Tensor",
    "l1_loss": "l1_loss(Tensor self, Tensor target, int reduction=1) -> Tensor",
    "binary_cross_entropy_with_logits": "binary_cross_entropy_with_logits(Tensor self, Tensor target, "
    "Tensor? weight=None, Tensor? pos_weight=None, int reduction=1) -> Tensor",
    "kl_div": "kl_div(Tensor self, Tensor target, int reduction=1, *, bool log_target=False) -> Tensor",
    "margin_ranking_loss": "margin_ranking_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, "
    "int reduction=1) -> Tensor",
    "hinge_embedding_loss": "hinge_embedding_loss(Tensor self, Tensor target, float margin=1.0, int reduction=1) "
    "-> Tensor",
    "cosine_embedding_loss": "cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, "
    "int reduction=1) -> Tensor",
    "triplet_margin_loss": "triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, "
    "float p=2.0, float eps=1e-06, bool swap=False, int reduction=1) -> Tensor",
    "_prelu_kernel": "_prelu_kernel(Tensor self, Tensor weight) -> Tensor",
    "cdist": "cdist(Tensor x1, Tensor x2, float p=2.0, int? compute_mode=None) -> Tensor",
    "_cdist_forward": "_cdist_forward(Tensor x1, Tensor x2, float p, int? compute_mode) -> Tensor",
    "tensordot": "tensordot(Tensor self, Tensor other, int[] dims_self, int[] dims_other) -> Tensor",
    **{f"__{op}__": f"__{op}__.Tensor(Tensor self, Tensor other) -> Tensor" for op in _BITWISE},
    **{f"__i{op}__": f"__i{op}__.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)" for op in _BITWISE},
}


def _embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    padding = padding_idx if padding_idx >= 0 else None
    if scale_grad_by_freq or sparse:
        return ts.nn.functional.embedding(indices, weight, padding, None, 2.0, scale_grad_by_freq, sparse)
    return operators()["embedding"](indices, weight, padding)  # type: ignore[no-any-return]


def _normalized(name: str) -> Callable[..., Tensor]:
    def normalized(
        input: Tensor, sizes: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enable: bool = True,
        *, cudnn_enabled: bool = True,
    ) -> Tensor:  # fmt: skip
        return operators()[name](input, sizes, weight, bias, eps)  # type: ignore[no-any-return]

    return normalized


def _by_statistics(name: str) -> Callable[..., Tensor]:
    def normalized(
        input: Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float,
        eps: float, cudnn_enabled: bool = True,
    ) -> Tensor:  # fmt: skip
        return operators()[name](input, running_mean, running_var, weight, bias, training, momentum, eps)  # type: ignore[no-any-return]

    return normalized


def _softmax(name: str) -> Callable[..., Tensor]:
    return lambda self, dim, dtype=None: operators()[name](self, dim, dtype=dtype)


def _reduction(value: int | str) -> str:
    return value if isinstance(value, str) else REDUCTIONS[value]


def _cross_entropy(
    self: Tensor, target: Tensor, weight: Any = None, reduction: int = 1, ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    return operators()["cross_entropy"](  # type: ignore[no-any-return]
        self, target, weight, ignore_index, _reduction(reduction), label_smoothing
    )


def _nll_loss(self: Tensor, target: Tensor, weight: Any = None, reduction: int = 1, ignore_index: int = -100) -> Tensor:
    return operators()["nll_loss"](self, target, weight, ignore_index, _reduction(reduction))  # type: ignore[no-any-return]


def _reduced(name: str) -> Callable[..., Tensor]:
    """A loss whose mean ATen takes by itself and PyTorch's function does not."""
    place = [word.partition("=")[0] for word in SCHEMAS[name].split(", ")].index("int reduction")

    def loss(*args: Any, **kwargs: Any) -> Tensor:
        if len(args) <= place:
            kwargs.setdefault("reduction", 1)
        return operators()[name](*args, **kwargs)  # type: ignore[no-any-return]

    return loss


def _tensordot(self: Tensor, other: Tensor, dims_self: Sequence[int], dims_other: Sequence[int]) -> Tensor:
    run = _native._operator_function("tensordot.dims")
    return run(self, other, [*dims_self], [*dims_other])  # type: ignore[no-any-return]


def _cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Tensor:
    return operators()["cdist"](x1, x2, p, CDIST_MODES[compute_mode or 0])  # type: ignore[no-any-return]


SIGNATURES: dict[str, Callable[..., Any]] = {
    "embedding": _embedding,
    "layer_norm": _normalized("layer_norm"),
    "group_norm": _normalized("group_norm"),
    "instance_norm": _by_statistics("instance_norm"),
    "batch_norm": _by_statistics("batch_norm"),
    "dropout": lambda input, p, train: operators()["dropout"](input, p, train),
    "softmax": _softmax("softmax"),
    "log_softmax": _softmax("log_softmax"),
    "cross_entropy_loss": _cross_entropy,
    "nll_loss_nd": _nll_loss,
    "l1_loss": lambda self, target, reduction=1: operators()["l1_loss"](self, target, _reduction(reduction)),
    **{
        name: _reduced(name)
        for name in (
            "binary_cross_entropy_with_logits",
            "kl_div",
            "margin_ranking_loss",
            "hinge_embedding_loss",
            "cosine_embedding_loss",
            "triplet_margin_loss",
        )
    },
    "_prelu_kernel": lambda self, weight: _native._operator_function("prelu_kernel")(self, weight),
    **dict.fromkeys(("cdist", "_cdist_forward"), _cdist),
    "tensordot": _tensordot,
}

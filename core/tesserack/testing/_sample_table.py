"""What is special about operators: other names, domains, dtypes, and samples that signatures do not explain."""

from __future__ import annotations

from tesserack.ops.registry import aliases
from tesserack.testing import _samples_linalg, _samples_math, _samples_nn, _samples_shape
from tesserack.testing._inputs import SampleTable

__all__ = ["ALIASES", "DOMAINS", "DTYPES", "NONE_NEEDED", "TABLE"]

TABLE: SampleTable = _samples_math.TABLE | _samples_linalg.TABLE | _samples_nn.TABLE | _samples_shape.TABLE
_MOMENTS = ("var", "std", "var_mean", "std_mean")

# The same operator under another name.
ALIASES: dict[str, str] = {"divide.mode": "div.mode", **aliases()}

_POSITIVE = ((0.15, 3.4),)
_UNIT = ((-0.93, 0.94),)
# Where an operator is smooth and finite: an interval for each operand, if not about (-2.3, 2.4).
DOMAINS: dict[str, tuple[tuple[float, float], ...]] = {
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt", "lgamma", "digamma"), _POSITIVE),
    **dict.fromkeys(("asin", "acos", "atanh", "erfinv"), _UNIT),
    "log1p": ((-0.8, 3),),
    "acosh": ((1.2, 4),),
    "logit_exact": ((0.05, 0.95),),
    "tan": ((-1.4, 1.4),),
    "reciprocal": ((0.6, 3.4),),
    **dict.fromkeys(("div", "floor_divide", "remainder", "fmod"), ((-7.3, 7.4), (1.2, 3.9))),
    "xlogy": ((0.2, 2), (0.2, 3.4)),
    "hypot": ((0.3, 2), (-3, -0.4)),
    "relu6": ((-2, 8),),
    "hardsigmoid": ((-4, 4),),
    "hardswish": ((-4, 4),),
}

# The dtypes of operators that do not take all of them.
DTYPES: dict[str, str] = {
    **dict.fromkeys(("argmax", "argmin", "median", "nanmedian", "median.dim", "nanmedian.dim"), "numeric"),
    **dict.fromkeys(("topk", "kthvalue"), "numeric"),
    **dict.fromkeys(("relu", "neg", "sub", "rsub", "floor_divide", "remainder", "fmod"), "numeric"),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "conv1d.padding", "conv2d.padding", "conv3d.padding"), "numeric"),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), "numeric"),
    **dict.fromkeys(("max_pool1d", "max_pool2d", "max_pool1d_with_indices", "max_pool2d_with_indices"), "numeric"),
    **dict.fromkeys(
        ("cross", "linalg_cross", "pairwise_distance", "addbmm", "binary_cross_entropy_with_logits"), "numeric"
    ),
    **dict.fromkeys(("smooth_l1_loss", "huber_loss", "margin_ranking_loss", "hinge_embedding_loss"), "signed"),
    **dict.fromkeys(("soft_margin_loss", "triplet_margin_loss"), "signed"),
    **dict.fromkeys(("mse_loss", "l1_loss", "binary_cross_entropy", "cosine_embedding_loss"), "floating"),
    **dict.fromkeys(("nll_loss", "cross_entropy", "cosine_similarity", "cdist", "histc"), "floating"),
    **dict.fromkeys(
        ("threshold", "hardsigmoid", "hardswish", "softshrink", "hardshrink", "hypot", "lerp", "addcdiv"), "floating"
    ),
    **dict.fromkeys(("scaled_dot_product_attention", "batch_norm", "layer_norm", "group_norm"), "floating"),
    **dict.fromkeys(("instance_norm", "rms_norm", "normalize", "local_response_norm"), "floating"),
    **dict.fromkeys((f"{a}{b}" for a in _MOMENTS for b in ("", ".dim", ".correction")), "floating"),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d"), "floating"),
    **dict.fromkeys(("adaptive_max_pool2d", "adaptive_max_pool2d_with_indices"), "floating"),
    **dict.fromkeys(("mean", "mean.dim", "nanmean", "logcumsumexp", "softmax", "log_softmax", "softmin"), "floating"),
    **dict.fromkeys(
        ("linalg_vector_norm", "linalg_matrix_norm", "linalg_norm", "norm", "norm.name", "dropout"), "floating"
    ),
    **dict.fromkeys(("linalg_matrix_norm.str_ord", "linalg_norm.ord_str"), "floating"),
    **dict.fromkeys(("interpolate", "embedding_bag", "pdist", "renorm", "dist"), "floating"),
    **dict.fromkeys(_samples_linalg.EXACT, "exact"),
    **dict.fromkeys(("linalg_vander", "vander", "linalg_vecdot", "linalg_matmul", "linalg_multi_dot"), "exact"),
    **dict.fromkeys(("quantile", "quantile.scalar", "nanquantile", "nanquantile.scalar"), "exact"),
    **dict.fromkeys(("kl_div", "poisson_nll_loss"), "numeric"),
    **dict.fromkeys(
        (f"{a}{b}" for a in ("trapezoid", "trapz", "cumulative_trapezoid") for b in (".x", ".dx")), "signed"
    ),
    **dict.fromkeys(("gcd", "lcm"), "integer"),
    **dict.fromkeys(("cov", "corrcoef"), "numeric"),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"), "integral"),
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), "integral"),
}

# Random or uninitialised results: tests of their own know what to expect.
NONE_NEEDED: frozenset[str] = _samples_linalg.OTHERS | frozenset(
    (
        "rand_like",
        "randn_like",
        "empty_like",
        "bernoulli",
        "normal.Tensor_float",
        "native_dropout",
        "dropout1d",
        "dropout2d",
        "dropout3d",
    )
)

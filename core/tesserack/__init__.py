"""Tesserack: tensors with gradients on any device, every device a plugin. The API is PyTorch's.

>>> import tesserack as ts
>>> x = ts.tensor([1.0, 2.0, 3.0], requires_grad=True)
>>> (x * x).sum().backward()
>>> x.grad
tensor([2., 4., 6.])
"""

# The names of this package are collected, not listed: operators come from the native registry. What type checkers and
# editors see is __init__.pyi, written by `python -m tesserack.cli._stubs.stubs`.
from __future__ import annotations

import importlib

from tesserack._native import *  # noqa: F403
from tesserack._native import Tensor, __version__  # noqa: F401
from tesserack.ops.registry import public_functions
from tesserack.utils import homes as _homes

_homes.install()
globals().update(public_functions())

from tesserack import backends as backends  # noqa: E402
from tesserack._tensor import aliases as _tensor_aliases  # noqa: E402
from tesserack._tensor import methods as _tensor_methods  # noqa: E402
from tesserack._tensor.functions import *  # noqa: E402, F403
from tesserack._tensor.printing import set_printoptions as set_printoptions  # noqa: E402
from tesserack.backends.streams import *  # noqa: E402, F403
from tesserack.ops import nonzero_unique as _nonzero_unique  # noqa: E402
from tesserack.ops.nonzero_unique import *  # noqa: E402, F403
from tesserack.ops.products import *  # noqa: E402, F403
from tesserack.ops.random import default_generator as _default_generator  # noqa: E402
from tesserack.ops.random import get_rng_state, initial_seed, manual_seed, seed, set_rng_state  # noqa: E402, F401

_tensor_methods.install(Tensor)
_nonzero_unique.install(Tensor)
_tensor_aliases.install(Tensor)
backends.install()

# Imported when first used: `import tesserack` stays quick.
_LAZY_MODULES = (
    "amp",
    "array_api",
    "autograd",
    "compat",
    "compiler",
    "dispatch",
    "distributed",
    "distributions",
    "fft",
    "func",
    "futures",
    "fx",
    "hub",
    "jit",
    "library",
    "linalg",
    "masked",
    "metrics",
    "multiprocessing",
    "nested",
    "nn",
    "ops",
    "optim",
    "overrides",
    "plugins",
    "profiler",
    "quasirandom",
    "random",
    "return_types",
    "serialization",
    "signal",
    "sparse",
    "special",
    "storage",
    "testing",
    "types",
    "utils",
)
# Functions of tesserack.utils.settings.
_SWITCHES = (
    *("are_deterministic_algorithms_enabled", "autocast", "clear_autocast_cache", "compile", "get_autocast_cpu_dtype"),
    *("get_autocast_dtype", "get_autocast_gpu_dtype", "get_deterministic_debug_mode", "get_float32_matmul_precision"),
    *("get_num_interop_threads", "is_autocast_cache_enabled", "is_autocast_cpu_enabled", "is_autocast_enabled"),
    *("is_deterministic_algorithms_warn_only_enabled", "is_warn_always_enabled", "set_autocast_cache_enabled"),
    *("set_autocast_cpu_dtype", "set_autocast_cpu_enabled", "set_autocast_dtype", "set_autocast_enabled"),
    *("set_autocast_gpu_dtype", "set_default_tensor_type", "set_deterministic_debug_mode"),
    *("set_float32_matmul_precision", "set_flush_denormal", "set_num_interop_threads", "set_warn_always"),
    "use_deterministic_algorithms",
)
# Functions of tesserack.ops.copies.
_COPIES = (
    *("alias_copy", "as_strided_copy", "as_strided_scatter", "detach_copy", "diagonal_copy", "expand_copy"),
    *("narrow_copy", "permute_copy", "select_copy", "slice_copy", "split_copy", "split_with_sizes_copy"),
    *("squeeze_copy", "t_copy", "transpose_copy", "unbind_copy", "unfold_copy", "unsafe_chunk", "unsafe_split"),
    *("unsafe_split_with_sizes", "unsqueeze_copy", "view_as_complex_copy", "view_as_real_copy", "view_copy"),
)
# Functions of tesserack.ops.layers, _mutation and _symbolic.
_POSITIONAL = (
    *("adaptive_max_pool1d", "affine_grid_generator", "alpha_dropout", "alpha_dropout_", "conv_tbc", "convolution"),
    *("ctc_loss", "embedding_bag", "embedding_renorm_", "feature_alpha_dropout", "feature_alpha_dropout_"),
    *("feature_dropout", "feature_dropout_", "grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "max_pool3d"),
    *("native_channel_shuffle", "rrelu", "rrelu_"),
)
_MUTATION = (
    *("as_strided_", "detach_", "fill", "fill_", "get_device", "index_put_", "is_distributed", "is_same_size"),
    *("is_signed", "is_storage", "resize_as_", "slice_inverse", "zero_"),
)
_SYMBOLIC = (
    *("cond", "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt", "sym_sum", "while_loop"),
)
_LAZY_NAMES = {
    **dict.fromkeys(_POSITIONAL, "ops.layers"),
    **dict.fromkeys(_MUTATION, "ops.mutation"),
    **dict.fromkeys(_SYMBOLIC, "ops.control_flow"),
    **dict.fromkeys(("frobenius_norm", "norm_except_dim", "nuclear_norm"), "ops.norms"),
    **dict.fromkeys(("empty_permuted", "from_file", "range", "to_dlpack"), "ops.creation"),
    **dict.fromkeys(("histogram", "histogramdd"), "ops.histograms"),
    **dict.fromkeys(
        ("batch_norm_update_stats", "native_batch_norm", "native_group_norm", "native_layer_norm"), "ops.normalization"
    ),
    **dict.fromkeys(
        (
            *("sparse_bsc_tensor", "sparse_bsr_tensor", "sparse_compressed_tensor", "sparse_coo_tensor"),
            *("sparse_csc_tensor", "sparse_csr_tensor"),
        ),
        "sparse._construct",
    ),
    **dict.fromkeys(
        (
            *("ccol_indices_copy", "col_indices_copy", "crow_indices_copy", "dsmm", "hsmm", "hspmm", "indices_copy"),
            *(
                "native_norm",
                "resize_as_sparse_",
                "row_indices_copy",
                "saddmm",
                "smm",
                "spmm",
                "sspaddmm",
                "values_copy",
            ),
        ),
        "sparse._functions",
    ),
    "hash_tensor": "ops.hashes",
    **dict.fromkeys(("segment_reduce", "_segment_reduce"), "ops.segments"),
    "TypedStorage": "storage",
    "UntypedStorage": "storage",
    "Storage": "storage._typed",
    **dict.fromkeys(
        (
            f"{name}Storage"
            for name in [
                *(
                    "BFloat16",
                    "Bool",
                    "Byte",
                    "Char",
                    "ComplexDouble",
                    "ComplexFloat",
                    "Double",
                    "Float",
                    "Half",
                    "Int",
                ),
                *("Long", "Short"),
            ]
        ),
        "storage._typed",
    ),
    **dict.fromkeys(_COPIES, "ops.copies"),
    **dict.fromkeys(("frexp", "gradient", "nextafter"), "ops.floats"),
    **dict.fromkeys(
        (
            f"{name}Tensor"
            for name in ["BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short"]
        ),
        "_tensor.typed",
    ),
    **dict.fromkeys(_SWITCHES, "utils.settings"),
    **dict.fromkeys(
        (
            *("bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"),
            *("stft", "istft"),
        ),
        "ops.spectral",
    ),
    **dict.fromkeys(("lobpcg", "lu", "pca_lowrank", "svd_lowrank"), "ops.lowrank"),
    **dict.fromkeys(("_sample_dirichlet", "_standard_gamma", "binomial", "poisson"), "distributions._samplers"),
    "summary": "utils.summary",
    "cmake_dir": "utils.headers",
    "get_include": "utils.headers",
    **dict.fromkeys(("igamma", "igammac"), "ops.special._incomplete_gamma"),
    "load": "serialization",
    "mvlgamma": "ops.special._elementary",
    "vmap": "func",
    "save": "serialization",
    "set_anomaly_enabled": "autograd.anomaly_mode",
}


def __getattr__(name: str) -> object:
    if name in _LAZY_MODULES:
        return importlib.import_module(f"tesserack.{name}")
    if name in _LAZY_NAMES:
        value = getattr(importlib.import_module(f"tesserack.{_LAZY_NAMES[name]}"), name)
        globals()[name] = value
        return value
    if name.startswith("_foreach_"):
        return _foreach_function(name)
    if name == "default_generator":
        return _default_generator()
    if not name.startswith("_") and backends.has_module(name):
        return get_device_module(name)  # noqa: F405
    raise AttributeError(f"module 'tesserack' has no attribute {name!r}")


def _foreach_function(name: str) -> object:
    from tesserack.ops.foreach import FUNCTIONS

    if name in FUNCTIONS:
        return FUNCTIONS[name]
    raise AttributeError(f"module 'tesserack' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY_MODULES, *_LAZY_NAMES})

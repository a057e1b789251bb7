"""Where modules live that go by a shorter name: ``tesserack.linalg`` is ``tesserack/ops/linalg.py``.

Public names stay where PyTorch has them; their files lie with their kind. Names that files of earlier versions hold, of
what was pickled by reference, are answered too.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False  # typing takes a good part of the time to import the package
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any

__all__ = ["HOMES", "MODULES", "NAMES", "PUBLIC", "home", "install", "joined", "public_name"]

# Public modules, below `tesserack`.
PUBLIC = {
    "_higher_order_ops": "ops.control_flow",
    "_subclasses": "aten.fake",
    "array_api": "ops.array_api",
    "compiler": "jit.compiler",
    "dispatch": "library.dispatch",
    "export": "fx.export",
    "fft": "ops.fft",
    "futures": "utils.futures",
    "hub": "utils.hub",
    "linalg": "ops.linalg",
    "masked": "ops.masked",
    "metrics": "utils.metrics",
    "monitor": "utils.monitor",
    "overrides": "_tensor.overrides",
    "package": "serialization.package",
    "profiler": "utils.profiler",
    "quasirandom": "ops.quasirandom",
    "random": "ops.random",
    "return_types": "_tensor.return_types",
    "signal": "ops.signal",
    "special": "ops.special",
    "types": "_tensor.types",
}
# Where pickles of earlier versions look for functions and classes.
_EARLIER = {
    "_cache": "utils.cache",
    "_capture": "backends.recording",
    "_copies": "ops.copies",
    "_creation": "ops.creation",
    "_custom_check": "library._check",
    "_custom_gradient": "library._gradient",
    "_custom_schema": "library._schema",
    "_floats": "ops.floats",
    "_foreach": "ops.foreach",
    "_functions": "_tensor.functions",
    "_hashes": "ops.hashes",
    "_headers": "utils.headers",
    "_histograms": "ops.histograms",
    "_lowrank": "ops.lowrank",
    "_mutation": "ops.mutation",
    "_nonzero_unique": "ops.nonzero_unique",
    "_norm_statistics": "ops.normalization",
    "_norms": "ops.norms",
    "_numpy_names": "ops.numpy_names",
    "_pending": "_tensor.pending",
    "_pickling": "_tensor.pickling",
    "_positional": "ops.layers",
    "_registry": "ops.registry",
    "_results": "ops.results",
    "_safetensors": "serialization._safetensors",
    "_segments": "ops.segments",
    "_shards": "serialization._shards",
    "_spectral": "ops.spectral",
    "_streams": "backends.streams",
    "_switches": "utils.settings",
    "_symbolic": "ops.sizes",
    "_tensor_aliases": "_tensor.aliases",
    "_tensor_methods": "_tensor.methods",
    "_tensor_str": "_tensor.printing",
    "_tools": "cli._stubs",
    "_torch_file": "serialization._torch_file",
    "_torch_pickle": "serialization._torch_pickle",
    "_torch_writer": "serialization._torch_writer",
    "_typed": "_tensor.typed",
    "_typed_storage": "storage._typed",
    "_untyped_storage": "storage._untyped",
    "_variadic": "ops.products",
    "_warnings": "utils.warnings",
    "_wrapper_subclass": "_tensor.subclass",
    "compat.aten": "aten",
    "compat.shims._amp_parts": "amp._scaling",
    "compat.shims._archives": "serialization._archives",
    "compat.shims._quantized": "nn.quantized.tensor",
    "compat.shims.optim._functional": "optim._functional",
    "compat.torch_random": "ops.torch_random",
}
# Modules of PyTorch's, and of earlier versions, that share a file of their family.
_JOINED = {
    "distributions.chi2": "distributions.gamma",
    "distributions.continuous_bernoulli": "distributions.bernoulli",
    "distributions.dirichlet": "distributions.beta",
    "distributions.fishersnedecor": "distributions.gamma",
    "distributions.generalized_pareto": "distributions.pareto",
    "distributions.geometric": "distributions.binomial",
    "distributions.gumbel": "distributions.exponential",
    "distributions.half_cauchy": "distributions.cauchy",
    "distributions.half_normal": "distributions.normal",
    "distributions.inverse_gamma": "distributions.gamma",
    "distributions.kumaraswamy": "distributions.beta",
    "distributions.laplace": "distributions.exponential",
    "distributions.lkj_cholesky": "distributions.wishart",
    "distributions.log_normal": "distributions.normal",
    "distributions.logistic_normal": "distributions.normal",
    "distributions.lowrank_multivariate_normal": "distributions.multivariate_normal",
    "distributions.multinomial": "distributions.categorical",
    "distributions.negative_binomial": "distributions.binomial",
    "distributions.one_hot_categorical": "distributions.categorical",
    "distributions.relaxed_bernoulli": "distributions.bernoulli",
    "distributions.relaxed_categorical": "distributions.categorical",
    "distributions.studentT": "distributions.gamma",
    "distributions.weibull": "distributions.exponential",
    "nn.modules.linear_cross_entropy": "nn.modules.loss",
    "nn.modules.loss_ctc": "nn.modules.loss",
}
HOMES = {f"tesserack.{name}": f"tesserack.{place}" for name, place in (_EARLIER | _JOINED | PUBLIC).items()}
_SHOWN = {f"tesserack.{place}": f"tesserack.{name}" for name, place in PUBLIC.items()}

# Modules that are imported when first used, so that `import tesserack` stays quick...
MODULES = (
    "amp",
    "array_api",
    "autograd",
    "compat",
    "compiler",
    "dispatch",
    "distributed",
    "distributions",
    "export",
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
    "monitor",
    "multiprocessing",
    "nested",
    "nn",
    "ops",
    "optim",
    "overrides",
    "package",
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
    *("are_deterministic_algorithms_enabled", "autocast", "clear_autocast_cache", "get_autocast_cpu_dtype"),
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
# Functions of tesserack.ops.layers, mutation and sizes.
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
_SYMBOLIC = ("sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt", "sym_sum")
# ... and names, with the modules that they are taken from.
NAMES = {
    **dict.fromkeys(_POSITIONAL, "ops.layers"),
    **dict.fromkeys(_MUTATION, "ops.mutation"),
    **dict.fromkeys(_SYMBOLIC, "ops.sizes"),
    "_assert": "_tensor.assertions",
    **dict.fromkeys(("_check", "_check_index", "_check_is_size", "_check_type", "_check_value"), "_tensor.conditions"),
    "cond": "ops.control_flow.cond",
    "while_loop": "ops.control_flow.while_loop",
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
            *("_validate_sparse_bsc_tensor_args", "_validate_sparse_bsr_tensor_args"),
            *("_validate_sparse_compressed_tensor_args", "_validate_sparse_coo_tensor_args"),
            *("_validate_sparse_csc_tensor_args", "_validate_sparse_csr_tensor_args"),
        ),
        "sparse._validate",
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
    "compile": "jit.compiler",
    "check_shapes": "utils.shapes",
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


def _replaced(name: str, table: dict[str, str]) -> str | None:
    """The name with its beginning replaced, as many words as the table has; None where it has none."""
    head = name
    while head.count("."):
        if head in table:
            return table[head] + name[len(head) :]
        head = head.rpartition(".")[0]
    return None


def home(name: str) -> str:
    """The module that a full name stands for: ``tesserack.ops.linalg`` for ``tesserack.linalg``."""
    return _replaced(name, HOMES) or name


def joined(package: str, name: str) -> ModuleType:
    """The module of a package that shares another's file, for ``__getattr__`` of the package. ``AttributeError``"""
    full = f"{package}.{name}"
    if full not in HOMES:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return importlib.import_module(full)


def public_name(name: str) -> str:
    """The name that programs use for a module: ``tesserack.linalg`` for ``tesserack.ops.linalg``."""
    return _replaced(name, _SHOWN) or name


class _Finder:
    """Answers for a module's other name with the module itself, so that there is one of each."""

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        place = _replaced(name, HOMES) if name.startswith("tesserack.") else None
        own = importlib.util.find_spec(place) if place else None
        if own is None:
            return None
        spec = ModuleSpec(name, cls, origin=own.origin, loader_state=own)  # type: ignore[arg-type]
        spec.has_location = own.has_location
        return spec

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        return importlib.import_module(spec.loader_state.name)

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        if module.__spec__:
            module.__spec__ = module.__spec__.loader_state  # back to its own, which the import has replaced

    @staticmethod
    def get_code(name: str) -> Any:
        """For ``python -m``."""
        spec = importlib.util.find_spec(home(name))
        return spec.loader.get_code(spec.name) if spec and spec.loader else None  # type: ignore[attr-defined]


def install() -> None:
    """Have imports answered for the names of this module."""
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)

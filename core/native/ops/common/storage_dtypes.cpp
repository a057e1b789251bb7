// Tensors of storage dtypes carry a key of their own, whose kernel asks whether an operator computes with the dtype.
// All others never meet it.
#include "ops/common/storage_dtypes.h"
#include "tensor/thread_state.h"
#include <algorithm>
#include <span>
#include <string_view>

namespace ts {
namespace {

// What PyTorch computes on the cpu. Views, answers, and operators made of others need not be named.
constexpr std::string_view kEvery[] = {"any",
                                       "all",
                                       "positive",
                                       "embedding",
                                       "eq",
                                       "ne",
                                       "isnan",
                                       "isreal",
                                       "where",
                                       "masked_select",
                                       "mul",
                                       "abs",
                                       "clone",
                                       "copy_",
                                       "fill_",
                                       "zero_",
                                       "cat",
                                       "stack",
                                       "concat",
                                       "roll",
                                       "repeat",
                                       "repeat_interleave",
                                       "tile",
                                       "constant_pad_nd",
                                       "pad",
                                       "diag",
                                       "diag_embed",
                                       "block_diag",
                                       "index",
                                       "index_put",
                                       "index_put_",
                                       "index_select",
                                       "basic_index_backward",
                                       "select_backward",
                                       "slice_backward",
                                       "unfold_backward",
                                       "diagonal_backward",
                                       "select_scatter",
                                       "slice_scatter",
                                       "diagonal_scatter",
                                       "as_strided_clear",
                                       "as_strided_take",
                                       "as_strided_scatter_add",
                                       "empty_like",
                                       "zeros_like",
                                       "ones_like",
                                       "full_like",
                                       "new_empty",
                                       "new_zeros",
                                       "new_ones",
                                       "new_full",
                                       "fill_diagonal_"};
constexpr std::string_view kComplex32[] = {
    "isfinite",      "add",        "sub",         "rsub",        "neg",        "conj_physical",
    "sgn",           "isinf",      "masked_fill", "isclose",     "allclose",   "addcmul",
    "count_nonzero", "nonzero",    "index_copy",  "index_copy_", "index_fill", "index_fill_",
    "index_add",     "index_add_", "tril",        "triu",        "norm",       "linalg_vector_norm",
    "std",           "std_mean",   "var",         "var_mean",    "rand_like",  "randn_like",
    "uniform_",      "normal_"};
// Made of others that do, and refused there nevertheless.
constexpr std::string_view kRefused[] = {"equal",
                                         "lerp",
                                         "nan_to_num",
                                         "pow",
                                         "pow_general",
                                         "square",
                                         "masked_scatter",
                                         "take",
                                         "put",
                                         "isneginf",
                                         "isposinf",
                                         "index_reduce",
                                         "_unique2",
                                         "_unique_consecutive",
                                         "unique_dim",
                                         "addr",
                                         "cross",
                                         "linalg_cross",
                                         "prelu",
                                         "gelu",
                                         "mvlgamma",
                                         "polygamma",
                                         "scatter",
                                         "scatter_reduce",
                                         "renorm",
                                         "logcumsumexp",
                                         "embedding_bag",
                                         "pixel_shuffle",
                                         "pixel_unshuffle",
                                         "channel_shuffle",
                                         "interpolate",
                                         "im2col",
                                         "cholesky_inverse",
                                         "cholesky_solve",
                                         "triangular_solve",
                                         "pinverse",
                                         "qr",
                                         "svd",
                                         "linalg_qr",
                                         "linalg_inv",
                                         "linalg_inv_ex",
                                         "linalg_eig",
                                         "linalg_eigvals",
                                         "linalg_eigh",
                                         "linalg_eigvalsh",
                                         "linalg_svd",
                                         "linalg_svdvals",
                                         "linalg_matrix_exp",
                                         "linalg_matrix_power",
                                         "linalg_multi_dot",
                                         "linalg_matrix_rank",
                                         "linalg_pinv"};

bool named(std::span<const std::string_view> names, const std::string& base) {
  return std::ranges::find(names, base) != names.end();
}

bool refuses(const std::string& base, DType t) {
  if (named(kRefused, base) || base.starts_with("_linalg")) return true;
  if (!is_float8(t)) return false;
  if (base == "isinf") return t != DType::Float8E5M2; // which alone has infinities
  return base == "isclose" || base == "allclose";
}

bool computes(const Operator& op, DType t) {
  const Operator& functional = op.functional ? *op.functional : op;
  const std::string& base = functional.schema->base;
  if (refuses(base, t)) return false;
  // Part of an operator that was asked already, or a gradient of one; those of linalg are hidden from others alone.
  if (functional.hidden && !base.starts_with("linalg_")) return true;
  if (t == DType::Float8E8M0FNU && (base == "abs" || base.starts_with("index_put"))) return false;
  if (is_float8(t) && base == "isfinite") return t == DType::Float8E5M2 || t == DType::Float8E8M0FNU;
  return named(kEvery, base) || (t == DType::Complex32 && named(kComplex32, base));
}

// Reductions and their like cast first to the dtype that they are given.
bool casts_first(const Frame& f) {
  return std::any_of(f.args, f.args + f.nargs,
                     [](const Value& v) { return v.tag == Tag::DType && !is_storage_dtype(static_cast<DType>(v.i)); });
}

DType storage_dtype(const Frame& f) {
  for (int32_t k = 0; k < f.nargs; ++k) {
    const Value& v = f.args[k];
    if (v.tag == Tag::Tensor && is_storage_dtype(v.tensor->dtype)) return v.tensor->dtype;
    if (v.tag == Tag::Tensors)
      for (const Tensor& t : v.as_tensors())
        if (t.defined() && is_storage_dtype(t.dtype())) return t.dtype();
  }
  return DType::Undefined;
}

// What an operator that computes with the dtype is made of is not asked again.
void ask(void*, const Operator& op, Frame& f, KeySet keys) {
  KeySet rest = keys & below(key::StorageDtype);
  DType t = storage_dtype(f);
  bool asks = op.kind == OperatorKind::Pointwise || op.kind == OperatorKind::Primitive ||
              op.kind == OperatorKind::DataDependent || refuses(op.schema->base, t);
  if (t == DType::Undefined || (!asks && !computes(op, t)) || casts_first(f)) return redispatch(op, f, rest);
  check_storage_dtype(op, t);
  ExcludeKeys inside(key_bit(key::StorageDtype));
  redispatch(op, f, rest);
}

struct Install {
  Install() { set_key_default(key::StorageDtype, {ask, nullptr, "tesserack"}); }
} install;

} // namespace

void check_storage_dtype(const Operator& op, DType t) {
  if (thread_state().exclude & key_bit(key::StorageDtype)) return;
  TS_CHECK_KIND(ErrorKind::NotImplemented, computes(op, t), op.name(), ": not implemented for dtype ", t,
                ", which is for storage; try .to(", is_complex(t) ? "complex64" : "float32", ")");
}

} // namespace ts

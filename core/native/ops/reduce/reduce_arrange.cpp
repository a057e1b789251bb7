#include "dispatch/launch.h"
#include "ops/common/copy.h"
#include "ops/common/raw.h"
#include "ops/common/storage_dtypes.h"
#include "ops/pointwise/fused_programs.h"

namespace ts {
namespace {

const KernelId kReduce("reduce");

struct Axes {
  Dims sizes, strides;
  // Merges with the previous dim when one step of that is a whole run of this.
  void push(int64_t size, int64_t stride) {
    if (size == 1) return;
    if (!sizes.empty() && strides.back() == size * stride) {
      sizes.back() *= size;
      strides.back() = stride;
      return;
    }
    sizes.push_back(size);
    strides.push_back(stride);
  }
};

// Reduced dims by falling stride, so that dense layouts merge into one run.
void order_by_stride(Dims& dims, IntSpan strides) {
  for (size_t i = 1; i < dims.size(); ++i)
    for (size_t j = i; j > 0; --j) {
      auto reach = [&](size_t k) { return std::abs(strides[static_cast<size_t>(dims[k])]); };
      if (reach(j - 1) >= reach(j)) break;
      std::swap(dims[j - 1], dims[j]);
    }
}

bool has_identity(int opcode) {
  return opcode == TS_R_SUM || opcode == TS_R_PROD || opcode == TS_R_ANY || opcode == TS_R_ALL;
}
bool positional(int opcode) { return opcode == TS_R_ARGMAX || opcode == TS_R_ARGMIN; }

void check_not_empty(const char* op, const Tensor& self, DimSet dims) {
  for (size_t d = 0; d < self.sizes().size(); ++d)
    TS_CHECK_INDEX(!in_set(dims, d) || self.sizes()[d] != 0, op, ": Expected reduction dim ", d,
                   " to have non-zero size, got shape ", self.sizes());
}

} // namespace

DimSet dim_set_of(std::optional<IntSpan> dims, int64_t ndim, const char* op) {
  if (!dims || dims->empty()) return all_dims(ndim);
  check_set_dims(ndim, op);
  DimSet set = 0;
  for (int64_t d : *dims) {
    int64_t w = wrap_dim(d, ndim, op);
    TS_CHECK(!in_set(set, static_cast<size_t>(w)), op, ": dim ", w, " appears multiple times in the list of dims ",
             *dims);
    set |= DimSet{1} << w;
  }
  return ndim ? set : 0;
}

int64_t reduced_count(IntSpan sizes, DimSet dims) {
  int64_t n = 1;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (in_set(dims, d)) n *= sizes[d];
  return n;
}

// A run of elements, or rows of a matrix: as the kernel wants them.
static bool lies_arranged(size_t ndim, DimSet dims) { return (ndim == 2 && dims == 2) || (ndim == 1 && dims == 1); }

Arranged arrange(const Tensor& self, DimSet dims, bool ordered) {
  Arranged a;
  IntSpan sizes = self.sizes(), strides = self.strides();
  size_t n = sizes.size();
  if (lies_arranged(n, dims)) {
    if (n == 2) a.kept.push_back(sizes[0]);
    a.n_reduced = 1;
    return a;
  }
  Axes kept, reduced;
  Dims inner;
  for (size_t d = 0; d < n; ++d) {
    if (in_set(dims, d))
      inner.push_back(static_cast<int64_t>(d));
    else
      kept.push(sizes[d], strides[d]);
  }
  if (!ordered) order_by_stride(inner, strides);
  for (int64_t d : inner) reduced.push(sizes[static_cast<size_t>(d)], strides[static_cast<size_t>(d)]);
  if (reduced.sizes.empty()) {
    reduced.sizes.push_back(1);
    reduced.strides.push_back(1);
  }
  a.kept = kept.sizes;
  a.n_reduced = static_cast<int64_t>(reduced.sizes.size());
  for (size_t d = 0; d < reduced.sizes.size(); ++d) {
    kept.sizes.push_back(reduced.sizes[d]);
    kept.strides.push_back(reduced.strides[d]);
  }
  a.sizes = std::move(kept.sizes);
  a.strides = std::move(kept.strides);
  return a;
}

Tensor reduce_outline(const char* op, int opcode, const Tensor& self, DimSet dims, bool keepdim, DType dtype) {
  refuse_storage_dtype(dtype, op);
  TS_CHECK_KIND(ErrorKind::NotImplemented, has_identity(opcode) || !is_complex(self.dtype()), op,
                ": complex numbers have no order, got ", self.dtype());
  if (self.numel() == 0 && !has_identity(opcode)) check_not_empty(op, self, dims);
  IntSpan sizes = self.sizes();
  if (lies_arranged(sizes.size(), dims)) {
    int64_t result[] = {sizes.size() == 2 ? sizes[0] : 1, 1};
    return outline({result, sizes.size() - !keepdim}, dtype, self.device());
  }
  Dims kept;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (!in_set(dims, d))
      kept.push_back(sizes[d]);
    else if (keepdim)
      kept.push_back(1);
  }
  return outline(kept, dtype, self.device());
}

static bool is_arithmetic(int opcode) { return opcode == TS_R_SUM || opcode == TS_R_PROD; }

// Integers are summed in the result's type; positions and truth are found in the operand's own.
static DType accumulated_in(const Tensor& out, int opcode, const Tensor& self) {
  return accumulate_type(is_arithmetic(opcode) ? out.dtype() : self.dtype());
}

// False where the backend has no kernel for this operand.
static bool launch_reduce(const Tensor& out, int opcode, const Tensor& self, DimSet dims, bool required,
                          const ts_program* prologue = nullptr) {
  Launch launch(kReduce, self.device());
  launch.opcode(opcode).compute(accumulated_in(out, opcode, self));
  if (prologue) launch.prologue(prologue);
  auto run = [&] {
    if (!required) return launch.run();
    launch.run_required();
    return true;
  };
  size_t ndim = self.sizes().size();
  if (lies_arranged(ndim, dims)) {
    constexpr int64_t one = 1;
    launch.out(out, self.sizes().first(ndim - 1), {&one, ndim - 1}).in(self).param(int64_t{1});
    return run();
  }
  Arranged a = arrange(self, dims, positional(opcode));
  Dims strides = contiguous_strides(a.kept);
  launch.out(out, a.kept, strides).in(self, a.sizes, a.strides).param(a.n_reduced);
  return run();
}

// The product of a (kept, n) matrix along its rows, by halves: each round is one multiplication.
static Tensor product_by_halves(Tensor x) {
  for (int64_t n = x.size(1); n > 1; n = x.size(1)) {
    int64_t half = n / 2;
    Tensor y = ops::mul(ops::narrow(x, int64_t{1}, int64_t{0}, half), ops::narrow(x, int64_t{1}, half, half));
    if (n % 2) {
      Tensor first = ops::narrow(y, int64_t{1}, int64_t{0}, int64_t{1});
      ops::mul_(first, ops::narrow(x, int64_t{1}, n - 1, int64_t{1}));
    }
    x = y;
  }
  return x;
}

// By the kernel of products of pairs, if there is one; x and out are contiguous, x as (.., n, inner) numbers.
static const KernelId kPairs("complex_product");
static bool product_of_pairs(const Tensor& out, const Tensor& x, int64_t n, int64_t inner) {
  return out.is_contiguous() &&
         Launch(kPairs, out.device()).out(raw_parts(out)).in(raw_parts(x)).param(n).param(inner).run();
}
static bool is_one_dim(DimSet dims, const Tensor& x) {
  return x.ndim() > 0 && x.ndim() <= kSetDims && (dims & (dims - 1)) == 0 && x.is_contiguous();
}

// Complex sums go by parts, products by halves where there is no kernel.
static void reduce_complex_into(const Tensor& out, int opcode, const Tensor& self, DimSet dims) {
  if (!is_arithmetic(opcode)) return reduce_into(out, opcode, ops::ne(self, Scalar(0)), dims);
  Tensor x = raw_cast(self, out.dtype());
  if (!is_complex(x.dtype())) return reduce_into(out, opcode, x, dims);
  if (opcode == TS_R_SUM) return reduce_into(raw_parts(out), opcode, raw_parts(x), dims);
  if (is_one_dim(dims, x)) {
    int64_t d = 0, inner = 1;
    while (!in_set(dims, static_cast<size_t>(d))) ++d;
    for (int64_t k = d + 1; k < x.ndim(); ++k) inner *= x.size(k);
    if (product_of_pairs(out, x, x.size(d), inner)) return;
  }
  Arranged a = arrange(x, dims, false);
  Tensor dense = raw_contiguous(a.sizes.empty() ? x : alias(x, a.sizes, a.strides, x->byte_offset));
  int64_t sizes[] = {out.numel(), dense.numel() / out.numel()};
  if (product_of_pairs(out, dense, sizes[1], 1)) return;
  Tensor product = product_by_halves(alias(dense, sizes, contiguous_strides(sizes), dense->byte_offset));
  product = raw_contiguous(product);
  raw_copy(out, alias(product, out.sizes(), contiguous_strides(out.sizes()), product->byte_offset));
}

// Reduced dims along which one element stands for all, as in the gradient of a sum.
static DimSet reduce_arrange_repeated_dims(const Tensor& self, DimSet dims) {
  DimSet repeated = 0;
  if (self.ndim() > kSetDims) return repeated;
  for (size_t d = 0; d < self.sizes().size(); ++d)
    if (in_set(dims, d) && self.strides()[d] == 0 && self.sizes()[d] > 1) repeated |= DimSet{1} << d;
  return repeated;
}
// Half types keep their sums in a wider one, and are to be rounded but once.
static bool reduces_once(const Tensor& out, int opcode, const Tensor& self) {
  if (opcode == TS_R_SUM) return accumulate_type(out.dtype()) == out.dtype() && !is_bool(self.dtype());
  return opcode == TS_R_MAX || opcode == TS_R_MIN || opcode == TS_R_ANY || opcode == TS_R_ALL;
}
static void reduce_repeated_into(const Tensor& out, int opcode, const Tensor& self, DimSet dims, DimSet repeated) {
  Tensor once = self;
  for (size_t d = 0; d < self.sizes().size(); ++d)
    if (in_set(repeated, d)) once = raw_narrow(once, static_cast<int64_t>(d), 0, 1);
  reduce_into(out, opcode, once, dims);
  if (opcode == TS_R_SUM) ops::mul_(out, Scalar(reduced_count(self.sizes(), repeated)));
}

void reduce_into(const Tensor& out, int opcode, const Tensor& self, DimSet dims) {
  if (out.numel() == 0) return;
  if (self.numel() == 0) return raw_fill(out, opcode == TS_R_PROD || opcode == TS_R_ALL ? 1 : 0);
  if (is_complex(self.dtype()) || is_complex(out.dtype())) return reduce_complex_into(out, opcode, self, dims);
  if (is_narrow(self.dtype())) return reduce_into(out, opcode, raw_cast(self, DType::Float32), dims);
  if (DimSet repeated = reduce_arrange_repeated_dims(self, dims); repeated && reduces_once(out, opcode, self))
    return reduce_repeated_into(out, opcode, self, dims, repeated);
  if (launch_reduce(out, opcode, self, dims, false)) return;
  // A backend may take only operands of the result's dtype.
  launch_reduce(out, opcode, is_arithmetic(opcode) ? raw_cast(self, out.dtype()) : self, dims, true);
}

bool reduce_program_into(const Tensor& out, int opcode, const Tensor& self, DimSet dims, const ts_program* prologue) {
  if (out.numel() == 0 || self.numel() == 0 || self.device().is_meta()) return false;
  const ts_kernel* kernel = backend_of(self.device()).kernel(kReduce, self.device().index);
  return kernel && (kernel->flags & TS_K_PROLOGUE) && launch_reduce(out, opcode, self, dims, false, prologue);
}

Tensor run_reduce(const char* op, int opcode, const Tensor& self, DimSet dims, bool keepdim, DType dtype) {
  Tensor out = reduce_outline(op, opcode, self, dims, keepdim, dtype);
  give_memory(*out.impl());
  reduce_into(out, opcode, self, dims);
  return out;
}

Tensor restore_dims(const Tensor& reduced, IntSpan sizes, DimSet dims, bool keepdim) {
  if (keepdim || sizes.empty() || reduced.ndim() == static_cast<int64_t>(sizes.size())) return reduced;
  Dims with_ones(sizes);
  for (size_t d = 0; d < sizes.size(); ++d)
    if (in_set(dims, d)) with_ones[d] = 1;
  return ops::reshape(reduced, with_ones);
}

Tensor expand_reduced(const Tensor& reduced, IntSpan sizes, DimSet dims, bool keepdim) {
  // A 0-d result broadcasts as it is.
  if (reduced.ndim() > 0 && !keepdim && !sizes.empty())
    return ops::expand(restore_dims(reduced, sizes, dims, keepdim), sizes);
  return ops::expand(reduced, sizes);
}

Dims dim_list(DimSet dims) {
  Dims out;
  for (int64_t d = 0; dims; ++d, dims >>= 1)
    if (dims & 1) out.push_back(d);
  return out;
}

Tensor as_dtype(const Tensor& t, DType dtype) {
  if (t.dtype() == dtype) return t;
  if (is_complex(t.dtype()) && !is_complex(dtype)) return as_dtype(ops::real(t), dtype);
  return ops::to_dtype(t, dtype);
}

} // namespace ts

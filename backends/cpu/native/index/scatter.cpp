// scatter and index_add_. Threads share any dimension but the indexed one, so results do not depend on their number.
#include "scatter.h"
#include "gather_index.h"
#include "strided_rows.h"
#include "threads.h"

#include <algorithm>
#include <complex>
#include <vector>

namespace tesserack::cpu {
namespace {

using backend::Call;
using backend::Tensor;

constexpr uint64_t kAnyDtype = (uint64_t{1} << TS_NUM_DTYPES) - 1;
constexpr int64_t kScatterGrain = 16384; // elements worth a thread

struct Set {
  template <class T> static T apply(T, T value) { return value; }
};
struct Add {
  template <class T> static T apply(T old, T value) { return static_cast<T>(old + value); }
};
struct Prod {
  template <class T> static T apply(T old, T value) { return static_cast<T>(old * value); }
};
struct Max {
  template <class T> static T apply(T old, T value) { return old != old || old > value ? old : value; }
};
struct Min {
  template <class T> static T apply(T old, T value) { return old != old || old < value ? old : value; }
};

template <class Combine, class T> void combine(T& target, const T& value) {
  if constexpr (std::is_same_v<Combine, Set>) {
    target = value;
  } else if constexpr (is_half<T>) {
    target = store<T>(Combine::apply(load(target), load(value)));
  } else {
    target = Combine::apply(target, value);
  }
}

constexpr int64_t kIndices = 512; // checked and scaled at once

// offsets[j] = step * index[j], checked.
__attribute__((noinline)) void read_indices(const ScatterProblem& p, const char* index, int64_t index_step, int64_t n,
                                            int64_t step, int64_t* offsets) {
  switch_index(p.op, p.index_dtype, [&](auto tag) {
    const auto* at = reinterpret_cast<const typename decltype(tag)::type*>(index);
    for (int64_t j = 0; j < n; ++j) offsets[j] = step * checked_index(p.op, at[j * index_step], p.dim, p.limit);
  });
}

template <class Combine, class T>
void scatter_row(T* to, int64_t to_step, const int64_t* offsets, const T* from, int64_t from_step, int64_t n) {
  for (int64_t j = 0; j < n; ++j) combine<Combine>(to[j * to_step + offsets[j]], from[j * from_step]);
}

// Everything side by side, the indexed dimension last.
template <class Combine, class T>
void scatter_dense(const ScatterProblem& p, T* to, const char* index, const T* from, int64_t n) {
  switch_index(p.op, p.index_dtype, [&](auto tag) {
    const auto* at = reinterpret_cast<const typename decltype(tag)::type*>(index);
    each_checked(p.op, at, n, p.dim, p.limit, [=](int64_t j, auto to_here) { combine<Combine>(to[to_here], from[j]); });
  });
}

// A whole row goes to one place along the indexed dimension.
template <class Combine, class T>
void combine_row(T* to, int64_t to_step, const T* from, int64_t from_step, int64_t n) {
  if (to_step == 1 && from_step == 1) {
    for (int64_t j = 0; j < n; ++j) combine<Combine>(to[j], from[j]);
  } else {
    for (int64_t j = 0; j < n; ++j) combine<Combine>(to[j * to_step], from[j * from_step]);
  }
}

// One row of a problem: n elements, and how far apart they lie.
struct ScatterRow {
  const ScatterProblem& problem;
  char* to;
  const char *index, *from;
  int64_t n, to_step, index_step, from_step, step; // the last: of the indexed dimension
  bool whole, dense;                               // one place for all of it; everything side by side
};

template <class Combine, class T> void scatter_one_row(const ScatterRow& r) {
  T* to = reinterpret_cast<T*>(r.to);
  const T* from = reinterpret_cast<const T*>(r.from);
  int64_t offsets[kIndices];
  if (r.whole) {
    read_indices(r.problem, r.index, 0, 1, r.step, offsets);
    return combine_row<Combine>(to + offsets[0], r.to_step, from, r.from_step, r.n);
  }
  if (r.dense) return scatter_dense<Combine>(r.problem, to, r.index, from, r.n);
  const int64_t item = backend::dtype_size(r.problem.index_dtype);
  for (int64_t j = 0; j < r.n; j += kIndices) {
    const int64_t some = std::min(kIndices, r.n - j);
    read_indices(r.problem, r.index + j * r.index_step * item, r.index_step, some, r.step, offsets);
    scatter_row<Combine>(to + j * r.to_step, r.to_step, offsets, from + j * r.from_step, r.from_step, some);
  }
}

// What is made for each way to combine and each dtype: the rest is the same for all.
struct RowKernel {
  void (*run)(const ScatterRow& row);
  int64_t item; // bytes of an element
};
template <class Combine, class T> constexpr RowKernel row_kernel{scatter_one_row<Combine, T>, sizeof(T)};

// The part of the problem whose coordinate in dimension `split` lies in [begin, end).
void scatter_part(const ScatterProblem& p, const RowKernel& kernel, int split, int64_t begin, int64_t end) {
  const int last = static_cast<int>(p.sizes.size()) - 1;
  std::vector<int64_t> sizes(p.sizes.begin(), p.sizes.end());
  std::vector<int64_t> out_strides(p.out.strides.begin(), p.out.strides.end());
  const int64_t step = out_strides[p.dim], index_item = backend::dtype_size(p.index_dtype);
  out_strides[p.dim] = 0;
  sizes[split] = end - begin;
  char* to = static_cast<char*>(p.out.data) + begin * out_strides[split] * kernel.item;
  const char* index = p.index.data + begin * p.index.strides[split] * index_item;
  const char* from = static_cast<const char*>(p.source.data) + begin * p.source.strides[split] * kernel.item;
  StridedRows<3> rows(sizes, last, {out_strides, p.index.strides, p.source.strides});
  rows.seek(0);
  ScatterRow row{
      p,    nullptr, nullptr, nullptr, sizes[last], out_strides[last], p.index.strides[last], p.source.strides[last],
      step, false,   false};
  row.whole = row.index_step == 0 && last != p.dim;
  row.dense = last == p.dim && step == 1 && row.index_step == 1 && row.from_step == 1;
  for (int64_t k = 0; k < rows.count(); ++k, rows.next()) {
    row.to = to + rows.offset(0) * kernel.item;
    row.index = index + rows.offset(1) * index_item;
    row.from = from + rows.offset(2) * kernel.item;
    kernel.run(row);
  }
}

void scatter_all(const ScatterProblem& p, const RowKernel& kernel) {
  int split = 0;
  for (int d = 0; d < static_cast<int>(p.sizes.size()); ++d)
    if (d != p.dim && (split == p.dim || p.sizes[d] > p.sizes[split])) split = d;
  int64_t numel = 1;
  for (int64_t size : p.sizes) numel *= size;
  if (split == p.dim) return scatter_part(p, kernel, split, 0, p.sizes[split]);
  const int64_t per_slice = std::max<int64_t>(1, numel / p.sizes[split]);
  parallel_for(0, p.sizes[split], std::max<int64_t>(1, kScatterGrain / per_slice),
               [&](int64_t begin, int64_t end) { scatter_part(p, kernel, split, begin, end); });
}

template <class Combine, class T> void scatter_typed(const ScatterProblem& p) {
  scatter_all(p, row_kernel<Combine, T>);
}

template <class Combine> void scatter_ordered(const ScatterProblem& p) {
  if (p.dtype == TS_BOOL) return scatter_typed<Combine, bool>(p);
  switch_real(p.op, p.dtype, [&](auto tag) { scatter_typed<Combine, typename decltype(tag)::type>(p); });
}

template <class Combine> void scatter_field(const ScatterProblem& p) {
  if (p.dtype == TS_COMPLEX64) return scatter_typed<Combine, std::complex<float>>(p);
  if (p.dtype == TS_COMPLEX128) return scatter_typed<Combine, std::complex<double>>(p);
  scatter_ordered<Combine>(p);
}

// One element in the tensor's own dtype, for operands whose value stands in the call.
struct Element {
  alignas(16) char bytes[16] = {};
  explicit Element(const Tensor& tensor) {
    switch_real("scatter", tensor.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T value;
      if constexpr (is_float<T>) {
        value = store<T>(static_cast<Accumulator<T>>(tensor.raw()->scalar.f));
      } else {
        value = static_cast<T>(tensor.raw()->scalar.i);
      }
      std::memcpy(bytes, &value, sizeof value);
    });
  }
};

void scatter(const Call& call) {
  const Tensor out = call.out(0), index = call.in(0), source = call.in(1);
  static constexpr int64_t one = 1, zero = 0;
  ScatterProblem p{};
  p.op = "scatter";
  p.combine = call.opcode();
  p.dtype = out.dtype();
  p.index_dtype = index.dtype();
  p.dim = static_cast<int>(call.param(0).as_int());
  p.limit = 1;
  p.out.data = out.bytes();
  p.index.data = index.bytes();
  std::vector<int64_t> zeros;
  alignas(16) char element[16];
  if (source.is_scalar()) {
    const Element value(source);
    std::memcpy(element, value.bytes, sizeof element);
    zeros.assign(static_cast<size_t>(std::max(1, index.ndim())), 0);
    p.source = {element, zeros};
  } else {
    p.source = {source.bytes(), source.strides()};
  }
  if (out.ndim() == 0) { // as one element of one dimension
    p.dim = 0;
    p.sizes = {&one, 1};
    p.out.strides = p.index.strides = p.source.strides = {&zero, 1};
  } else {
    p.limit = out.size(p.dim);
    p.sizes = index.sizes();
    p.out.strides = out.strides();
    p.index.strides = index.strides();
  }
  scatter_into(p);
}

void index_add(const Call& call) {
  const Tensor self = call.in(0), index = call.in(1), source = call.in(2);
  static constexpr int64_t one = 1, zero = 0;
  const int64_t slices = source.ndim() ? source.size(static_cast<int>(call.param(0).as_int())) : 1;
  if (self.ndim() != source.ndim() || index.numel() != slices)
    backend::fail(TS_ERROR, "index_add_: expected an index of %lld elements beside a source of self's rank, got %lld",
                  static_cast<long long>(slices), static_cast<long long>(index.numel()));
  ScatterProblem p{};
  p.op = "index_add_";
  p.combine = TS_S_ADD;
  p.dtype = self.dtype();
  p.index_dtype = index.dtype();
  p.dim = static_cast<int>(call.param(0).as_int());
  p.limit = 1;
  p.out.data = self.bytes();
  p.index.data = index.bytes();
  p.source.data = source.bytes();
  std::vector<int64_t> index_strides(static_cast<size_t>(std::max(1, source.ndim())), 0);
  if (index.ndim() != 0) index_strides[static_cast<size_t>(p.dim)] = index.stride(0);
  p.index.strides = index_strides;
  if (self.ndim() == 0) {
    p.dim = 0;
    p.sizes = {&one, 1};
    p.out.strides = p.source.strides = {&zero, 1};
  } else {
    p.limit = self.size(p.dim);
    p.sizes = source.sizes();
    p.out.strides = self.strides();
    p.source.strides = source.strides();
  }
  scatter_into(p);
}

} // namespace

void scatter_into(const ScatterProblem& problem) {
  switch (problem.combine) {
  case TS_S_SET:
    return switch_word(problem.op, backend::dtype_size(problem.dtype),
                       [&](auto tag) { scatter_typed<Set, typename decltype(tag)::type>(problem); });
  case TS_S_ADD: return scatter_field<Add>(problem);
  case TS_S_PROD: return scatter_field<Prod>(problem);
  case TS_S_MAX: return scatter_ordered<Max>(problem);
  case TS_S_MIN: return scatter_ordered<Min>(problem);
  default: backend::fail(TS_ERROR, "%s: unknown way to combine, opcode %d", problem.op, problem.combine);
  }
}

TS_KERNEL_AS("scatter", scatter, kAnyDtype, TS_L_STRIDED);
TS_KERNEL("index_add_", index_add);

} // namespace tesserack::cpu

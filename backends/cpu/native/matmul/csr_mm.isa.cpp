// The product of a matrix in compressed rows with a dense one: every row of the result is a sum of rows.
#include "index/gather_index.h"
#include "threads.h"

#include <algorithm>
#include <vector>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

using backend::Call;
using backend::Tensor;

template <class Index, class T> struct Product {
  const Index *heads, *at;
  const T *values, *dense;
  T* out;
  int64_t rows, inner, width, count;

  // Elements begin .. end of the row, checked.
  void range(int64_t row, int64_t& begin, int64_t& end) const {
    begin = static_cast<int64_t>(heads[row]);
    end = static_cast<int64_t>(heads[row + 1]);
    if (begin < 0 || end < begin || end > count)
      backend::fail(TS_INDEX_ERROR, "_csr_mm: row %lld has the elements %lld to %lld of %lld",
                    static_cast<long long>(row), static_cast<long long>(begin), static_cast<long long>(end),
                    static_cast<long long>(count));
  }

  void add_row(int64_t begin, int64_t end, Accumulator<T>* sum) const {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t column = checked_index("_csr_mm", at[k], 0, inner);
      const T* source = dense + column * width;
      const Accumulator<T> factor = load(values[k]);
      for (int64_t j = 0; j < width; ++j) sum[j] += factor * load(source[j]);
    }
  }

  // By a vector: four sums, in registers, for one would wait for itself at every element.
  Accumulator<T> sum_of_row(int64_t begin, int64_t end) const {
    Accumulator<T> sum[4] = {};
    int64_t k = begin;
    const auto add = [&](int64_t place, int way) {
      sum[way] = static_cast<Accumulator<T>>(sum[way] + load(values[place]) *
                                                            load(dense[checked_index("_csr_mm", at[place], 0, inner)]));
    };
    for (; k + 4 <= end; k += 4)
      for (int way = 0; way < 4; ++way) add(k + way, way);
    for (; k < end; ++k) add(k, 0);
    return static_cast<Accumulator<T>>((sum[0] + sum[1]) + (sum[2] + sum[3]));
  }

  void run(int64_t first, int64_t last) const {
    if (width == 1) {
      for (int64_t row = first; row < last; ++row) {
        int64_t begin = 0, end = 0;
        range(row, begin, end);
        out[row] = store<T>(sum_of_row(begin, end));
      }
      return;
    }
    std::vector<Accumulator<T>> buffer(static_cast<size_t>(is_half<T> ? width : 0));
    for (int64_t row = first; row < last; ++row) {
      int64_t begin = 0, end = 0;
      range(row, begin, end);
      T* into = out + row * width;
      if constexpr (is_half<T>) {
        std::fill(buffer.begin(), buffer.end(), Accumulator<T>{0});
        add_row(begin, end, buffer.data());
        for (int64_t j = 0; j < width; ++j) into[j] = store<T>(buffer[static_cast<size_t>(j)]);
      } else {
        std::fill_n(into, width, T{0});
        add_row(begin, end, into);
      }
    }
  }
};

template <class Index, class T> void multiply(const Call& call) {
  const Tensor out = call.out(0), heads = call.in(0), at = call.in(1), values = call.in(2), dense = call.in(3);
  const Product<Index, T> product{heads.data<Index>(), at.data<Index>(), values.data<T>(),
                                  dense.data<T>(),     out.data<T>(),    out.size(0),
                                  dense.size(0),       out.size(1),      values.numel()};
  const int64_t per_row = (product.count / std::max<int64_t>(1, product.rows) + 1) * product.width;
  parallel_for(0, product.rows, std::max<int64_t>(1, 32768 / std::max<int64_t>(1, per_row)),
               [&](int64_t begin, int64_t end) { product.run(begin, end); });
}

void csr_mm(const Call& call) {
  switch_index("_csr_mm", call.in(0).dtype(), [&](auto index) {
    switch_real("_csr_mm", call.out(0).dtype(),
                [&](auto tag) { multiply<typename decltype(index)::type, typename decltype(tag)::type>(call); });
  });
}

constexpr uint64_t kDtypes = ((uint64_t{1} << TS_COMPLEX64) - 1) & ~(uint64_t{1} << TS_BOOL);

} // namespace

TS_KERNEL_AS("csr_mm", csr_mm, kDtypes, TS_L_CONTIGUOUS);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

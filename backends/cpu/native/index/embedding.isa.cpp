// embedding, sums and maxima of bags of rows, and their gradients: rows of a table by a checked index.
#include "gather_index.h"
#include "half_rows.h"
#include "picked_rows.h"
#include "threads.h"

#include <algorithm>
#include <vector>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

using backend::Call;
using backend::Tensor;

constexpr int64_t kPicked = 256; // rows whose places are kept at a time

template <class Index> void copy_table_rows(const Call& call) {
  const Tensor out = call.out(0), table = call.in(0), indices = call.in(1);
  const int64_t rows = table.size(0), row_bytes = table.numel() / rows * table.item_size();
  const Index* at = indices.data<Index>();
  const int64_t grain = std::max<int64_t>(1, 65536 / std::max<int64_t>(1, row_bytes));
  parallel_for(0, indices.numel(), grain, [&](int64_t begin, int64_t end) {
    int64_t offsets[kPicked];
    for (int64_t i = begin; i < end; i += kPicked) {
      const int64_t count = std::min(kPicked, end - i);
      for (int64_t k = 0; k < count; ++k) offsets[k] = row_bytes * checked_index("embedding", at[i + k], 0, rows);
      pick_copy_picked_rows()(out.bytes() + i * row_bytes, table.bytes(), offsets, count, row_bytes);
    }
  });
}

void embedding(const Call& call) {
  switch_index("embedding", call.in(1).dtype(), [&](auto tag) { copy_table_rows<typename decltype(tag)::type>(call); });
}

// Positions ordered by the table row they name: those of row r are order[start[r]] .. order[start[r + 1] - 1].
struct Occurrences {
  std::vector<int64_t> start, order;

  template <class Index> Occurrences(const Index* at, int64_t count, int64_t rows, int64_t skipped) {
    start.assign(static_cast<size_t>(rows) + 1, 0);
    order.resize(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = checked_index("embedding_backward", at[i], 0, rows);
      if (row != skipped) ++start[static_cast<size_t>(row) + 1];
    }
    for (size_t row = 0; row < static_cast<size_t>(rows); ++row) start[row + 1] += start[row];
    std::vector<int64_t> next(start.begin(), start.end() - 1);
    for (int64_t i = 0; i < count; ++i)
      if (at[i] != skipped) order[static_cast<size_t>(next[static_cast<size_t>(at[i])]++)] = i;
  }
};

constexpr int64_t kPart = int64_t{1} << 22; // rows added up before float32 would stop counting
constexpr int64_t kColumns = 64;            // whose sums stay in registers
constexpr int64_t kAhead = 8;               // rows asked for

// Sums of the rows at [first, last), each times its scale if there is one; columns [0, N) of what begins at `rows`.
template <int64_t N, bool Scaled, class T>
void sum_columns(const T* rows, int64_t width, const int64_t* first, const int64_t* last, const T* scale,
                 Accumulator<T>* sum) {
  Accumulator<T> held[N];
  std::copy_n(sum, N, held);
  for (; first != last; ++first) {
    if (last - first > kAhead)
      for (int64_t at = 0; at < N; at += 64 / int64_t{sizeof(T)}) __builtin_prefetch(rows + first[kAhead] * width + at);
    const T* const row = rows + *first * width;
    const Accumulator<T> by = Scaled ? load(*scale++) : Accumulator<T>{1};
    if constexpr (std::is_same_v<T, Float16>) {
      float wide[N];
      convert_row(wide, row, N);
#pragma GCC unroll 64
      for (int64_t j = 0; j < N; ++j) held[j] += Scaled ? wide[j] * by : wide[j];
    } else {
#pragma GCC unroll 64
      for (int64_t j = 0; j < N; ++j) held[j] += Scaled ? load(row[j]) * by : load(row[j]);
    }
  }
  std::copy_n(held, N, sum);
}
template <bool Scaled, class T>
void sum_all_columns(const T* rows, int64_t width, const int64_t* first, const int64_t* last, const T* scale,
                     Accumulator<T>* sum) {
  int64_t j = 0;
  for (; j + kColumns <= width; j += kColumns)
    sum_columns<kColumns, Scaled>(rows + j, width, first, last, scale, sum + j);
  for (; j + 8 <= width; j += 8) sum_columns<8, Scaled>(rows + j, width, first, last, scale, sum + j);
  for (; j < width; ++j) sum_columns<1, Scaled>(rows + j, width, first, last, scale, sum + j);
}

template <class T>
void sum_rows(const T* rows, int64_t width, const int64_t* first, const int64_t* last, const T* scale,
              Accumulator<T>* sum, T* out) {
  const bool parts = last - first > kPart;
  std::vector<double> total(parts ? static_cast<size_t>(width) : 0);
  do {
    const int64_t count = std::min<int64_t>(kPart, last - first);
    std::fill_n(sum, width, Accumulator<T>{0});
    if (scale != nullptr)
      sum_all_columns<true>(rows, width, first, first + count, scale, sum), scale += count;
    else
      sum_all_columns<false>(rows, width, first, first + count, scale, sum);
    first += count;
    for (size_t j = 0; j < total.size(); ++j) total[j] += static_cast<double>(sum[j]);
  } while (first != last);
  for (size_t j = 0; j < total.size(); ++j) sum[j] = static_cast<Accumulator<T>>(total[j]);
  for (int64_t j = 0; j < width; ++j) out[j] = store<T>(sum[j]);
}

// `scale`, if any, in the order of the occurrences.
template <class T> void add_table_gradients(const Call& call, const Occurrences& found, const T* scale) {
  const Tensor out = call.out(0), grad = call.in(0);
  const int64_t rows = out.size(0), width = out.numel() / rows;
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, width));
  parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
    std::vector<Accumulator<T>> sum(static_cast<size_t>(width));
    for (int64_t row = begin; row < end; ++row) {
      const int64_t* order = found.order.data();
      const int64_t first = found.start[static_cast<size_t>(row)], last = found.start[static_cast<size_t>(row) + 1];
      sum_rows(grad.data<T>(), width, order + first, order + last, scale != nullptr ? scale + first : nullptr,
               sum.data(), out.data<T>() + row * width);
    }
  });
}

void embedding_backward(const Call& call) {
  const Tensor grad = call.in(0), indices = call.in(1);
  const int64_t rows = call.param(0).as_int(), padding = call.param(1).as_int();
  switch_index("embedding_backward", indices.dtype(), [&](auto index) {
    using Index = typename decltype(index)::type;
    const Occurrences found(indices.data<Index>(), indices.numel(), rows, padding);
    switch_float("embedding_backward", grad.dtype(),
                 [&](auto tag) { add_table_gradients<typename decltype(tag)::type>(call, found, nullptr); });
  });
}

// Where bags of `count` positions begin, in order, and where the last ends.
std::vector<int64_t> bag_starts(const Tensor& starts, int64_t count) {
  const int64_t n = starts.numel();
  std::vector<int64_t> start(starts.data<int64_t>(), starts.data<int64_t>() + n);
  if (!std::is_sorted(start.begin(), start.end())) std::sort(start.begin(), start.end());
  const bool all = n == 0 ? count == 0 : start.front() == 0 && start.back() <= count;
  if (!all)
    backend::fail(TS_INDEX_ERROR,
                  "embedding_bag: expected bags that begin from 0 to %lld, the first at 0, got %lld to %lld",
                  static_cast<long long>(count), static_cast<long long>(n > 0 ? start.front() : 0),
                  static_cast<long long>(n > 0 ? start.back() : 0));
  start.push_back(count);
  return start;
}

// inputs: table (rows, width), int64 indices (n), int64 starts (bags), scale (n) or none; outputs: sums (bags, width)
void bag_sums(const Call& call) {
  const Tensor out = call.out(0), table = call.in(0), indices = call.in(1);
  const int64_t bags = out.size(0), rows = table.size(0), width = table.size(1), count = indices.numel();
  const int64_t* const at = indices.data<int64_t>();
  const std::vector<int64_t> start = bag_starts(call.in(2), count);
  for (int64_t i = 0; i < count; ++i) checked_index("embedding_bag", at[i], 0, rows);
  switch_float(call.op(), table.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const scale = call.has_in(3) ? call.in(3).data<T>() : nullptr;
    const int64_t each = std::max<int64_t>(1, width * std::max<int64_t>(1, count / std::max<int64_t>(1, bags)));
    parallel_for(0, bags, std::max<int64_t>(1, 16384 / each), [&](int64_t begin, int64_t end) {
      std::vector<Accumulator<T>> sum(static_cast<size_t>(width));
      for (int64_t bag = begin; bag < end; ++bag) {
        const int64_t first = start[static_cast<size_t>(bag)], last = start[static_cast<size_t>(bag) + 1];
        sum_rows(table.data<T>(), width, at + first, at + last, scale != nullptr ? scale + first : nullptr, sum.data(),
                 out.data<T>() + bag * width);
      }
    });
  });
}

// Where `row`, number `at` of the table, is greater than what was found, or no number: of equals the first stays.
template <class T>
void take_row(const T* __restrict row, int64_t at, int64_t width, Accumulator<T>* __restrict best,
              int64_t* __restrict where) {
  for (int64_t j = 0; j < width; ++j) {
    const Accumulator<T> value = load(row[j]), before = best[j];
    const bool better = (value > before) | ((value != value) & (before == before));
    best[j] = better ? value : before;
    where[j] = better ? at : where[j];
  }
}

// inputs: table (rows, width), int64 indices (n), int64 starts (bags); outputs: maxima (bags, width), zero of empty
// bags, and the row of each, -1 of those
void bag_maxima(const Call& call) {
  const Tensor out = call.out(0), table = call.in(0), indices = call.in(1);
  const int64_t bags = out.size(0), rows = table.size(0), width = table.size(1), count = indices.numel();
  const int64_t* const at = indices.data<int64_t>();
  const std::vector<int64_t> start = bag_starts(call.in(2), count);
  for (int64_t i = 0; i < count; ++i) checked_index("embedding_bag", at[i], 0, rows);
  switch_float(call.op(), table.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int64_t each = std::max<int64_t>(1, width * std::max<int64_t>(1, count / std::max<int64_t>(1, bags)));
    parallel_for(0, bags, std::max<int64_t>(1, 16384 / each), [&](int64_t begin, int64_t end) {
      std::vector<Accumulator<T>> best(static_cast<size_t>(width));
      for (int64_t bag = begin; bag < end; ++bag) {
        const int64_t *first = at + start[static_cast<size_t>(bag)], *const last =
                                                                         at + start[static_cast<size_t>(bag) + 1];
        int64_t* const where = call.out(1).data<int64_t>() + bag * width;
        std::fill_n(where, width, first == last ? int64_t{-1} : *first);
        for (int64_t j = 0; j < width; ++j)
          best[static_cast<size_t>(j)] = first == last ? Accumulator<T>{0} : load(table.data<T>()[*first * width + j]);
        for (; first != last; ++first) {
          if (last - first > kAhead) __builtin_prefetch(table.data<T>() + first[kAhead] * width);
          take_row(table.data<T>() + *first * width, *first, width, best.data(), where);
        }
        T* const to = out.data<T>() + bag * width;
        for (int64_t j = 0; j < width; ++j) to[j] = store<T>(best[static_cast<size_t>(j)]);
      }
    });
  });
}

// inputs: grad (bags, width), int64 indices (n), int64 starts (bags), scale (n) or none; outputs: (rows, width)
void bag_sums_backward(const Call& call) {
  const Tensor grad = call.in(0), indices = call.in(1);
  const int64_t count = indices.numel();
  const std::vector<int64_t> start = bag_starts(call.in(2), count);
  std::vector<int64_t> bags(static_cast<size_t>(count));
  for (size_t bag = 0; bag + 1 < start.size(); ++bag)
    std::fill(bags.begin() + start[bag], bags.begin() + start[bag + 1], static_cast<int64_t>(bag));
  Occurrences found(indices.data<int64_t>(), count, call.out(0).size(0), -1);
  switch_float(call.op(), grad.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::vector<T> scale;
    if (call.has_in(3))
      for (const int64_t i : found.order) scale.push_back(call.in(3).data<T>()[i]);
    for (int64_t& i : found.order) i = bags[static_cast<size_t>(i)];
    add_table_gradients<T>(call, found, scale.empty() ? nullptr : scale.data());
  });
}

} // namespace

TS_KERNEL_AS("embedding", embedding, 0, TS_L_CONTIGUOUS);
TS_KERNEL_AS("embedding_backward", embedding_backward, 0, TS_L_CONTIGUOUS);
TS_KERNEL_AS("bag_sums", bag_sums, 0, TS_L_CONTIGUOUS);
TS_KERNEL_AS("bag_maxima", bag_maxima, 0, TS_L_CONTIGUOUS);
TS_KERNEL_AS("bag_sums_backward", bag_sums_backward, 0, TS_L_CONTIGUOUS);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

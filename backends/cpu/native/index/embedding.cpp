// embedding and its gradient: rows of a table by a checked index.
#include "gather_index.h"
#include "picked_rows.h"
#include "threads.h"

#include <algorithm>
#include <vector>

namespace tesserack::cpu {
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

template <class T>
void sum_rows(const T* grad, int64_t width, const int64_t* first, const int64_t* last, Accumulator<T>* sum, T* out) {
  const bool parts = last - first > kPart;
  std::vector<double> total(parts ? static_cast<size_t>(width) : 0);
  do {
    const int64_t* until = first + std::min<int64_t>(kPart, last - first);
    std::fill_n(sum, width, Accumulator<T>{0});
    for (; first != until; ++first) {
      const T* row = grad + *first * width;
      for (int64_t j = 0; j < width; ++j) sum[j] += load(row[j]);
    }
    for (size_t j = 0; j < total.size(); ++j) total[j] += static_cast<double>(sum[j]);
  } while (first != last);
  for (size_t j = 0; j < total.size(); ++j) sum[j] = static_cast<Accumulator<T>>(total[j]);
  for (int64_t j = 0; j < width; ++j) out[j] = store<T>(sum[j]);
}

template <class T> void add_table_gradients(const Call& call, const Occurrences& found) {
  const Tensor out = call.out(0), grad = call.in(0);
  const int64_t rows = out.size(0), width = out.numel() / rows;
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, width));
  parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
    std::vector<Accumulator<T>> sum(static_cast<size_t>(width));
    for (int64_t row = begin; row < end; ++row) {
      const int64_t* order = found.order.data();
      sum_rows(grad.data<T>(), width, order + found.start[static_cast<size_t>(row)],
               order + found.start[static_cast<size_t>(row) + 1], sum.data(), out.data<T>() + row * width);
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
                 [&](auto tag) { add_table_gradients<typename decltype(tag)::type>(call, found); });
  });
}

} // namespace

TS_KERNEL_AS("embedding", embedding, 0, TS_L_CONTIGUOUS);
TS_KERNEL_AS("embedding_backward", embedding_backward, 0, TS_L_CONTIGUOUS);

} // namespace tesserack::cpu

// gather and index_select: data movement by a checked index.
#include "gather_index.h"
#include "picked_rows.h"
#include "strided_rows.h"
#include "threads.h"

#include <algorithm>
#include <vector>

namespace tesserack::cpu {
namespace {

using backend::Call;
using backend::Tensor;

constexpr uint64_t kAnyDtype = (uint64_t{1} << TS_NUM_DTYPES) - 1;
constexpr int64_t kGatherGrain = 16384; // elements worth a thread

template <class Word, class Index>
void gather_rows(const Call& call, int dim, int split, int64_t split_begin, int64_t split_end) {
  const Tensor out = call.out(0), in = call.in(0), index = call.in(1);
  const int last = out.ndim() - 1;
  std::vector<int64_t> sizes(out.sizes().begin(), out.sizes().end());
  std::vector<int64_t> in_strides(in.strides().begin(), in.strides().end());
  const int64_t step = in_strides[dim], limit = in.size(dim);
  in_strides[dim] = 0;
  sizes[split] = split_end - split_begin;
  Word* to = out.data<Word>() + split_begin * out.stride(split);
  const Word* from = in.data<Word>() + split_begin * in_strides[split];
  const Index* at = index.data<Index>() + split_begin * index.stride(split);
  StridedRows<3> rows(sizes, last, {out.strides(), in_strides, index.strides()});
  rows.seek(0);
  const int64_t n = sizes[last], to_step = out.stride(last), from_step = in_strides[last], at_step = index.stride(last);
  for (int64_t row = 0; row < rows.count(); ++row, rows.next()) {
    Word* to_row = to + rows.offset(0);
    const Word* from_row = from + rows.offset(1);
    const Index* at_row = at + rows.offset(2);
    if (at_step == 0) {
      const Word* source = from_row + step * checked_index("gather", at_row[0], dim, limit);
      for (int64_t j = 0; j < n; ++j) to_row[j * to_step] = source[j * from_step];
      continue;
    }
    if (at_step == 1 && to_step == 1 && from_step == 0 && step == 1) {
      each_checked("gather", at_row, n, dim, limit, [=](int64_t j, Index picked) { to_row[j] = from_row[picked]; });
      continue;
    }
    for (int64_t j = 0; j < n; ++j) {
      const int64_t picked = checked_index("gather", at_row[j * at_step], dim, limit);
      to_row[j * to_step] = from_row[j * from_step + picked * step];
    }
  }
}

void gather(const Call& call) {
  const Tensor out = call.out(0), in = call.in(0), index = call.in(1);
  const int dim = static_cast<int>(call.param(0).as_int());
  switch_word("gather", in.item_size(), [&](auto word) {
    using Word = typename decltype(word)::type;
    switch_index("gather", index.dtype(), [&](auto tag) {
      using Index = typename decltype(tag)::type;
      if (out.ndim() == 0) {
        out.data<Word>()[0] = in.data<Word>()[checked_index("gather", index.data<Index>()[0], 0, 1)];
        return;
      }
      const auto sizes = out.sizes();
      const int split = static_cast<int>(std::max_element(sizes.begin(), sizes.end()) - sizes.begin());
      const int64_t per_slice = std::max<int64_t>(1, out.numel() / sizes[split]);
      parallel_for(0, sizes[split], std::max<int64_t>(1, kGatherGrain / per_slice),
                   [&](int64_t begin, int64_t end) { gather_rows<Word, Index>(call, dim, split, begin, end); });
    });
  });
}

// Whole slices of the contiguous input seen as (outer, size, inner bytes).
template <class Index> void select_slices(const Call& call, int dim) {
  const Tensor out = call.out(0), in = call.in(0), index = call.in(1);
  int64_t outer = 1, inner = in.item_size();
  for (int d = 0; d < dim; ++d) outer *= in.size(d);
  for (int d = dim + 1; d < in.ndim(); ++d) inner *= in.size(d);
  const int64_t size = in.ndim() == 0 ? 1 : in.size(dim), count = index.numel();
  const int64_t index_step = index.ndim() == 0 ? 0 : index.stride(0);
  const Index* at = index.data<Index>();
  // Checked before anything is copied, as plain offsets in bytes.
  std::vector<int64_t> offsets(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    offsets[static_cast<size_t>(i)] = inner * checked_index("index_select", at[i * index_step], dim, size);
  const int64_t grain = std::max<int64_t>(1, 65536 / inner);
  parallel_for(0, outer * count, grain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t first = begin % count, picked = std::min(count - first, end - begin);
      pick_copy_picked_rows()(out.bytes() + begin * inner, in.bytes() + begin / count * size * inner,
                              offsets.data() + first, picked, inner);
      begin += picked;
    }
  });
}

void index_select(const Call& call) {
  const int dim = static_cast<int>(call.param(0).as_int());
  switch_index("index_select", call.in(1).dtype(),
               [&](auto tag) { select_slices<typename decltype(tag)::type>(call, dim); });
}

} // namespace

TS_KERNEL_AS("gather", gather, kAnyDtype, TS_L_STRIDED);
TS_KERNEL_AS("index_select", index_select, kAnyDtype, TS_L_CONTIGUOUS);

} // namespace tesserack::cpu

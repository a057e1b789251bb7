// sort and topk along the last dimension.
#include "dtype_switch.h"
#include "sort_row.h"
#include "strided_rows.h"
#include "threads.h"

#include <limits>

namespace tesserack::cpu {
namespace {

using backend::Call;
using backend::Tensor;

template <class T> auto key_of(T value) {
  if constexpr (std::is_same_v<T, Float16>) {
    return float_sort_key<uint16_t>(value.bits, 0x7C00u);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return float_sort_key<uint16_t>(value.bits, 0x7F80u);
  } else {
    return sort_key(value);
  }
}

template <class T> using Key = decltype(key_of(T{}));

// Keys of a row, complemented when descending, so that positions of equal values still ascend.
template <class T, class Item>
void fill_items(const T* row, int64_t stride, int64_t n, bool descending, std::vector<Item>& items) {
  items.clear();
  items.reserve(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const Key<T> key = key_of(row[i * stride]);
    items.emplace_back(descending ? static_cast<Key<T>>(~key) : key, i);
  }
}

template <class T, class Item>
void store_items(const std::vector<Item>& items, int64_t count, const T* row, int64_t row_stride, T* values,
                 int64_t value_stride, int64_t* positions, int64_t position_stride) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t position = items[static_cast<size_t>(i)].position();
    values[i * value_stride] = row[position * row_stride];
    positions[i * position_stride] = position;
  }
}

struct Layout {
  Tensor input, values, positions;
  int dim;
  int64_t n, input_stride, value_stride, position_stride;

  explicit Layout(const Call& call)
      : input(call.in(0)), values(call.out(0)), positions(call.out(1)), dim(input.ndim() - 1),
        n(dim < 0 ? 1 : input.size(dim)), input_stride(dim < 0 ? 1 : input.stride(dim)),
        value_stride(dim < 0 ? 1 : values.stride(dim)), position_stride(dim < 0 ? 1 : positions.stride(dim)) {}

  // Rows of the input shape; the last dimension, which topk shortens, takes no part.
  StridedRows<3> rows() const { return {input.sizes(), dim, {input.strides(), values.strides(), positions.strides()}}; }
};

// work(input row, values row, positions row, items, spare) for every row, shared among threads.
template <class T, class Item, class Work> void for_each_row(const Layout& layout, const Work& work) {
  const int64_t grain = std::max<int64_t>(1, 2048 / std::max<int64_t>(1, layout.n));
  parallel_for(0, layout.rows().count(), grain, [&](int64_t begin, int64_t end) {
    std::vector<Item> items, spare;
    StridedRows<3> rows = layout.rows();
    rows.seek(begin);
    for (int64_t row = begin; row < end; ++row, rows.next()) {
      work(layout.input.data<T>() + rows.offset(0), layout.values.data<T>() + rows.offset(1),
           layout.positions.data<int64_t>() + rows.offset(2), items, spare);
    }
  });
}

// f(TypeTag<T>, TypeTag<Item>): positions share a word with keys of up to 32 bits where they fit.
template <class F> void switch_item(int32_t dtype, int64_t n, const char* op, F&& f) {
  switch_real(op, dtype, [&](auto tag) {
    if constexpr (sizeof(typename decltype(tag)::type) <= 4)
      if (n <= int64_t{std::numeric_limits<uint32_t>::max()}) return f(tag, TypeTag<PackedItem>{});
    f(tag, TypeTag<WideItem>{});
  });
}

void sort(const Call& call) {
  const Layout layout(call);
  const bool descending = call.param(0).as_bool();
  switch_item(layout.input.dtype(), layout.n, "sort", [&](auto type, auto item) {
    using T = typename decltype(type)::type;
    using Item = typename decltype(item)::type;
    for_each_row<T, Item>(layout, [&](const T* row, T* values, int64_t* positions, auto& items, auto& spare) {
      fill_items(row, layout.input_stride, layout.n, descending, items);
      sort_items(items, spare, sizeof(T));
      store_items(items, layout.n, row, layout.input_stride, values, layout.value_stride, positions,
                  layout.position_stride);
    });
  });
}

// Whether none of kLook elements can come before `last` or be its equal; NaN may.
constexpr int64_t kLook = 16;
template <class T> bool all_beyond(const T* row, T last, bool largest) {
  int any = 0;
  if (largest)
    for (int64_t i = 0; i < kLook; ++i) any |= !(row[i] < last);
  else
    for (int64_t i = 0; i < kLook; ++i) any |= !(row[i] > last);
  return any == 0;
}

// Keeps the k first items in order, and sorted: for so few that putting one in its place costs little.
constexpr int64_t kInserted = 32;
template <class T, class Item>
void insert_first(const T* row, int64_t n, int64_t k, bool largest, std::vector<Item>& items) {
  items.resize(static_cast<size_t>(k) + 1);
  size_t count = 0;
  T last{}; // the element of the last item, once there are k
  const auto insert = [&](int64_t i) {
    const Key<T> key = key_of(row[i]);
    const Item item(largest ? static_cast<Key<T>>(~key) : key, i);
    size_t at = count;
    for (; at > 0 && item < items[at - 1]; --at) items[at] = items[at - 1];
    items[at] = item;
    count = std::min(count + 1, static_cast<size_t>(k));
    last = row[items[count - 1].position()];
  };
  int64_t i = 0;
  for (; i < k; ++i) insert(i);
  for (; i < n; ++i) {
    while (i + kLook <= n && all_beyond(row + i, last, largest)) i += kLook;
    const int64_t end = std::min(n, i + kLook);
    for (; i < end; ++i)
      if (largest ? !(row[i] <= last) : !(row[i] >= last)) insert(i);
    --i;
  }
  items.resize(static_cast<size_t>(k));
}

// Keeps the k first items in order: a bound that tightens as better ones arrive, so that most are only compared.
template <class T, class Item>
void select_first(const T* row, int64_t stride, int64_t n, int64_t k, bool largest, std::vector<Item>& items) {
  items.clear();
  const size_t capacity = static_cast<size_t>(std::max<int64_t>(2 * k, k + 16));
  Key<T> bound = static_cast<Key<T>>(~Key<T>{0});
  T last{}; // the element of that key
  bool bounded = false;
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_arithmetic_v<T>) {
      if (stride == 1 && i % kLook == 0)
        while (bounded && i + kLook <= n && all_beyond(row + i, last, largest)) i += kLook;
      if (i >= n) break;
    }
    Key<T> key = key_of(row[i * stride]);
    if (largest) key = static_cast<Key<T>>(~key);
    if (key > bound) continue;
    items.emplace_back(key, i);
    if (items.size() < capacity) continue;
    std::nth_element(items.begin(), items.begin() + k - 1, items.end());
    items.resize(static_cast<size_t>(k));
    bound = static_cast<Key<T>>(items.back().key());
    last = row[items.back().position() * stride];
    bounded = true;
  }
  if (items.size() > static_cast<size_t>(k)) std::nth_element(items.begin(), items.begin() + k - 1, items.end());
  items.resize(static_cast<size_t>(k));
}

// Rows that lie across the memory, copied several at a time: the lines they share are read once.
template <class T> class RowsAcross {
public:
  explicit RowsAcross(const Layout& layout) : layout_(layout) {
    const int beside = layout.dim - 1;
    const bool across = layout.input_stride != 1 && beside >= 0 && layout.input.stride(beside) == 1;
    together_ = across && layout.n <= kLongest ? layout.input.size(beside) : 0;
  }
  bool apply() const { return together_ > 0; }
  // Row number r, which starts at `row`, in one run.
  const T* read(const T* row, int64_t r) {
    const int64_t n = layout_.n;
    if (r < first_ || r >= first_ + count_) {
      first_ = r;
      count_ = std::min(kTogether, together_ - r % together_);
      space_.resize(static_cast<size_t>(count_ * n));
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < count_; ++j) space_[static_cast<size_t>(j * n + i)] = row[i * layout_.input_stride + j];
    }
    return space_.data() + (r - first_) * n;
  }

private:
  static constexpr int64_t kTogether = 16, kLongest = 1 << 16;
  const Layout& layout_;
  int64_t together_ = 0, first_ = 0, count_ = 0;
  std::vector<T> space_;
};

void topk(const Call& call) {
  const Layout layout(call);
  const int64_t k = call.param(0).as_int();
  const bool largest = call.param(2).as_bool(), sorted = call.param(3).as_bool();
  if (k < 0 || k > layout.n) {
    backend::fail(TS_VALUE_ERROR, "topk: expected k between 0 and %lld, got %lld", static_cast<long long>(layout.n),
                  static_cast<long long>(k));
  }
  if (k == 0) return;
  switch_item(layout.input.dtype(), layout.n, "topk", [&](auto type, auto item) {
    using T = typename decltype(type)::type;
    using Item = typename decltype(item)::type;
    const auto select = [&](const T* row, int64_t stride, std::vector<Item>& items) {
      if constexpr (std::is_arithmetic_v<T>)
        if (k <= kInserted && k <= layout.n / 4 && stride == 1) return insert_first(row, layout.n, k, largest, items);
      if (k > layout.n / 4) {
        fill_items(row, stride, layout.n, largest, items);
        if (k < layout.n) std::nth_element(items.begin(), items.begin() + k - 1, items.end());
        items.resize(static_cast<size_t>(k));
      } else {
        select_first(row, stride, layout.n, k, largest, items);
      }
      if (sorted) std::sort(items.begin(), items.end());
    };
    const int64_t grain = std::max<int64_t>(1, 2048 / std::max<int64_t>(1, layout.n));
    parallel_for(0, layout.rows().count(), grain, [&](int64_t begin, int64_t end) {
      std::vector<Item> items;
      RowsAcross<T> across(layout);
      StridedRows<3> rows = layout.rows();
      rows.seek(begin);
      for (int64_t r = begin; r < end; ++r, rows.next()) {
        const T* row = layout.input.data<T>() + rows.offset(0);
        int64_t stride = layout.input_stride;
        if (across.apply()) row = across.read(row, r), stride = 1;
        select(row, stride, items);
        store_items(items, k, row, stride, layout.values.data<T>() + rows.offset(1), layout.value_stride,
                    layout.positions.data<int64_t>() + rows.offset(2), layout.position_stride);
      }
    });
  });
}

// --- elements of one rank -------------------------------------------------------------------------------------------

// The k-th element in order: by the counts of keys with the same highest bits, then of those that share them, and among
// the few that are left by comparison. Neighbours are counted apart: an increment waits for the one before it.
constexpr size_t kFew = 64;
constexpr int64_t kLong = 1 << 14; // elements worth clearing many counts for

// The one that holds rank k, of pairs of counts; k becomes the rank within it.
size_t bucket_of_rank(const std::vector<int64_t>& counts, int64_t& k) {
  for (size_t bucket = 0;; ++bucket) {
    const int64_t here = counts[2 * bucket] + counts[2 * bucket + 1];
    if (k < here) return bucket;
    k -= here;
  }
}

template <class T> std::pair<Key<T>, Key<T>> key_range(const T* row, int64_t n) {
  if constexpr (std::is_integral_v<T>) {
    T least = row[0], most = row[0];
    for (int64_t i = 1; i < n; ++i) least = std::min(least, row[i]), most = std::max(most, row[i]);
    return {key_of(least), key_of(most)};
  }
  return {Key<T>{0}, static_cast<Key<T>>(~Key<T>{0})};
}

template <class T, class Item> int64_t position_of_rank(const T* row, int64_t n, int64_t k, std::vector<Item>& items) {
  if (n <= static_cast<int64_t>(kFew)) {
    items.resize(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) items[static_cast<size_t>(i)] = Item(key_of(row[i]), i);
    std::nth_element(items.begin(), items.begin() + k, items.end());
    return items[static_cast<size_t>(k)].position();
  }
  const auto [least, most] = key_range(row, n);
  const int bits = std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(most - least))));
  const int width = std::min(bits, n < kLong ? 8 : 11);
  int shift = bits - width;
  // From the least key on: of integers as wide as memory is most high bits are the same.
  const auto digit = [&, low = uint64_t{least}](uint64_t key) {
    return static_cast<size_t>((key - low) >> shift) & ((size_t{1} << width) - 1);
  };
  thread_local std::vector<int64_t> counts;
  counts.assign(size_t{2} << width, 0);
  for (int64_t i = 0; i < n; ++i) ++counts[2 * digit(key_of(row[i])) + static_cast<size_t>(i & 1)];
  size_t bucket = bucket_of_rank(counts, k), found = 0;
  // Every item is written, and stays if it belongs there: no branch to be predicted.
  items.resize(static_cast<size_t>(counts[2 * bucket] + counts[2 * bucket + 1]) + 1);
  for (int64_t i = 0; i < n; ++i) {
    const Key<T> key = key_of(row[i]);
    items[found] = Item(key, i);
    found += digit(key) == bucket;
  }
  while (found > kFew && shift > 0) {
    shift = std::max(0, shift - width);
    std::fill(counts.begin(), counts.end(), 0);
    for (size_t i = 0; i < found; ++i) ++counts[2 * digit(items[i].key()) + (i & 1)];
    bucket = bucket_of_rank(counts, k);
    size_t left = 0;
    for (size_t i = 0; i < found; ++i) {
      items[left] = items[i];
      left += digit(items[i].key()) == bucket;
    }
    found = left;
  }
  const auto first = items.begin();
  std::nth_element(first, first + k, first + static_cast<int64_t>(found));
  return items[static_cast<size_t>(k)].position();
}

// The rank of the lower middle, of all or of the numbers alone; of all, a NaN comes before it.
template <class T> int64_t middle_rank(const T* row, int64_t n, bool of_numbers) {
  int64_t nans = 0;
  if constexpr (is_float<T>)
    for (int64_t i = 0; i < n; ++i) nans += load(row[i]) != load(row[i]);
  if (nans > 0 && !of_numbers) return n - nans;
  return std::max<int64_t>(0, (n - nans - 1) / 2);
}

// Where the last of the most frequent elements stands, of the smallest of several; no NaN is another's equal.
template <class T, class Item>
int64_t position_of_mode(const T* row, int64_t n, std::vector<Item>& items, std::vector<Item>& spare) {
  fill_items(row, 1, n, false, items);
  sort_items(items, spare, sizeof(T));
  const auto at = [&](int64_t i) -> const Item& { return items[static_cast<size_t>(i)]; };
  int64_t best = 0, longest = 0;
  for (int64_t i = 0, length = 0; i < n; ++i) {
    const bool again =
        i > 0 && at(i).key() == at(i - 1).key() && load(row[at(i).position()]) == load(row[at(i).position()]);
    length = again ? length + 1 : 1;
    if (length > longest) longest = length, best = i;
  }
  return at(best).position();
}

constexpr int64_t kMiddle = -1, kMiddleOfNumbers = -2, kMode = -3;

// inputs: rows; params: a rank from 0 on, or one of those above; outputs: int64 positions, one for each row
void rank_positions(const Call& call) {
  const Tensor input = call.in(0);
  const int64_t n = input.size(input.ndim() - 1), rank = call.param(0).as_int();
  if (rank < kMode || rank >= n)
    backend::fail(TS_VALUE_ERROR, "rank_positions: expected a rank below %lld, got %lld", static_cast<long long>(n),
                  static_cast<long long>(rank));
  int64_t* const out = call.out(0).data<int64_t>();
  switch_item(input.dtype(), n, "rank_positions", [&](auto type, auto item) {
    using T = typename decltype(type)::type;
    using Item = typename decltype(item)::type;
    parallel_for(0, input.numel() / n, std::max<int64_t>(1, 4096 / n), [&](int64_t begin, int64_t end) {
      std::vector<Item> items, spare;
      for (int64_t r = begin; r < end; ++r) {
        const T* const row = input.data<T>() + r * n;
        if (rank == kMode) {
          out[r] = position_of_mode(row, n, items, spare);
          continue;
        }
        const int64_t k = rank >= 0 ? rank : middle_rank(row, n, rank == kMiddleOfNumbers);
        out[r] = position_of_rank(row, n, k, items);
      }
    });
  });
}

} // namespace

TS_KERNEL("sort", sort);
TS_KERNEL("topk", topk);
TS_KERNEL_AS("rank_positions", rank_positions, 0, TS_L_CONTIGUOUS);

} // namespace tesserack::cpu

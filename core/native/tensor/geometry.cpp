#include "tensor/geometry.h"
#include <bitset>
#include <numeric>

namespace ts {

int64_t wrap_dim(int64_t dim, int64_t ndim, const char* op) {
  int64_t n = ndim > 0 ? ndim : 1;
  TS_CHECK_INDEX(dim >= -n && dim < n, op, ": Dimension out of range (expected to be in range of [", -n, ", ", n - 1,
                 "], but got ", dim, ")");
  return dim < 0 ? dim + n : dim;
}

int64_t stepped_stride(int64_t stride, int64_t step, int64_t length) {
  int64_t stepped;
  bool fits = !__builtin_mul_overflow(stride, step, &stepped);
  return fits && (length > 1 || std::abs(stepped) <= kLargestIdleStride) ? stepped : stride;
}

Dims wrap_dims(IntSpan dims, int64_t ndim, const char* op) {
  Dims out;
  if (dims.empty()) {
    for (int64_t i = 0; i < ndim; ++i) out.push_back(i);
    return out;
  }
  std::bitset<UINT8_MAX + 1> seen;
  for (int64_t d : dims) {
    int64_t w = wrap_dim(d, ndim, op);
    TS_CHECK(!seen[static_cast<size_t>(w)], op, ": dim ", w, " appears multiple times in the list of dims ", dims);
    seen.set(static_cast<size_t>(w));
    if (ndim > 0) out.push_back(w);
  }
  return out;
}

int64_t checked_numel(IntSpan sizes) {
  int64_t n = 1;
  bool overflow = false, zero = false;
  for (int64_t s : sizes) {
    TS_CHECK(s >= 0, "tensor: expected sizes that are not negative, got ", sizes);
    zero |= s == 0;
    overflow |= __builtin_mul_overflow(n, s, &n);
  }
  if (zero) return 0;
  TS_CHECK(!overflow, "tensor: shape ", sizes, " has more elements than fit in 64 bits");
  return n;
}

Dims contiguous_strides(IntSpan sizes) {
  Dims strides(sizes.size());
  int64_t step = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = step;
    TS_CHECK(!__builtin_mul_overflow(step, std::max<int64_t>(sizes[i], 1), &step), "tensor: shape ", sizes,
             " has more elements than fit in 64 bits");
  }
  return strides;
}

Dims channels_last_strides(IntSpan sizes) {
  Dims strides(sizes.size());
  int64_t step = 1;
  auto place = [&](size_t i) {
    strides[i] = step;
    step *= std::max<int64_t>(sizes[i], 1);
  };
  place(1);
  for (size_t i = sizes.size(); i-- > 2;) place(i);
  place(0);
  return strides;
}

Dims strides_for(IntSpan sizes, MemoryFormat format) {
  if (format == MemoryFormat::Contiguous || format == MemoryFormat::Preserve) return contiguous_strides(sizes);
  size_t want = format == MemoryFormat::ChannelsLast ? 4 : 5;
  TS_CHECK(sizes.size() == want, "memory_format: channels_last needs a ", want, "-d tensor, got sizes ", sizes);
  return channels_last_strides(sizes);
}

bool geometry_is_contiguous(IntSpan sizes, IntSpan strides) {
  int64_t step = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 0) return true;
  }
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 1) continue;
    if (strides[i] != step) return false;
    step *= sizes[i];
  }
  return true;
}

bool geometry_is_channels_last(IntSpan sizes, IntSpan strides, int ndim) {
  if (sizes.size() != static_cast<size_t>(ndim)) return false;
  Dims want = channels_last_strides(sizes);
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] != 1 && strides[i] != want[i]) return false;
  return true;
}

Dims memory_order(IntSpan sizes, IntSpan strides) {
  Dims order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  // By insertion: dims are few, and mostly in order already.
  auto reach = [&](size_t i) { return std::abs(strides[static_cast<size_t>(order[i])]); };
  for (size_t i = 1; i < order.size(); ++i)
    for (size_t j = i; j > 0 && reach(j - 1) < reach(j); --j) std::swap(order[j - 1], order[j]);
  return order;
}

bool is_dense(IntSpan sizes, IntSpan strides) {
  Dims order = memory_order(sizes, strides);
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    int64_t d = order[i];
    if (sizes[d] == 1) continue;
    if (strides[d] != step) return false;
    step *= sizes[d];
  }
  return true;
}

// PyTorch's order of dims of which no stride says more: a stride of 0 leaves them as they are written.
Dims dense_strides(IntSpan sizes, IntSpan strides) {
  Dims order(sizes.size()); // innermost first
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(order.size() - 1 - i);
  auto compare = [&](int64_t a, int64_t b) {
    int64_t left = std::abs(strides[a]), right = std::abs(strides[b]);
    if (left == 0 || right == 0) return 0;
    return left != right ? (left < right ? -1 : 1) : sizes[a] > sizes[b] ? 1 : 0;
  };
  for (size_t i = 1; i < order.size(); ++i)
    for (size_t at = i, j = i; j-- > 0;) {
      int c = compare(order[j], order[at]);
      if (c < 0) break;
      if (c > 0) std::swap(order[j], order[at]), at = j;
    }
  Dims found(sizes.size());
  int64_t step = 1;
  for (int64_t d : order) {
    found[d] = step;
    step *= std::max<int64_t>(sizes[d], 1);
  }
  return found;
}

bool is_expanded(IntSpan sizes, IntSpan strides) {
  bool repeated = false;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return false;
    repeated |= strides[d] == 0 && sizes[d] > 1;
  }
  return repeated;
}

bool may_overlap(IntSpan sizes, IntSpan strides) {
  for (int64_t s : sizes)
    if (s == 0) return false;
  Dims order = memory_order(sizes, strides);
  int64_t reach = 1; // elements covered by the inner dims
  for (size_t i = order.size(); i-- > 0;) {
    int64_t d = order[i];
    if (sizes[d] == 1) continue;
    if (std::abs(strides[d]) < reach) return true;
    reach = std::abs(strides[d]) * (sizes[d] - 1) + reach;
  }
  return false;
}

std::pair<int64_t, int64_t> byte_extent(IntSpan sizes, IntSpan strides, int64_t item_size) {
  __int128 low = 0, high = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return {0, 0};
    __int128 span = static_cast<__int128>(sizes[i] - 1) * strides[i];
    (span < 0 ? low : high) += span;
  }
  low *= item_size;
  high = (high + 1) * item_size;
  constexpr __int128 kLimit = INT64_MAX;
  TS_CHECK(low >= -kLimit && high <= kLimit, "tensor: sizes ", sizes, " with strides ", strides,
           " reach beyond 64-bit addresses");
  return {static_cast<int64_t>(low), static_cast<int64_t>(high)};
}

Dims broadcast_sizes(IntSpan a, IntSpan b, const char* op) {
  if (a.size() < b.size()) std::swap(a, b);
  Dims out(a);
  size_t shift = a.size() - b.size();
  for (size_t i = 0; i < b.size(); ++i) {
    int64_t x = a[shift + i], y = b[i];
    if (x == y || y == 1) continue;
    TS_CHECK(x == 1, op, ": The size of tensor a (", x, ") must match the size of tensor b (", y,
             ") at non-singleton dimension ", shift + i, "; shapes ", a, " and ", b);
    out[shift + i] = y;
  }
  return out;
}

Dims expand_strides(IntSpan sizes, IntSpan strides, IntSpan to, const char* op) {
  TS_CHECK(to.size() >= sizes.size(), op, ": shape ", sizes, " has more dimensions than the target ", to);
  Dims out(to.size());
  size_t shift = to.size() - sizes.size();
  for (size_t i = shift; i < to.size(); ++i) {
    int64_t have = sizes[i - shift];
    TS_CHECK(have == to[i] || have == 1, op, ": The expanded size of the tensor (", to[i],
             ") must match the existing size (", have, ") at non-singleton dimension ", i, ". Target sizes: ", to,
             ". Tensor sizes: ", sizes);
    out[i] = have == to[i] ? strides[i - shift] : 0;
  }
  return out;
}

// Walks both shapes from the inside, pairing runs of old dims that are contiguous among themselves with runs of
// new dims of the same element count.
std::optional<Dims> view_strides(IntSpan sizes, IntSpan strides, IntSpan to) {
  Dims out(to.size());
  int64_t numel = checked_numel(sizes);
  if (numel == 0) {
    if (same(sizes, to)) return Dims(strides);
    return contiguous_strides(to);
  }
  int64_t view_d = static_cast<int64_t>(to.size()) - 1;
  int64_t chunk_base = sizes.empty() ? 1 : strides.back();
  int64_t tensor_numel = 1, view_numel = 1;
  for (int64_t d = static_cast<int64_t>(sizes.size()) - 1; d >= 0; --d) {
    tensor_numel *= sizes[d];
    bool chunk_ends = d == 0 || (sizes[d - 1] != 1 && strides[d - 1] != tensor_numel * chunk_base);
    if (!chunk_ends) continue;
    while (view_d >= 0 && (view_numel < tensor_numel || to[view_d] == 1)) {
      out[view_d] = view_numel * chunk_base;
      view_numel *= to[view_d];
      --view_d;
    }
    if (view_numel != tensor_numel) return std::nullopt;
    if (d > 0) {
      chunk_base = strides[d - 1];
      tensor_numel = view_numel = 1;
    }
  }
  for (; view_d >= 0; --view_d) {
    if (to[view_d] != 1) return std::nullopt;
    out[view_d] = 1;
  }
  return out;
}

Dims infer_size(IntSpan requested, int64_t numel, const char* op) {
  Dims out(requested);
  int64_t known = 1, unknown = -1;
  bool overflow = false;
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] == -1) {
      TS_CHECK(unknown < 0, op, ": only one dimension can be inferred, got ", requested);
      unknown = static_cast<int64_t>(i);
    } else {
      TS_CHECK(out[i] >= 0, op, ": invalid shape dimension ", out[i], " in ", requested);
      overflow |= __builtin_mul_overflow(known, out[i], &known);
    }
  }
  bool fits = !overflow && (unknown < 0 ? known == numel : known > 0 && numel % known == 0);
  TS_CHECK(unknown < 0 || known != 0 || numel != 0, op, ": cannot reshape tensor of 0 elements into shape ", requested,
           " because the unspecified dimension size -1 can be any value and is ambiguous");
  TS_CHECK(fits, op, ": shape '", requested, "' is invalid for input of size ", numel);
  if (unknown >= 0) out[unknown] = numel / known;
  return out;
}

} // namespace ts

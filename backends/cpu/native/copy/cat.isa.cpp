// cat: every input copied into its slice of the output.
#include "copy.h"

#include "interleave.h"
#include "stream.h"
#include "threads.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

struct Piece {
  const char* from;
  char* to;
  int64_t bytes; // per outer index
};

// Runs of N bytes, `row` apart: a size that the compiler knows.
template <size_t N> void spread_runs(char* to, int64_t row, const char* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * row, from + i * static_cast<int64_t>(N), N);
}

// Runs of `least` to 2 * `least` bytes, as two pieces that overlap.
template <size_t least> void spread_overlapping(char* to, int64_t row, const char* from, int64_t bytes, int64_t n) {
  for (int64_t i = 0; i < n; ++i, to += row, from += bytes) {
    std::memcpy(to, from, least);
    std::memcpy(to + bytes - least, from + bytes - least, least);
  }
}

void copy_runs(const Piece& p, int64_t row, int64_t first, int64_t last) {
  char* const to = p.to + first * row;
  const char* const from = p.from + first * p.bytes;
  const int64_t n = last - first;
  switch (p.bytes) {
  case 1: return spread_runs<1>(to, row, from, n);
  case 2: return spread_runs<2>(to, row, from, n);
  case 4: return spread_runs<4>(to, row, from, n);
  case 8: return spread_runs<8>(to, row, from, n);
  case 16: return spread_runs<16>(to, row, from, n);
  case 32: return spread_runs<32>(to, row, from, n);
  case 64: return spread_runs<64>(to, row, from, n);
  case 128: return spread_runs<128>(to, row, from, n);
  case 256: return spread_runs<256>(to, row, from, n);
  default:
    if (p.bytes > 32 && p.bytes < 64) return spread_overlapping<32>(to, row, from, p.bytes, n);
    if (p.bytes > 16 && p.bytes < 32) return spread_overlapping<16>(to, row, from, p.bytes, n);
    if (p.bytes > 8 && p.bytes < 16) return spread_overlapping<8>(to, row, from, p.bytes, n);
    if (p.bytes > 4 && p.bytes < 8) return spread_overlapping<4>(to, row, from, p.bytes, n);
    for (int64_t i = 0; i < n; ++i) copy_row(to + i * row, from + i * p.bytes, p.bytes);
  }
}

// Everything row-major and of one dtype: whole runs of bytes, one per piece and outer index.
bool cat_dense(const backend::Call& call, int dim) {
  const backend::Tensor out = call.out(0);
  if (!out.is_contiguous()) return false;
  for (int k = 0; k < call.n_inputs(); ++k) {
    const backend::Tensor in = call.in(k);
    if (in.numel() != 0 && (!in.is_contiguous() || in.is_scalar() || in.dtype() != out.dtype())) return false;
  }
  int64_t outer = 1, inner = out.item_size();
  for (int d = 0; d < out.ndim(); ++d) (d < dim ? outer : inner) *= d == dim ? 1 : out.size(d);
  std::vector<Piece> pieces;
  char* to = out.bytes();
  for (int k = 0; k < call.n_inputs(); ++k) {
    const backend::Tensor in = call.in(k);
    if (in.numel() == 0) continue;
    pieces.push_back({in.bytes(), to, in.size(dim) * inner});
    to += pieces.back().bytes;
  }
  const int64_t row = out.size(dim) * inner;
  constexpr int64_t kGrain = int64_t{1} << 18;
  if (outer == 1) {
    for (const Piece& p : pieces)
      parallel_for(0, p.bytes, kGrain,
                   [&](int64_t begin, int64_t end) { plain_copy(p.to + begin, p.from + begin, end - begin); });
    return true;
  }
  // The parts of complex64. Floats are moved as what they are; other words of four bytes take the general way.
  const bool pairs = out.dtype() == TS_FLOAT32 && pieces.size() == 2 && pieces[0].bytes == 4 && pieces[1].bytes == 4;
  const int64_t block = std::max(int64_t{1}, (int64_t{1} << 14) / row); // of the result, for every piece in turn
  parallel_for(0, outer, kGrain / row + 1, [&](int64_t first, int64_t last) {
    if (pairs)
      return interleave(reinterpret_cast<float*>(pieces[0].to + first * row),
                        reinterpret_cast<const float*>(pieces[0].from + 4 * first),
                        reinterpret_cast<const float*>(pieces[1].from + 4 * first), last - first);
    for (int64_t i = first; i < last; i += block)
      for (const Piece& p : pieces) copy_runs(p, row, i, std::min(i + block, last));
  });
  return true;
}

// inputs: the tensors (an empty one of any rank is skipped); params: the dimension last
void cat(const backend::Call& call) {
  const backend::Tensor out = call.out(0);
  const int64_t dim = call.param(call.n_params() - 1).as_int();
  if (dim < 0 || dim >= out.ndim())
    backend::fail(TS_INDEX_ERROR, "cat: expected a dimension in [0, %d), got %lld", out.ndim(),
                  static_cast<long long>(dim));
  require_dims("cat", out.ndim());
  int64_t total = 0;
  for (int k = 0; k < call.n_inputs(); ++k) {
    const backend::Tensor in = call.in(k);
    if (in.numel() == 0) continue;
    if (in.ndim() != out.ndim())
      backend::fail(TS_ERROR, "cat: expected tensors of %d dimensions, got %d", out.ndim(), in.ndim());
    total += in.size(static_cast<int32_t>(dim));
  }
  if (total != out.size(static_cast<int32_t>(dim)))
    backend::fail(TS_ERROR, "cat: expected pieces of %lld in all along dimension %lld, got %lld",
                  static_cast<long long>(out.size(static_cast<int32_t>(dim))), static_cast<long long>(dim),
                  static_cast<long long>(total));
  if (cat_dense(call, static_cast<int>(dim))) return;
  int64_t at = 0;
  for (int k = 0; k < call.n_inputs(); ++k) {
    const backend::Tensor in = call.in(k);
    if (in.numel() == 0) continue;
    Operand operands[2];
    set_operand(operands[0], out.raw());
    operands[0].base += at * out.stride(static_cast<int32_t>(dim)) * out.item_size();
    set_operand(operands[1], in.raw());
    Space space;
    space.operands = operands;
    space.n_operands = 2;
    space.nd = out.ndim();
    for (int d = 0; d < space.nd; ++d) space.size[d] = in.size(d);
    copy_space(space);
    at += in.size(static_cast<int32_t>(dim));
  }
}

} // namespace

TS_KERNEL_AS("cat", cat, (uint64_t{1} << TS_NUM_DTYPES) - 1, TS_L_STRIDED);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

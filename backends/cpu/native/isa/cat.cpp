// cat: every input copied into its slice of the output.
#include "copy.h"

#include "threads.h"

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
      parallel_for(0, p.bytes, kGrain, [&](int64_t begin, int64_t end) {
        std::memcpy(p.to + begin, p.from + begin, static_cast<size_t>(end - begin));
      });
    return true;
  }
  parallel_for(0, outer, kGrain / row + 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      for (const Piece& p : pieces) std::memcpy(p.to + i * row, p.from + i * p.bytes, static_cast<size_t>(p.bytes));
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

// Attention by blocks of queries and keys, whose scores never leave the cache: the running softmax of Milakov &
// Gimelshein (arXiv:1805.02867), arranged as in FlashAttention (Dao et al., arXiv:2205.14135).
#include "attention.h"
#include "math/exp_sum.h"
#include "threads.h"

#include <cmath>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

using namespace attention;

// A block of queries on its way along the keys.
struct Forward {
  Rows query, key, value, out;
  RowWriter<float> logsumexp;
  Mask mask;
  float scale;

  int64_t scratch_size() const {
    return kQueryBlock * (query.cols() + value.cols() + kKeyBlock + 2) + kKeyBlock * (key.cols() + value.cols() + 1);
  }

  // Scores of a row become weights relative to the greatest score so far; sums and sums of values follow it.
  void soften(float* scores, int64_t n, float& greatest, float& sum, float* values) const {
    const float here = n > 0 ? static_cast<float>(fold_long<MaxFold<float>>(scores, n)) : greatest;
    const float next = here > greatest || here != here ? here : greatest;
    if (next == -__builtin_inff()) { // nothing seen yet
      std::fill(scores, scores + n, 0.0f);
      return;
    }
    const double added = exp_and_sum(scores, next, n, scores, Soon<float>{});
    if (next != greatest) {
      // Before the first block there is nothing to shrink, by a factor that processors take long for.
      if (greatest != -__builtin_inff()) {
        const float shrink = exp_f32(greatest - next);
        sum *= shrink;
        for (int64_t j = 0; j < value.cols(); ++j) values[j] *= shrink;
      }
      greatest = next;
    }
    sum += static_cast<float>(added);
  }

  void run(int64_t head, int64_t first, float* scratch) const {
    const int64_t rows = std::min(kQueryBlock, query.rows() - first), width = query.cols(), wide = value.cols();
    float *scaled = scratch, *sums = scaled + kQueryBlock * width, *scores = sums + kQueryBlock * wide,
          *greatest = scores + kQueryBlock * kKeyBlock, *total = greatest + kQueryBlock,
          *row_space = total + kQueryBlock, *key_space = row_space + kKeyBlock,
          *value_space = key_space + kKeyBlock * width;
    const char *key_head = key.head(head), *value_head = value.head(head), *mask_head = mask.head(head);
    const Block q = query.read_scaled(query.head(head), first, rows, scale, scaled);
    std::fill(sums, sums + rows * wide, 0.0f);
    std::fill(greatest, greatest + rows, -__builtin_inff());
    std::fill(total, total + rows, 0.0f);
    const int64_t seen = mask.visible(first + rows - 1, 0, key.rows());
    for (int64_t k = 0; k < seen; k += kKeyBlock) {
      const int64_t count = std::min(kKeyBlock, seen - k);
      multiply(q, key.read(key_head, k, count, key_space).transposed(), rows, count, width, scores, kKeyBlock, false);
      for (int64_t i = 0; i < rows; ++i) {
        float* const row = scores + i * kKeyBlock;
        const int64_t visible = mask.visible(first + i, k, count);
        mask.apply(mask_head, first + i, k, visible, row, row_space);
        soften(row, visible, greatest[i], total[i], sums + i * wide);
        std::fill(row + visible, row + count, 0.0f);
      }
      multiply({scores, kKeyBlock, 1}, value.read(value_head, k, count, value_space), rows, wide, count, sums, wide,
               true);
    }
    for (int64_t i = 0; i < rows; ++i) {
      const bool nothing = greatest[i] == -__builtin_inff();
      const float inverse = nothing ? 0.0f : 1.0f / total[i];
      for (int64_t j = 0; j < wide; ++j) sums[i * wide + j] *= inverse;
      // Of a query that sees nothing: infinity, whose weights are zero in the backward pass.
      total[i] = nothing ? __builtin_inff() : greatest[i] + std::log(total[i]);
    }
    out.write(out.head(head), first, rows, sums);
    logsumexp.write(head * query.rows() + first, rows, 1, total);
  }
};

// inputs: query, key, value, mask?; params: is_causal, scale; outputs: result, logsumexp
int forward(const backend::Call& call) {
  if (call.in(0).dtype() == TS_FLOAT64) return TS_DECLINED;
  const Forward pass{Rows(call.in(0)),
                     Rows(call.in(1)),
                     Rows(call.in(2)),
                     Rows(call.out(0)),
                     RowWriter<float>(call.out(1).raw()),
                     Mask(call, 3, call.param(0).as_bool()),
                     static_cast<float>(call.param(1).as_float())};
  const int64_t blocks = ceil_div(pass.query.rows(), kQueryBlock);
  const int64_t work =
      std::min(kQueryBlock, pass.query.rows()) * pass.key.rows() * (pass.query.cols() + pass.value.cols());
  parallel_for(0, heads_of(call.in(0)) * blocks, 100'000 / work + 1, [&](int64_t begin, int64_t end) {
    const Buffer<float> scratch(pass.scratch_size());
    for (int64_t unit = begin; unit < end; ++unit) {
      // Under a causal mask late blocks cost most: taken from both ends, all threads' shares are alike.
      const int64_t at = unit % blocks, block = at % 2 ? blocks - 1 - at / 2 : at / 2;
      pass.run(unit / blocks, block * kQueryBlock, scratch.get());
    }
  });
  return TS_OK;
}

} // namespace

TS_KERNEL("attention_blocks", forward);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

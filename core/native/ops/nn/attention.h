// What attention and its kernel by blocks share.
#pragma once
#include "tensor/tensor.h"

namespace ts {

// Ranks, dtypes and widths of (..., L, E), (..., S, E), (..., S, V).
void check_attention_operands(const Tensor& q, const Tensor& k, const Tensor& v);
// The result, laid out as four-dimensional queries are: as in PyTorch heads that lie between positions stay there, and
// programs view the result with heads and widths as one.
Tensor attention_outline(const Tensor& q, const Tensor& v);
// A mask is bool, float32 or of the query's dtype.
void check_attention_mask(const Tensor& mask, DType query);

// scale * q @ k^T with what the mask adds; what a mask of bool hides is -inf. `allowed`: what may be seen, by key or by
// row, undefined: all.
struct AttentionScores {
  Tensor scores, allowed;
};
AttentionScores attention_scores(const Tensor& q, const Tensor& k, const Tensor& mask, bool is_causal, double scale);
// Of rows that may see no key at all: zeros, not NaN, as PyTorch's are.
Tensor attention_weights(const AttentionScores& s);

// The result by a kernel that never holds the scores, with its gradient. Undefined where there is none for the case.
Tensor attention_by_blocks(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool is_causal,
                           double scale);

// The result by operators over blocks of queries, where the scores are many. Undefined where they are few.
Tensor attention_by_rows(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool is_causal,
                         double scale, double dropout_p);

} // namespace ts

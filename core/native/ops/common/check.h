// Checks shared by operator bodies, and the reading of single elements.
#pragma once
#include "dispatch/value.h"
#include <optional>

namespace ts {

// RuntimeError when writing to t would touch read-only memory, or an inference tensor outside of inference mode.
void check_writable(const Tensor& t, const char* op);
// The same, and when an element would be written twice (expanded, overlapping).
void check_inplace(const Tensor& t, const char* op);
// Whether `in` may share some, but not exactly all, of the memory `out` covers, so that writing could change it on the
// way. RuntimeError when both are dense: PyTorch refuses just these.
bool overlaps_partly(const Tensor& out, const Tensor& in, const char* op);
// RuntimeError when both are dense and share memory, be it the same.
void check_no_overlap(const Tensor& written, const Tensor& read, const char* op);
// check_inplace for what writes one value wherever it lands: an expanded tensor brings a warning only, as in PyTorch.
void check_filled(const Tensor& t, const char* op);
// Where deterministic results are asked for: RuntimeError, or a warning, as `op` has no deterministic form.
void alert_not_deterministic(const char* op);
// Gives an out= tensor the shape it needs, with a warning when it held elements of another shape.
void resize_output(const Tensor& out, IntSpan sizes, const char* op, bool quiet = false);
// RuntimeError naming both dtypes.
void check_same_dtype(const Tensor& a, const Tensor& b, const char* op);
// The element at a host address.
Scalar read_scalar(const void* at, DType dtype);
// The value of a real 0-d tensor whose memory the host can address.
std::optional<Scalar> host_number(const TensorImpl& t);

} // namespace ts

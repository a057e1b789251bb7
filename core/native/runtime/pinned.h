// Pinned memory: host memory that a device copies from and to by itself, so that copies need not be waited for.
#pragma once
#include "runtime/backend.h"

namespace ts {

// A cpu tensor's values in memory of this backend's host_alloc: contiguous. RuntimeError where it gives none.
Tensor pin_memory(const Tensor& t, Backend& backend);
// The same memory, which this backend copies from and to by itself until the result is gone; it keeps t. RuntimeError
// where the backend registers none, or not this.
Tensor register_memory(const Tensor& t, Backend& backend);
// What a factory made, pinned by the backend that pins if there is one; what lies otherwise than in order stays.
Tensor pin_new(const Tensor& t);
// Pinned by this backend, or by any.
bool is_pinned(const Tensor& t, const Backend* backend = nullptr);
// The first backend with a device that gives pinned memory, the default device's before others; NULL: there is none.
Backend* pinning_backend();

// Copies that are queued on dst's or src's stream; both contiguous. False unless the cpu side is pinned by the device's
// backend. The pinned memory is kept until they are done.
bool copy_from_pinned(const Tensor& dst, const Tensor& src, size_t bytes);
bool copy_to_pinned(const Tensor& dst, const Tensor& src, size_t bytes);

} // namespace ts

// A host-memory backend with just enough kernels for tests of the core: fill, copy_cast and pointwise, float64 only.
#pragma once
#include "tensor/tensor.h"

ts::Device toy_device();              // registered on first use, under the name "toy"
int toy_kernel_calls(const char* op); // so far
void toy_claims(int what);            // of its compiler: 0 nothing, 1 pointwise calls, 2 what cannot be

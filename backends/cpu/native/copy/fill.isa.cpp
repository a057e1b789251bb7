// Entry points `fill` and `iota`.
#include "copy.h"

#include "threads.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

constexpr int64_t kGrain = 65536;

// The parameter as an element of `dtype`. COMPLEX parameters are two floats.
void write_value(char* at, int32_t dtype, const backend::Value& value) {
  if (value.tag() == TS_V_COMPLEX) {
    write_number(at, dtype, {value.raw()->as.floats[0], value.raw()->as.floats[1]});
  } else if (backend::is_complex(dtype) || backend::is_narrow(dtype)) {
    write_number(at, dtype, value.as_float());
  } else if (value.tag() == TS_V_FLOAT) {
    const double number = value.as_float();
    storer<double>(dtype)(at, &number, Box{1, 1, 0, 0});
  } else {
    const int64_t number = value.as_int();
    storer<int64_t>(dtype)(at, &number, Box{1, 1, 0, 0});
  }
}

void fill(const backend::Call& call) {
  const ts_tensor* out = call.out(0).raw();
  if (out->numel == 1) return write_value(call.out(0).bytes(), out->dtype, call.param(0));
  alignas(16) char value[16];
  write_value(value, out->dtype, call.param(0));
  Operand operands[2];
  require_dims("fill", out->ndim);
  set_operand(operands[0], out);
  operands[1].base = value;
  operands[1].dtype = out->dtype;
  operands[1].item = operands[0].item;
  Space space;
  space.operands = operands;
  space.n_operands = 2;
  if ((out->flags & TS_T_CONTIGUOUS) != 0) {
    space.nd = 1;
    space.size[0] = out->numel;
    operands[0].stride[0] = 1;
  } else {
    space.nd = out->ndim;
    for (int d = 0; d < space.nd; ++d) space.size[d] = out->sizes[d];
  }
  for (int d = 0; d < space.nd; ++d) operands[1].stride[d] = 0;
  copy_space(space);
}

// Integers count in int64 and wrap; floats are computed in float64 and rounded once.
template <typename T> void iota_as(const ts_tensor* out, T start, T step) {
  const int64_t stride = out->ndim == 0 ? 1 : out->strides[0], item = backend::dtype_size(out->dtype);
  char* base = static_cast<char*>(out->handle) + out->byte_offset;
  const StoreFn<T> store = storer<T>(out->dtype);
  parallel_for(0, out->numel, kGrain, [&](int64_t first, int64_t last) {
    constexpr int64_t kBlock = 512;
    alignas(64) T tile[kBlock];
    for (int64_t at = first; at < last; at += kBlock) {
      const int64_t n = last - at < kBlock ? last - at : kBlock;
      for (int64_t i = 0; i < n; ++i) tile[i] = start + static_cast<T>(at + i) * step;
      store(base + at * stride * item, tile, Box{1, n, 0, stride});
    }
  });
}

void iota(const backend::Call& call) {
  const ts_tensor* out = call.out(0).raw();
  if (out->ndim > 1) backend::fail(TS_ERROR, "iota: expected one dimension, got %d", out->ndim);
  if (backend::is_integral(out->dtype) && call.param(0).tag() != TS_V_FLOAT && call.param(1).tag() != TS_V_FLOAT)
    return iota_as<int64_t>(out, call.param(0).as_int(), call.param(1).as_int());
  iota_as<double>(out, call.param(0).as_float(), call.param(1).as_float());
}

} // namespace

TS_KERNEL_AS("fill", fill, (uint64_t{1} << TS_NUM_DTYPES) - 1, TS_L_STRIDED);
TS_KERNEL("iota", iota);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

// copy_cast, fill, iota: writing elements, of any dtype and strides.
#ifndef TESSERACK_HOST_COPY_HPP
#define TESSERACK_HOST_COPY_HPP

#include <tesserack/backend.hpp>

#pragma GCC visibility push(hidden)
namespace tesserack::backend {
inline namespace TESSERACK_VARIANT {
namespace host_kernels {

inline void copy_cast(const Call& call) {
  const Tensor out = call.out(0), in = call.in(0);
  with_storage(out.dtype(), [&]<typename To>() {
    with_storage(in.dtype(), [&]<typename From>() {
      Elements<To> to(out);
      Elements<From> from(in);
      for_each(
          out.sizes(), [](To& y, From x) { y = convert<To>(x); }, to, from);
    });
  });
}

inline void fill(const Call& call) {
  const Tensor out = call.out(0);
  const Value value = call.param(0);
  with_storage(out.dtype(), [&]<typename T>() {
    const T number = value.tag() == TS_V_FLOAT ? convert<T>(value.as_float()) : convert<T>(value.as_int());
    Elements<T> to(out);
    for_each(
        out.sizes(), [&](T& y) { y = number; }, to);
  });
}

// start + i * step, in the arithmetic of the dtype's kind.
template <typename T, typename Number> void count_up(const Tensor& out, Number start, Number step) {
  Elements<T> to(out);
  Number i = 0;
  for_each(
      out.sizes(), [&](T& y) { y = convert<T>(static_cast<Number>(start + i++ * step)); }, to);
}

inline void iota(const Call& call) {
  const Tensor out = call.out(0);
  const Value start = call.param(0), step = call.param(1);
  with_storage(out.dtype(), [&]<typename T>() {
    if (is_floating(out.dtype()))
      count_up<T>(out, start.as_float(), step.as_float());
    else
      count_up<T>(out, start.as_int(), step.as_int());
  });
}

} // namespace host_kernels
} // namespace TESSERACK_VARIANT
} // namespace tesserack::backend
#pragma GCC visibility pop

#endif // TESSERACK_HOST_COPY_HPP

// pointwise: runs a program of scalar instructions over tensors, a tile of elements at a time.
#ifndef TESSERACK_HOST_POINTWISE_HPP
#define TESSERACK_HOST_POINTWISE_HPP

#include <tesserack/backend.hpp>
#include <tesserack/host/instructions.hpp>
#include <tesserack/host/tiles.hpp>

#include <algorithm>
#include <vector>

#pragma GCC visibility push(hidden)
namespace tesserack::backend {
inline namespace TESSERACK_VARIANT {
namespace host_kernels {

// The registers of a program: one tile each. Inputs come first, then constants, then results.
template <typename T> class Registers {
public:
  explicit Registers(const ts_program& program)
      : values_(static_cast<size_t>(program.n_inputs + program.n_constants + program.n_instructions) * kTile) {
    for (int k = 0; k < program.n_constants; ++k)
      std::fill_n(at(program.n_inputs + k), kTile, convert<T>(program.constants[k]));
  }
  T* at(int k) { return values_.data() + k * kTile; }

private:
  std::vector<T> values_;
};

template <typename T> void execute(const ts_program& program, Registers<T>& registers, int64_t n) {
  const int first = program.n_inputs + program.n_constants;
  for (int k = 0; k < program.n_instructions; ++k) {
    const ts_instruction& i = program.instructions[k];
    run_instruction<T>(i.op, registers.at(first + k), registers.at(i.a), registers.at(i.b), registers.at(i.c), n);
  }
}

// Offset of a tensor's element at a position, given in the coordinates of all dimensions but the last.
inline int64_t offset_of(const Tensor& tensor, const std::vector<int64_t>& position) {
  int64_t offset = 0;
  if (!tensor.is_scalar())
    for (size_t d = 0; d < position.size(); ++d) offset += position[d] * tensor.stride(static_cast<int>(d));
  return offset;
}
inline int64_t last_stride(const Tensor& tensor) {
  return tensor.is_scalar() || tensor.ndim() == 0 ? 0 : tensor.stride(tensor.ndim() - 1);
}

// The next position in row-major order; false after the last.
inline bool advance(std::vector<int64_t>& position, std::span<const int64_t> sizes) {
  for (size_t d = position.size(); d-- > 0;) {
    if (++position[d] < sizes[d]) return true;
    position[d] = 0;
  }
  return false;
}

template <typename T> void run_program(const Call& call) {
  const ts_program& program = *call.raw()->program;
  const std::span<const int64_t> sizes = call.out(0).sizes();
  const int64_t columns = sizes.empty() ? 1 : sizes.back();
  std::vector<int64_t> position(sizes.empty() ? 0 : sizes.size() - 1, 0);
  Registers<T> registers(program);
  do {
    for (int64_t begin = 0; begin < columns; begin += kTile) {
      const int64_t n = std::min(kTile, columns - begin);
      for (int k = 0; k < program.n_inputs; ++k) {
        const Tensor in = call.in(k);
        load(registers.at(k), in, offset_of(in, position) + begin * last_stride(in), last_stride(in), n);
      }
      execute(program, registers, n);
      for (int k = 0; k < program.n_outputs; ++k) {
        const Tensor out = call.out(k);
        store(out, offset_of(out, position) + begin * last_stride(out), last_stride(out),
              registers.at(program.outputs[k]), n);
      }
    }
    call.check_interrupt();
  } while (advance(position, sizes));
}

inline void pointwise(const Call& call) {
  with_compute(call.compute_dtype(), [&]<typename T>() { run_program<T>(call); });
}

} // namespace host_kernels
} // namespace TESSERACK_VARIANT
} // namespace tesserack::backend
#pragma GCC visibility pop

#endif // TESSERACK_HOST_POINTWISE_HPP

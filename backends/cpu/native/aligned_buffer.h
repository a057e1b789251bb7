// Working memory that begins at a cache line.
#ifndef TESSERACK_CPU_ALIGNED_BUFFER_H
#define TESSERACK_CPU_ALIGNED_BUFFER_H

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// Grows as asked; what was in it is lost then.
class AlignedBuffer {
public:
  float* get(int64_t count) {
    if (count > size_) {
      const size_t bytes = (static_cast<size_t>(count) * sizeof(float) + 63) / 64 * 64;
      data_.reset(static_cast<float*>(std::aligned_alloc(64, bytes)));
      size_ = data_ ? count : 0;
      if (!data_) throw std::bad_alloc();
    }
    return data_.get();
  }

private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  std::unique_ptr<float, Free> data_;
  int64_t size_ = 0;
};

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_ALIGNED_BUFFER_H

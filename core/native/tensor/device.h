// A device is a backend id, handed out at registration, and an index. The core knows no backend by name.
#pragma once
#include <cstdint>

namespace ts {

inline constexpr int kMaxBackends = 24;
// Backend 0 is built in: tensors with shape and dtype but no data, on which only rules run.
inline constexpr int16_t kMetaBackend = 0;

struct Device {
  int16_t backend = -1;
  int16_t index = 0;
  bool defined() const { return backend >= 0; }
  bool is_meta() const { return backend == kMetaBackend; }
  int64_t pack() const { return (static_cast<int64_t>(backend) << 16) | static_cast<uint16_t>(index); }
  static Device unpack(int64_t v) { return {static_cast<int16_t>(v >> 16), static_cast<int16_t>(v & 0xffff)}; }
  friend bool operator==(Device a, Device b) { return a.backend == b.backend && a.index == b.index; }
};

} // namespace ts

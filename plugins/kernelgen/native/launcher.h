// What the launchers of all drivers share: a count of launches, and how a driver's refusal is told.
#pragma once
#include "tesserack/launch.h"
#include <atomic>
#include <cstdint>
#include <cstdio>

#define TS_EXPORT extern "C" __attribute__((visibility("default")))

namespace ts::kernelgen {

inline std::atomic<uint64_t> launches{0};

// `lost`: by this code the driver says that the device, or its context, is of no use any more.
inline int refused(const ts_launch* launch, const char* function, int code, bool lost = false) {
  char message[160];
  std::snprintf(message, sizeof message, "%s refused a kernel with %d arguments (status %d)", function,
                launch->n_arguments, code);
  if (launch->host) launch->host->set_error(message);
  return lost ? TS_DEVICE_LOST : TS_ERROR;
}

} // namespace ts::kernelgen

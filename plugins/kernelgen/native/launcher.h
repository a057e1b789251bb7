// What the launchers of all drivers share: a count of launches, and how a driver's refusal is told.
#pragma once
#include "tesserack/launch.h"
#include <atomic>
#include <cstdint>
#include <cstdio>

#define TS_EXPORT extern "C" __attribute__((visibility("default")))

namespace ts::kernelgen {

inline std::atomic<uint64_t> launches{0};

inline int refused(const ts_launch* launch, const char* function, int code) {
  char message[160];
  std::snprintf(message, sizeof message, "%s refused a kernel with %d arguments (status %d)", function,
                launch->n_arguments, code);
  if (launch->host) launch->host->set_error(message);
  return TS_ERROR;
}

} // namespace ts::kernelgen

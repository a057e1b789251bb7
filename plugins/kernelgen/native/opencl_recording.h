// Recordings of OpenCL work: command buffers of cl_khr_command_buffer, which take what a queue is given meanwhile.
#pragma once
#include "launcher.h"

namespace ts::kernelgen {

// How many queues are recorded now: what every launch asks.
inline std::atomic<int> recorded_queues{0};

// Writes a launch down where its queue is recorded. TS_DECLINED: it is not.
int record_launch(const ts_launch* l, void* queue, void* kernel, const size_t* global, const size_t* local);

} // namespace ts::kernelgen

// Collectives of ranks in one call of Python, for what training does over and over: plain tensors of the host.
#pragma once
#include "comm/group.h"
#include "comm/recorder.h"
#include "python/common.h"

namespace ts::py {

// Functions of one group, which stays alive with them; the recorder, too.
struct Quick {
  comm::Group* group;
  comm::Recorder* recorder;
  PyRef kept_group, kept_recorder;
};
// (all_reduce(tensor, op, seconds), barrier(seconds)): each does its collective and returns True, or has done nothing
// and returns False where the call needs more than is done here. A failure is in the recorder before it is raised.
PyObject* quick_calls(std::unique_ptr<Quick> quick);

} // namespace ts::py

// Device memory that several processes of a machine use, by the names that its backend gives it.
#pragma once
#include "tensor/tensor.h"
#include <string>

namespace ts {

class Backend;

// A name for the whole memory of a tensor, for import_memory in another process, once all work given to the device so
// far is done. Good for as long as this process keeps the memory. "": its backend shares none.
std::string export_memory(const Tensor& t);
// All of it, as bytes. RuntimeError where the backend shares none, or the memory is gone.
// `lease`: a file that is closed when the last user is gone, so that the owner knows; -1: none.
Tensor import_memory(Device device, const std::string& name, int64_t nbytes, int lease);

} // namespace ts

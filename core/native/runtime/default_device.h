// Which device is meant where none is named, and which index where only a backend is named. Per thread.
#pragma once
#include "tensor/device.h"
#include <functional>

namespace ts {

// default_device() and set_default_device() are declared in runtime/backend.h. In order: the innermost context entered
// by this thread, the device set for the process, the one the chooser names, the declared default.

// Names the device of a process that set none; asked once, again after forget_chosen_device. May raise.
void set_default_chooser(std::function<Device()> chooser);
void forget_chosen_device();

const char* declared_default(); // "cpu", the only device name the core mentions

// A context of the calling thread. Leaving ends the innermost one entered with this device; false if there is none.
void enter_device(Device device);
bool leave_device(Device device);

// The index meant by a backend's bare name in the calling thread, 0 unless set.
int16_t current_index(int16_t backend);
void set_current_index(int16_t backend, int16_t index);

} // namespace ts

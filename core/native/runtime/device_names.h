// Names of devices besides those of backends: another name for one, and names that may be written down without one.
#pragma once
#include "tensor/device.h"
#include <optional>
#include <string>
#include <vector>

namespace ts {

// From now on `shown` means the backend `name`, and devices of that backend call themselves `shown`. An empty `name`
// takes the alias back. One at a time.
void set_device_alias(const std::string& shown, const std::string& name);
const std::string& real_device_name(const std::string& name);
const std::string& shown_device_name(const std::string& name);
bool has_device_alias(const std::string& name); // whether devices of this backend show another name

// Devices that can be named where no backend has them. They have a name and an index, and using one is an error.
void set_nameable_devices(std::vector<std::string> names);
std::optional<Device> name_absent_device(const std::string& text); // none for names that must be had
inline bool is_absent(Device d) { return d.backend >= kMaxBackends; }
std::string absent_device_type(Device d);
std::string absent_device_text(Device d);

} // namespace ts

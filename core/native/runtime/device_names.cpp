#include "runtime/device_names.h"
#include <algorithm>
#include <atomic>
#include <mutex>

namespace ts {
namespace {

struct Alias {
  std::string shown, name;
};
std::atomic<const Alias*> g_alias{nullptr}; // never freed: another thread may read an old one

struct Absent {
  std::mutex mutex;
  std::vector<std::string> nameable;
  std::vector<std::string> named; // by device id, from kMaxBackends on
};
Absent& absent() {
  static auto* a = new Absent; // never destroyed: devices may be printed during static destruction
  return *a;
}
constexpr int16_t kNoIndex = -1;

// The index after the colon; none if it is malformed.
std::optional<int16_t> index_of(const std::string& text, size_t colon) {
  if (colon == std::string::npos) return kNoIndex;
  std::string digits = text.substr(colon + 1);
  bool valid = !digits.empty() && digits.size() <= 4;
  for (char c : digits) valid = valid && c >= '0' && c <= '9';
  return valid ? std::optional(static_cast<int16_t>(std::stoi(digits))) : std::nullopt;
}

} // namespace

void set_device_alias(const std::string& shown, const std::string& name) {
  g_alias = name.empty() ? nullptr : new Alias{shown, name};
}
const std::string& real_device_name(const std::string& name) {
  const Alias* a = g_alias.load(std::memory_order_acquire);
  return a && a->shown == name ? a->name : name;
}
const std::string& shown_device_name(const std::string& name) {
  const Alias* a = g_alias.load(std::memory_order_acquire);
  return a && a->name == name ? a->shown : name;
}
bool has_device_alias(const std::string& name) {
  const Alias* a = g_alias.load(std::memory_order_acquire);
  return a && a->name == name;
}

void set_nameable_devices(std::vector<std::string> names) {
  Absent& a = absent();
  std::lock_guard lock(a.mutex);
  a.nameable = std::move(names);
}

std::optional<Device> name_absent_device(const std::string& text) {
  size_t colon = text.find(':');
  std::string name = text.substr(0, colon);
  std::optional<int16_t> index = index_of(text, colon);
  Absent& a = absent();
  std::lock_guard lock(a.mutex);
  if (!index || std::find(a.nameable.begin(), a.nameable.end(), name) == a.nameable.end()) return std::nullopt;
  auto at = std::find(a.named.begin(), a.named.end(), name);
  if (at == a.named.end()) at = a.named.insert(at, name);
  return Device{static_cast<int16_t>(kMaxBackends + (at - a.named.begin())), *index};
}

std::string absent_device_type(Device d) {
  Absent& a = absent();
  std::lock_guard lock(a.mutex);
  auto k = static_cast<size_t>(d.backend - kMaxBackends);
  return k < a.named.size() ? a.named[k] : "undefined";
}
std::string absent_device_text(Device d) {
  std::string text = absent_device_type(d);
  return d.index == kNoIndex ? text : text + ":" + std::to_string(d.index);
}

} // namespace ts

#include "runtime/default_device.h"
#include "runtime/backend.h"
#include "tensor/thread_state.h"
#include <algorithm>

namespace ts {
namespace {

struct ProcessDefault {
  std::atomic<int64_t> device{Device{}.pack()};
  std::atomic<bool> chosen{false}; // by the chooser, not set
  std::function<Device()> chooser;
};
ProcessDefault& process_default() {
  static auto* d = new ProcessDefault; // never destroyed: tensors may be made during static destruction
  return *d;
}

thread_local Device t_context TS_TLS_MODEL; // the innermost entered one: what default_device reads
thread_local int16_t t_index[kMaxBackends] TS_TLS_MODEL;
std::vector<Device>& entered() {
  thread_local std::vector<Device> devices;
  return devices;
}

Device choose() {
  ProcessDefault& p = process_default();
  Device d = p.chooser ? p.chooser() : parse_device(declared_default());
  p.chosen = true;
  p.device = d.pack();
  return d;
}

} // namespace

const char* declared_default() { return "cpu"; }

Device default_device() {
  if (t_context.defined()) return t_context;
  Device d = Device::unpack(process_default().device.load(std::memory_order_relaxed));
  return d.defined() ? d : choose();
}

void set_default_device(Device device) {
  process_default().chosen = false;
  process_default().device = device.pack();
}

void set_default_chooser(std::function<Device()> chooser) { process_default().chooser = std::move(chooser); }

void forget_chosen_device() {
  if (process_default().chosen) set_default_device(Device());
}

void enter_device(Device device) {
  entered().push_back(device);
  t_context = device;
}

bool leave_device(Device device) {
  std::vector<Device>& all = entered();
  auto it = std::find(all.rbegin(), all.rend(), device);
  if (it == all.rend()) return false;
  all.erase(std::next(it).base());
  t_context = all.empty() ? Device() : all.back();
  return true;
}

int16_t current_index(int16_t backend) { return t_index[backend]; }
void set_current_index(int16_t backend, int16_t index) { t_index[backend] = index; }

} // namespace ts

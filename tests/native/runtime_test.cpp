#include "dispatch/launch.h"
#include "dispatch/op_handles.h"
#include "dispatch/operator.h"
#include "harness.h"
#include "runtime/backend.h"
#include "runtime/empty.h"
#include "toy_backend.h"
#include <thread>

using namespace ts;

TEST(allocator_reuses_and_counts) {
  DeviceAllocator& a = backend_of(toy_device()).allocator(0);
  MemoryStats before = a.stats();
  void* first;
  {
    Tensor t = empty_tensor(Dims{100}, DType::Float64, toy_device());
    first = t.data();
    CHECK(a.stats().allocated >= before.allocated + 800);
  }
  CHECK(a.stats().allocated == before.allocated);
#ifndef TESSERACK_SANITIZE
  CHECK(empty_tensor(Dims{100}, DType::Float64, toy_device()).data() == first);
#endif
  (void)first;
}

TEST(impossible_sizes_raise) {
  CHECK_ERROR(empty_tensor(Dims{int64_t{1} << 50}, DType::Float64, toy_device()), "out of memory");
  CHECK_ERROR(empty_tensor(Dims{int64_t{1} << 62}, DType::Float64, toy_device()), "64-bit");
}

TEST(memory_freed_by_other_threads_returns) {
  DeviceAllocator& a = backend_of(toy_device()).allocator(0);
  int64_t before = a.stats().allocated;
  for (int round = 0; round < 3; ++round) {
    std::vector<Tensor> made;
    std::thread maker([&] {
      for (int i = 0; i < 1000; ++i) made.push_back(empty_tensor(Dims{i + 1}, DType::Float64, toy_device()));
    });
    maker.join();
    made.clear();
  }
  CHECK(a.stats().allocated == before);
}

TEST(kernels_are_given_scratch_memory) {
  static const KernelId scratch("scratch");
  DeviceAllocator& a = backend_of(toy_device()).allocator(0);
  Tensor x = ops::full(Dims{1000}, Scalar(1.5), DType::Float64, toy_device());
  int64_t before = a.stats().allocated;
  CHECK(Launch(scratch, toy_device()).out(x).run());
  CHECK(static_cast<double*>(x.data())[999] == 3.0);
  CHECK(a.stats().allocated == before); // it is back
  void* handle = nullptr;
  CHECK(host_table()->workspace(nullptr, 8, &handle) == TS_ERROR);
  CHECK(take_last_error() == "workspace: expected the call of a running kernel");
}

TEST(backends_are_validated) {
  ts_backend t{};
  t.struct_size = 2;
  CHECK_ERROR(register_backend(&t, "tiny"), "too small to say its version");
  t.struct_size = 16;
  t.abi_major = TS_ABI_MAJOR;
  CHECK_ERROR(register_backend(&t, "short"), "too small to hold the required slots");
  t.struct_size = sizeof t;
  t.abi_major = 9;
  CHECK_ERROR(register_backend(&t, "future"), "built for ABI 9");
  t.abi_major = TS_ABI_MAJOR;
  t.abi_minor_needed = 99;
  CHECK_ERROR(register_backend(&t, "newer"), "upgrade tesserack");
  t.abi_minor_needed = 0;
  t.name = "hollow";
  CHECK_ERROR(register_backend(&t, "hollow"), "leaves the required slot probe empty");
  CHECK_ERROR(load_backend("/nonexistent.so"), "cannot open");
}

TEST(device_names_are_parsed) {
  toy_device();
  CHECK(parse_device("toy:1").index == 1);
  CHECK(parse_device("meta").is_meta());
  for (const char* bad : {"", ":", "toy:", "toy:x", "toy:-1", "toy:99999"})
    CHECK_ERROR(parse_device(bad), "device: expected");
  CHECK_ERROR(parse_device("toy:7"), "index below 2");
  CHECK_ERROR(parse_device("nosuch"), "nosuch");
}

TEST(mixed_devices_are_refused) {
  Tensor a = ops::full(Dims{2}, Scalar(1.0), DType::Float64, toy_device());
  Tensor b = ops::full(Dims{2}, Scalar(1.0), DType::Float64, parse_device("toy:1"));
  CHECK_ERROR(ops::add(a, b), "same device");
}

TEST(meta_tensors_have_shapes_only) {
  Tensor a = empty_tensor(Dims{3, 1}, DType::Float32, parse_device("meta")),
         b = empty_tensor(Dims{4}, DType::Float64, parse_device("meta"));
  Tensor c = ops::add(a, b);
  CHECK(c.dtype() == DType::Float64 && same(c.sizes(), Dims{3, 4}) && c.device().is_meta());
}

TEST(user_keys_see_calls_first) {
  static int seen = 0;
  int k = register_key("Counting", key::Autograd, true);
  Operator& add = mutable_operator(get_operator("add"));
  add.table.set(k, {[](void*, const Operator& op, Frame& f, KeySet keys) {
                      ++seen;
                      redispatch(op, f, keys & below(highest_key(keys)));
                    },
                    nullptr, "test"});
  Tensor a = ops::full(Dims{2}, Scalar(1.0), DType::Float64, toy_device());
  thread_state().include |= key_bit(k);
  ops::add(a, a);
  ops::mul(a, a); // no kernel at the key: passes through
  thread_state().include &= ~key_bit(k);
  ops::add(a, a);
  add.table.set(k, {});
  CHECK(seen == 1);
  CHECK_ERROR(register_key("Counting", key::Autograd, true), "exists already");
}

TEST(kernel_names_have_a_limit) {
  std::string last;
  for (int k = 0; last.empty() && k <= KernelId::kMax; ++k) {
    std::string name = "limit_" + std::to_string(k);
    try {
      KernelId id(name.c_str());
      CHECK(id.index() < KernelId::kMax);
    } catch (const Error&) {
      last = name;
    }
  }
  CHECK(!last.empty());
  CHECK_ERROR(KernelId(last.c_str()), "kernel names"); // asked again, it is no more valid than before
}

namespace {
template <int Which> void check_ctx(void* ctx, const Operator& op, Frame& f, KeySet keys) {
  if (ctx != reinterpret_cast<void*>(&check_ctx<Which>))
    throw Error(ErrorKind::Runtime, "a kernel with the context of another");
  redispatch(op, f, keys & below(highest_key(keys)));
}
template <int Which> Kernel checking() {
  return {check_ctx<Which>, reinterpret_cast<void*>(&check_ctx<Which>), "test"};
}
} // namespace

TEST(kernels_are_replaced_while_others_run_them) {
  int k = register_key("Replacing", key::Autograd, true);
  Operator& add = mutable_operator(get_operator("add"));
  add.table.set(k, checking<0>());
  std::atomic<bool> done{false};
  std::thread other([&] {
    for (int i = 0; i < 20000; ++i)
      add.table.set(k, i % 3 == 0 ? checking<0>() : i % 3 == 1 ? checking<1>() : Kernel());
    done = true;
  });
  Tensor a = ops::full(Dims{2}, Scalar(1.0), DType::Float64, toy_device());
  thread_state().include |= key_bit(k);
  while (!done) ops::add(a, a);
  thread_state().include &= ~key_bit(k);
  other.join();
  add.table.set(k, {});
}

// What the contract with backends promises beyond calls of kernels: copies of calls, recordings, tables of extensions,
// kernels per device.
#include "dispatch/launch.h"
#include "dispatch/op_handles.h"
#include "dispatch/recording.h"
#include "harness.h"
#include "ops/random/random_bits.h"
#include "runtime/call_copy.h"
#include "runtime/plugin.h"
#include "toy_backend.h"
#include <cstring>
#include <pthread.h>
#include <thread>

using namespace ts;

TEST(a_copied_call_has_all_but_the_memory) {
  const int64_t sizes[] = {2, 3}, strides[] = {3, 1}, list[] = {7, 8, 9};
  ts_tensor operands[2]{};
  for (ts_tensor& t : operands) {
    t.struct_size = sizeof t;
    t.handle = &operands;
    t.byte_offset = 16;
    t.sizes = sizes;
    t.strides = strides;
    t.ndim = 2;
  }
  ts_value params[3]{};
  params[0] = {TS_V_INTS, 3, {0}};
  params[0].as.ints = list;
  params[1] = {TS_V_STR, 0, {0}};
  params[1].as.str = "mean";
  params[2] = {TS_V_INT, 0, {42}};
  const double constants[] = {0.5};
  const int64_t integers[] = {INT64_MAX};
  const ts_instruction code[] = {{TS_I_ADD, 0, 1, 0}};
  const uint16_t stored[] = {2};
  ts_program program{sizeof(ts_program), 5, 1, 1, 1, 1, constants, code, stored, "x + c", integers, {6, 7}};
  ts_call call{};
  call.struct_size = sizeof call;
  call.host = host_table();
  call.op = "anything";
  call.tensor_size = sizeof(ts_tensor);
  call.n_outputs = call.n_inputs = 1;
  call.n_params = 3;
  call.outputs = operands;
  call.inputs = operands + 1;
  call.params = params;
  call.program = &program;
  call.epilogue = &program;
  call.core = &call;
  ts_call* copy = nullptr;
  CHECK(host_table()->copy_call(&call, &copy) == TS_OK && copy);
  CHECK(copy->core == nullptr && copy->op != call.op && !std::strcmp(copy->op, "anything"));
  CHECK(copy->outputs != call.outputs && copy->outputs->sizes != sizes && copy->outputs->sizes[1] == 3);
  CHECK(TS_IN(copy, 0)->strides[0] == 3 && TS_IN(copy, 0)->handle == &operands && TS_IN(copy, 0)->byte_offset == 16);
  CHECK(copy->params[0].as.ints != list && copy->params[0].as.ints[2] == 9);
  CHECK(copy->params[1].as.str != params[1].as.str && !std::strcmp(copy->params[1].as.str, "mean"));
  CHECK(copy->params[2].as.i == 42 && copy->prologue == nullptr);
  CHECK(copy->program != &program && copy->epilogue->integers[0] == INT64_MAX && copy->program->constants[0] == 0.5);
  CHECK(copy->program->hash[0] == 6 && copy->program->hash[1] == 7);
  CHECK(copy->program->instructions[0].b == 1 && copy->program->id == 5);
  host_table()->free_call(copy);
  void* handle = nullptr;
  CHECK(host_table()->copy_call(nullptr, nullptr) == TS_ERROR);
  CHECK(host_table()->workspace(&call, 1, nullptr) == TS_ERROR && !handle);
}

namespace {
double first_of(const Tensor& t) { return *static_cast<double*>(t.data()); }
Tensor numbers(double value) { return ops::full(Dims{4}, Scalar(value), DType::Float64, toy_device()); }
} // namespace

TEST(a_recording_runs_prepared_steps_on_the_same_memory) {
  Tensor x = numbers(1), out;
  int prepared = toy_kernel_calls("prepared"), run = toy_kernel_calls("prepared run"),
      freed = toy_kernel_calls("freed");
  {
    Recording recording(toy_device());
    recording.begin();
    CHECK_ERROR(Recording(toy_device()).begin(), "this thread is recording already");
    out = ops::mul(ops::add(x, Scalar(1)), Scalar(3));
    recording.end();
    CHECK(first_of(out) == 6 && recording.steps() == 2 && recording.prepared() == 2);
    ops::fill_(x, Scalar(4));
    Tensor other = numbers(0); // memory of the recording is nobody else's
    recording.replay();
    CHECK(first_of(out) == 15 && first_of(other) == 0);
    CHECK(toy_kernel_calls("prepared") == prepared + 2 && toy_kernel_calls("prepared run") == run + 2);
    CHECK_ERROR(recording.begin(), "a recording is made once");
  }
  CHECK(toy_kernel_calls("freed") == freed + 2);
}

TEST(a_recording_draws_new_numbers) {
  Generator g;
  Tensor words;
  auto first = [&] { return *static_cast<uint32_t*>(words.data()); };
  Recording recording(toy_device());
  recording.begin();
  random_bits(Dims{6}, DType::UInt32, toy_device(), g);
  words = random_bits(Dims{2}, DType::UInt32, toy_device(), g);
  recording.end();
  CHECK(first() == 8 && g.offset == 12);
  recording.replay();
  CHECK(first() == 20 && g.offset == 24);
  g.manual_seed(3);
  recording.replay();
  CHECK(first() == 8 && g.offset == 12);
}

TEST(what_cannot_be_recorded_is_an_error) {
  Tensor x = numbers(2);
  Recording recording(toy_device());
  recording.begin();
  double value = 0;
  CHECK_ERROR(copy_bytes_to_host(&value, x, sizeof value),
              "record: expected work of toy:0 alone, got a read of values");
  CHECK_ERROR(copy_bytes_from_host(x, &value, sizeof value), "got a copy from the host");
  CHECK_ERROR(synchronize(toy_device()), "got a wait for the device");
  recording.cancel();
  synchronize(toy_device());
  CHECK_ERROR(recording.replay(), "expected a recording that has ended");
}

TEST(the_profile_sees_kernels_of_all_threads) {
  start_kernel_profile();
  std::thread([] { ops::add(numbers(1), Scalar(2)); }).join();
  std::vector<KernelEvent> events = stop_kernel_profile();
  CHECK(events.size() == 2 && !std::strcmp(events[0].op, "fill") && !std::strcmp(events[1].op, "pointwise"));
  CHECK(events[1].elements == 4 && events[1].end >= events[1].start && events[1].device == toy_device());
  CHECK(events[0].thread != static_cast<uint64_t>(pthread_self()));
  ops::add(numbers(1), Scalar(2));
  CHECK(take_kernel_events().empty());
}

TEST(kernels_are_a_devices) {
  const KernelId id("second only");
  Backend& b = backend_of(toy_device());
  CHECK(!b.kernel(id, 0) && b.kernel(id, 1));
  CHECK(!Launch(id, {b.id(), 0}).run());
}

TEST(there_is_room_for_many_kernel_names) {
  for (int k = 0; k < 3000; ++k) KernelId(concat("a kernel of a plugin ", k).c_str());
  KernelId last("a kernel of a plugin 2999");
  CHECK(last.index() >= 3000 && !backend_of(toy_device()).kernel(last, 0));
}

TEST(tables_of_extensions_are_checked) {
  auto slot = [](void*, int32_t, void*) { return int{TS_OK}; };
  ts_backend t{};
  t.struct_size = sizeof t;
  t.name = "extended";
  auto complaint = [&] { check_extensions(t, "tests"); };
  complaint();
  ts_capture capture{};
  t.capture = &capture;
  CHECK_ERROR(complaint(), "gave a table capture of 0 bytes");
  capture.struct_size = sizeof capture;
  CHECK_ERROR(complaint(), "leaves the required slot capture.begin empty");
  capture.begin = slot;
  CHECK_ERROR(complaint(), "leaves the required slot capture.end empty");
  capture.end = [](void*, int32_t, void*, void**) { return int{TS_OK}; };
  capture.replay = [](void*, int32_t, void*, void*) { return int{TS_OK}; };
  capture.destroy = [](void*, int32_t, void*) {};
  complaint();
  capture.flags = TS_CAPTURE_STREAMS | 2;
  CHECK_ERROR(complaint(), "tells capture.flags 3; expected TS_CAPTURE_STREAMS or none");
  capture.flags = TS_CAPTURE_STREAMS;
  CHECK_ERROR(complaint(), "TS_CAPTURE_STREAMS without stream_create, event_create and stream_wait_event");
  capture.struct_size = offsetof(ts_capture, flags); // as it was before 2.6
  complaint();
  t.capture = nullptr;
  ts_communicator c{};
  t.communicator = &c;
  CHECK_ERROR(complaint(), "gave a table communicator of 0 bytes");
  c.struct_size = sizeof c;
  CHECK_ERROR(complaint(), "leaves the required slot communicator.open empty");
  c.open = [](void*, int32_t, const void*, size_t, int32_t, int32_t, void**) { return int{TS_OK}; };
  c.collective = [](void*, void*, const ts_collective*) { return int{TS_OK}; };
  c.close = [](void*, void*) {};
  CHECK_ERROR(complaint(), "tells communicator.collectives 0; expected bits of the 11 kinds");
  c.collectives = uint64_t{1} << TS_NUM_COLLECTIVES;
  CHECK_ERROR(complaint(), "tells communicator.collectives 2048");
  c.collectives = uint64_t{1} << TS_COLL_ALL_REDUCE;
  CHECK_ERROR(complaint(), "tells communicator.dtypes 0");
  c.dtypes = uint64_t{1} << TS_FLOAT32;
  complaint();
  c.group_end = [](void*, void*) { return int{TS_OK}; };
  CHECK_ERROR(complaint(), "fills communicator.group_end but not group_begin");
  c.struct_size = offsetof(ts_communicator, unique_id); // what lies beyond is no part of it
  complaint();
  t.communicator = nullptr;
  ts_compiler m{};
  m.struct_size = sizeof m;
  t.compiler = &m;
  CHECK_ERROR(complaint(), "leaves the required slot compiler.claim empty");
  m.claim = [](void*, int32_t, const ts_graph*, int32_t*) { return int{TS_OK}; };
  m.compile = [](void*, int32_t, const ts_graph*, void**) { return int{TS_OK}; };
  m.run = [](void*, int32_t, void*, const ts_call*) { return int{TS_OK}; };
  m.destroy = [](void*, int32_t, void*) {};
  complaint();
  m.serialize = [](void*, int32_t, void*, void*, size_t*) { return int{TS_OK}; };
  CHECK_ERROR(complaint(), "fills compiler.serialize but not deserialize");
}

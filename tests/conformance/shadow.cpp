// A simulated device, "shadow": it hands everything to the cpu backend's library, keeps its memory from the host and
// runs streams lazily. SHADOW_FAULT plants one fault in it, which the conformance kit must find.
#include <tesserack/abi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

const ts_backend* cpu = nullptr;
std::recursive_mutex mutex;

bool fault(const char* name) {
  static const std::string planted = [] {
    const char* text = std::getenv("SHADOW_FAULT");
    return std::string(text ? text : "");
  }();
  return planted == name;
}

// --- streams: work waits in a queue until somebody must see it ------------------------------------------------------

struct Stream {
  std::deque<std::function<void()>> queue;
  uint64_t done = 0;
  uint64_t end() const { return done + queue.size(); }
  void run_until(uint64_t position) {
    while (done < position && !queue.empty()) {
      std::function<void()> work = std::move(queue.front());
      queue.pop_front();
      ++done;
      work();
    }
  }
  void run() { run_until(end()); }
};

struct Event {
  std::shared_ptr<Stream> stream;
  uint64_t position = 0;
};

std::map<void*, std::shared_ptr<Stream>> streams;

std::shared_ptr<Stream> find_stream(void* stream) {
  auto found = streams.find(stream);
  return found == streams.end() ? nullptr : found->second;
}

void finish(void* stream) {
  std::lock_guard lock(mutex);
  if (auto s = find_stream(stream)) s->run();
}

// Runs now on the default stream, later on any other.
int schedule(void* stream, std::function<int()> work) {
  std::lock_guard lock(mutex);
  auto s = find_stream(stream);
  if (!s) return work();
  s->queue.push_back([work = std::move(work)] {
    if (work() != TS_OK) std::abort(); // only what never fails is put off
  });
  return TS_OK;
}

int stream_create(void*, int32_t, int32_t, void** stream) {
  std::lock_guard lock(mutex);
  auto made = std::make_shared<Stream>();
  *stream = made.get();
  streams[made.get()] = made;
  return TS_OK;
}
void stream_destroy(void*, int32_t, void* stream) {
  finish(stream);
  std::lock_guard lock(mutex);
  streams.erase(stream);
}
int event_create(void*, int32_t, uint32_t, void** event) {
  *event = new Event;
  return TS_OK;
}
void event_destroy(void*, int32_t, void* event) { delete static_cast<Event*>(event); }
int event_record(void*, int32_t, void* event, void* stream) {
  std::lock_guard lock(mutex);
  auto s = find_stream(stream);
  *static_cast<Event*>(event) = {s, s ? s->end() : 0};
  return TS_OK;
}
void reach(const Event& e) {
  if (e.stream) e.stream->run_until(e.position);
}
int event_synchronize(void*, int32_t, void* event) {
  std::lock_guard lock(mutex);
  reach(*static_cast<Event*>(event));
  return TS_OK;
}
int event_query(void*, int32_t, void* event, int32_t* done) {
  std::lock_guard lock(mutex);
  const Event& e = *static_cast<Event*>(event);
  *done = !e.stream || e.stream->done >= e.position;
  return TS_OK;
}
int stream_wait_event(void*, int32_t, void* stream, void* event) {
  if (fault("unordered stream")) return TS_OK;
  std::lock_guard lock(mutex);
  Event e = *static_cast<Event*>(event);
  if (auto s = find_stream(stream))
    s->queue.push_back([e] { reach(e); });
  else
    reach(e);
  return TS_OK;
}
std::vector<std::function<void()>> waiting; // copies that somebody must wait for: a fault

int synchronize(void*, int32_t, void* stream) {
  std::lock_guard lock(mutex);
  for (const auto& copy : std::exchange(waiting, {})) copy();
  if (stream)
    finish(stream);
  else
    for (auto& [handle, s] : streams) s->run();
  return TS_OK;
}

// --- memory ---------------------------------------------------------------------------------------------------------

// Blocks are twice as large as asked for, so that a faulty one may begin in the middle of the one before.
struct Block {
  void* base;
  int32_t users;
};
std::map<void*, std::shared_ptr<Block>> blocks;

int alloc(void*, int32_t device, size_t bytes, void* stream, void** handle) {
  static int count = 0;
  static void* last = nullptr;
  static size_t last_bytes = 0;
  if (bytes > (size_t{1} << 40)) return cpu->alloc(cpu->ctx, device, bytes, stream, handle);
  std::lock_guard lock(mutex);
  auto before = blocks.find(last);
  if (fault("overlapping blocks") && ++count % 7 == 0 && bytes == last_bytes && before != blocks.end()) {
    *handle = static_cast<char*>(last) + bytes / 2;
    blocks[*handle] = before->second;
    last = nullptr;
    return TS_OK;
  }
  int status = cpu->alloc(cpu->ctx, device, 2 * bytes, stream, handle);
  if (status != TS_OK) return status;
  blocks[*handle] = std::shared_ptr<Block>(new Block{*handle, 0}, [device, bytes](Block* b) {
    cpu->free(cpu->ctx, device, b->base, 2 * bytes, nullptr);
    delete b;
  });
  last = *handle;
  last_bytes = bytes;
  return TS_OK;
}
void release(void*, int32_t device, void* handle, size_t, void* stream) {
  if (fault("late source")) synchronize(nullptr, device, nullptr);
  std::lock_guard lock(mutex);
  finish(stream);
  blocks.erase(handle);
}

int copy_from_host(void*, int32_t device, void* dst, int64_t offset, const void* src, size_t bytes, void* stream) {
  if (fault("late source")) {
    std::lock_guard lock(mutex);
    waiting.push_back([=] { cpu->copy_from_host(cpu->ctx, device, dst, offset, src, bytes, nullptr); });
    return TS_OK;
  }
  std::string data(static_cast<const char*>(src), bytes);
  return schedule(stream,
                  [=] { return cpu->copy_from_host(cpu->ctx, device, dst, offset, data.data(), bytes, nullptr); });
}
int copy_to_host(void*, int32_t device, void* dst, const void* src, int64_t offset, size_t bytes, void* stream) {
  if (fault("late source")) synchronize(nullptr, device, nullptr);
  if (!fault("reads too early")) finish(stream);
  return cpu->copy_to_host(cpu->ctx, device, dst, src, offset, bytes, nullptr);
}
int copy_within(void*, int32_t device, void* dst, int64_t to, const void* src, int64_t from, size_t bytes,
                void* stream) {
  if (fault("careless copies") && bytes > 4096) to = 0;
  return schedule(stream, [=] { return cpu->copy_within(cpu->ctx, device, dst, to, src, from, bytes, nullptr); });
}

// --- kernels --------------------------------------------------------------------------------------------------------

struct Kernel {
  std::string name;
  ts_kernel inner;
};

// A call that outlives its maker.
struct KeptCall {
  ts_call call;
  std::vector<ts_tensor> outputs, inputs;
  std::vector<ts_value> params;
  std::deque<std::vector<int64_t>> numbers;
  ts_program program{};
  std::vector<double> constants;
  std::vector<int64_t> integers;
  std::vector<ts_instruction> instructions;
  std::vector<uint16_t> stored;

  explicit KeptCall(const ts_call& original) : call(original) {
    for (int k = 0; k < call.n_outputs; ++k) outputs.push_back(keep(*TS_OUT(&original, k)));
    for (int k = 0; k < call.n_inputs; ++k) inputs.push_back(keep(*TS_IN(&original, k)));
    params.assign(call.params, call.params + call.n_params);
    call.outputs = outputs.data();
    call.inputs = inputs.data();
    call.params = params.data();
    call.tensor_size = sizeof(ts_tensor);
    if (call.program) keep_program();
  }
  KeptCall(const KeptCall&) = delete;

private:
  const int64_t* keep(const int64_t* values, int32_t count) {
    numbers.emplace_back(values, values + count);
    return numbers.back().data();
  }
  ts_tensor keep(ts_tensor t) {
    t.sizes = keep(t.sizes, t.ndim);
    t.strides = keep(t.strides, t.ndim);
    return t;
  }
  void keep_program() {
    program = *call.program;
    constants.assign(program.constants, program.constants + program.n_constants);
    if (program.integers) integers.assign(program.integers, program.integers + program.n_constants);
    instructions.assign(program.instructions, program.instructions + program.n_instructions);
    stored.assign(program.outputs, program.outputs + program.n_outputs);
    program.constants = constants.data();
    if (program.integers) program.integers = integers.data();
    program.instructions = instructions.data();
    program.outputs = stored.data();
    call.program = &program;
  }
};

int64_t size_of(int32_t dtype) {
  switch (dtype) {
  case TS_BOOL:
  case TS_UINT8:
  case TS_INT8: return 1;
  case TS_UINT16:
  case TS_INT16:
  case TS_FLOAT16:
  case TS_BFLOAT16: return 2;
  case TS_UINT32:
  case TS_INT32:
  case TS_FLOAT32: return 4;
  default: return 8;
  }
}

// Reads a tensor whose strides are all positive as if it had no gaps.
int ignore_strides(const ts_call* call) {
  KeptCall kept(*call);
  ts_tensor& x = kept.inputs[0];
  std::vector<int64_t> plain(static_cast<size_t>(x.ndim));
  int64_t next = 1;
  for (int d = x.ndim - 1; d >= 0; next *= x.sizes[d--]) {
    plain[static_cast<size_t>(d)] = next;
    if (x.strides[d] <= 0) return static_cast<Kernel*>(call->kernel_ctx)->inner.run(call);
  }
  x.strides = plain.data();
  x.flags |= TS_T_CONTIGUOUS;
  return static_cast<Kernel*>(call->kernel_ctx)->inner.run(&kept.call);
}

// Reads a flipped tensor forwards.
int ignore_signs(const ts_call* call) {
  KeptCall kept(*call);
  ts_tensor& x = kept.inputs[0];
  std::vector<int64_t> strides(x.strides, x.strides + x.ndim);
  for (size_t d = 0; d < strides.size(); ++d)
    if (strides[d] < 0) {
      x.byte_offset += strides[d] * (x.sizes[d] - 1) * size_of(x.dtype);
      strides[d] = -strides[d];
    }
  x.strides = strides.data();
  return static_cast<Kernel*>(call->kernel_ctx)->inner.run(&kept.call);
}

// Drops half of a gradient.
int halve(const ts_call* call) {
  int status = static_cast<Kernel*>(call->kernel_ctx)->inner.run(call);
  const ts_tensor& out = *TS_OUT(call, 0);
  char* data = static_cast<char*>(out.handle) + out.byte_offset;
  if (status == TS_OK && (out.flags & TS_T_CONTIGUOUS))
    for (int64_t k = 0; k < out.numel; ++k) {
      if (out.dtype == TS_FLOAT64) reinterpret_cast<double*>(data)[k] *= 0.5;
      if (out.dtype == TS_FLOAT32) reinterpret_cast<float*>(data)[k] *= 0.5F;
    }
  return status;
}

// Starts the random stream one word late.
int late(const ts_call* call) {
  KeptCall kept(*call);
  kept.params[1].as.i += 1;
  return static_cast<Kernel*>(call->kernel_ctx)->inner.run(&kept.call);
}

// Leaves out the last element of an odd number of them.
int drop_last(const ts_call* call) {
  const ts_tensor& out = *TS_OUT(call, 0);
  std::string before(static_cast<size_t>(size_of(out.dtype)), '\0');
  const bool odd = out.numel > 16 && out.numel % 2 && (out.flags & TS_T_CONTIGUOUS);
  char* last = static_cast<char*>(out.handle) + out.byte_offset + (out.numel - 1) * size_of(out.dtype);
  int status = static_cast<Kernel*>(call->kernel_ctx)->inner.run(call);
  if (odd) std::memcpy(last, before.data(), before.size());
  return status;
}

// Loads what follows the last element of the first input, or lies a page further.
int read_past(const ts_call* call, size_t further) {
  const ts_tensor& x = *TS_IN(call, 0);
  int64_t last = 0;
  bool forwards = x.handle != nullptr;
  for (int d = 0; d < x.ndim; ++d) {
    forwards = forwards && x.strides[d] >= 0;
    last += (x.sizes[d] - 1) * x.strides[d];
  }
  if (forwards) {
    const volatile char* end = static_cast<const char*>(x.handle) + x.byte_offset + (last + 1) * size_of(x.dtype);
    (void)end[further];
  }
  return static_cast<Kernel*>(call->kernel_ctx)->inner.run(call);
}

// Results go through one buffer, where they are many: whoever calls meanwhile gets those of the other.
int share_large(const ts_call* call) {
  static std::vector<char> buffer(1 << 22);
  const ts_tensor &out = *TS_OUT(call, 0), &x = *TS_IN(call, 0);
  const auto bytes = static_cast<size_t>(out.numel * size_of(out.dtype));
  int status = static_cast<Kernel*>(call->kernel_ctx)->inner.run(call);
  if (x.numel < 20000 || !(out.flags & TS_T_CONTIGUOUS) || bytes > buffer.size() || !out.handle) return status;
  char* data = static_cast<char*>(out.handle) + out.byte_offset;
  std::memcpy(buffer.data(), data, bytes);
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::memcpy(data, buffer.data(), bytes);
  return status;
}

// Writes more scratch memory than it asked for.
int overrun_workspace(const ts_call* call) {
  void* scratch = nullptr;
  if (call->host->workspace(call, 1000, &scratch) == TS_OK) std::memset(scratch, 1, 1024);
  return static_cast<Kernel*>(call->kernel_ctx)->inner.run(call);
}

// A step worked out ahead is kept by the operator's name: calls of another dtype get that of the first.
struct Prepared {
  std::map<std::string, std::shared_ptr<KeptCall>> first;
  static Prepared& all() {
    static Prepared p;
    return p;
  }
};
int run_step(const ts_step* step, const ts_call* call) {
  auto* kernel = static_cast<Kernel*>(call->kernel_ctx);
  auto* kept = static_cast<KeptCall*>(step->state);
  if (call->compute_dtype == kept->call.compute_dtype) return kernel->inner.run(call);
  KeptCall wrong(*call);
  wrong.call.compute_dtype = kept->call.compute_dtype;
  for (ts_tensor& x : wrong.inputs)
    if (kept->inputs[0].dtype < TS_FLOAT64 || x.dtype < TS_FLOAT64) x.dtype = kept->inputs[0].dtype;
  return kernel->inner.run(&wrong.call);
}
int prepare(const ts_call* call, ts_step* out) {
  std::lock_guard lock(mutex);
  auto& first = Prepared::all().first[call->op];
  if (!first) first = std::make_shared<KeptCall>(*call);
  out->run = run_step;
  out->destroy = nullptr;
  out->state = first.get();
  return TS_OK;
}

// Faults of any one kernel: "ignores 2 of NAME" is about a parameter, "halves NAME", "no tail of NAME".
bool about(const char* what, const std::string& name) { return fault((what + name).c_str()); }

// Takes a parameter for what it mostly is.
int ignore_parameter(const ts_call* call, int k) {
  KeptCall kept(*call);
  if (k < kept.call.n_params) kept.params[static_cast<size_t>(k)].as.i = 0;
  return static_cast<Kernel*>(call->kernel_ctx)->inner.run(&kept.call);
}

// Convolves groups as if they were not dilated.
int dense_groups(const ts_call* call) {
  static const int64_t ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  KeptCall kept(*call);
  if (kept.call.params[3].as.i > 1) kept.params[2].as.ints = ones;
  return static_cast<Kernel*>(call->kernel_ctx)->inner.run(&kept.call);
}

// The first tensor that a kernel writes: an output, or an operand that it changes.
const ts_tensor& written(const ts_call* call) {
  for (int k = 0; call->n_outputs == 0 && k < call->n_inputs; ++k)
    if (TS_IN(call, k)->flags & TS_T_MUTABLE) return *TS_IN(call, k);
  return *TS_OUT(call, 0);
}

// Leaves out what follows the last whole group of four elements of what it writes.
int drop_tail(const ts_call* call) {
  const ts_tensor& out = written(call);
  const bool tail = out.handle && out.numel > 4 && out.numel % 4 && (out.flags & TS_T_CONTIGUOUS);
  const auto bytes = static_cast<size_t>(size_of(out.dtype) * (out.numel % 4));
  char* last = static_cast<char*>(out.handle) + out.byte_offset + (out.numel - out.numel % 4) * size_of(out.dtype);
  std::string before = tail ? std::string(last, bytes) : std::string();
  int status = static_cast<Kernel*>(call->kernel_ctx)->inner.run(call);
  if (tail && status == TS_OK) std::memcpy(last, before.data(), bytes);
  return status;
}

// Notes who was called, where somebody wants to know.
void note(const std::string& name) {
  static std::set<std::string> seen;
  static const char* path = std::getenv("SHADOW_CALLS");
  std::lock_guard lock(mutex);
  if (!path || !seen.insert(name).second) return;
  if (std::FILE* file = std::fopen(path, "a")) {
    std::fprintf(file, "%s\n", name.c_str());
    std::fclose(file);
  }
}

int crash(const ts_call*) { std::abort(); }
int hang(const ts_call*) {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

int run(const ts_call* call) {
  auto* kernel = static_cast<Kernel*>(call->kernel_ctx);
  const std::string& name = kernel->name;
  note(name);
  if (about("halves ", name)) return halve(call);
  if (about("no tail of ", name)) return drop_tail(call);
  for (int k = 0; k < 4; ++k)
    if (about(("ignores " + std::to_string(k) + " of ").c_str(), name)) return ignore_parameter(call, k);
  if (fault("dense groups") && name == "convolution") return dense_groups(call);
  if (fault("ignored strides") && name == "scan") return ignore_strides(call);
  if (fault("ignored signs") && name == "sort") return ignore_signs(call);
  if (fault("wrong gradient") && name == "softmax_backward") return halve(call);
  if (fault("late random bits") && name == "random_bits") return late(call);
  if (fault("dropped tail") && name == "pointwise") return drop_last(call);
  if (fault("reads one element") && name == "gather") return read_past(call, 0);
  if (fault("reads a page") && name == "reduce") return read_past(call, 4096);
  if (fault("unsafe when large") && name == "reduce") return share_large(call);
  if (fault("short workspace") && name == "sort") return overrun_workspace(call);
  if (fault("crash") && name == "cat") return crash(call);
  if (fault("hang") && name == "cat") return hang(call);
  if (name == "pointwise" || name == "copy_cast" || name == "fill") {
    auto kept = std::make_shared<KeptCall>(*call);
    return find_stream(call->stream) ? schedule(call->stream, [=] { return kernel->inner.run(&kept->call); })
                                     : kernel->inner.run(call);
  }
  finish(call->stream);
  return kernel->inner.run(call);
}

int get_kernel(void*, int32_t device, const char* op, ts_kernel* out) {
  static std::map<std::string, Kernel> kernels;
  ts_kernel inner{};
  inner.struct_size = sizeof inner;
  int status = cpu->get_kernel(cpu->ctx, device, op, &inner);
  // The fused generators would hide a fault of random_bits.
  if (fault("late random bits") && std::strstr(op, "_fill")) status = TS_DECLINED;
  if (status != TS_OK) return status;
  std::lock_guard lock(mutex);
  Kernel& kept = kernels[op] = {op, inner};
  inner.run = run;
  inner.prepare = fault("kept step") && std::strcmp(op, "reduce") == 0 ? prepare : nullptr;
  inner.ctx = &kept;
  std::memcpy(out, &inner, out->struct_size < sizeof inner ? out->struct_size : sizeof inner);
  return TS_OK;
}

// With these faults the host sees the memory.
bool seen() { return fault("reads one element") || fault("reads a page"); }
void* host_pointer(void*, int32_t, void* handle) { return handle; }

int properties(void*, int32_t device, ts_properties* out) {
  int status = cpu->properties(cpu->ctx, device, out);
  std::snprintf(out->name, sizeof out->name, "simulated on the cpu");
  out->flags = TS_P_SIMULATED | (seen() ? uint32_t{TS_P_HOST_MEMORY} : 0U);
  if (fault("no float64")) out->dtypes &= ~(uint64_t{1} << TS_FLOAT64);
  return status;
}

} // namespace

extern "C" __attribute__((visibility("default"))) int tesserack_backend(const ts_host* host, const ts_backend** out) {
  void* library = dlopen(std::getenv("SHADOW_OF"), RTLD_NOW | RTLD_LOCAL);
  auto entry = library ? reinterpret_cast<ts_backend_entry>(dlsym(library, TS_BACKEND_ENTRY_SYMBOL)) : nullptr;
  if (!entry || entry(host, &cpu) != TS_OK) return TS_ERROR;
  static ts_backend table{};
  table.struct_size = sizeof table;
  table.abi_major = TS_ABI_MAJOR;
  table.name = "shadow";
  table.vendor = "org.tesserack.tests.shadow";
  table.version = "1.0";
  table.probe = cpu->probe;
  table.properties = properties;
  table.alloc = alloc;
  table.free = release;
  table.copy_from_host = copy_from_host;
  table.copy_to_host = copy_to_host;
  table.copy_within = copy_within;
  table.synchronize = synchronize;
  if (seen()) table.host_pointer = host_pointer;
  table.get_kernel = get_kernel;
  table.stream_create = stream_create;
  table.stream_destroy = stream_destroy;
  table.event_create = event_create;
  table.event_destroy = event_destroy;
  table.event_record = event_record;
  table.event_query = event_query;
  table.event_synchronize = event_synchronize;
  table.stream_wait_event = stream_wait_event;
  *out = &table;
  return TS_OK;
}

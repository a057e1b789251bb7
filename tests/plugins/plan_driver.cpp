// The "driver" of the tests of launch plans: memory from malloc, and kernels that are "compiled" from the description
// of a call into one that a kernel of the cpu backend runs. Everything happens at once, in the calling thread.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <tesserack/launch.h>

namespace {

struct Operand {
  int64_t dtype = 0, flags = 0, numel = 1;
  std::vector<int64_t> sizes, strides;
};

constexpr size_t kMost = 32; // operands, and parameters

struct Compiled {
  ts_kernel kernel{};
  std::once_flag found;
  std::string op;
  int32_t opcode = 0, compute = 0, outputs = 0;
  std::vector<Operand> operands;
  std::vector<ts_tensor> tensors; // the operands as the kernel is told them, but for where they are
  std::vector<ts_value> params;
  std::vector<double> constants;
  std::vector<int64_t> integers;
  std::vector<ts_instruction> instructions;
  std::vector<uint16_t> stored;
  ts_program program{};
  bool has_program = false;
};

std::string g_cpu_library;
std::mutex g_mutex;
std::vector<std::unique_ptr<Compiled>> g_compiled;
thread_local int64_t t_last_grid = 0;

ts_tensor described(const Operand& o) {
  ts_tensor t{};
  t.struct_size = sizeof t;
  t.numel = o.numel;
  t.sizes = o.sizes.data();
  t.strides = o.strides.data();
  t.dtype = static_cast<int32_t>(o.dtype);
  t.ndim = static_cast<int32_t>(o.sizes.size());
  t.flags = static_cast<uint32_t>(o.flags);
  return t;
}

// A flat description, read in order.
struct Words {
  const int64_t* at;
  int64_t next() { return *at++; }
  std::vector<int64_t> list(int64_t n) {
    std::vector<int64_t> out(at, at + n);
    at += n;
    return out;
  }
};

void read_program(Words& w, const double* constants, Compiled& c) {
  c.program.struct_size = sizeof(ts_program);
  c.program.id = static_cast<uint64_t>(w.next());
  c.program.n_inputs = static_cast<int32_t>(w.next());
  int64_t n_constants = w.next(), n_instructions = w.next(), n_outputs = w.next();
  c.constants.assign(constants, constants + n_constants);
  for (int64_t k = 0; k < n_instructions; ++k) {
    auto i = w.list(4);
    c.instructions.push_back({static_cast<uint16_t>(i[0]), static_cast<uint16_t>(i[1]), static_cast<uint16_t>(i[2]),
                              static_cast<uint16_t>(i[3])});
  }
  for (int64_t r : w.list(n_outputs)) c.stored.push_back(static_cast<uint16_t>(r));
  c.integers = w.list(n_constants);
  c.program.integers = c.integers.data();
  c.program.n_constants = static_cast<int32_t>(n_constants);
  c.program.n_instructions = static_cast<int32_t>(n_instructions);
  c.program.n_outputs = static_cast<int32_t>(n_outputs);
  c.program.constants = c.constants.data();
  c.program.instructions = c.instructions.data();
  c.program.outputs = c.stored.data();
  c.program.text = "";
}

const ts_backend* cpu(const ts_host* host) {
  static const ts_backend* table = [&]() -> const ts_backend* {
    void* library = dlopen(g_cpu_library.c_str(), RTLD_NOW);
    auto entry = library ? reinterpret_cast<ts_backend_entry>(dlsym(library, TS_BACKEND_ENTRY_SYMBOL)) : nullptr;
    const ts_backend* found = nullptr;
    return entry && entry(host, &found) == TS_OK ? found : nullptr;
  }();
  return table;
}

void find_kernel(Compiled& c, const ts_host* host) {
  c.kernel.struct_size = sizeof(ts_kernel);
  const ts_backend* backend = cpu(host);
  if (!backend || backend->get_kernel(backend->ctx, 0, c.op.c_str(), &c.kernel) != TS_OK) c.kernel.run = nullptr;
}

int refuse(const ts_launch* launch, const char* why) {
  launch->host->set_error(why);
  return TS_ERROR;
}

} // namespace

extern "C" {

// Whose kernels run.
void driver_open(const char* cpu_library) { g_cpu_library = cpu_library; }

// As aligned as that of the backend whose kernels run.
void* driver_alloc(size_t bytes) { return std::aligned_alloc(64, (bytes + 63) / 64 * 64); }
void driver_free(void* memory) { std::free(memory); }
int64_t driver_last_grid() { return t_last_grid; }

// words: opcode, compute dtype, outputs, operands, {dtype, flags, ndim, sizes, strides}, params, {tag}, then a program
// or 0.
void* driver_compile(const char* op, const int64_t* words, const double* constants) {
  auto c = std::make_unique<Compiled>();
  Words w{words};
  c->op = op;
  c->opcode = static_cast<int32_t>(w.next());
  c->compute = static_cast<int32_t>(w.next());
  c->outputs = static_cast<int32_t>(w.next());
  for (int64_t n = w.next(); n > 0; --n) {
    Operand o;
    o.dtype = w.next();
    o.flags = w.next();
    int64_t ndim = w.next();
    o.sizes = w.list(ndim);
    o.strides = w.list(ndim);
    for (int64_t s : o.sizes) o.numel *= s;
    c->operands.push_back(o);
  }
  for (int64_t n = w.next(); n > 0; --n) c->params.push_back({static_cast<int32_t>(w.next()), 0, {0}});
  if (c->operands.size() > kMost || c->params.size() > kMost) return nullptr;
  for (const Operand& o : c->operands) c->tensors.push_back(described(o));
  if (w.next()) {
    c->has_program = true;
    read_program(w, constants, *c);
  }
  std::lock_guard<std::mutex> lock(g_mutex);
  g_compiled.push_back(std::move(c));
  return g_compiled.back().get();
}

// Arguments: eight bytes for each operand (offset, or value of a number) and parameter; then the tensors.
int driver_run(const ts_launch* launch) {
  auto& c = *static_cast<Compiled*>(launch->kernel);
  std::call_once(c.found, find_kernel, std::ref(c), launch->host);
  if (!c.kernel.run) return refuse(launch, "driver_run: the cpu backend has no such kernel");
  t_last_grid = static_cast<int64_t>(launch->groups[0] * launch->group_size[0]);
  const ts_launch_argument* block = TS_LAUNCH_ARGUMENT(launch, 0);
  size_t n = c.operands.size();
  if (block->kind != TS_LA_BYTES || block->size != 8 * (n + c.params.size()))
    return refuse(launch, "driver_run: the block does not fit the kernel");
  const char* numbers = static_cast<const char*>(block->value);
  ts_tensor tensors[kMost];
  std::copy(c.tensors.begin(), c.tensors.end(), tensors);
  int32_t argument = 1;
  for (size_t k = 0; k < n; ++k) {
    ts_tensor& t = tensors[k];
    if (t.flags & TS_T_SCALAR) {
      std::memcpy(&t.scalar, numbers + 8 * k, 8);
    } else if (!(t.flags & TS_T_NONE)) {
      std::memcpy(&t.byte_offset, numbers + 8 * k, 8);
      std::memcpy(&t.handle, TS_LAUNCH_ARGUMENT(launch, argument++)->value, sizeof(void*));
    }
  }
  ts_value params[kMost];
  std::copy(c.params.begin(), c.params.end(), params);
  for (size_t k = 0; k < c.params.size(); ++k) std::memcpy(&params[k].as, numbers + 8 * (n + k), 8);
  ts_call call{};
  call.struct_size = sizeof call;
  call.host = launch->host;
  call.backend_ctx = cpu(launch->host)->ctx;
  call.kernel_ctx = c.kernel.ctx;
  call.op = c.op.c_str();
  call.opcode = c.opcode;
  call.compute_dtype = c.compute;
  call.n_outputs = c.outputs;
  call.n_inputs = static_cast<int32_t>(n) - c.outputs;
  call.n_params = static_cast<int32_t>(c.params.size());
  call.tensor_size = sizeof(ts_tensor);
  call.outputs = tensors;
  call.inputs = tensors + c.outputs;
  call.params = params;
  call.program = c.has_program ? &c.program : nullptr;
  return c.kernel.run(&call);
}

// Arguments: destination, source, and {offset of the destination, bytes}.
int driver_copy(const ts_launch* launch) {
  void *to, *from;
  int64_t numbers[2];
  std::memcpy(&to, TS_LAUNCH_ARGUMENT(launch, 0)->value, sizeof to);
  std::memcpy(&from, TS_LAUNCH_ARGUMENT(launch, 1)->value, sizeof from);
  std::memcpy(numbers, TS_LAUNCH_ARGUMENT(launch, 2)->value, sizeof numbers);
  std::memcpy(static_cast<char*>(to) + numbers[0], from, static_cast<size_t>(numbers[1]));
  return TS_OK;
}

int driver_fail(const ts_launch* launch) { return refuse(launch, "the driver is out of resources"); }
int driver_silent_failure(const ts_launch*) { return TS_ERROR; }
int driver_decline(const ts_launch*) { return TS_DECLINED; }
}

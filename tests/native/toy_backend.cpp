#include "toy_backend.h"
#include "runtime/backend.h"
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

namespace {

std::map<std::string, int> g_calls;
int g_claims = 0;

double* element(const ts_tensor& t, int64_t flat) {
  int64_t at = 0;
  for (int d = t.ndim - 1; d >= 0; --d) {
    at += flat % t.sizes[d] * t.strides[d];
    flat /= t.sizes[d];
  }
  return reinterpret_cast<double*>(static_cast<char*>(t.handle) + t.byte_offset) + at;
}

bool all_float64(const ts_call* c) {
  for (int k = 0; k < c->n_inputs; ++k)
    if (!(TS_IN(c, k)->flags & (TS_T_SCALAR | TS_T_NONE)) && TS_IN(c, k)->dtype != TS_FLOAT64) return false;
  return TS_OUT(c, 0)->dtype == TS_FLOAT64;
}

int fill(const ts_call* c) {
  ++g_calls["fill"];
  if (!all_float64(c)) return TS_DECLINED;
  double v = c->params[0].tag == TS_V_FLOAT ? c->params[0].as.f : static_cast<double>(c->params[0].as.i);
  for (int64_t i = 0; i < c->outputs->numel; ++i) *element(*c->outputs, i) = v;
  return TS_OK;
}

int copy(const ts_call* c) {
  ++g_calls["copy_cast"];
  if (!all_float64(c)) return TS_DECLINED;
  for (int64_t i = 0; i < c->outputs->numel; ++i) *element(*c->outputs, i) = *element(*TS_IN(c, 0), i);
  return TS_OK;
}

double evaluate(const ts_instruction& n, const std::vector<double>& r) {
  double a = r[n.a], b = r[n.b], c = r[n.c];
  switch (n.op) {
  case TS_I_COPY: return a;
  case TS_I_NEG: return -a;
  case TS_I_SQRT: return std::sqrt(a);
  case TS_I_RECIP: return 1 / a;
  case TS_I_EXP: return std::exp(a);
  case TS_I_LOG: return std::log(a);
  case TS_I_SIN: return std::sin(a);
  case TS_I_COS: return std::cos(a);
  case TS_I_TANH: return std::tanh(a);
  case TS_I_SIGMOID: return 1 / (1 + std::exp(-a));
  case TS_I_ADD: return a + b;
  case TS_I_SUB: return a - b;
  case TS_I_MUL: return a * b;
  case TS_I_DIV: return a / b;
  case TS_I_MAX: return std::max(a, b);
  case TS_I_POW: return std::pow(a, b);
  case TS_I_EQ: return a == b;
  case TS_I_GT: return a > b;
  case TS_I_GE: return a >= b;
  case TS_I_SELECT: return a != 0 ? b : c;
  default: return NAN;
  }
}

int pointwise(const ts_call* c) {
  ++g_calls["pointwise"];
  if (!all_float64(c)) return TS_DECLINED;
  const ts_program& p = *c->program;
  for (int64_t i = 0; i < c->outputs->numel; ++i) {
    std::vector<double> r;
    for (int k = 0; k < p.n_inputs; ++k)
      r.push_back(TS_IN(c, k)->flags & TS_T_SCALAR ? TS_IN(c, k)->scalar.f : *element(*TS_IN(c, k), i));
    r.insert(r.end(), p.constants, p.constants + p.n_constants);
    for (int k = 0; k < p.n_instructions; ++k) r.push_back(evaluate(p.instructions[k], r));
    *element(*c->outputs, i) = r[p.outputs[0]];
  }
  return TS_OK;
}

int probe(void*, int32_t* count, char*, size_t) { return *count = 2, TS_OK; }
int properties(void*, int32_t, ts_properties* out) {
  out->flags = TS_P_HOST_MEMORY | TS_P_SIMULATED;
  return TS_OK;
}
int allocate(void*, int32_t, size_t bytes, void*, void** handle) {
  if (bytes > (size_t{1} << 40)) return TS_OUT_OF_MEMORY;
  return (*handle = std::malloc(bytes)) ? TS_OK : TS_OUT_OF_MEMORY;
}
void release(void*, int32_t, void* handle, size_t, void*) { std::free(handle); }
int from_host(void*, int32_t, void* dst, int64_t at, const void* src, size_t n, void*) {
  return std::memcpy(static_cast<char*>(dst) + at, src, n), TS_OK;
}
int to_host(void*, int32_t, void* dst, const void* src, int64_t at, size_t n, void*) {
  return std::memcpy(dst, static_cast<const char*>(src) + at, n), TS_OK;
}
int within(void*, int32_t, void* dst, int64_t d, const void* src, int64_t s, size_t n, void*) {
  return std::memmove(static_cast<char*>(dst) + d, static_cast<const char*>(src) + s, n), TS_OK;
}
int synchronize(void*, int32_t, void*) { return TS_OK; }
void* host_pointer(void*, int32_t, void* handle) { return handle; }
// Doubles its output by way of two blocks of scratch memory.
int scratch(const ts_call* call) {
  const ts_tensor* out = TS_OUT(call, 0);
  auto* values = reinterpret_cast<double*>(static_cast<char*>(out->handle) + out->byte_offset);
  size_t bytes = static_cast<size_t>(out->numel) * sizeof(double);
  void *first = nullptr, *second = nullptr;
  if (int status = call->host->workspace(call, bytes, &first); status != TS_OK) return status;
  if (int status = call->host->workspace(call, bytes, &second); status != TS_OK) return status;
  std::memcpy(first, values, bytes);
  std::memcpy(second, values, bytes);
  for (int64_t k = 0; k < out->numel; ++k) values[k] = static_cast<double*>(first)[k] + static_cast<double*>(second)[k];
  return first == second ? TS_ERROR : call->host->workspace(call, size_t{1} << 60, &first) == TS_OK ? TS_ERROR : TS_OK;
}
// A call worked out ahead: its steps are counted, and so are those that are freed.
int prepared_pointwise(const ts_step* step, const ts_call* call) {
  ++g_calls["prepared run"];
  return step->state == &g_calls ? pointwise(call) : TS_ERROR;
}
int prepare_pointwise(const ts_call*, ts_step* out) {
  ++g_calls["prepared"];
  out->run = prepared_pointwise;
  out->destroy = [](ts_step*) { ++g_calls["freed"]; };
  out->state = &g_calls;
  return TS_OK;
}
// As random_bits, but without generating: the position itself.
int positions(const ts_call* call) {
  if (call->n_inputs != 0 || call->n_params != 2) return TS_ERROR;
  const ts_tensor* out = TS_OUT(call, 0);
  auto* words = reinterpret_cast<uint32_t*>(static_cast<char*>(out->handle) + out->byte_offset);
  for (int64_t k = 0; k < out->numel; ++k) words[k] = static_cast<uint32_t>(call->params[1].as.i + k);
  return TS_OK;
}

// A compiler whose parts are single pointwise calls, kept as copies.
struct ToyPart {
  const ts_host* host;
  ts_call* call = nullptr;
  std::vector<int32_t> from; // of the part's inputs, by input of the call; -1: a number
};
int claim(void*, int32_t, const ts_graph* g, int32_t* groups) {
  if (!g_claims) return TS_DECLINED;
  for (int32_t k = 0, n = 0; k < g->n_nodes; ++k) {
    const auto& node = *reinterpret_cast<const ts_graph_node*>(reinterpret_cast<const char*>(g->nodes) +
                                                               static_cast<size_t>(k) * g->node_size);
    if (node.program && !node.effects) groups[k] = ++n;
  }
  return g_claims > 1 ? groups[0] = -1, TS_OK : TS_OK;
}
int compile(void*, int32_t, const ts_graph* part, void** compiled) {
  ++g_calls["compiled"];
  auto made = std::make_unique<ToyPart>();
  made->host = part->host;
  for (int32_t k = 0; k < part->nodes->n_inputs; ++k) {
    const int32_t* found = std::find(part->inputs, part->inputs + part->n_inputs, part->nodes->inputs[k]);
    made->from.push_back(part->nodes->inputs[k] < 0 ? -1 : static_cast<int32_t>(found - part->inputs));
  }
  if (int status = part->host->copy_call(part->nodes->call, &made->call); status != TS_OK) return status;
  *compiled = made.release();
  return TS_OK;
}
int run_part(void*, int32_t, void* compiled, const ts_call* call) {
  ++g_calls["part"];
  auto& part = *static_cast<ToyPart*>(compiled);
  std::vector<ts_tensor> inputs;
  for (size_t k = 0; k < part.from.size(); ++k)
    inputs.push_back(part.from[k] < 0 ? *TS_IN(part.call, k) : *TS_IN(call, part.from[k]));
  ts_call own = *part.call;
  own.outputs = call->outputs;
  own.inputs = inputs.data();
  own.tensor_size = sizeof(ts_tensor);
  return pointwise(&own);
}
void destroy_part(void*, int32_t, void* compiled) {
  ++g_calls["destroyed"];
  std::unique_ptr<ToyPart> part(static_cast<ToyPart*>(compiled));
  part->host->free_call(part->call);
}

int get_kernel(void*, int32_t device, const char* op, ts_kernel* out) {
  if (!std::strcmp(op, "second only")) {
    out->run = fill;
    return device == 1 ? TS_OK : TS_DECLINED;
  }
  if (!std::strcmp(op, "pointwise")) out->prepare = prepare_pointwise;
  out->run = !std::strcmp(op, "fill")          ? fill
             : !std::strcmp(op, "copy_cast")   ? copy
             : !std::strcmp(op, "pointwise")   ? pointwise
             : !std::strcmp(op, "scratch")     ? scratch
             : !std::strcmp(op, "random_bits") ? positions
                                               : nullptr;
  return out->run ? TS_OK : TS_DECLINED;
}

} // namespace

ts::Device toy_device() {
  static const ts::Device device = [] {
    ts_backend t{};
    t.struct_size = sizeof t;
    t.abi_major = TS_ABI_MAJOR;
    t.name = "toy";
    t.vendor = "org.tesserack.tests.toy";
    t.version = "1";
    t.probe = probe;
    t.properties = properties;
    t.alloc = allocate;
    t.free = release;
    t.copy_from_host = from_host;
    t.copy_to_host = to_host;
    t.copy_within = within;
    t.synchronize = synchronize;
    t.host_pointer = host_pointer;
    t.get_kernel = get_kernel;
    static const ts_compiler compiler{sizeof(ts_compiler), claim, compile, run_part, destroy_part, nullptr, nullptr};
    t.compiler = &compiler;
    return ts::Device{ts::register_backend(&t, "tests").id(), 0};
  }();
  return device;
}

void toy_claims(int what) { g_claims = what; }

int toy_kernel_calls(const char* op) { return g_calls[op]; }

#include "graph/plan/kept_part.h"
#include "runtime/interpreter.h"
#include "runtime/services/kernel_cache.h"
#include <cstring>

namespace ts::graph {
namespace {

class Key {
public:
  template <class T> void number(T value) {
    const auto wide = static_cast<int64_t>(value);
    bytes_.append(reinterpret_cast<const char*>(&wide), sizeof wide);
  }
  template <class T> void array(const T* values, int64_t n) {
    number(values ? n : 0);
    if (values && n) bytes_.append(reinterpret_cast<const char*>(values), static_cast<size_t>(n) * sizeof(T));
  }
  void text(const char* s) { array(s, s ? static_cast<int64_t>(std::strlen(s)) : 0); }

  void program(const ts_program* p) {
    number(p != nullptr);
    if (p) array(p->hash, 2);
  }
  void value(const ts_value& v) {
    number(v.tag);
    number(v.len);
    switch (v.tag) {
    case TS_V_NONE: break;
    case TS_V_STR: text(v.as.str); break;
    case TS_V_INTS: array(v.as.ints, v.len); break;
    case TS_V_FLOATS: array(v.as.floats, v.len); break;
    case TS_V_COMPLEX: array(v.as.floats, 2); break;
    case TS_V_INT:
    case TS_V_FLOAT:
    case TS_V_BOOL:
    case TS_V_DTYPE:
    case TS_V_DEVICE:
    case TS_V_TENSORS: number(v.as.i); break;
    default: lasts_ = false;
    }
  }
  void operand(const ts_tensor& t) {
    number(t.flags);
    number(t.dtype);
    array(t.sizes, t.ndim);
    array(t.strides, t.ndim);
    number(t.flags & TS_T_SCALAR ? t.scalar.i : 0);
  }
  void call(const ts_call* c) {
    number(c != nullptr);
    if (!c) return;
    for (int64_t part : {int64_t{c->opcode}, int64_t{c->compute_dtype}, int64_t{c->flags}, int64_t{c->n_outputs},
                         int64_t{c->n_inputs}, int64_t{c->n_params}})
      number(part);
    for (int32_t k = 0; k < c->n_outputs; ++k) operand(*TS_OUT(c, k));
    for (int32_t k = 0; k < c->n_inputs; ++k) operand(*TS_IN(c, k));
    for (int32_t k = 0; k < c->n_params; ++k) value(c->params[k]);
    for (const ts_program* p : {c->program, c->prologue, c->epilogue}) program(p);
  }
  std::string take() { return lasts_ ? std::move(bytes_) : std::string(); }

private:
  std::string bytes_;
  bool lasts_ = true;
};

void add_graph(Key& key, const ts_graph& part) {
  for (int32_t n : {part.n_values, part.n_nodes}) key.number(n);
  for (int32_t k = 0; k < part.n_values; ++k) {
    const ts_graph_value& v = part.values[k];
    key.array(v.sizes, v.ndim);
    key.array(v.strides, v.ndim);
    for (int64_t told : {int64_t{v.dtype}, int64_t{v.flags}, int64_t{v.alias_of}, v.offset}) key.number(told);
  }
  for (int32_t k = 0; k < part.n_nodes; ++k) {
    const ts_graph_node& n = part.nodes[k];
    key.text(n.op);
    key.number(n.effects);
    key.array(n.inputs, n.n_inputs);
    key.array(n.outputs, n.n_outputs);
    key.call(n.call);
  }
  key.array(part.inputs, part.n_inputs);
  key.array(part.outputs, part.n_outputs);
}

bool load(const Backend& backend, int32_t device, const std::string& name, void** compiled) {
  const std::optional<std::string> kept = read_kept_kernel(kernel_cache_folder(), name);
  if (!kept) return false;
  const ts_backend& t = backend.table();
  const int status = t.compiler->deserialize(t.ctx, device, kept->data(), kept->size(), compiled);
  if (status == TS_INTERRUPTED) backend.check(status, "compiler.deserialize");
  if (status == TS_OK && *compiled) return true;
  static_cast<void>(take_last_error()); // of another driver, say: it is compiled anew
  *compiled = nullptr;
  return false;
}

// The part is there, and runs: what cannot be written down is compiled again in the next process.
void keep(const Backend& backend, int32_t device, const std::string& name, void* compiled) {
  const ts_backend& t = backend.table();
  std::string data(1 << 16, '\0');
  for (int attempt = 0; attempt < 2; ++attempt) {
    size_t bytes = data.size();
    const int status = t.compiler->serialize(t.ctx, device, compiled, data.data(), &bytes);
    if (status == TS_INTERRUPTED) backend.check(status, "compiler.serialize");
    if (status != TS_OK) {
      const std::string why = take_last_error();
      if (status != TS_DECLINED)
        warn(concat("compile: '", backend.name(), "' could not write down a part that it compiled: ", why),
             "RuntimeWarning");
      return;
    }
    const bool fitted = bytes <= data.size();
    data.resize(bytes);
    if (fitted) return static_cast<void>(keep_kernel(kernel_cache_folder(), name, data));
  }
}

} // namespace

std::string key_of_part(Backend& backend, int32_t device, const ts_graph& part) {
  const ts_backend& t = backend.table();
  Key key;
  key.text("part of a graph, 1");
  for (const char* whose : {t.name, t.vendor, t.version}) key.text(whose);
  key.text(backend.properties(device).name);
  add_graph(key, part);
  return key.take();
}

int compile_part(Backend& backend, int32_t device, const ts_graph& part, void** compiled) {
  const ts_backend& t = backend.table();
  const bool keeps = t.compiler->struct_size > offsetof(ts_compiler, deserialize) && t.compiler->serialize &&
                     !kernel_cache_folder().empty();
  const std::string key = keeps ? key_of_part(backend, device, part) : std::string();
  const std::string name = key.empty() ? key : kernel_cache_name(key);
  if (!name.empty() && load(backend, device, name, compiled)) return TS_OK;
  const int status = t.compiler->compile(t.ctx, device, &part, compiled);
  if (status == TS_OK && !name.empty()) keep(backend, device, name, *compiled);
  return status;
}

} // namespace ts::graph

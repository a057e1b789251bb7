// Graphs that backends written in Python compile: tesserack/backends/compiler.py.
#include "python/devices/python_slots.h"
#include <cstring>
#include <memory>

namespace ts::py {
namespace {

template <class F> PyRef tuple_of(int64_t n, F&& item) {
  PyRef tuple = checked(PyTuple_New(n));
  for (int64_t k = 0; k < n; ++k) PyTuple_SET_ITEM(tuple.get(), k, item(k).release());
  return tuple;
}

template <class T> PyRef integers(const T* values, int64_t n) {
  return tuple_of(n, [&](int64_t k) { return number(values[k]); });
}

PyRef value_object(const ts_graph_value& v) {
  PyRef dtype = PyRef::borrow(dtype_object(static_cast<DType>(v.dtype)));
  PyRef parts[] = {std::move(dtype),   integers(v.sizes, v.ndim), integers(v.strides, v.ndim),
                   number(v.alias_of), number(v.offset),          number(v.flags)};
  return tuple_of(std::size(parts), [&](int64_t k) { return std::move(parts[k]); });
}

PyRef node_object(const KernelOwner& owner, const ts_graph_node& n) {
  PyRef call = n.call ? call_object(owner, *n.call) : PyRef::borrow(Py_None);
  PyRef parts[] = {to_python(std::string(n.op)), integers(n.inputs, n.n_inputs), integers(n.outputs, n.n_outputs),
                   number(n.effects), std::move(call)};
  return tuple_of(std::size(parts), [&](int64_t k) { return std::move(parts[k]); });
}

// What the method gives for a graph: its values, nodes, inputs and outputs.
PyRef told(void* ctx, Method method, int32_t device, const ts_graph& g) {
  PyRef values = tuple_of(g.n_values, [&](int64_t k) { return value_object(g.values[k]); });
  PyRef nodes = tuple_of(g.n_nodes, [&](int64_t k) { return node_object(self(ctx), g.nodes[k]); });
  return invoke(ctx, method, number(device), values, nodes, integers(g.inputs, g.n_inputs),
                integers(g.outputs, g.n_outputs));
}

int claim(void* ctx, int32_t device, const ts_graph* graph, int32_t* groups) {
  return callback([&] {
    PyRef list = told(ctx, Claim, device, *graph);
    for (int32_t k = 0; k < graph->n_nodes; ++k) // as many as there are nodes: groups_of
      groups[k] = static_cast<int32_t>(PyLong_AsLong(PyList_GET_ITEM(list.get(), k)));
    return TS_OK;
  });
}

// A part from the record of its function; None: the backend declines.
int made(void* ctx, const PyRef& record, void** compiled) {
  if (record.get() == Py_None) return TS_DECLINED;
  auto kernel = std::make_unique<ts_kernel>();
  fill_kernel(record.get(), self(ctx), kernel.get());
  *compiled = kernel.release();
  return TS_OK;
}

int compile(void* ctx, int32_t device, const ts_graph* part, void** compiled) {
  return callback([&] { return made(ctx, told(ctx, CompilePart, device, *part), compiled); });
}

int serialize(void* ctx, int32_t device, void* compiled, void* out, size_t* bytes) {
  return callback([&] {
    PyRef function = PyRef::borrow(function_of(*static_cast<const ts_kernel*>(compiled)));
    PyRef data = invoke(ctx, SerializePart, number(device), function);
    if (data.get() == Py_NotImplemented) return static_cast<int>(TS_DECLINED);
    TS_CHECK_TYPE(PyBytes_Check(data.get()), "serialize_part: expected bytes or NotImplemented, got ",
                  type_name(data.get()));
    const auto size = static_cast<size_t>(PyBytes_GET_SIZE(data.get()));
    if (size <= *bytes) std::memcpy(out, PyBytes_AS_STRING(data.get()), size);
    *bytes = size;
    return static_cast<int>(TS_OK);
  });
}

int deserialize(void* ctx, int32_t device, const void* data, size_t bytes, void** compiled) {
  return callback([&] {
    PyRef text = checked(PyBytes_FromStringAndSize(static_cast<const char*>(data), static_cast<Py_ssize_t>(bytes)));
    return made(ctx, invoke(ctx, DeserializePart, number(device), text), compiled);
  });
}

int run(void*, int32_t, void* compiled, const ts_call* call) {
  const auto& kernel = *static_cast<const ts_kernel*>(compiled);
  ts_call own = *call;
  own.kernel_ctx = kernel.ctx;
  return kernel.run(&own);
}

void destroy(void*, int32_t, void* compiled) {
  quietly([&] {
    const std::unique_ptr<ts_kernel> kernel(static_cast<ts_kernel*>(compiled));
    drop_kernel(*kernel);
  });
}

} // namespace

void fill_compiler_slots(PythonBackend& b) {
  if (!b.methods[Claim]) return;
  b.compiler.struct_size = sizeof b.compiler;
  b.compiler.claim = claim;
  b.compiler.compile = b.methods[CompilePart] ? compile : nullptr;
  b.compiler.run = run;
  b.compiler.destroy = destroy;
  b.compiler.serialize = b.methods[SerializePart] ? serialize : nullptr;
  b.compiler.deserialize = b.methods[DeserializePart] ? deserialize : nullptr;
  b.table.compiler = &b.compiler;
}

} // namespace ts::py

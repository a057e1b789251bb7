#include "python/tensor/sparse_object.h"
#include "python/calls/parse.h"
#include "python/tensor/tensor_object.h"
#include "python/types.h"
#include "tensor/sparse.h"

namespace ts::py {
namespace {

// (sizes, layout, parts, sparse_dim, dense_dim, coalesced)
struct Description {
  Scratch scratch;
  Value sizes;
  SparseParts parts;
};

void read(PyObject* const* args, Description& d) {
  TS_CHECK_TYPE(as_int_list(args[0], d.sizes, d.scratch), "sparse: expected sizes as ints");
  std::optional<Layout> layout = as_layout(args[1]);
  TS_CHECK_TYPE(layout && *layout != Layout::Strided && *layout != Layout::Jagged, "sparse: expected a sparse layout");
  d.parts.layout = *layout;
  Py_ssize_t wanted = *layout == Layout::SparseCoo ? 2 : 3;
  TS_CHECK_TYPE(PyTuple_Check(args[2]) && PyTuple_GET_SIZE(args[2]) == wanted, "sparse: expected a tuple of ", wanted,
                " parts");
  for (Py_ssize_t k = 0; k < wanted; ++k) {
    const Tensor& part = expect_tensor(PyTuple_GET_ITEM(args[2], k), "sparse");
    TS_CHECK_TYPE(!part->payload, "sparse: expected parts that are dense");
    d.parts.parts[k] = part;
  }
  TS_CHECK_TYPE(as_int(args[3], d.parts.sparse_dim) && as_int(args[4], d.parts.dense_dim),
                "sparse: expected numbers of dims as ints");
  d.parts.coalesced = args[5] == Py_True;
}

PyObject* make(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    TS_CHECK_TYPE(n == 6, "_make_sparse: expected 6 arguments, got ", n);
    Description d;
    read(args, d);
    return wrap(make_sparse(d.sizes.as_ints(), std::move(d.parts)));
  });
}

PyObject* set(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return guarded([&] {
    TS_CHECK_TYPE(n == 7, "_set_sparse: expected 7 arguments, got ", n);
    const Tensor& t = expect_tensor(args[0], "_set_sparse");
    Description d;
    read(args + 1, d);
    set_sparse(t, d.sizes.as_ints(), std::move(d.parts));
    return none();
  });
}

// _sparse_parts(tensor) -> (layout, parts, sparse_dim, dense_dim, coalesced), or None for a dense one.
PyObject* parts_of(PyObject*, PyObject* o) {
  return guarded([&] {
    const Tensor& t = expect_tensor(o, "_sparse_parts");
    if (!t->payload) return none();
    const SparseParts& s = *sparse_parts(t);
    int count = s.layout == Layout::SparseCoo ? 2 : 3;
    PyRef parts = checked(PyTuple_New(count));
    for (int k = 0; k < count; ++k) PyTuple_SET_ITEM(parts.get(), k, wrap(s.parts[k]));
    return checked(Py_BuildValue("(OOLLO)", layout_object(s.layout), parts.get(), static_cast<long long>(s.sparse_dim),
                                 static_cast<long long>(s.dense_dim), s.coalesced ? Py_True : Py_False))
        .release();
  });
}

PyMethodDef g_sparse_object_functions[] = {
    {"_make_sparse", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(make)), METH_FASTCALL, nullptr},
    {"_set_sparse", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(set)), METH_FASTCALL, nullptr},
    {"_sparse_parts", parts_of, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr}};

} // namespace

void init_sparse(PyObject* module) { checked_status(PyModule_AddFunctions(module, g_sparse_object_functions)); }

} // namespace ts::py

// What a compiled function depends on besides its arguments: whether everything that was read is what it was.
//
// Objects are compared by identity, and are held meanwhile, so that none takes the place of another. What is unequal
// here may be equal all the same, as a float that was computed anew is: then the package compares values.
#pragma once
#include "python/graph/signature.h"
#include <memory>
#include <unordered_set>

namespace ts::py_runtime {

struct Watched;

// Changes with any attribute of a class or of its bases. 0: it has none.
uint64_t class_version(PyObject* type);

// What was read, as it was when this was made.
class Guard : public std::enable_shared_from_this<Guard> {
public:
  // `watched`: a list of (kind, object) or ("entry", dict, key); `held`, a list: tensors that no call must be given as
  // arguments. `base`: what is watched besides, which `base_object` keeps alive.
  Guard(PyObject* watched, PyObject* held, const Guard* base, PyObject* base_object);
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  bool holds(std::span<PyObject* const> tensors) const;
  size_t size() const;
  bool complete() const { return complete_ && (!base_ || base_->complete()); }

  // For the garbage collector: what is held here often leads back to the compiled function.
  int traverse(visitproc visit, void* arg) const;
  void clear();

private:
  std::vector<Watched> watched_;
  const Guard* base_; // of the object
  ts::py::PyRef base_object_;
  std::unordered_set<PyObject*> held_;
  bool complete_ = true;
};

} // namespace ts::py_runtime

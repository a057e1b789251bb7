// What tells calls apart: their arguments as bytes, taken apart in a fraction of the time that Python takes for it.
#pragma once
#include "python/common.h"
#include "tensor/tensor.h"
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace ts::py_runtime {

// Bytes that are put together anew for every call, in memory that stays.
class Key {
public:
  std::string_view view() const { return {bytes_.data(), size_}; }
  void clear() { size_ = 0; }
  template <class T> void put(const T& value) {
    if (size_ + sizeof value > bytes_.size()) grow(sizeof value);
    std::memcpy(bytes_.data() + size_, &value, sizeof value);
    size_ += sizeof value;
  }
  void put_text(std::string_view text) {
    if (size_ + text.size() > bytes_.size()) grow(text.size());
    std::memmove(bytes_.data() + size_, text.data(), text.size());
    size_ += text.size();
  }

private:
  std::vector<char> bytes_;
  size_t size_ = 0;
  [[gnu::noinline]] void grow(size_t more) { bytes_.resize(2 * (size_ + more) + 256); }
};

// What a tensor is like, but not which one it is, nor its values.
struct Likeness {
  PyTypeObject* type = nullptr;
  KeySet keys = 0;
  Device device;
  DType dtype = DType::Undefined;
  uint8_t ndim = 0, bits = 0;

  // False for a tensor that cannot be told so.
  bool read(PyObject* tensor);
  bool operator==(const Likeness&) const = default;
};

// Puts what a tensor is like, with its sizes and strides. False for one that cannot be told so.
bool put_tensor(Key& out, PyObject* tensor);

// The arguments of a call taken apart.
struct Arguments {
  Key key;
  std::vector<PyObject*> tensors; // each once

  void clear();
  // False for arguments that are not plain, or where the thread is in a special state.
  bool read(PyObject* args, PyObject* kwargs);                                 // a tuple; a dict or NULL
  bool read(PyObject* const* args, size_t n, PyObject* names, size_t n_names); // as a vector call has them

private:
  bool read_modes();
  bool add(PyObject* o, int depth);
  bool add_container(PyObject* o, int depth);
};

} // namespace ts::py_runtime

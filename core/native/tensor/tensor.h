// Tensor metadata: storage, shape, strides, dtype, device, dispatch keys. No kernels, no autograd rules.
#pragma once
#include "tensor/device.h"
#include "tensor/dtype.h"
#include "tensor/error.h"
#include "tensor/keys.h"
#include "tensor/ref.h"
#include "tensor/small_vector.h"
#include "tensor/storage.h"
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace ts {

class Tensor;

// What autograd hangs on a tensor; defined in autograd/meta.h.
struct AutogradMetaBase {
  virtual ~AutogradMetaBase() = default;
};

// In-place version of tensors that do not share their storage's counter (`.data`).
struct VersionCounter {
  std::atomic<int32_t> refs{1};
  std::atomic<uint32_t> value{0};
  static void destroy(VersionCounter* p) { delete p; }
};

// What a tensor is besides memory, or instead of it: see tensor/sparse.h. Copies of the tensor have a copy.
enum class PayloadKind : uint8_t { Sparse };

struct PayloadBase {
  const PayloadKind kind;
  explicit PayloadBase(PayloadKind k) : kind(k) {}
  PayloadBase(const PayloadBase&) = default;
  PayloadBase& operator=(const PayloadBase&) = delete;
  virtual ~PayloadBase() = default;
  virtual PayloadBase* copy() const = 0;
};

enum class MemoryFormat : int8_t { Contiguous = 0, Preserve = 1, ChannelsLast = 2, ChannelsLast3d = 3 };

struct TensorImpl {
  static constexpr int kInlineDims = 5;
  static constexpr int kMaxDims = 64;

  // Flags.
  static constexpr uint8_t kContiguous = 1;
  static constexpr uint8_t kRequiresGrad = 2;  // a leaf the user asked gradients for
  static constexpr uint8_t kInference = 4;     // made under inference_mode
  static constexpr uint8_t kNumber = 8;        // a Python number in tensor form: weak in promotion
  static constexpr uint8_t kViewNoGrad = 16;   // view made under no_grad
  static constexpr uint8_t kViewMulti = 32;    // one of several outputs of a view operator
  static constexpr uint8_t kConstantData = 64; // memory lent read-only from outside
  static constexpr uint8_t kRetainGrad = 128;

  std::atomic<int32_t> refs{1};
  DType dtype = DType::Undefined;
  uint8_t ndim = 0;
  uint8_t flags = 0;
  Device device;
  KeySet keys = 0;
  Storage* storage = nullptr; // owned reference
  int64_t byte_offset = 0;
  int64_t numel = 0;
  AutogradMetaBase* autograd = nullptr;  // owned
  TensorImpl* base = nullptr;            // owned reference: the tensor this one is a view of
  VersionCounter* own_version = nullptr; // owned reference
  PayloadBase* payload = nullptr;        // owned
  uint32_t view_version = 0;             // of a view: the version at which its grad_fn was last made
  uint32_t traced = 0;          // while a graph is written down: which of its values this is, see graph/tracer.h
  void* wrapper = nullptr;      // the Python object, see python/tensor/tensor_object.h
  int64_t* heap_dims = nullptr; // sizes then strides, when ndim > kInlineDims; owned
  int64_t inline_dims[2 * kInlineDims];

  static TensorImpl* make();
  static void destroy(TensorImpl* t);

  const int64_t* sizes_data() const { return heap_dims ? heap_dims : inline_dims; }
  const int64_t* strides_data() const { return heap_dims ? heap_dims + ndim : inline_dims + kInlineDims; }
  IntSpan sizes() const { return {sizes_data(), ndim}; }
  IntSpan strides() const { return {strides_data(), ndim}; }
  bool has(uint8_t flag) const { return flags & flag; }
  bool owns_more() const { // than storage and base
    auto bits = [](const void* p) { return reinterpret_cast<uintptr_t>(p); };
    return bits(autograd) | bits(own_version) | bits(payload) | bits(heap_dims);
  }
  // The only way to change a dtype: its key follows.
  void set_dtype(DType t) {
    dtype = t;
    keys = (keys & ~key_bit(key::StorageDtype)) | keys_of(t);
  }
  static constexpr KeySet keys_of(DType t) { return KeySet{is_storage_dtype(t)} << key::StorageDtype; }
  void set_geometry(IntSpan sizes, IntSpan strides); // updates numel and the contiguity flag
  void set_contiguous(IntSpan sizes);
  void copy_geometry(const TensorImpl& other);
  uint32_t version() const {
    return own_version ? own_version->value.load(std::memory_order_relaxed)
           : storage   ? storage->version.load(std::memory_order_relaxed)
                       : 0;
  }
  void bump_version() { add_to_version(1); }
  void undo_bump() { add_to_version(~uint32_t{0}); }

private:
  void add_to_version(uint32_t n) {
    if (own_version)
      own_version->value.fetch_add(n, std::memory_order_relaxed);
    else if (storage)
      storage->version.fetch_add(n, std::memory_order_relaxed);
  }
  int64_t* reserve_dims(size_t ndim);
  void put_geometry(IntSpan sizes, IntSpan strides); // of spans that lie elsewhere
};

// Asked before a tensor whose wrapper it owns dies; true keeps the tensor, now owned by the wrapper alone.
inline bool (*keep_for_wrapper)(TensorImpl* t) = nullptr;

class Tensor {
public:
  Tensor() = default;
  static Tensor adopt(TensorImpl* p) {
    Tensor t;
    t.p_ = Ref<TensorImpl>::adopt(p);
    return t;
  }
  static Tensor share(TensorImpl* p) {
    Tensor t;
    t.p_ = Ref<TensorImpl>::share(p);
    return t;
  }

  bool defined() const { return static_cast<bool>(p_); }
  explicit operator bool() const = delete; // ask defined()
  TensorImpl* impl() const { return p_.get(); }
  TensorImpl* detach_ref() { return p_.detach(); } // gives up ownership
  TensorImpl* operator->() const { return p_.get(); }
  bool is(const Tensor& o) const { return p_ == o.p_; }

  DType dtype() const { return p_->dtype; }
  Device device() const { return p_->device; }
  int64_t ndim() const { return p_->ndim; }
  int64_t numel() const { return p_->numel; }
  IntSpan sizes() const { return p_->sizes(); }
  IntSpan strides() const { return p_->strides(); }
  int64_t size(int64_t dim) const; // dim may be negative; IndexError
  int64_t stride(int64_t dim) const;
  int64_t item_size() const { return ts::item_size(p_->dtype); }
  int64_t storage_offset() const { return p_->byte_offset / item_size(); }
  int64_t nbytes() const { return numel() * item_size(); }
  bool is_contiguous() const { return p_->has(TensorImpl::kContiguous); }
  bool is_contiguous(MemoryFormat format) const;
  bool is_view() const { return p_->base != nullptr; }
  bool is_conj() const { return p_->keys & key_bit(key::Conjugate); }
  bool is_neg() const { return p_->keys & key_bit(key::Negative); }
  KeySet pending() const { return p_->keys & pending_bits(); } // what is to be done to its memory to have its values
  uint32_t version() const { return p_->version(); }
  // Host address of the first element; NULL when not host-addressable.
  void* data() const {
    return p_->storage && p_->storage->host ? static_cast<char*>(p_->storage->host) + p_->byte_offset : nullptr;
  }
  template <class T> T* data() const { return static_cast<T*>(data()); }

private:
  Ref<TensorImpl> p_;
};
static_assert(sizeof(Tensor) == sizeof(TensorImpl*), "lists of tensors are passed as arrays of pointers");

using TensorList = std::span<const Tensor>;

// A new tensor over existing storage: same storage, version counter and device, given geometry. Not a tracked view.
Tensor alias(const Tensor& of, IntSpan sizes, IntSpan strides, int64_t byte_offset);
// Same geometry; shares data and, unless own_version, the version counter; no autograd state.
Tensor shallow_copy(const Tensor& of, bool own_version = false);
// As alias, remembering the base for in-place tracking. What view operators return.
Tensor make_view(const Tensor& of, IntSpan sizes, IntSpan strides, int64_t byte_offset);
// A view whose base nobody will ever see again becomes a tensor of its own.
void forget_base(TensorImpl& view);

} // namespace ts

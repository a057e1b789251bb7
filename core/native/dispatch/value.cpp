#include "dispatch/value.h"
#include <cmath>
#include <cstring>

namespace ts {

void Scalar::refuse_complex() { fail(ErrorKind::Type, "scalar: expected a real number, got a complex one"); }

int64_t Scalar::to_int() const {
  if (is_complex()) refuse_complex();
  if (!is_float()) return i;
  TS_CHECK(f >= -9223372036854775808.0 && f < 9223372036854775808.0 && f == std::trunc(f),
           "scalar: expected an integer value, got ", f);
  return static_cast<int64_t>(f);
}

void Frame::give(int k, const Scalar& v) {
  TS_CHECK_KIND(ErrorKind::NotImplemented, !v.is_complex(), "item: a complex element cannot be handed on; use item()");
  rets[k] = Value(v);
}

void Frame::give(int k, std::vector<Tensor>&& list) {
  auto owned = std::make_unique<Tensor[]>(list.size());
  std::move(list.begin(), list.end(), owned.get());
  rets[k].tag = Tag::Tensors;
  rets[k].len = static_cast<int32_t>(list.size());
  rets[k].tensors = owned.release();
}

std::vector<Tensor> Results::take_list(int k) {
  Value& v = values_[k];
  std::vector<Tensor> out;
  if (v.tag == Tag::Tensors) {
    std::unique_ptr<Tensor[]> owned(const_cast<Tensor*>(v.tensors));
    out.assign(std::make_move_iterator(owned.get()), std::make_move_iterator(owned.get() + v.len));
  } else if (v.tag == Tag::Tensor) {
    out.push_back(take(k));
  }
  v.tag = Tag::None;
  return out;
}

void Results::clear() {
  for (int k = 0; k < kMax; ++k) {
    if (values_[k].tag == Tag::Tensor)
      take(k);
    else if (values_[k].tag == Tag::Tensors)
      take_list(k);
  }
}

OwnedValues::OwnedValues(std::span<const Value> args) {
  bool nothing = std::all_of(args.begin(), args.end(), [](const Value& v) {
    return v.tag == Tag::Tensor || v.tag == Tag::Tensors || v.tag == Tag::None;
  });
  if (nothing) return; // to keep, nor to allocate
  values_ = std::make_unique<Value[]>(args.size());
  count_ = args.size();
  auto payload = [](const Value& v) -> size_t {
    if (v.tag == Tag::Complex) return 16;
    if (v.tag == Tag::Ints || v.tag == Tag::Floats) return static_cast<size_t>(v.len) * 8;
    return v.tag == Tag::Str ? (std::strlen(v.str) + 8) / 8 * 8 : 0;
  };
  size_t total = 0;
  for (const Value& v : args) total += payload(v);
  if (total) bytes_ = std::make_unique<char[]>(total);
  char* at = bytes_.get();
  for (size_t k = 0; k < args.size(); ++k) {
    const Value& v = args[k];
    if (v.tag == Tag::Tensor || v.tag == Tag::Tensors || v.tag == Tag::Generator) continue;
    values_[k] = v;
    size_t bytes = payload(v);
    if (!bytes) continue;
    std::memcpy(at, v.str, v.tag == Tag::Str ? std::strlen(v.str) + 1 : bytes);
    values_[k].str = at;
    at += bytes;
  }
}

} // namespace ts

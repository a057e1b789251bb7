#include "ops/optim/optim_lists.h"
#include "ops/common/check.h"
#include "ops/common/raw.h"
#include "runtime/backend.h"

namespace ts::optim {

void check_state(const char* op, const char* name, TensorList params, TensorList state) {
  TS_CHECK(state.size() == params.size(), op, ": expected ", params.size(), " ", name, ", one per parameter, got ",
           state.size());
  for (size_t k = 0; k < params.size(); ++k) {
    const Tensor &p = params[k], &s = state[k];
    TS_CHECK(s.defined() && same(s.sizes(), p.sizes()) && s.dtype() == p.dtype() && s.device() == p.device(), op,
             ": expected ", name, "[", k, "] like its parameter (", p.dtype(), " ", p.sizes(), " on ",
             to_string(p.device()), "), got ",
             s.defined() ? concat(s.dtype(), " ", s.sizes(), " on ", to_string(s.device())) : "None");
  }
}
void check_params(const char* op, TensorList params) {
  for (size_t k = 0; k < params.size(); ++k) {
    TS_CHECK(params[k].defined(), op, ": expected parameters that are tensors, got None at ", k);
    TS_CHECK(is_floating(params[k].dtype()), op, ": expected floating parameters, got ", params[k].dtype(), " at ", k);
    TS_CHECK(params[k].device() == params[0].device(), op, ": expected all parameters of one call on one device, got ",
             to_string(params[0].device()), " and ", to_string(params[k].device()));
  }
}

Contiguous::Contiguous(TensorList given) : given_(given) {
  bool ready = true;
  for (const Tensor& t : given) ready &= t.is_contiguous() && t.numel() > 0;
  if (ready) return;
  for (const Tensor& t : given)
    if (t.numel()) own_.push_back(raw_contiguous(t));
  copied_ = true;
}

void Contiguous::write_back() const {
  if (!copied_) return;
  size_t at = 0;
  for (const Tensor& t : given_)
    if (t.numel() && !own_[at++].is(t)) raw_copy(t, own_[at - 1]);
}

void written(const char* op, TensorList list) {
  for (const Tensor& t : list) check_inplace(t, op);
}

} // namespace ts::optim

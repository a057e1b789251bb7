// The few operators autograd itself calls, by name.
#pragma once
#include "dispatch/boxing.h"

namespace ts::ops {
namespace autograd_ops {
inline const Op add("add"), add_("add_"), clone("clone"), zero_("zero_"), ones_like("ones_like"),
    sum_to_size("sum_to_size");
inline const Op to_dtype("to.dtype"), real("real"), view_as_real("view_as_real"), view_as_complex("view_as_complex"),
    contiguous("contiguous"), isnan("isnan"), any("any"), local_scalar("_local_scalar_dense");
} // namespace autograd_ops
} // namespace ts::ops

namespace ts {
namespace aops = ops::autograd_ops;
}

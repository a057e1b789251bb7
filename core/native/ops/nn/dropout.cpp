// Dropout (Srivastava et al., JMLR 2014), scaled during training so that evaluation changes nothing.
#include "dispatch/launch.h"
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/declare.h"
#include "ops/random/random_bits.h"
#include "runtime/computed_dtypes.h"
#include "runtime/interpreter.h"

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kDropoutCode = "claims its random numbers before it is known who draws them";

const KernelId kDropout("native_dropout");
using Pair = std::tuple<Tensor, Tensor>;
const Op native_dropout_op("native_dropout"), apply_op("_dropout_apply");

void check_probability(double p, const char* op) {
  TS_CHECK_VALUE(p >= 0 && p <= 1, op, ": dropout probability has to be between 0 and 1, but got ", p);
}

double scale_of(double p) { return p >= 1 ? 0 : 1 / (1 - p); }

Pair native_dropout_rule(const Tensor& input, double p) {
  check_probability(p, "dropout");
  TS_CHECK(is_floating(input.dtype()), "dropout: result type can't be cast back to the integer dtype ", input.dtype(),
           "; expected a floating input");
  return {outline_like(input, input.dtype()), outline(input.sizes(), DType::Bool, input.device())};
}
void native_dropout(const Tensor& out, const Tensor& mask, const Tensor& input, double p) {
  static const Op compare_into("ge.out"), apply_into("_dropout_apply.out");
  if (input.numel() == 0) return;
  Device device = input.device();
  Place place = claim_place(device, static_cast<uint64_t>(input.numel()));
  if (Launch(kDropout, device).out(out).out(mask).in(input).param(p).random(place.seed, place.offset).run()) return;
  Generator g; // where the device's own stood
  g.device = device;
  g.seed = place.seed;
  g.offset = place.offset;
  if (computes_with(device, DType::Float32))
    compare_into(uniform_tensor(input.sizes(), DType::Float32, device, g), Scalar(p), mask);
  else
    raw_copy(mask, uniform_at_least(input.sizes(), p, device, g));
  apply_into(input, mask, Scalar(scale_of(p)), out);
}

Tensor dropout(const Tensor& input, double p, bool training, bool inplace) {
  check_probability(p, "dropout");
  if (!training || p == 0 || input.numel() == 0) return input;
  Tensor out = native_dropout_op(input, p);
  return inplace ? ops::copy_(input, out) : out;
}
Tensor dropout_(const Tensor& self, double p, bool training) { return dropout(self, p, training, true); }

// How many dims number what is dropped at once. Without a batch it is the first alone, but dropout2d has always taken
// three dims for (N, C, L), as it takes, with a warning, any two or more.
int64_t leading_dims(const Tensor& input, int64_t spatial, const char* op) {
  int64_t n = input.ndim();
  TS_CHECK(n >= 2 && (spatial != 1 || n <= 3), op, ": expected a ", spatial + 1, "-d or ", spatial + 2,
           "-d input, got sizes ", input.sizes());
  if (n != spatial + 1 && n != spatial + 2)
    warn(concat(op, ": Received a ", n, "-D input to ", op,
                ", which is deprecated and will result in an error in a future "
                "release; expected ",
                spatial + 1, " or ", spatial + 2, " dims."));
  if (spatial == 2 && n == 3)
    warn("dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is desired - "
         "input is interpreted as shape (N, C, L). Try dropout1d for that, or unsqueeze(0) for an image without a "
         "batch.");
  return spatial == 2 || n == spatial + 2 ? 2 : 1;
}

// Whole channels at once: one draw for each (sample, channel), by an operator, so that each run of a graph draws.
Tensor channel_dropout(const Tensor& input, double p, bool training, bool inplace, int64_t spatial, const char* op) {
  check_probability(p, op);
  int64_t leading = leading_dims(input, spatial, op);
  if (!training || p == 0 || input.numel() == 0) return input;
  TS_CHECK(is_floating(input.dtype()), op, ": expected a floating input, got ", input.dtype());
  Dims sizes(input.sizes());
  for (size_t d = static_cast<size_t>(leading); d < sizes.size(); ++d) sizes[d] = 1;
  Tensor mask = native_dropout_op.multi<2>(ops::ones(sizes, input.dtype(), input.device()), p)[1];
  Tensor out = apply_op(input, mask, Scalar(scale_of(p)));
  return inplace ? ops::copy_(input, out) : out;
}
template <int spatial> Tensor dropout_nd(const Tensor& input, double p, bool training, bool inplace) {
  return channel_dropout(input, p, training, inplace, spatial,
                         spatial == 1   ? "dropout1d"
                         : spatial == 2 ? "dropout2d"
                                        : "dropout3d");
}

} // namespace

TS_OPERATORS(dropout) {
  def("_dropout_apply(Tensor self, Tensor mask, Scalar scale) -> Tensor")
      .pointwise("select(mask, self * scale, 0)")
      .promote(Promote::Keep)
      .derivative("self", "select(mask, grad * scale, 0)")
      .derivative("mask", "0")
      .out()
      .hidden()
      .doc("self * scale where mask, else 0.");
  def("native_dropout(Tensor input, float p) -> (Tensor result, Tensor mask)")
      .facts("kernel:native_dropout")
      .rule<native_dropout_rule>()
      .computation<native_dropout, 2>(kDropoutCode)
      .random()
      .function_only()
      .saves("result1")
      .gradient(
          [](GradContext& c) { c.set(0, apply_op(c.grad(0), c.result(1), Scalar(scale_of(c.value<double>(1))))); })
      .doc("Dropout in training: the result, and the mask of elements kept.");
  def("dropout(Tensor input, float p=0.5, bool training=True, bool inplace=False) -> Tensor")
      .body<dropout>()
      .random()
      .function_only()
      .in("nn.functional")
      .doc("In training, zeroes elements with probability p and scales the others by 1 / (1 - p); otherwise input "
           "itself.");
  def("dropout_(Tensor(a!) self, float p=0.5, bool training=True) -> Tensor(a!)")
      .body<dropout_>()
      .random()
      .function_only()
      .doc("In-place version of dropout.");
  def("dropout1d(Tensor input, float p=0.5, bool training=True, bool inplace=False) -> Tensor")
      .body<dropout_nd<1>>()
      .random()
      .function_only()
      .in("nn.functional")
      .doc("Zeroes whole channels of a (N, C, L) or (C, L) input with probability p.");
  def("dropout2d(Tensor input, float p=0.5, bool training=True, bool inplace=False) -> Tensor")
      .body<dropout_nd<2>>()
      .random()
      .function_only()
      .in("nn.functional")
      .doc("Zeroes whole channels of a (N, C, H, W) or (C, H, W) input with probability p.");
  def("dropout3d(Tensor input, float p=0.5, bool training=True, bool inplace=False) -> Tensor")
      .body<dropout_nd<3>>()
      .random()
      .function_only()
      .in("nn.functional")
      .doc("Zeroes whole channels of a (N, C, D, H, W) or (C, D, H, W) input with probability p.");
}

} // namespace ts

#include "autograd/engine.h"
#include "autograd/meta.h"
#include "dispatch/op_handles.h"
#include "harness.h"
#include "runtime/empty.h"
#include "toy_backend.h"
#include <cmath>

using namespace ts;

namespace {

Tensor leaf(std::initializer_list<double> values, bool grad = true) {
  Tensor t = empty_tensor(Dims{static_cast<int64_t>(values.size())}, DType::Float64, toy_device());
  std::copy(values.begin(), values.end(), t.data<double>());
  if (grad) set_requires_grad(t, true);
  return t;
}
Tensor ones(int64_t n) { return ops::full(Dims{n}, Scalar(1.0), DType::Float64, toy_device()); }
std::vector<Tensor> grads(const Tensor& y, const std::vector<Tensor>& inputs, bool create_graph = false) {
  BackwardOptions o;
  o.accumulate = false;
  o.create_graph = o.retain_graph = create_graph;
  Tensor seed = ones(y.numel());
  return run_backward(TensorList(&y, 1), TensorList(&seed, 1), inputs, o);
}

} // namespace

TEST(product_rule) {
  Tensor a = leaf({2, 3}), b = leaf({5, 7});
  auto g = grads(ops::mul(ops::mul(a, b), a), {a, b});
  CHECK_CLOSE(g[0].data<double>()[0], 20, 1e-12);
  CHECK_CLOSE(g[1].data<double>()[1], 9, 1e-12);
}

TEST(third_derivative) {
  Tensor x = leaf({2});
  Tensor d = ops::mul(ops::mul(x, x), ops::mul(x, x));
  for (double expected : {32.0, 48.0, 48.0}) {
    d = grads(d, {x}, true)[0];
    CHECK_CLOSE(d.data<double>()[0], expected, 1e-9);
  }
}

TEST(diamonds_accumulate) {
  Tensor x = leaf({1.5});
  Tensor y = ops::exp(x);
  Tensor sum = ops::add(y, ops::mul(y, y));
  run_backward(TensorList(&sum, 1), {}, {}, {});
  CHECK_CLOSE(grad_of(x).data<double>()[0], std::exp(1.5) + 2 * std::exp(3.0), 1e-9);
}

TEST(modified_saved_tensors_are_refused) {
  Tensor x = leaf({1, 2});
  Tensor y = ops::mul(x, 1.0), z = ops::mul(y, y);
  ops::add_(y, 1.0);
  CHECK_ERROR(grads(z, {x}), "modified by an inplace operation");
}

TEST(freed_graphs_are_refused) {
  Tensor x = leaf({1});
  Tensor y = ops::mul(x, x);
  run_backward(TensorList(&y, 1), {}, {}, {});
  CHECK_ERROR(run_backward(TensorList(&y, 1), {}, {}, {}), "a second time");
}

TEST(leaves_are_not_written) { CHECK_ERROR(ops::add_(leaf({1}), 1.0), "a leaf Variable that requires grad"); }

TEST(deep_chains_run_and_die_iteratively) {
  Tensor x = leaf({1});
  Tensor y = x;
  for (int i = 0; i < 100000; ++i) y = ops::mul(y, 1.0);
  CHECK_CLOSE(grads(y, {x})[0].data<double>()[0], 1, 0);
  for (int i = 0; i < 100000; ++i) y = ops::mul(y, 1.0);
}

TEST(no_grad_records_nothing) {
  Tensor x = leaf({1});
  GradMode off(false);
  CHECK(!requires_grad(ops::mul(x, x)));
}

TEST(hooks_see_and_replace_gradients) {
  Tensor x = leaf({3});
  Tensor y = ops::mul(x, 2.0);
  register_tensor_hook(y, [](const Tensor& g) { return ops::mul(g, 10.0); });
  CHECK_CLOSE(grads(ops::mul(y, 1.0), {x})[0].data<double>()[0], 20, 1e-12);
}

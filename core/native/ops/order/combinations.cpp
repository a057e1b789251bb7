// Choices from one vector and from several: combinations, cartesian_prod.
#include "dispatch/op_handles.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"

namespace ts {
namespace {

// Positions of every choice of r among n in lexicographic order, one after another.
std::vector<int64_t> choices(int64_t n, int64_t r, bool with_replacement) {
  std::vector<int64_t> all, now(static_cast<size_t>(r));
  int64_t gap = with_replacement ? 0 : 1;
  for (int64_t k = 0; k < r; ++k) now[static_cast<size_t>(k)] = k * gap;
  if (n == 0 || (!with_replacement && r > n)) return all;
  for (;;) {
    all.insert(all.end(), now.begin(), now.end());
    int64_t k = r - 1;
    while (k >= 0 && now[static_cast<size_t>(k)] == n - 1 - gap * (r - 1 - k)) --k;
    if (k < 0) return all;
    int64_t from = ++now[static_cast<size_t>(k)];
    for (int64_t j = k + 1; j < r; ++j) now[static_cast<size_t>(j)] = from + gap * (j - k);
  }
}

Tensor combinations(const Tensor& self, int64_t r, bool with_replacement) {
  TS_CHECK(self.ndim() == 1, "combinations: Expect a 1D vector, but got shape ", self.sizes());
  TS_CHECK(r >= 0, "combinations: Expect a non-negative number, but got ", r);
  if (r == 0) return ops::zeros(Dims{0}, self.dtype(), self.device());
  std::vector<int64_t> at = choices(self.numel(), r, with_replacement);
  return ops::reshape(ops::index_select(self, int64_t{0}, from_host(at, self.device())),
                      Dims{static_cast<int64_t>(at.size()) / r, r});
}

Tensor cartesian_prod(TensorList tensors) {
  TS_CHECK(!tensors.empty(), "cartesian_prod: expected at least one tensor");
  for (const Tensor& t : tensors)
    TS_CHECK(t.ndim() == 1, "cartesian_prod: Expect a 1D vector, but got shape ", t.sizes());
  if (tensors.size() == 1) return tensors[0];
  Dims sizes;
  for (const Tensor& t : tensors) sizes.push_back(t.numel());
  std::vector<Tensor> columns;
  for (size_t k = 0; k < tensors.size(); ++k) {
    Dims shape(tensors.size(), 1);
    shape[k] = sizes[k];
    columns.push_back(ops::reshape(ops::expand(ops::view(tensors[k], shape), sizes), Dims{-1}));
  }
  return ops::stack(columns, int64_t{1});
}

} // namespace

TS_OPERATORS(combine) {
  def("combinations(Tensor self, int r=2, bool with_replacement=False) -> Tensor")
      .body<combinations>()
      .function_only()
      .doc("All choices of r elements of a vector, one in each row, as itertools.combinations orders them.");
  def("cartesian_prod(Tensor[] tensors) -> Tensor")
      .body<cartesian_prod>()
      .function_only()
      .doc("All tuples of one element of each vector, one in each row, as itertools.product orders them.");
}

} // namespace ts

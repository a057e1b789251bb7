// Distinct elements: unique and unique_consecutive. Both return [values, inverse, counts]; the Python functions keep
// what was asked for.
#include "dispatch/launch.h"
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/check.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/common/no_gradient.h"
#include "ops/index/gather_scatter.h"

namespace ts {
namespace {

using Triple = std::tuple<Tensor, Tensor, Tensor>;
const Op any_along("any.dims");
const KernelId kRuns("runs");

// Runs of equal neighbours along dimension 0 of a (n, m) tensor.
struct Runs {
  Tensor starts; // position of each run's first row
  Tensor run_of; // (n): which run a row belongs to
  Tensor lengths;
};

// Undefined are those that nobody asks for.
Runs find_runs(const Tensor& rows, bool places_too = true, bool lengths_too = true) {
  int64_t n = rows.size(0);
  Device device = rows.device();
  Tensor first = filled(Dims{n}, Scalar(true), DType::Bool, device);
  if (n > 1) {
    Tensor differs = ops::ne(raw_narrow(rows, 0, 1, n - 1), raw_narrow(rows, 0, 0, n - 1));
    Tensor any = rows.size(1) == 1 ? raw_view(differs, Dims{n - 1}) : any_along(differs, Dims{1});
    raw_copy(raw_narrow(first, 0, 1, n - 1), any);
  }
  Runs r;
  r.starts = nonzero_flat(first);
  if (places_too) r.run_of = ops::sub(ops::cumsum(raw_cast(first, DType::Int64), 0), Scalar(1));
  if (!lengths_too) return r;
  Tensor ends = filled(Dims{r.starts.numel()}, Scalar(n), DType::Int64, device);
  if (r.starts.numel() > 1)
    raw_copy(raw_narrow(ends, 0, 0, ends.numel() - 1), raw_narrow(r.starts, 0, 1, ends.numel() - 1));
  r.lengths = ops::sub(ends, r.starts);
  return r;
}

// The first of each run of a flat tensor's elements, and as above; undefined are those that nobody asks for.
struct FlatRuns {
  Tensor values, run_of, lengths;
};

// The first n of what has room for more; in memory of its own where most of that is empty.
Tensor beginning(const Tensor& t, int64_t n) {
  Tensor part = raw_narrow(t, 0, 0, n);
  return 2 * n < t.numel() ? copy_as(part, part.dtype(), MemoryFormat::Contiguous) : part;
}

FlatRuns flat_runs(const Tensor& flat, bool places_too, bool lengths_too) {
  const int64_t n = flat.numel();
  const Device device = flat.device();
  const auto room = [&](bool asked, int64_t size) {
    return empty_tensor(Dims{asked ? size : 0}, DType::Int64, device);
  };
  Tensor values = empty_tensor(Dims{n + 1}, flat.dtype(), device), run_of = room(places_too, n),
         lengths = room(lengths_too, n + 1), count = room(true, 1);
  if (Launch(kRuns, device).out(values).out(run_of).out(lengths).out(count).in(flat).run()) {
    const int64_t found = host_number(count);
    return {beginning(values, found), run_of, lengths_too ? beginning(lengths, found) : lengths};
  }
  Runs r = find_runs(raw_view(flat, Dims{n, 1}), places_too, lengths_too);
  return {ops::index_select(flat, 0, r.starts), r.run_of, r.lengths};
}

Tensor no_positions(Device device) { return empty_tensor(Dims{0}, DType::Int64, device); }

Triple empty_result(const Tensor& self, IntSpan inverse_sizes) {
  return {empty_tensor(Dims{0}, self.dtype(), self.device()), empty_tensor(inverse_sizes, DType::Int64, self.device()),
          no_positions(self.device())};
}

// No more is known of distinct elements than that they have this dtype.
Triple distinct_outline(const Tensor& values, IntSpan inverse) {
  Device device = values.device();
  return {values, outline(inverse, DType::Int64, device), outline(Dims{0}, DType::Int64, device)};
}

Triple unique_flat_rule(const Tensor& self, bool, bool inverse_too, bool) {
  return distinct_outline(outline(Dims{0}, self.dtype(), self.device()), inverse_too ? self.sizes() : Dims{0}.span());
}
Triple unique_flat(const Tensor& self, bool, bool inverse_too, bool counts_too) {
  if (self.numel() == 0) return empty_result(self, self.sizes());
  Tensor flat = raw_view(raw_contiguous(self), Dims{self.numel()});
  auto [values, order] = ops::sort.multi<2>(flat, 0);
  FlatRuns r = flat_runs(values, inverse_too, counts_too);
  Tensor inverse = no_positions(self.device());
  if (inverse_too) {
    inverse = empty_tensor(Dims{flat.numel()}, DType::Int64, self.device());
    scatter_into(inverse, 0, order, r.run_of, TS_S_SET);
    inverse = reshaped(inverse, self.sizes());
  }
  return {r.values, inverse, counts_too ? r.lengths : no_positions(self.device())};
}

// Slices along dim as rows of a matrix, the other dimensions in their order.
Tensor as_rows(const Tensor& self, int64_t d) {
  Tensor front = self;
  for (int64_t k = d; k > 0; --k) front = raw_transpose(front, k - 1, k);
  front = raw_contiguous(front);
  int64_t n = front.size(0);
  return raw_view(front, Dims{n, n ? front.numel() / n : 0});
}

// Rows in lexicographic order of their first columns: stable sorts by each column, from the last to the first.
Tensor order_by(const Tensor& rows, int64_t columns) {
  Tensor order = counting(rows.size(0), rows.device());
  for (int64_t c = columns; c-- > 0;) {
    Tensor column =
        ops::index_select(raw_view(raw_contiguous(raw_narrow(rows, 1, c, 1)), Dims{rows.size(0)}), 0, order);
    order = ops::index_select(order, 0, ops::sort.multi<2>(column, 0, false, true)[1]);
  }
  return order;
}

// Of wide rows a few columns mostly tell all apart, and then the rest does not count. NaNs do not tell rows apart.
Tensor row_order(const Tensor& rows) {
  static const Op nan_to_num("nan_to_num");
  const int64_t n = rows.size(0), width = rows.size(1);
  for (int64_t columns = 4; 4 * columns <= width; columns *= 4) {
    Tensor order = order_by(rows, columns);
    Tensor begun = raw_contiguous(raw_narrow(rows, 1, 0, columns));
    if (is_floating(begun.dtype())) begun = nan_to_num(begun);
    if (find_runs(ops::index_select(begun, 0, order), false, false).starts.numel() == n) return order;
  }
  return order_by(rows, width);
}

void check_dim(const Tensor& self, int64_t d, const char* op) {
  TS_CHECK(self.ndim() > 0, op, ": expected a tensor with at least one dimension when dim is given");
  TS_CHECK(self.sizes()[d] == 0 || self.numel() > 0, op,
           ": There are 0 sized dimensions, and they aren't selected, so unique cannot be applied, got sizes ",
           self.sizes());
}

Triple distinct_slices(const Tensor& self, int64_t dim, const char* op) {
  int64_t d = wrap_dim(dim, self.ndim(), op);
  check_dim(self, d, op);
  Dims sizes(self.sizes());
  sizes[d] = 0;
  return distinct_outline(outline(sizes, self.dtype(), self.device()), Dims{self.sizes()[d]});
}

Triple unique_dim_rule(const Tensor& self, int64_t dim, bool, bool, bool) {
  return distinct_slices(self, dim, "unique");
}
Triple unique_dim(const Tensor& self, int64_t dim, bool, bool, bool) {
  int64_t d = wrap_dim(dim, self.ndim(), "unique");
  if (self.sizes()[d] == 0)
    return {copy_as(self, self.dtype(), MemoryFormat::Contiguous), no_positions(self.device()),
            no_positions(self.device())};
  Tensor rows = as_rows(self, d), order = row_order(rows);
  Runs r = find_runs(ops::index_select(rows, 0, order));
  Tensor inverse = empty_tensor(Dims{rows.size(0)}, DType::Int64, self.device());
  scatter_into(inverse, 0, order, r.run_of, TS_S_SET);
  return {ops::index_select(self, d, ops::index_select(order, 0, r.starts)), inverse, r.lengths};
}

Triple unique_consecutive_rule(const Tensor& self, bool, bool, std::optional<int64_t> dim) {
  if (dim) return distinct_slices(self, *dim, "unique_consecutive");
  return distinct_outline(outline(Dims{0}, self.dtype(), self.device()), self.sizes());
}
Triple unique_consecutive(const Tensor& self, bool inverse_too, bool counts_too, std::optional<int64_t> dim) {
  if (!dim) {
    if (self.numel() == 0) return empty_result(self, self.sizes());
    Tensor flat = raw_view(raw_contiguous(self), Dims{self.numel()});
    FlatRuns r = flat_runs(flat, inverse_too, counts_too);
    Tensor none = no_positions(self.device());
    return {r.values, inverse_too ? reshaped(r.run_of, self.sizes()) : none, counts_too ? r.lengths : none};
  }
  int64_t d = wrap_dim(*dim, self.ndim(), "unique_consecutive");
  if (self.sizes()[d] == 0)
    return {copy_as(self, self.dtype(), MemoryFormat::Contiguous), no_positions(self.device()),
            no_positions(self.device())};
  Runs r = find_runs(as_rows(self, d));
  return {ops::index_select(self, d, r.starts), r.run_of, r.lengths};
}

} // namespace

TS_OPERATORS(unique) {
  def("_unique2(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor, "
      "Tensor, Tensor)")
      .facts("kernel:runs")
      .facts("stored:none")
      .rule<unique_flat_rule>()
      .make<unique_flat>()
      .gradient(no_gradient)
      .hidden()
      .doc("Distinct elements in order, the position of each element among them, and how often each occurs.");
  def("unique_dim(Tensor self, int dim, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> "
      "(Tensor, Tensor, Tensor)")
      .facts("stored:none")
      .rule<unique_dim_rule>()
      .make<unique_dim>()
      .gradient(no_gradient)
      .hidden()
      .doc("Distinct slices along `dim` in order, the position of each slice among them, and how often each occurs.");
  def("_unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None) -> "
      "(Tensor, Tensor, Tensor)")
      .facts("stored:none")
      .rule<unique_consecutive_rule>()
      .make<unique_consecutive>()
      .gradient(no_gradient)
      .hidden()
      .doc("The first of each run of equal elements (or slices), the run of each element, and the runs' lengths.");
}

} // namespace ts

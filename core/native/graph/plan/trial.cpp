// Whether a card gives for a joined program what it gives for its parts: asked of the card itself, once for each
// program, on numbers that tell.
#include "dispatch/launch.h"
#include "graph/plan/group.h"
#include "ops/common/raw.h"
#include "runtime/empty.h"
#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

namespace ts::graph {
namespace {

constexpr int64_t kMostElements = 5000; // more than from where on loops are others

// Of all magnitudes near one, of both signs, and what is special.
std::vector<double> numbers(int64_t n, uint64_t seed) {
  constexpr double kSpecial[] = {0.0, -0.0, 1.0, -1.0, 0.5, INFINITY, -INFINITY, NAN, 1e-40, 3e38, 88.0, -104.0};
  std::vector<double> out(static_cast<size_t>(n));
  uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (double& x : out) {
    state = state * 6364136223846793005 + 1442695040888963407;
    const double unit = static_cast<double>(state >> 11) * 0x1p-53;
    const auto kind = state >> 3 & 31;
    x = kind < 2 ? kSpecial[(state >> 20) % std::size(kSpecial)] : std::ldexp(2 * unit - 1, static_cast<int>(kind % 8));
  }
  return out;
}

struct Trial {
  Device device;
  int64_t n, one = 1, zero = 0;

  Tensor given(DType dtype, bool single, uint64_t seed) const {
    const int64_t count = single ? 1 : n;
    Tensor wide = empty_tensor(IntSpan(&count, 1), DType::Float64, device);
    std::vector<double> values = numbers(count, seed);
    if (single) values[0] = 0.7;
    if (!is_floating(dtype))
      for (double& x : values) x = std::isfinite(x) ? std::trunc(std::clamp(x, -100.0, 100.0)) : 0;
    copy_bytes_from_host(wide, values.data(), values.size() * sizeof(double));
    return raw_cast(wide, dtype);
  }
  std::vector<double> read(const Tensor& t) const {
    Tensor wide = raw_cast(t, DType::Float64);
    std::vector<double> out(static_cast<size_t>(n));
    copy_bytes_to_host(out.data(), wide, out.size() * sizeof(double));
    return out;
  }
  void describe(ts_tensor& d, const Tensor& t, bool single) const {
    d.handle = t->storage->handle;
    d.byte_offset = 0;
    d.ndim = 1;
    d.numel = n;
    d.sizes = &n;
    d.strides = single ? &zero : &one;
    d.flags = single ? 0 : uint32_t{TS_T_CONTIGUOUS};
  }
  bool run(const Work& w, std::vector<ts_tensor>& tensors) const {
    ts_call call = *w.call;
    call.outputs = tensors.data();
    call.inputs = tensors.data() + call.n_outputs;
    return call_kernel(backend_of(device), w.kernel, device, call, n) == TS_OK;
  }
};

bool same_numbers(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(a, b, [](double x, double y) {
    return (std::isnan(x) && std::isnan(y)) || (x == y && std::signbit(x) == std::signbit(y));
  });
}

struct Verdicts {
  std::mutex mutex;
  std::map<std::tuple<uint64_t, int64_t, ts_kernel_fn, void*>, bool> known;
};
Verdicts& verdicts() {
  static auto* v = new Verdicts;
  return *v;
}

} // namespace

bool Group::agrees(Device device, const Work& joined) const {
  Trial trial{device, std::clamp<int64_t>(joined.work, 64, kMostElements)};
  const std::tuple key{joined.call->program->id, trial.n, joined.kernel.run, joined.kernel.ctx};
  {
    std::lock_guard lock(verdicts().mutex);
    if (auto found = verdicts().known.find(key); found != verdicts().known.end()) return found->second;
  }
  auto dtype = [](const ts_tensor& t) { return static_cast<DType>(t.dtype); };
  std::vector<Tensor> in(inputs_.size()), made(writes_.size()), out;
  std::vector<bool> single(inputs_.size());
  for (size_t k = 0; k < inputs_.size(); ++k) {
    if (inputs_[k].tensor.flags & TS_T_SCALAR) continue;
    single[k] = std::ranges::all_of(inputs_[k].strides, [](int64_t s) { return s == 0; });
    in[k] = trial.given(dtype(inputs_[k].tensor), single[k], k + 1);
  }
  for (size_t k = 0; k < writes_.size(); ++k)
    made[k] = empty_tensor(IntSpan(&trial.n, 1), dtype(writes_[k].to.tensor), device);
  auto put = [&](std::vector<ts_tensor>& to, const ts_tensor& as, const Bound& b) {
    ts_tensor& d = to.emplace_back(as);
    if (b.is_write)
      trial.describe(d, made[b.at], false);
    else if (in[b.at].defined())
      trial.describe(d, in[b.at], single[b.at]);
  };
  bool ok = true;
  for (size_t m = 0; ok && m < members_.size(); ++m) {
    std::vector<ts_tensor> tensors;
    for (size_t k = 0; k < bound_[m].size(); ++k) put(tensors, members_[m]->tensor(k), bound_[m][k]);
    ok = trial.run(*members_[m], tensors);
  }
  // The joined call's results, by the writes that they are.
  std::vector<ts_tensor> tensors;
  std::vector<size_t> which;
  for (int32_t k = 0; k < joined.call->n_outputs; ++k) {
    const Place& place = joined.places[static_cast<size_t>(k)];
    size_t w = writes_.size();
    while (w-- > 0 && !(writes_[w].last && writes_[w].to.place == place)) {
    }
    which.push_back(w);
    out.push_back(empty_tensor(IntSpan(&trial.n, 1), dtype(joined.tensor(static_cast<size_t>(k))), device));
    trial.describe(tensors.emplace_back(joined.tensor(static_cast<size_t>(k))), out.back(), false);
  }
  for (size_t k = 0; k < inputs_.size(); ++k) put(tensors, inputs_[k].tensor, {false, static_cast<uint16_t>(k)});
  ok = ok && trial.run(joined, tensors);
  for (size_t k = 0; ok && k < out.size(); ++k) ok = same_numbers(trial.read(out[k]), trial.read(made[which[k]]));
  std::lock_guard lock(verdicts().mutex);
  return verdicts().known[key] = ok;
}

} // namespace ts::graph

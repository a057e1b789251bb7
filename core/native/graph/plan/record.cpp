#include "graph/plan/record.h"
#include "autograd/meta.h"
#include "dispatch/watch.h"
#include <algorithm>

namespace ts::graph {

Recorder::Recorder(const Graph& g, Device d, std::vector<const TensorImpl*> given)
    : RecordingState(d), seen(g.values.size()), opaque(g.nodes.size()), varies(g.nodes.size()), bumps(g.nodes.size()),
      g_(g), given_(std::move(given)) {
  for (Id k = 0; k < given_.size(); ++k) {
    const TensorImpl& t = *given_[k];
    versions_.push_back(t.version());
    origins_.push_back(t.byte_offset);
    storages_.push_back(t.storage);
    if (!t.storage || !t.storage->handle || handles_.contains(t.storage->handle)) continue;
    handles_.emplace(t.storage->handle, static_cast<Id>(buffers.size()));
    buffers.push_back({t.storage->nbytes, kNone, k});
  }
  for (size_t k = 0; k < g.inputs.size(); ++k) values_.emplace(given_[k], g.inputs[k]);
  for (size_t k = 0; k < g.captures.size(); ++k) values_.emplace(given_[g.inputs.size() + k], g.captures[k]);
  for (const auto& [t, v] : values_) note_geometry(seen[v], *t);
  enter_recording(*this);
  on_ = true;
}

Recorder::~Recorder() { leave(); }

void Recorder::leave() noexcept {
  if (std::exchange(on_, false)) leave_recording();
}

std::vector<Id> Recorder::sharing() const {
  std::vector<Id> out;
  std::unordered_map<void*, Id> first;
  for (Id k = 0; k < given_.size(); ++k)
    out.push_back(storages_[k] ? first.try_emplace(storages_[k], k).first->second : k);
  return out;
}

void Recorder::begin(Id node) {
  node_ = node;
  const Operator* op = g_.nodes[node].op;
  varies_now_ = op && (op->kind == OperatorKind::Opaque || op->kind == OperatorKind::DataDependent ||
                       op->kind == OperatorKind::Answer || op->effects.data_dependent);
  opaque_now_ = varies_now_ || (op && op->effects.communicates);
}

// Memory that is let go may be the next one's: the newest is meant.
void Recorder::keep(Storage* s) {
  if (!s->handle) return;
  if (!(s->device == device)) {
    opaque_now_ = true;
    return;
  }
  handles_[s->handle] = static_cast<Id>(buffers.size());
  buffers.push_back({s->nbytes, node_, kNone});
}

bool Recorder::place(void* handle, int64_t offset, Place& out) const {
  auto found = handles_.find(handle);
  if (found == handles_.end()) return false;
  const Buffer& b = buffers[found->second];
  out = {found->second, b.external == kNone ? offset : offset - origins_[b.external]};
  return true;
}

void Recorder::kernel_recorded(Backend&, const ts_kernel& kernel, Device on, const ts_call& call, int64_t elements) {
  if (opaque_now_) return;
  Work w;
  w.node = node_;
  w.kernel = kernel;
  w.work = elements;
  w.call.reset(copy_call(call));
  if (!w.call) throw std::bad_alloc();
  w.call->op = call.op; // which lives as long as the process
  bool known = on == device && call.tensor_size == sizeof(ts_tensor);
  for (int32_t k = 0; known && k < call.n_outputs + call.n_inputs; ++k) {
    const ts_tensor& t = w.tensor(static_cast<size_t>(k));
    Place& at = w.places.emplace_back();
    if ((t.flags & (TS_T_SCALAR | TS_T_NONE)) || !t.handle) continue;
    known = place(t.handle, t.byte_offset, at);
  }
  if (!known) opaque_now_ = true;
  work.push_back(std::move(w));
}

void Recorder::copy_recorded(Device on, void* dst, int64_t dst_offset, void* src, int64_t src_offset, size_t bytes) {
  if (opaque_now_) return;
  Work w;
  w.node = node_;
  w.bytes = bytes;
  w.places.resize(2);
  if (!(on == device) || !place(dst, dst_offset, w.places[0]) || !place(src, src_offset, w.places[1]))
    opaque_now_ = true;
  work.push_back(std::move(w));
}

Id Recorder::value_of(const TensorImpl* t, std::span<const Tensor> values) const {
  auto found = values_.find(t);
  return found != values_.end() && values[found->second].impl() == t ? found->second : kNone;
}

bool Recorder::note_geometry(Seen& s, const TensorImpl& t) const {
  s.defined = true;
  s.dtype = t.dtype;
  s.sizes = Dims(t.sizes());
  s.strides = Dims(t.strides());
  s.row_major = same(s.strides, contiguous_strides(s.sizes));
  s.keys = t.keys;
  s.flags = t.flags;
  Place at;
  const bool lies = t.storage && t.storage->handle && place(t.storage->handle, t.byte_offset, at);
  s.buffer = at.buffer;
  s.offset = at.offset;
  return lies;
}

void Recorder::see(Id v, std::span<const Tensor> values) {
  Seen& s = seen[v];
  const TensorImpl* t = values[v].impl();
  if (!t) return;
  s.same_as = value_of(t, values);
  if (s.same_as == v) s.same_as = kNone;
  values_[t] = v; // the newest, which lives as long as it is known
  if (t->base) s.base = value_of(t->base, values);
  const bool lies = note_geometry(s, *t);
  const KeySet expected = key_bit(device.backend) | TensorImpl::keys_of(t->dtype);
  s.plain = !t->base && !t->autograd && !t->payload && !t->own_version && t->keys == expected && t->device == device &&
            (lies ? buffers[s.buffer].external == kNone : !t->numel) &&
            !(t->flags & ~(TensorImpl::kContiguous | TensorImpl::kInference));
  if (t->device == device && !lies && t->numel) opaque_now_ = true; // memory that nobody told of
}

// Whether an argument that the node writes lies otherwise than before: its geometry is what was written.
bool Recorder::moves_arguments(const Node& n, std::span<const Tensor> values) const {
  bool moved = false;
  if (n.op && n.op->effects.mutates)
    g_.each_use(n, [&](Id v) {
      if (g_.values[v].tag != Tag::Tensor || !values[v].defined()) return;
      Seen now;
      note_geometry(now, *values[v].impl());
      const Seen& was = seen[v];
      moved = moved || now.buffer != was.buffer || now.offset != was.offset || now.dtype != was.dtype ||
              !std::ranges::equal(now.sizes, was.sizes) || !std::ranges::equal(now.strides, was.strides);
    });
  return moved;
}

void Recorder::count_versions() {
  for (Id k = 0; k < given_.size(); ++k) {
    uint32_t now = given_[k]->version();
    if (now == versions_[k]) continue;
    uint32_t times = now - versions_[k];
    versions_[k] = now;
    // Tensors that share a counter count together: the first of them does.
    auto counter = [](const TensorImpl* t) { return t->own_version ? static_cast<void*>(t->own_version) : t->storage; };
    bool counted = std::ranges::any_of(
        bumps[node_], [&](const auto& other) { return counter(given_[other.first]) == counter(given_[k]); });
    if (!counted) bumps[node_].emplace_back(k, times);
  }
}

// Whatever it looks at, the rule says what its results are like.
bool Recorder::has_ruled_sizes(const Operator* op) const {
  return op && op->kind == OperatorKind::Primitive && op->rule && !op->make && !op->effects.data_dependent &&
         runs_body(*op, device.backend);
}

void Recorder::end(std::span<const Tensor> values) {
  const Node& n = g_.nodes[node_];
  bool gives = false;
  g_.each_def(n, [&](Id v) {
    if (g_.values[v].tag != Tag::Tensor) return;
    see(v, values);
    gives = gives || seen[v].defined;
  });
  count_versions();
  if (moves_arguments(n, values)) opaque_now_ = true;
  bool did = !work.empty() && work.back().node == node_;
  if (n.op && !gives && !did && !n.op->effects.mutates) opaque_now_ = true; // whatever it is for
  opaque[node_] = opaque_now_;
  varies[node_] = varies_now_ && !has_ruled_sizes(n.op);
  if (opaque_now_)
    while (!work.empty() && work.back().node == node_) work.pop_back();
}

} // namespace ts::graph

#include "graph/plan/run.h"
#include "autograd/meta.h"
#include "dispatch/launch.h"
#include "runtime/empty.h"
#include "runtime/interrupts.h"

namespace ts::graph {

PlanRun::PlanRun(const Plan& plan) : tensors(plan.n_tensors_), bases(plan.homes_.size()), storages(plan.homes_.size()) {
  for (const Plan::Kernel& k : plan.kernels_) {
    ts_call& call = calls.emplace_back();
    if (!k.work.call) continue;
    call = *k.work.call;
    ts_tensor* at = tensors.data() + k.first_tensor;
    for (size_t j = 0; j < k.work.places.size(); ++j) at[j] = k.work.tensor(j);
    call.outputs = at;
    call.inputs = at + call.n_outputs;
    call.tensor_size = sizeof(ts_tensor);
  }
}

Plan::~Plan() { delete spare_.load(); }

Plan::Summary Plan::summary() const {
  Summary now = summary_;
  for (const Stretch& s : stretches_)
    if (const size_t streams = s.recordings->replayed_on()) {
      now.recorded += s.kernels;
      now.branches = std::max(now.branches, streams);
    }
  return now;
}

std::unique_ptr<PlanRun> Plan::take() const {
  std::unique_ptr<PlanRun> run(spare_.exchange(nullptr));
  if (!run) run = std::make_unique<PlanRun>(*this);
  if (!run->state) {
    run->state = executor_.take_state();
    run->state->numbers = numbers_;
    run->state->outer = nullptr;
  }
  return run;
}

void Plan::give_back(std::unique_ptr<PlanRun> run) const {
  for (Tensor& t : run->state->tensors)
    if (t.defined()) t = Tensor();
  for (Id b : apart_buffers_) run->storages[b].reset();
  run->arena.reset();
  delete spare_.exchange(run.release());
}

// Which tensors share memory decides what a write changes.
bool Plan::same_sharing(PlanRun& run, std::span<const Tensor> inputs, std::span<const Tensor> captures) const {
  std::vector<const Storage*> now;
  now.reserve(sharing_.size());
  for (std::span<const Tensor> list : {inputs, captures})
    for (const Tensor& t : list) now.push_back(t->storage);
  if (now == run.last) return true;
  std::unordered_map<const Storage*, Id> first;
  for (Id k = 0; k < now.size(); ++k)
    if (Id lead = now[k] ? first.try_emplace(now[k], k).first->second : k; lead != sharing_[k]) return false;
  run.last = std::move(now);
  return true;
}

// Asked of memory where stretches may be recorded on it.
bool Plan::is_lent(const Storage& s) const {
  return !stretches_.empty() && (!s.handle || backend_.allocator(device_.index).lent(s));
}

bool Plan::place_given(PlanRun& run, std::span<const Tensor> inputs, std::span<const Tensor> captures) const {
  for (Id b : given_) {
    const Home& home = homes_[b];
    const TensorImpl& t =
        *(home.external < inputs.size() ? inputs[home.external] : captures[home.external - inputs.size()]).impl();
    if (!t.storage || t.byte_offset + home.low < 0 ||
        t.byte_offset + home.high > static_cast<int64_t>(t.storage->nbytes))
      return false; // views reach beyond: for the rules to judge
    run.bases[b] = {t.storage->handle, t.byte_offset, is_lent(*t.storage)};
  }
  return !writes_given_ || same_sharing(run, inputs, captures);
}

void Plan::run_kernel(const Kernel& kernel, PlanRun& run) const {
  const auto index = static_cast<size_t>(&kernel - kernels_.data());
  const Patch* patch = patches_.data() + kernel.first_patch;
  if (!kernel.work.call) {
    const PlanRun::Base &to = run.bases[patch[0].buffer], &from = run.bases[patch[1].buffer];
    const ts_backend& t = backend_.table();
    return backend_.check(t.copy_within(t.ctx, device_.index, to.handle, to.offset + patch[0].offset, from.handle,
                                        from.offset + patch[1].offset, kernel.work.bytes,
                                        backend_.stream(device_.index)),
                          "copy_within");
  }
  for (const Patch* end = patch + kernel.n_patches; patch != end; ++patch) {
    const PlanRun::Base& base = run.bases[patch->buffer];
    ts_tensor& t = run.tensors[patch->tensor];
    t.handle = base.handle;
    t.byte_offset = base.offset + patch->offset;
  }
  ts_call& call = run.calls[index];
  const int status = call_kernel(backend_, kernel.work.kernel, device_, call, kernel.work.work);
  if (status == TS_OK) [[likely]]
    return;
  TS_CHECK(status != TS_DECLINED, call.op, ": the card's kernel declined a call that it took when the plan was made");
  backend_.check(status, call.op);
}

Tensor Plan::make_tensor(Id v, const PlanRun& run) const {
  const Seen& s = seen_[v];
  const std::vector<Tensor>& tensors = run.state->tensors;
  if (!s.defined) return {};
  if (s.same_as != kNone) return tensors[s.same_as];
  if (s.base != kNone) {
    const Tensor& base = tensors[s.base];
    const PlanRun::Base& at = run.bases[s.buffer == kNone ? 0 : s.buffer];
    const int64_t offset = s.buffer == kNone ? base->byte_offset : at.offset + s.offset;
    Tensor view = make_view(base, s.sizes, s.strides, offset);
    if (view.dtype() != s.dtype) view->set_dtype(s.dtype);
    constexpr uint8_t kOfViews = TensorImpl::kViewNoGrad | TensorImpl::kViewMulti;
    view->flags = static_cast<uint8_t>((view->flags & ~kOfViews) | (s.flags & kOfViews));
    return view;
  }
  Tensor t = s.row_major ? outline(s.sizes, s.dtype, device_) : outline_strided(s.sizes, s.strides, s.dtype, device_);
  if (s.buffer == kNone) {
    give_memory(*t.impl()); // without elements
    return t;
  }
  const Home& home = homes_[s.buffer];
  t->byte_offset = run.bases[s.buffer].offset + s.offset;
  t->storage = home.lies == Lies::Result ? tensors[home.value]->storage : run.storages[s.buffer].get();
  retain(t->storage);
  return t;
}

// As ever; what it brings is the memory of kernels that follow.
void Plan::call_node(Id node, PlanRun& run, const std::function<void(Id)>& on_guard) const {
  Executor::State& state = *run.state;
  executor_.run_step(executor_.steps_[node], state, on_guard);
  for (Id b : made_[node]) {
    const Seen& s = seen_[homes_[b].value];
    const Tensor& t = state.tensors[homes_[b].value];
    TS_CHECK(t.defined() && t->storage && t.dtype() == s.dtype && same(t.sizes(), s.sizes) &&
                 same(t.strides(), s.strides) && t.device() == device_,
             executor_.graph().nodes[node].op->name(), ": expected a result of ", s.dtype, s.sizes.span(),
             ", as for such arguments before, got ", t.defined() ? concat(t.dtype(), t.sizes()) : "none");
    run.bases[b] = {t->storage->handle, t->byte_offset - s.offset, is_lent(*t->storage)};
  }
}

void Plan::count_versions(std::span<const Tensor> inputs, std::span<const Tensor> captures) const {
  for (const auto& [k, times] : bumps_) {
    const Tensor& t = k < inputs.size() ? inputs[k] : captures[k - inputs.size()];
    for (uint32_t n = 0; n < times; ++n) t->bump_version();
  }
}

bool Plan::run(std::span<const Tensor> inputs, std::span<const Tensor> captures,
               const std::function<void(Id)>& on_guard, std::vector<Tensor>& out, std::vector<Tensor>* last) const {
  std::unique_ptr<PlanRun> taken = take(); // after an error it goes, and all memory with it
  PlanRun& run = *taken;
  if (!place_given(run, inputs, captures)) return false;
  const Graph& g = executor_.graph();
  std::vector<Tensor>& tensors = run.state->tensors;
  for (const auto& [v, k] : given_values_) tensors[v] = k < inputs.size() ? inputs[k] : captures[k - inputs.size()];
  DeviceAllocator& allocator = backend_.allocator(device_.index);
  if (arena_) {
    run.arena = Ref<Storage>::adopt(allocator.allocate(arena_));
    for (Id b : arena_buffers_) run.bases[b] = {run.arena->handle, homes_[b].offset};
  }
  Id node = kNone;
  AskForInterrupts asking;
  try {
    for (size_t at = 0; at < steps_.size(); ++at) {
      const Step& step = steps_[at];
      switch (step.what) {
      case Do::Together: {
        const Stretch& stretch = stretches_[step.at];
        node = kernels_[stretch.first].work.node;
        if (!launch(stretch, run)) break; // its kernels follow
        at += stretch.kernels;
        asking.after(stretch.work, "graph");
        break;
      }
      case Do::Kernel:
        node = kernels_[step.at].work.node;
        run_kernel(kernels_[step.at], run);
        asking.after(kernels_[step.at].work.work, "graph");
        break;
      case Do::Allocate:
        run.storages[step.at] = Ref<Storage>::adopt(allocator.allocate(homes_[step.at].nbytes));
        run.bases[step.at] = {run.storages[step.at]->handle, 0, is_lent(*run.storages[step.at])};
        break;
      case Do::Free: run.storages[step.at].reset(); break;
      case Do::Make: tensors[step.at] = make_tensor(step.at, run); break;
      case Do::Forget: tensors[step.at] = Tensor(); break;
      case Do::Call:
        node = kNone; // which names its line itself
        call_node(step.at, run, on_guard);
        break;
      case Do::Drop:
        if (last) (*last)[step.at] = Tensor();
        break;
      }
    }
  } catch (const Error& error) {
    count_versions(inputs, captures); // of what may have been written
    executor_.rethrow(error, node);
  } catch (...) {
    count_versions(inputs, captures);
    throw;
  }
  count_versions(inputs, captures);
  out.reserve(g.outputs.size());
  for (Id v : g.outputs) {
    out.push_back(tensors[v]);
    const Id b = seen_[v].buffer;
    const bool own = b != kNone && (homes_[b].lies == Lies::Apart || homes_[b].lies == Lies::Result);
    if (own && !out.back()->own_version) out.back()->storage->version.store(homes_[b].version);
  }
  give_back(std::move(taken));
  return true;
}

} // namespace ts::graph

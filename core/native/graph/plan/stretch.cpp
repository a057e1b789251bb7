#include "graph/plan/stretch.h"
#include "dispatch/watch.h"
#include "graph/plan/branches.h"
#include "graph/plan/run.h"
#include "runtime/interpreter.h"
#include <algorithm>

namespace ts::graph {

StretchRecordings::Found StretchRecordings::find(const std::vector<uint64_t>& memory) {
  Dropped dropped;
  std::lock_guard lock(mutex_);
  if (rest_ > 0) {
    --rest_;
    return {};
  }
  auto at = std::ranges::find(entries_, memory, &Entry::memory);
  if (at == entries_.end()) {
    if (entries_.size() == kRemembered) {
      dropped.push_back(std::move(entries_.back()));
      entries_.pop_back();
    }
    entries_.insert(entries_.begin(), {memory, nullptr});
    owe(1, dropped);
    return {};
  }
  std::rotate(entries_.begin(), at, at + 1);
  std::shared_ptr<LaunchRecording> recording = entries_.front().recording;
  if (!recording || recording->is_gone()) return {nullptr, true};
  debt_ = std::max(0, debt_ - 1);
  next_rest_ = kFirstRest;
  return {std::move(recording), false};
}

void StretchRecordings::put(const std::vector<uint64_t>& memory, std::shared_ptr<LaunchRecording> recording) {
  Dropped dropped;
  std::lock_guard lock(mutex_);
  auto at = std::ranges::find(entries_, memory, &Entry::memory);
  if (at == entries_.end()) at = entries_.insert(entries_.begin(), {memory, nullptr}); // another thread was quicker
  std::swap(at->recording, recording);
  dropped.push_back({{}, std::move(recording)});
  size_t kept = 0;
  for (Entry& e : entries_)
    if (e.recording && ++kept > kMost) dropped.push_back({{}, std::move(e.recording)});
  owe(kRecording, dropped);
}

void StretchRecordings::owe(int debt, Dropped& dropped) {
  debt_ += debt;
  if (debt_ <= kMostDebt) return;
  debt_ = 0;
  rest_ = next_rest_;
  next_rest_ = std::min(4 * next_rest_, kLongestRest);
  std::move(entries_.begin(), entries_.end(), std::back_inserter(dropped));
  entries_.clear();
}

void StretchRecordings::give_up() {
  tries_ = false;
  std::vector<Entry> dropped;
  std::lock_guard lock(mutex_);
  dropped.swap(entries_);
}

// --- which steps are one --------------------------------------------------------------------------------------------

namespace {
// Fewer kernels are as quickly called. Bytes are what is allocated sooner, and freed later, than by calls.
constexpr size_t kFewestKernels = 4, kMostBytes = size_t{32} << 20;
} // namespace

size_t Plan::bytes_of(const Step& step) const {
  switch (step.what) {
  case Do::Allocate:
  case Do::Free: return homes_[step.at].nbytes;
  case Do::Drop: {
    const Id b = seen_[executor_.graph().inputs[step.at]].buffer;
    return b == kNone ? 0 : homes_[b].nbytes;
  }
  case Do::Forget: {
    const Id b = seen_[step.at].buffer;
    return b == kNone || homes_[b].lies != Lies::Result ? 0 : homes_[b].nbytes;
  }
  default: return 0;
  }
}

// Behind the last kernel of the stretch that a kernel begins.
size_t Plan::end_of_stretch(size_t begin) const {
  size_t end = begin + 1;
  int64_t allocated = 0, now = 0, most = 0; // since; as calls one by one would have it
  for (size_t at = end; at < steps_.size(); ++at) {
    const Step& step = steps_[at];
    const auto bytes = static_cast<int64_t>(bytes_of(step));
    switch (step.what) {
    case Do::Kernel:
      if (allocated - most > static_cast<int64_t>(kMostBytes)) return end;
      end = at + 1;
      break;
    case Do::Allocate:
      allocated += bytes;
      now += bytes;
      most = std::max(most, now);
      break;
    case Do::Free:
    case Do::Forget:
    case Do::Drop: now -= bytes; break;
    default: return end;
    }
  }
  return end;
}

void Plan::find_stretches() {
  if (!LaunchRecording::serves(device_)) return;
  std::vector<Step> steps;
  for (size_t at = 0; at < steps_.size();) {
    if (steps_[at].what != Do::Kernel) {
      steps.push_back(steps_[at++]);
      continue;
    }
    const std::span<const Step> stretch(steps_.data() + at, end_of_stretch(at) - at);
    at += stretch.size();
    auto is = [](Do what) { return [what](const Step& step) { return step.what == what; }; };
    if (static_cast<size_t>(std::ranges::count_if(stretch, is(Do::Kernel))) < kFewestKernels) {
      steps.insert(steps.end(), stretch.begin(), stretch.end());
      continue;
    }
    auto rest = [&](const Step& step) { return step.what != Do::Allocate && step.what != Do::Kernel; };
    std::ranges::copy_if(stretch, std::back_inserter(steps), is(Do::Allocate));
    steps.push_back({Do::Together, add_stretch(stretch)});
    std::ranges::copy_if(stretch, std::back_inserter(steps), is(Do::Kernel));
    std::ranges::copy_if(stretch, std::back_inserter(steps), rest);
  }
  steps_ = std::move(steps);
}

Id Plan::add_stretch(std::span<const Step> steps) {
  Stretch& s = stretches_.emplace_back();
  s.first = steps.front().at;
  s.kernels = steps.back().at - s.first + 1; // they stand in order
  s.recordings = std::make_unique<StretchRecordings>();
  for (Id k = s.first; k < s.first + s.kernels; ++k) {
    const Kernel& kernel = kernels_[k];
    s.work += kernel.work.work;
    for (uint32_t p = kernel.first_patch; p < kernel.first_patch + kernel.n_patches; ++p) {
      const Id b = patches_[p].buffer;
      if (homes_[b].lies == Lies::Arena)
        s.arena = true;
      else if (std::ranges::find(s.buffers, b) == s.buffers.end())
        s.buffers.push_back(b);
    }
  }
  find_branches(s);
  return static_cast<Id>(stretches_.size()) - 1;
}

// By the memory that kernels use. Buffers outside of the arena do not overlap, or `record` sees it.
void Plan::find_branches(Stretch& stretch) const {
  if (!LaunchRecording::spans_streams(device_)) return;
  BranchFinder finder;
  std::vector<BranchFinder::Range> ranges;
  for (Id k = stretch.first; k < stretch.first + stretch.kernels; ++k) {
    const Kernel& kernel = kernels_[k];
    ranges_of(kernel.work, ranges);
    for (BranchFinder::Range& r : ranges) {
      const Home& home = homes_[r.space];
      if (home.lies != Lies::Arena) continue;
      r.space = kNone;
      r.high = std::min(r.high, static_cast<int64_t>(home.nbytes)) + home.offset;
      r.low = std::max(r.low, int64_t{0}) + home.offset;
    }
    finder.add(ranges, kernel.work.work);
  }
  stretch.branches = finder.take();
  if (stretch.branches.streams == 1) stretch.branches = {};
}

// --- a run -----------------------------------------------------------------------------------------------------------

// False where some of it is not the allocator's, or nobody knows when it goes.
bool Plan::sign_memory(const Stretch& stretch, PlanRun& run) const {
  std::vector<uint64_t>& out = run.memory;
  out.clear();
  auto put = [&](const void* handle) { out.push_back(reinterpret_cast<uintptr_t>(handle)); };
  put(backend_.stream(device_.index));
  if (stretch.arena && run.arena) {
    if (!backend_.allocator(device_.index).lent(*run.arena)) return false;
    put(run.arena->handle);
  }
  for (Id b : stretch.buffers) {
    const PlanRun::Base& base = run.bases[b];
    if (!base.lent) return false;
    put(base.handle);
    out.push_back(static_cast<uint64_t>(base.offset));
  }
  return true;
}

std::shared_ptr<LaunchRecording> Plan::record(const Stretch& stretch, PlanRun& run) const {
  std::vector<void*> blocks;
  if (stretch.arena && run.arena) blocks.push_back(run.arena->handle);
  for (Id b : stretch.buffers)
    if (void* handle = run.bases[b].handle) blocks.push_back(handle);
  const size_t count = blocks.size();
  std::ranges::sort(blocks);
  blocks.erase(std::ranges::unique(blocks).begin(), blocks.end());
  auto make = [&](const Branches& branches) {
    return LaunchRecording::make(device_, blocks, branches,
                                 [&](size_t k) { run_kernel(kernels_[stretch.first + k], run); });
  };
  LaunchRecording::Made made{LaunchRecording::Outcome::Refused, nullptr};
  // Buffers that came to lie in one block may overlap, which branches do not know.
  if (!stretch.branches.pieces.empty() && blocks.size() == count && stretch.recordings->spreads()) {
    made = make(stretch.branches);
    if (made.outcome == LaunchRecording::Outcome::Refused) stretch.recordings->spread_no_more();
  }
  if (made.outcome == LaunchRecording::Outcome::Refused) {
    Branches line;
    line.pieces.resize(stretch.kernels);
    made = make(line);
  }
  if (made.outcome == LaunchRecording::Outcome::Refused) stretch.recordings->give_up();
  if (made.recording) stretch.recordings->put(run.memory, made.recording);
  return made.recording;
}

// All kernels of a stretch by one launch. False, with nothing done: they are to be called.
bool Plan::launch(const Stretch& stretch, PlanRun& run) const {
  if (!stretch.recordings->tries() || kernel_watchers.load(std::memory_order_relaxed) || !sign_memory(stretch, run))
    return false;
  auto [recording, make] = stretch.recordings->find(run.memory);
  if (make) recording = record(stretch, run);
  if (!recording) return false;
  const char* last = run.calls[stretch.first + stretch.kernels - 1].op;
  if (last && backend_.is_async(device_.index)) backend_.note_launch(device_.index, last);
  const SuspendInterpreter suspend(stretch.work);
  try {
    if (!recording->replay()) return false;
  } catch (...) { // nobody knows what was done: this run ends, later ones call
    stretch.recordings->give_up();
    throw;
  }
  stretch.recordings->replayed(recording->streams());
  return true;
}

} // namespace ts::graph

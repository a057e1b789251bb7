#include "graph/plan/cache.h"
#include <algorithm>

namespace ts::graph {

PlanCache::Found PlanCache::find(std::span<const Tensor> inputs, std::span<const Tensor> captures, bool at_once) {
  const PlanKey::Modes modes = PlanKey::Modes::now(); // before the lock, which no other language is called under
  std::lock_guard lock(mutex_);
  for (size_t k = 0; k < entries_.size(); ++k) {
    if (!entries_[k].key.fits(inputs, captures, modes)) continue;
    if (k > 0)
      std::rotate(entries_.begin(), entries_.begin() + static_cast<ptrdiff_t>(k),
                  entries_.begin() + static_cast<ptrdiff_t>(k) + 1);
    return {entries_[0].plan, !entries_[0].settled && !entries_[0].region, entries_[0].region};
  }
  if (!PlanKey::plannable(inputs, captures)) return {};
  PlanKey key(inputs, captures, modes);
  if (key.flows()) {
    if (entries_.size() == kMost) entries_.pop_back();
    entries_.insert(entries_.begin(), {std::move(key), nullptr, false, std::make_shared<Region>()});
    return {nullptr, false, entries_[0].region};
  }
  if (at_once) return {nullptr, true, nullptr};
  if (entries_.size() == kMost) entries_.pop_back();
  entries_.insert(entries_.begin(), {std::move(key), nullptr, false});
  return {};
}

void PlanCache::put(PlanKey key, std::shared_ptr<const Plan> plan) {
  std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const Entry& e) { return e.key == key; });
  if (entries_.size() == kMost) entries_.pop_back();
  entries_.insert(entries_.begin(), {std::move(key), std::move(plan), true});
}

std::vector<Plan::Summary> PlanCache::summaries() const {
  std::lock_guard lock(mutex_);
  std::vector<Plan::Summary> out;
  for (const Entry& e : entries_) {
    if (e.plan) out.push_back(e.plan->summary());
    if (e.region) e.region->add_summaries(out);
  }
  return out;
}

std::vector<std::string> PlanCache::why_called() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (const Entry& e : entries_)
    if (std::string why = e.region ? e.region->why() : ""; !why.empty()) out.push_back(std::move(why));
  return out;
}

} // namespace ts::graph

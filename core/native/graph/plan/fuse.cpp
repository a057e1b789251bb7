#include "graph/plan/fuse.h"
#include "graph/plan/group.h"

namespace ts::graph {
namespace {

// The last call that touches each buffer.
std::vector<size_t> last_uses(const std::vector<Work>& work, size_t n_buffers) {
  std::vector<size_t> last(n_buffers, 0);
  for (size_t k = 0; k < work.size(); ++k)
    for (const Place& p : work[k].places)
      if (p.buffer != kNone) last[p.buffer] = k;
  return last;
}

} // namespace

size_t fuse_pointwise(std::vector<Work>& work, const FuseOptions& options) {
  const std::vector<size_t> last = last_uses(work, options.stays.size());
  std::vector<Work> out;
  Group group;
  size_t begin = 0, went = 0;
  auto finish = [&](size_t end) { // calls begin to end, without the latter, are the group, or one call that is none
    bool joins = group.size() > 1;
    if (joins) {
      Work joined = group.joined([&](Id b) { return options.stays[b] || last[b] >= end; });
      joins = joined.call->n_outputs <= 4 && group.agrees(options.device, joined);
      if (joins) {
        out.push_back(std::move(joined));
        went += group.size() - 1;
      }
    }
    group.clear();
    for (; begin < end; ++begin)
      if (!joins) out.push_back(std::move(work[begin]));
    begin = end;
  };
  for (size_t k = 0; k < work.size(); ++k) {
    const bool here = k > 0 && options.calls_before[work[k].node] == options.calls_before[work[k - 1].node];
    if (!group.empty() && here && Group::takes(work[k]) && group.add(work[k])) continue;
    finish(k);
    if (Group::takes(work[k])) group.start(work[k]);
  }
  finish(work.size());
  work = std::move(out);
  return went;
}

} // namespace ts::graph

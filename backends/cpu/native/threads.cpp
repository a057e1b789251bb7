#include "threads.h"

#include <atomic>
#include <exception>
#include <mutex>

#include <omp.h>
#include <pthread.h>
#include <sched.h>

namespace tesserack::cpu {
namespace {

std::atomic<int> requested_threads{0};
std::atomic<bool> in_forked_child{false};

// libgomp's pool does not survive a fork; entering a region in the child would wait for dead threads.
void after_fork_in_child() {
  in_forked_child.store(true, std::memory_order_relaxed);
  omp_set_num_threads(1); // oneDNN asks OpenMP, not us
}

const bool fork_handler_installed = pthread_atfork(nullptr, nullptr, after_fork_in_child) == 0;

// A sleeping worker is often woken on the processor of whoever woke it. Where others keep the machine busy, the kernel
// then leaves both there, one waiting for the other: measured 3 times slower for as long as it lasts. So a worker that
// finds itself on the caller's processor moves to any other that it may use; its mask is as before afterwards.
void leave_to_caller(int processor) {
  if (processor < 0 || omp_get_thread_num() == 0 || sched_getcpu() != processor) return;
  cpu_set_t allowed, others;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  others = allowed;
  CPU_CLR(static_cast<size_t>(processor), &others);
  if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others) != 0) return;
  sched_setaffinity(0, sizeof allowed, &allowed);
}

} // namespace

bool forked_child() { return in_forked_child.load(std::memory_order_relaxed); }

int num_threads() {
  int count = requested_threads.load(std::memory_order_relaxed);
  if (count == 0) {
    count = fork_handler_installed ? omp_get_max_threads() : 1;
    requested_threads.store(count, std::memory_order_relaxed);
  }
  return count;
}

void set_num_threads(int count) {
  if (count < 1) count = 1;
  requested_threads.store(count, std::memory_order_relaxed);
  if (!forked_child()) omp_set_num_threads(count);
}

int max_threads() {
  if (forked_child() || omp_in_parallel()) return 1;
  return num_threads();
}

void place_workers() {
  const int threads = max_threads(), caller = sched_getcpu();
  if (threads == 1) return;
#pragma omp parallel num_threads(threads)
  leave_to_caller(caller);
}

void parallel_ranges(int64_t begin, int64_t end, int64_t grain, RangeFunction run, void* context) {
  const int64_t total = end - begin;
  if (total <= 0) return;
  if (grain < 1) grain = 1;
  int64_t parts = (total + grain - 1) / grain;
  if (parts > 1) {
    const int64_t limit = max_threads();
    if (parts > limit) parts = limit;
  }
  if (parts <= 1) {
    run(context, begin, end);
    return;
  }
  std::exception_ptr error;
  std::mutex error_lock;
  const int caller = sched_getcpu();
#pragma omp parallel num_threads(static_cast <int>(parts))
  {
    leave_to_caller(caller);
    // The runtime may grant fewer threads than asked for.
    const int64_t granted = omp_get_num_threads(), index = omp_get_thread_num();
    const int64_t share = total / granted, rest = total % granted;
    const int64_t first = begin + index * share + (index < rest ? index : rest);
    const int64_t last = first + share + (index < rest ? 1 : 0);
    try {
      if (first < last) run(context, first, last);
    } catch (...) {
      std::lock_guard<std::mutex> hold(error_lock);
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

} // namespace tesserack::cpu

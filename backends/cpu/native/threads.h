// Work sharing over OpenMP. One thread below a threshold, inside another parallel region and in a forked child.
#ifndef TESSERACK_CPU_THREADS_H
#define TESSERACK_CPU_THREADS_H

#include <cstdint>
#include <type_traits>

namespace tesserack::cpu {

// Threads a region started now may use: 1 inside a region or after a fork.
int max_threads();

// What the user asked for (default: OMP_NUM_THREADS or the processors available).
int num_threads();
void set_num_threads(int count);

// True in a process forked after this library was loaded: its OpenMP pool is gone.
bool forked_child();

// Wakes the threads of the pool and moves those that sit on the caller's processor: before a library's own regions.
void place_workers();

using RangeFunction = void (*)(void* context, int64_t begin, int64_t end);

// Splits [begin, end) into at most max_threads() ranges of at least `grain` and runs them. Rethrows the first
// exception of a worker on the calling thread.
void parallel_ranges(int64_t begin, int64_t end, int64_t grain, RangeFunction run, void* context);

// Out of line, so that a body is compiled once and not for the serial and the parallel case each.
template <typename Body> __attribute__((noinline)) void run_range(void* body, int64_t begin, int64_t end) {
  (*static_cast<Body*>(body))(begin, end);
}

// parallel_for(0, n, grain, [&](int64_t begin, int64_t end) {...}). `grain`: indices too few to be worth a thread.
template <typename F> inline void parallel_for(int64_t begin, int64_t end, int64_t grain, F&& body) {
  using Body = std::remove_reference_t<F>;
  void* const context = const_cast<void*>(static_cast<const void*>(&body));
  if (end - begin > grain) return parallel_ranges(begin, end, grain, &run_range<Body>, context);
  if (begin < end) run_range<Body>(context, begin, end);
}

} // namespace tesserack::cpu

#endif // TESSERACK_CPU_THREADS_H

// Runs kernels as a device does: groups in turn, the items of one as fibers that switch at every barrier.
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <ucontext.h>
#include <vector>

extern "C" {
__thread int simulated_group[3], simulated_lane[3];
}

namespace {

constexpr std::size_t kStack = 1 << 16;
using Entry = void (*)(void** arguments);

struct Item {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[kStack]};
  bool done = false;
};
thread_local ucontext_t scheduler;
thread_local Item* current;
thread_local Entry entry;
thread_local void** arguments;

void begin() {
  entry(arguments);
  current->done = true;
  swapcontext(&current->context, &scheduler);
}

void place(int number, const int* size) {
  simulated_lane[0] = number % size[0];
  simulated_lane[1] = number / size[0] % size[1];
  simulated_lane[2] = number / size[0] / size[1];
}

void run_fibers(const int* size) {
  const int count = size[0] * size[1] * size[2];
  std::vector<Item> items(static_cast<std::size_t>(count));
  for (Item& item : items) {
    getcontext(&item.context);
    item.context.uc_stack.ss_sp = item.stack.get();
    item.context.uc_stack.ss_size = kStack;
    makecontext(&item.context, begin, 0);
  }
  for (int left = count; left > 0;)
    for (int i = 0; i < count; ++i) {
      Item& item = items[static_cast<std::size_t>(i)];
      if (item.done) continue;
      current = &item;
      place(i, size);
      swapcontext(&scheduler, &item.context);
      left -= item.done;
    }
}

} // namespace

extern "C" void simulated_barrier() { swapcontext(&current->context, &scheduler); }

extern "C" void simulated_run(Entry kernel, void** given, const int* groups, const int* size, int barriers) {
  entry = kernel;
  arguments = given;
  for (int z = 0; z < groups[2]; ++z)
    for (int y = 0; y < groups[1]; ++y)
      for (int x = 0; x < groups[0]; ++x) {
        simulated_group[0] = x;
        simulated_group[1] = y;
        simulated_group[2] = z;
        if (barriers) {
          run_fibers(size);
          continue;
        }
        for (int i = 0; i < size[0] * size[1] * size[2]; ++i) {
          place(i, size);
          kernel(given);
        }
      }
}

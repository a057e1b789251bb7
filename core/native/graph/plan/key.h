// What a plan depends on: the tensors given, in all but their values and places, and the modes of the thread.
#pragma once
#include "graph/graph.h"

namespace ts::graph {

// Whether this thread may run plans: no mode, watcher or check wants to see operators or single kernels.
bool may_plan();

class PlanKey {
public:
  struct Modes {
    bool grad, inference;
    DType default_dtype;
    int64_t default_device;
    uint32_t flags;     // of every call
    uint64_t kernels;   // that there were
    static Modes now(); // may ask the language above which device is the default
    friend bool operator==(const Modes&, const Modes&) = default;
  };
  PlanKey(std::span<const Tensor> inputs, std::span<const Tensor> captures, const Modes& modes = Modes::now());
  // Whether a plan for this key serves these tensors in these modes.
  bool fits(std::span<const Tensor> inputs, std::span<const Tensor> captures, const Modes& modes) const;
  // Whether there may be one at all: dense tensors of one device.
  static bool plannable(std::span<const Tensor> inputs, std::span<const Tensor> captures);
  // Whether a gradient flows to any of them: then a run is recorded (joint/joint.h).
  bool flows() const;
  friend bool operator==(const PlanKey&, const PlanKey&) = default;

private:
  struct Given {
    DType dtype;
    uint8_t ndim, flags;
    bool own_version, flows;
    Device device;
    KeySet keys;
    uint32_t dims;    // in dims_: sizes, then strides
    uint32_t shares;  // the first that has the same memory
    uint32_t twin;    // the first that is the same tensor
    int64_t distance; // from where that begins
    uint64_t misaligned;
    friend bool operator==(const Given&, const Given&) = default;
  };
  bool fits(const Given& g, const TensorImpl& t) const;

  std::vector<Given> given_;
  std::vector<int64_t> dims_;
  Modes modes_;
};

} // namespace ts::graph

#include "matmul/onednn.h"

#ifdef TESSERACK_CPU_ONEDNN

#include "isa_pick.h"
#include "kept.h"
#include "matmul/onednn_cache.h"
#include "threads.h"

#include <optional>
#include <vector>

namespace tesserack::cpu {

TS_ISA_FUNCTION(Fingerprint, fingerprint, (const void* data, int64_t bytes)); // fingerprint.isa.cpp

namespace onednn {

namespace {

using dnnl::memory;
using Dims = memory::dims;

// The tensors of the forward convolution as the caller holds them.
struct Described {
  memory::desc input, weight, bias, output;
  Dims stride, dilation, padding_left, padding_right;

  explicit Described(const ConvProblem& p) {
    const auto type = data_type(p.type);
    Dims in{p.batch, p.in_channels}, out{p.batch, p.out_channels}, w;
    if (p.groups > 1) w.push_back(p.groups);
    w.push_back(p.out_channels / p.groups);
    w.push_back(p.in_channels / p.groups);
    for (int d = 0; d < p.spatial; ++d) {
      in.push_back(p.in[d]);
      out.push_back(p.out[d]);
      w.push_back(p.kernel[d]);
      stride.push_back(p.stride[d]);
      dilation.push_back(p.dilation[d] - 1);
      padding_left.push_back(p.padding[d]);
      const int64_t reach = (p.out[d] - 1) * p.stride[d] + (p.kernel[d] - 1) * p.dilation[d] + 1;
      padding_right.push_back(reach - p.in[d] - p.padding[d]);
    }
    input = memory::desc(in, type, strides(in, p.channels_last));
    output = memory::desc(out, type, strides(out, p.channels_last));
    weight = memory::desc(w, type, strides(w, false));
    if (p.bias) bias = memory::desc({p.out_channels}, type, Dims{1});
  }

private:
  static Dims strides(const Dims& sizes, bool channels_last) {
    Dims result(sizes.size());
    int64_t step = channels_last ? sizes[1] : 1;
    for (size_t d = sizes.size(); d-- > (channels_last ? 2u : 0u);) {
      result[d] = step;
      step *= sizes[d];
    }
    if (channels_last) result[1] = 1, result[0] = step;
    return result;
  }
};

// Activations in the layout of the caller when channels-last; otherwise what the fastest kernel wants, and reorder.
enum class Layout { as_given, blocked, any };

memory::desc activation(const memory::desc& given, Layout layout, int block) {
  if (layout == Layout::as_given) return given;
  memory::format_tag tag = memory::format_tag::any;
  if (layout == Layout::blocked) {
    using Tag = memory::format_tag;
    constexpr Tag by16[] = {Tag::nCw16c, Tag::nChw16c, Tag::nCdhw16c}, by8[] = {Tag::nCw8c, Tag::nChw8c, Tag::nCdhw8c};
    tag = (block == 16 ? by16 : by8)[given.get_ndims() - 3];
  }
  return memory::desc(given.get_dims(), given.get_data_type(), tag);
}

// Numbers that tell a layout from any other: problems of any batch share what is kept of a weight.
std::vector<int64_t> layout_of(const memory::desc& desc) {
  std::vector<int64_t> words{static_cast<int64_t>(desc.get_data_type()), static_cast<int64_t>(desc.get_size())};
  for (const Dims& part :
       {desc.get_dims(), desc.get_padded_dims(), desc.get_strides(), desc.get_inner_blks(), desc.get_inner_idxs()}) {
    words.push_back(static_cast<int64_t>(part.size()));
    words.insert(words.end(), part.begin(), part.end());
  }
  return words;
}

// The channel block of oneDNN's direct f32 kernels on this processor.
int channel_block() {
  static const int block = dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core ? 16 : 8;
  return block;
}

// A memory in the primitive's layout, with the reorder between it and the caller's layout where they differ.
struct Port {
  memory outer, inner;
  std::optional<dnnl::reorder> reorder;

  void setup(const memory::desc& outer_desc, const memory::desc& inner_desc, bool is_result) {
    outer = memory(outer_desc, engine(), nullptr);
    inner = memory(inner_desc, engine(), nullptr);
    if (outer_desc == inner_desc) return;
    dnnl::primitive_attr attributes;
    reorder = is_result ? dnnl::reorder(inner, outer, attributes) : dnnl::reorder(outer, inner, attributes);
  }
  void point_at(const void* data) {
    outer.set_data_handle(const_cast<void*>(data));
    if (!reorder) inner.set_data_handle(const_cast<void*>(data));
  }
  void take_place(CallScratch& scratch, ScratchSlot slot) {
    if (reorder) inner.set_data_handle(scratch.at(slot, inner.get_desc().get_size()));
  }
  void bring_in() {
    if (reorder) reorder->execute(stream(), outer, inner);
  }
  void take_out() {
    if (reorder) reorder->execute(stream(), inner, outer);
  }
};

struct ConvPlan {
  dnnl::primitive primitive;
  Port input, weight, output;
  memory bias, scratchpad;
  size_t scratchpad_bytes = 0;
  bool available = false;
  std::vector<int64_t> weight_layout; // of the weight that the primitive reads

  explicit ConvPlan(const ConvProblem& p) {
    const Described given(p);
    // With hardly any input channels the gradients run several times faster on plain layouts (measured with 1 and 3).
    if (p.kind != Conv::forward && p.groups == 1 && p.in_channels < 8) {
      if (prepare(p, given, p.channels_last || p.kind == Conv::backward_weight ? Layout::any : Layout::as_given))
        return;
    }
    if (p.channels_last) {
      prepare(p, given, Layout::as_given) || prepare(p, given, Layout::any);
      return;
    }
    const int block = channel_block();
    const bool depthwise = p.groups == p.in_channels && p.groups == p.out_channels;
    const bool whole_blocks = (p.groups == 1 || depthwise) && p.in_channels % block == 0 && p.out_channels % block == 0;
    if (p.type == Type::f32 && whole_blocks && prepare(p, given, Layout::blocked)) return;
    prepare(p, given, Layout::any);
  }

  // Rearranges the weight, unless that was kept; what is returned is to live until the primitive has run.
  std::shared_ptr<void> bring_weight(const ConvProblem& problem, CallScratch& scratch, const void* data) {
    if (!weight.reorder) return nullptr;
    std::shared_ptr<void> kept;
    if (may_keep(problem)) {
      const auto bytes = static_cast<int64_t>(weight.outer.get_desc().get_size());
      const auto make = [&](void* to) {
        weight.inner.set_data_handle(to);
        weight.bring_in();
      };
      kept = kept_weight(data, pick_fingerprint()(data, bytes), weight_layout.data(),
                         weight_layout.size() * sizeof(int64_t), weight.inner.get_desc().get_size(), make);
      misses = kept ? 0 : misses + 1;
    }
    if (kept) {
      weight.inner.set_data_handle(kept.get());
    } else {
      weight.take_place(scratch, kWeights);
      weight.bring_in();
    }
    return kept;
  }

private:
  // Where the weight is large beside the arithmetic, and does not change all the time.
  bool may_keep(const ConvProblem& p) {
    constexpr size_t kSmall = size_t{1} << 20; // bytes: what is kept of larger ones costs more memory than time
    const int64_t few = weight.outer.get_desc().get_size() <= kSmall ? 1024 : 32; // results per element of the weight
    constexpr int kPatience = 32, kPause = 256;
    const int64_t results = p.batch * p.out[0] * (p.spatial > 1 ? p.out[1] : 1) * (p.spatial > 2 ? p.out[2] : 1);
    if (p.kind != Conv::forward || results > few) return false;
    if (misses >= kPatience && ++paused > kPause) misses = paused = 0;
    return misses < kPatience;
  }
  int misses = 0, paused = 0;

  template <class Desc>
  bool adopt(const Desc& desc, const Described& given, const memory::desc& in, const memory::desc& w,
             const memory::desc& out, Conv kind) {
    input.setup(given.input, in, kind == Conv::backward_input);
    weight.setup(given.weight, w, kind == Conv::backward_weight);
    output.setup(given.output, out, kind == Conv::forward);
    weight_layout = layout_of(w);
    if (given.bias) bias = memory(given.bias, engine(), nullptr);
    scratchpad_bytes = desc.scratchpad_desc().get_size();
    scratchpad = memory(desc.scratchpad_desc(), engine(), nullptr);
    return available = true;
  }

  bool prepare(const ConvProblem& p, const Described& g, Layout layout) {
    const memory::desc in = activation(g.input, layout, channel_block());
    const memory::desc out = activation(g.output, layout, channel_block());
    const memory::desc w(g.weight.get_dims(), g.weight.get_data_type(), memory::format_tag::any);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const auto prop = p.kind == Conv::forward ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training;
    const auto direct = dnnl::algorithm::convolution_direct;
    const dnnl::convolution_forward::primitive_desc forward(engine(), prop, direct, in, w, g.bias, out, g.stride,
                                                            g.dilation, g.padding_left, g.padding_right, attributes,
                                                            true);
    if (p.kind == Conv::forward) {
      if (!usable(forward)) return false;
      primitive = dnnl::convolution_forward(forward);
      return adopt(forward, g, forward.src_desc(), forward.weights_desc(), forward.dst_desc(), p.kind);
    }
    if (!forward) return false;
    if (p.kind == Conv::backward_input) {
      const dnnl::convolution_backward_data::primitive_desc desc(engine(), direct, in, w, out, g.stride, g.dilation,
                                                                 g.padding_left, g.padding_right, forward, attributes,
                                                                 true);
      if (!usable(desc)) return false;
      primitive = dnnl::convolution_backward_data(desc);
      return adopt(desc, g, desc.diff_src_desc(), desc.weights_desc(), desc.diff_dst_desc(), p.kind);
    }
    const dnnl::convolution_backward_weights::primitive_desc desc(
        engine(), direct, in, w, out, g.stride, g.dilation, g.padding_left, g.padding_right, forward, attributes, true);
    if (!usable(desc)) return false;
    primitive = dnnl::convolution_backward_weights(desc);
    return adopt(desc, g, desc.src_desc(), desc.diff_weights_desc(), desc.diff_dst_desc(), p.kind);
  }
};

} // namespace

bool convolution(const ConvProblem& problem, CallScratch& scratch, const void* input, const void* weight,
                 const void* bias, const void* output) {
  thread_local PlanCache<ConvProblem, ConvPlan, 256> cache;
  const ThreadCount threads(problem.threads);
  ConvPlan& plan = cache.find(problem);
  if (!plan.available) return false;
  plan.input.point_at(input);
  plan.weight.point_at(weight);
  plan.output.point_at(output);
  plan.input.take_place(scratch, kSource);
  plan.output.take_place(scratch, kDestination);
  const bool forward = problem.kind == Conv::forward, to_input = problem.kind == Conv::backward_input;
  const bool to_weight = problem.kind == Conv::backward_weight;
  if (!to_input) plan.input.bring_in();
  if (to_weight) plan.weight.take_place(scratch, kWeights);
  const std::shared_ptr<void> kept = to_weight ? nullptr : plan.bring_weight(problem, scratch, weight);
  if (!forward) plan.output.bring_in();
  dnnl_exec_arg_t args[5] = {{to_input ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, plan.input.inner.get()},
                             {to_weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, plan.weight.inner.get()},
                             {forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, plan.output.inner.get()}};
  int count = 3;
  if (problem.bias) {
    plan.bias.set_data_handle(const_cast<void*>(bias));
    args[count++] = {DNNL_ARG_BIAS, plan.bias.get()};
  }
  if (plan.scratchpad_bytes != 0) {
    plan.scratchpad.set_data_handle(scratch.at(kScratchpad, plan.scratchpad_bytes));
    args[count++] = {DNNL_ARG_SCRATCHPAD, plan.scratchpad.get()};
  }
  place_workers();
  if (dnnl_primitive_execute(plan.primitive.get(), stream().get(), count, args) != dnnl_success) return false;
  if (to_input) plan.input.take_out();
  if (to_weight) plan.weight.take_out();
  if (forward) plan.output.take_out();
  return true;
}

} // namespace onednn
} // namespace tesserack::cpu

#endif

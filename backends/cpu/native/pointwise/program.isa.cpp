#include "program.h"

#include "copy/interleave.h"
#include "copy/stream.h"
#include "threads.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

using backend::fail;

bool is_linear(const ts_tensor* t) { return (t->flags & (TS_T_CONTIGUOUS | TS_T_SCALAR)) != 0; }

// Work below which a second thread does not pay, in additions.
constexpr int64_t kParallelWork = 32768;

[[noreturn]] __attribute__((cold)) void divided_by_zero() {
  fail(TS_ERROR, "ZeroDivisionError: integer division or modulo by zero");
}

} // namespace

template <typename T>
Program<T>::Program(const ts_call* call, const ts_program* program)
    : call_(call), program_(program), operands_(call->n_outputs + call->n_inputs),
      sources_(program_->n_inputs + program_->n_constants), sinks_(call->n_outputs), steps_(program_->n_instructions) {
  if (program_->n_inputs != call->n_inputs || program_->n_outputs != call->n_outputs)
    fail(TS_ERROR, "pointwise: the program takes %d inputs and %d outputs, the call has %d and %d", program_->n_inputs,
         program_->n_outputs, call->n_inputs, call->n_outputs);
  bind_operands();
  tiling_ = make_tiling(space_, tile_elements());
  classify();
  compile();
}

// A row at a time where an operand has one value for each, or lies in rows apart: it is then read as it lies, not
// spread or gathered over a tile.
template <typename T> int64_t Program<T>::tile_elements() const {
  const int64_t least = program_->n_instructions == 1 ? 64 : 384; // a call for each shorter row costs more
  const int64_t cols = space_.cols();
  if (cols < least || cols > kTileElements<T>) return kTileElements<T>;
  for (int k = 0; k < space_.n_operands; ++k) {
    const int64_t rs = operands_[k].stride[space_.nd - 2], cs = operands_[k].stride[space_.nd - 1];
    if (cs == 0 && rs != 0 && cols >= 384) return cols;
    if (cs == 1 && rs != cols && rs != 0 && operands_[k].dtype == dtype_of<T>()) return cols;
  }
  return kTileElements<T>;
}

template <typename T> void Program<T>::bind_operands() {
  const ts_tensor* out0 = TS_OUT(call_, 0);
  require_dims("pointwise", out0->ndim);
  bool linear = true;
  int n = 0;
  for (int k = 0; k < call_->n_outputs; ++k) {
    set_operand(operands_[n++], TS_OUT(call_, k));
    linear = linear && is_linear(TS_OUT(call_, k));
  }
  for (int k = 0; k < call_->n_inputs; ++k) {
    const ts_tensor* t = TS_IN(call_, k);
    sources_[k].operand = -1;
    if ((t->flags & TS_T_SCALAR) != 0) continue;
    sources_[k].operand = n;
    set_operand(operands_[n++], t);
    linear = linear && is_linear(t);
  }
  space_.operands = operands_.data();
  space_.n_operands = n;
  if (linear) { // one dimension, whatever the sizes
    space_.nd = 2;
    space_.size[0] = 1;
    space_.size[1] = out0->numel;
    for (int k = 0; k < n; ++k) {
      operands_[k].stride[0] = 0;
      operands_[k].stride[1] = 1;
    }
    return;
  }
  space_.nd = out0->ndim;
  for (int d = 0; d < space_.nd; ++d) space_.size[d] = out0->sizes[d];
  normalise(space_);
}

// An input that is itself stored to an output must not be read in place if another output lies on it.
template <typename T> bool Program<T>::must_outlive_stores(int input) const {
  bool stored = false, covered = false;
  for (int k = 0; k < program_->n_outputs; ++k) {
    stored = stored || program_->outputs[k] == input;
    covered = covered || operands_[k].base == operands_[sources_[input].operand].base;
  }
  return stored && covered;
}

template <typename T> void Program<T>::classify() {
  const int nd = space_.nd;
  const bool whole_rows = tiling_.col_blocks == 1;
  for (int k = 0; k < call_->n_inputs; ++k) {
    Source& source = sources_[k];
    if (source.operand < 0) {
      source.kind = kConstant;
      source.value = scalar_value<T>(TS_IN(call_, k));
      continue;
    }
    const Operand& operand = operands_[source.operand];
    const int64_t rs = operand.stride[nd - 2], cs = operand.stride[nd - 1];
    const bool one_row = tiling_.rows == 1;
    source.load = loader<T>(operand.dtype);
    if (cs == 0 && (rs == 0 || one_row))
      source.kind = kUniform;
    else if (operand.dtype == dtype_of<T>() && cs == 1 && !must_outlive_stores(k) &&
             (one_row || (whole_rows && rs == space_.cols())))
      source.kind = kDirect;
    else
      source.kind = kStaged;
  }
  for (int k = 0; k < program_->n_constants; ++k) {
    Source& source = sources_[program_->n_inputs + k];
    source.kind = kConstant;
    source.operand = -1;
    source.value = backend::program_constant<T>(program_, k);
  }
}

template <typename T> int Program<T>::last_use(int reg) const {
  for (int i = program_->n_instructions - 1; i >= 0; --i) {
    const Step& step = steps_[i];
    if (step.a == reg || step.b == reg || step.c == reg) return i;
  }
  return -1;
}

// Every box of output `sink` is one run of T.
template <typename T> bool Program<T>::lies_dense(int sink) const {
  const Operand& out = operands_[sink];
  const int nd = space_.nd;
  if (out.dtype != dtype_of<T>() || out.stride[nd - 1] != 1) return false;
  return tiling_.rows == 1 || (tiling_.col_blocks == 1 && out.stride[nd - 2] == space_.cols());
}

// Outputs `sink` and the next are the two parts of complex numbers, in T: one loop stores both.
template <typename T> bool Program<T>::lies_beside_next(int sink) const {
  if (sink + 1 >= program_->n_outputs) return false;
  const Operand &re = operands_[sink], &im = operands_[sink + 1];
  if (re.dtype != dtype_of<T>() || im.dtype != re.dtype || im.base != re.base + sizeof(T)) return false;
  for (int d = 0; d < space_.nd; ++d)
    if (re.stride[d] != im.stride[d] && space_.size[d] != 1) return false;
  return re.stride[space_.nd - 1] == 2;
}

// A result may go straight to its output when the layout allows and nobody reads an input lying there afterwards.
template <typename T> bool Program<T>::may_write_in_place(int sink, int instruction) const {
  if (sinks_[sink].place != kStored || !lies_dense(sink)) return false;
  const Operand& out = operands_[sink];
  for (int k = 0; k < program_->n_inputs; ++k) {
    const Source& source = sources_[k];
    if (source.kind != kDirect || operands_[source.operand].base != out.base) continue;
    if (last_use(k) > instruction) return false;
  }
  return true;
}

template <typename T> void Program<T>::compile() {
  const OpTable<T>& table = op_table<T>();
  SmallArray<bool, 32> uniform(n_registers());
  for (int r = 0; r < first_step(); ++r) uniform[r] = sources_[r].kind <= kUniform;
  for (int i = 0; i < program_->n_instructions; ++i) {
    const ts_instruction& in = program_->instructions[i];
    const int reg = first_step() + i;
    if (in.op >= TS_NUM_INSTRUCTIONS && program_ == call_->program)
      fail(TS_ERROR, "pointwise: unknown instruction %d in %s", in.op, program_->text);
    const int count = arity(in.op);
    Step& step = steps_[i];
    step.a = in.a;
    step.b = count > 1 ? in.b : in.a;
    step.c = count > 2 ? in.c : in.a;
    if (step.a >= reg || step.b >= reg || step.c >= reg)
      fail(TS_ERROR, "pointwise: instruction %d reads a register that is not computed yet in %s", i, program_->text);
    int mask = uniform[step.a] ? 1 : 0;
    if (count > 1) mask |= uniform[step.b] ? 2 : 0;
    if (count > 2) mask |= uniform[step.c] ? 4 : 0;
    step.uniform = mask == (1 << count) - 1;
    uniform[reg] = step.uniform;
    step.run = table.fn[in.op][step.uniform ? 0 : mask];
    if (step.run == nullptr)
      fail(TS_ERROR, "pointwise: %s is not defined for %s; compute in a floating or integer type as it needs",
           backend::instruction_name(in.op), backend::dtype_name(dtype_of<T>()));
    if (!step.uniform) weight_ += cost(in.op);
  }
  int64_t bytes = 0;
  for (int k = 0; k < space_.n_operands; ++k)
    if (operands_[k].stride[space_.nd - 2] != 0 || operands_[k].stride[space_.nd - 1] != 0) bytes += operands_[k].item;
  bytes *= TS_OUT(call_, 0)->numel;
  measured_.emplace(reinterpret_cast<uintptr_t>(call_->program), bytes, ways_on_offer(bytes) & ~kAsking);
  const bool streamed = measured_->way() == kStreamed;
  for (int k = 0; k < program_->n_outputs; ++k) {
    sinks_[k].reg = program_->outputs[k];
    if (sinks_[k].reg >= n_registers()) fail(TS_ERROR, "pointwise: output %d names no register", k);
    sinks_[k].place = streamed && lies_dense(k) ? kPastCaches : kStored;
    sinks_[k].store = storer<T>(operands_[k].dtype);
    if (k > 0 && sinks_[k - 1].place == kPaired)
      sinks_[k].place = kPartner;
    else if (lies_beside_next(k))
      sinks_[k].place = kPaired;
  }
  assign_slots(&uniform[0]);
}

// Tiles for staged inputs first, then for results, reused as soon as nobody reads them any more.
template <typename T> void Program<T>::assign_slots(const bool* uniform) {
  const int first = first_step(), total = n_registers();
  SmallArray<int, 32> slot(total), last(total), free_slots(total);
  int n_free = 0;
  for (int r = 0; r < total; ++r) {
    slot[r] = -1;
    last[r] = -1;
  }
  for (int i = 0; i < program_->n_instructions; ++i)
    for (int operand : {steps_[i].a, steps_[i].b, steps_[i].c}) last[operand] = i;
  for (int k = 0; k < program_->n_outputs; ++k) last[sinks_[k].reg] = program_->n_instructions;
  // A staged tile may be read again by the next box when the input does not move, so its slot is never reused.
  for (int k = 0; k < program_->n_inputs; ++k)
    if (sources_[k].kind == kStaged) slot[k] = n_slots_++;
  for (int i = 0; i < program_->n_instructions; ++i) {
    Step& step = steps_[i];
    const int reg = first + i;
    step.slot = -1;
    step.sink = -1;
    if (!uniform[reg]) {
      for (int k = 0; k < program_->n_outputs && step.sink < 0; ++k)
        if (sinks_[k].reg == reg && may_write_in_place(k, i)) {
          step.sink = k;
          sinks_[k].place = kInPlace;
        }
    }
    for (int operand : {static_cast<int>(step.a), static_cast<int>(step.b), static_cast<int>(step.c)})
      if (operand >= first && last[operand] == i && slot[operand] >= 0) {
        free_slots[n_free++] = slot[operand];
        slot[operand] = -1;
      }
    if (!uniform[reg] && step.sink < 0) slot[reg] = step.slot = n_free > 0 ? free_slots[--n_free] : n_slots_++;
  }
}

namespace {

template <typename T> void store_pair(char* to, const T* re, const T* im, const Box& box) {
  for (int64_t r = 0; r < box.rows; ++r)
    interleave(reinterpret_cast<T*>(to) + r * box.row_stride, re + r * box.cols, im + r * box.cols, box.cols);
}

} // namespace

template <typename T>
int Program<T>::run_box(const BoxWalk& walk, T* workspace, T* values, const T** regs, const char** loaded) const {
  const int64_t n = walk.rows() * walk.cols();
  int staged = 0;
  for (int k = 0; k < program_->n_inputs; ++k) {
    const Source& source = sources_[k];
    if (source.kind == kConstant) continue;
    const char* at = walk.at(source.operand);
    if (source.kind == kDirect) {
      regs[k] = reinterpret_cast<const T*>(at);
    } else if (source.kind == kUniform) {
      source.load(values + k, at, Box{1, 1, 0, 0});
    } else {
      T* tile = workspace + staged++ * kTileElements<T>;
      regs[k] = tile;
      // Stride 0 along the rows: the previous box may have left exactly this tile.
      if (at == loaded[k] && walk.rows() <= tiling_.rows && walk.cols() == tiling_.cols &&
          walk.row_stride(source.operand) == 0 && walk.rows() == tiling_.rows)
        continue;
      source.load(tile, at, walk.box(source.operand));
      loaded[k] = walk.rows() == tiling_.rows && walk.cols() == tiling_.cols ? at : nullptr;
    }
  }
  int status = 0;
  for (int i = 0; i < program_->n_instructions; ++i) {
    const Step& step = steps_[i];
    const int reg = first_step() + i;
    T* out = step.uniform     ? values + reg
             : step.sink >= 0 ? reinterpret_cast<T*>(walk.at(step.sink))
                              : workspace + step.slot * kTileElements<T>;
    regs[reg] = out;
    status |= step.run(out, regs[step.a], regs[step.b], regs[step.c], step.uniform ? 1 : n);
  }
  return status;
}

// One instruction over rows, operands as they lie or one value for each row: `x - mean`, `x / total`.
template <typename T> bool Program<T>::is_one_loop_a_row() const {
  if (program_->n_instructions != 1 || program_->n_outputs != 1 || steps_[0].sink != 0) return false;
  if (space_.nd != 2 || tiling_.rows != 1 || tiling_.col_blocks != 1) return false;
  for (int k = 0; k < program_->n_inputs; ++k) {
    const Source& source = sources_[k];
    if (source.kind == kStaged || (source.kind == kUniform && operands_[source.operand].dtype != dtype_of<T>()))
      return false;
  }
  return true;
}

template <typename T> void Program<T>::run_rows(int64_t first, int64_t last) const {
  const Step& step = steps_[0];
  const T* operand[3];
  int64_t stride[3];
  const uint16_t registers[3] = {step.a, step.b, step.c};
  for (int k = 0; k < 3; ++k) {
    const Source& source = sources_[registers[k]];
    stride[k] = source.kind == kConstant ? 0 : operands_[source.operand].stride[0];
    operand[k] = source.kind == kConstant
                     ? &source.value
                     : reinterpret_cast<const T*>(operands_[source.operand].base) + first * stride[k];
  }
  const int64_t cols = tiling_.cols, out_stride = operands_[0].stride[0];
  T* out = reinterpret_cast<T*>(operands_[0].base) + first * out_stride;
  int status = 0;
  for (int64_t r = first; r < last; ++r) {
    status |= step.run(out, operand[0], operand[1], operand[2], cols);
    out += out_stride;
    for (int k = 0; k < 3; ++k) operand[k] += stride[k];
  }
  if (status != 0) divided_by_zero();
}

template <typename T> void Program<T>::run_range(int64_t first, int64_t last) const {
  if (is_one_loop_a_row()) return run_rows(first, last);
  const int total = n_registers();
  SmallArray<T, 64> values(total);
  SmallArray<const T*, 64> regs(total);
  SmallArray<const char*, 16> loaded(program_->n_inputs);
  for (int k = 0; k < program_->n_inputs; ++k) loaded[k] = nullptr;
  for (int r = 0; r < first_step(); ++r) {
    if (sources_[r].kind == kConstant) values[r] = sources_[r].value;
    regs[r] = &values[r];
  }
  // One more tile to spread a uniform result over.
  constexpr int64_t kLocalTiles = 12;
  alignas(64) unsigned char local[kLocalTiles * kTileBytes];
  std::unique_ptr<void, void (*)(void*)> heap(nullptr, std::free);
  T* workspace = reinterpret_cast<T*>(local);
  if (n_slots_ + 1 > kLocalTiles) {
    heap.reset(std::aligned_alloc(64, static_cast<size_t>(n_slots_ + 1) * kTileBytes));
    if (!heap) throw std::bad_alloc();
    workspace = static_cast<T*>(heap.get());
  }
  T* spread = workspace + n_slots_ * kTileElements<T>;
  BoxWalk walk(space_, tiling_, first);
  for (int64_t box = first; box < last; ++box, box < last ? walk.next() : void()) {
    if (run_box(walk, workspace, values.data(), regs.data(), loaded.data()) != 0) divided_by_zero();
    for (int k = 0; k < program_->n_outputs; ++k) {
      const Sink& sink = sinks_[k];
      if (sink.place == kInPlace) continue;
      const T* result = regs[sink.reg];
      const auto is_uniform = [&](const T* at) { return at >= values.data() && at < values.data() + total; };
      if (sink.place == kPaired && !is_uniform(result) && !is_uniform(regs[sinks_[k + 1].reg])) {
        store_pair(walk.at(k), result, regs[sinks_[k + 1].reg], walk.box(k));
        ++k;
        continue;
      }
      if (is_uniform(result)) {
        const int64_t n = walk.rows() * walk.cols();
        for (int64_t i = 0; i < n; ++i) spread[i] = *result;
        result = spread;
      }
      if (sink.place == kPastCaches)
        stream_copy(walk.at(k), result, walk.rows() * walk.cols() * operands_[k].item);
      else
        sink.store(walk.at(k), result, walk.box(k));
    }
  }
  stream_fence();
}

template <typename T> void Program<T>::run() {
  const int64_t per_box = tiling_.rows * tiling_.cols * weight_;
  const int64_t grain = per_box >= kParallelWork ? 1 : kParallelWork / per_box;
  parallel_for(0, tiling_.count(), grain, [this](int64_t first, int64_t last) { run_range(first, last); });
}

template class Program<float>;
template class Program<double>;
template class Program<uint8_t>;
template class Program<int8_t>;
template class Program<int16_t>;
template class Program<int32_t>;
template class Program<int64_t>;
template class Program<uint64_t>;

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

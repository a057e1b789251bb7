// Entry point `pointwise`: one instruction over contiguous operands runs as its bare loop, several over few elements as
// theirs in turn, the rest as a Program.
#include "complex_pairs.h"
#include "copy/stream.h"
#include "fusions.h"
#include "idioms.h"
#include "narrow.h"
#include "program.h"
#include "small_program.h"

#include "measured.h"
#include "threads.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

constexpr int64_t kFuseFrom = 4096; // elements: below, looking at the program costs more than its loops
constexpr int64_t kParallelElements = 32768;
constexpr int64_t kStep = 65536; // elements run in one direction

template <typename T> struct Single {
  OpFn<T> run;
  T* out;
  const T* operand[3];
  int mask;
  T values[3];
};

// Binds register `reg` to operand `k` if it is a contiguous T, a scalar or a constant.
template <typename T>
inline bool bind(const ts_call* call, const ts_program* program, Single<T>& single, int k, int reg) {
  if (reg < program->n_inputs) {
    const ts_tensor* t = TS_IN(call, reg);
    if ((t->flags & TS_T_SCALAR) == 0) {
      if ((t->flags & TS_T_CONTIGUOUS) == 0 || t->dtype != dtype_of<T>()) return false;
      single.operand[k] = reinterpret_cast<const T*>(static_cast<const char*>(t->handle) + t->byte_offset);
      return true;
    }
    single.values[k] = scalar_value<T>(t);
  } else {
    if (reg >= program->n_inputs + program->n_constants) return false;
    single.values[k] = backend::program_constant<T>(program, reg - program->n_inputs);
  }
  single.operand[k] = &single.values[k];
  single.mask |= 1 << k;
  return true;
}

[[noreturn]] __attribute__((cold)) void divided_by_zero() {
  backend::fail(TS_ERROR, "ZeroDivisionError: integer division or modulo by zero");
}

template <typename T> inline void run_part(const Single<T>& s, int64_t begin, int64_t end, T* out) {
  const T* a = s.operand[0] + (s.mask & 1 ? 0 : begin);
  const T* b = s.operand[1] + (s.mask & 2 ? 0 : begin);
  const T* c = s.operand[2] + (s.mask & 4 ? 0 : begin);
  if (s.run(out, a, b, c, end - begin) != 0) divided_by_zero();
}

// The same, asking for what lies ahead: its arithmetic is done while the memory answers. In short parts, for many lines
// at once would fill the processor's list of what it waits for: tanh and gelu take a tenth less than in parts of 1 KiB.
template <typename T> void run_asking(const Single<T>& s, int64_t begin, int64_t end) {
  constexpr int64_t part = 512 / sizeof(T), ahead = 8 * part;
  for (int64_t i = begin; i < end; i += part) {
    for (int k = 0; k < 3; ++k)
      if ((s.mask >> k & 1) == 0 && (k == 0 || s.operand[k] != s.operand[0]))
        Soon<T>{s.operand[k] + i + ahead, nullptr}.ask(0, part);
    Soon<T>{nullptr, s.out + i + ahead}.ask(0, part);
    run_part(s, i, end - i < part ? end : i + part, s.out + i);
  }
}

// Through a tile in the L1 cache, for a result too large to stay in the others.
template <typename T> void run_streamed(const Single<T>& s, int64_t begin, int64_t end) {
  alignas(64) T tile[kTileElements<T>];
  for (int64_t i = begin; i < end; i += kTileElements<T>) {
    const int64_t n = end - i < kTileElements<T> ? end - i : kTileElements<T>;
    run_part(s, i, i + n, tile);
    stream_copy(s.out + i, tile, n * static_cast<int64_t>(sizeof(T)));
  }
  stream_fence();
}

// The 0 and 1 of a comparison in bytes are bools.
template <typename T> constexpr bool stores_bools(const ts_tensor* out, int op) {
  if constexpr (sizeof(T) > 1) return false;
  return out->dtype == TS_BOOL && (op == TS_I_NOT || (op >= TS_I_EQ && op <= TS_I_GE));
}

// The hot path: a + b on small tensors spends nothing but this.
template <typename T> inline bool run_single(const ts_call* call, const ts_program* program) {
  const ts_tensor* out = TS_OUT(call, 0);
  const ts_instruction in = program->instructions[0];
  if ((out->flags & TS_T_CONTIGUOUS) == 0 || (out->dtype != dtype_of<T>() && !stores_bools<T>(out, in.op)))
    return false;
  if (in.op >= TS_NUM_INSTRUCTIONS && program == call->program) return false;
  const int count = arity(in.op);
  Single<T> single;
  single.mask = 0;
  if (!bind(call, program, single, 0, in.a)) return false;
  single.operand[1] = single.operand[2] = single.operand[0];
  if (count > 1 && !bind(call, program, single, 1, in.b)) return false;
  if (count > 2 && !bind(call, program, single, 2, in.c)) return false;
  if (single.mask == (1 << count) - 1) return false;
  single.run = op_table<T>().fn[in.op][single.mask];
  if (single.run == nullptr) return false;
  single.out = reinterpret_cast<T*>(static_cast<char*>(out->handle) + out->byte_offset);
  if (out->numel * cost(in.op) <= kParallelElements) {
    if (single.run(single.out, single.operand[0], single.operand[1], single.operand[2], out->numel) != 0)
      divided_by_zero();
    return true;
  }
  const int64_t vectors = 1 + count - __builtin_popcount(static_cast<unsigned>(single.mask));
  const int64_t bytes = vectors * out->numel * static_cast<int64_t>(sizeof(T));
  const auto pass = reinterpret_cast<uintptr_t>(single.run) + (single.out == single.operand[0] ? 1 : 0);
  const MeasuredPass measured(pass, bytes, ways_on_offer(bytes));
  const Way way = measured.way();
  const bool backwards = starts_at_the_end();
  parallel_for(0, out->numel, kParallelElements / cost(in.op), [&](int64_t begin, int64_t end) {
    in_steps(begin, end, kStep, backwards, [&](int64_t first, int64_t last) {
      if (way == kStreamed)
        run_streamed(single, first, last);
      else if (way == kAsking)
        run_asking(single, first, last);
      else
        run_part(single, first, last, single.out + first);
    });
  });
  return true;
}

inline bool is_single(const ts_call* call, const ts_program* program) {
  return program->n_instructions == 1 && program->n_outputs == 1 && call->n_outputs == 1 &&
         program->outputs[0] == program->n_inputs + program->n_constants;
}

// In registers as narrow as the operands, if those hold all that decides on the result.
bool run_narrow(const ts_call* call) {
  const Narrowing narrowing(call);
  const ts_program* program = narrowing.program();
  const auto run = [&]<typename T>() {
    if (!is_single(call, program) || !run_single<T>(call, program)) Program<T>(call, program).run();
    return true;
  };
  switch (narrowing.dtype()) {
  case TS_BOOL:
    if (is_single(call, program) && run_single<Bool>(call, program)) return true;
    [[fallthrough]];
  case TS_UINT8: return run.template operator()<uint8_t>();
  case TS_INT8: return run.template operator()<int8_t>();
  case TS_INT16: return run.template operator()<int16_t>();
  default: return false;
  }
}

// What concerns the sign of 16-bit floats alone, as operations on their bits: they need not be widened.
bool run_signs(const ts_call* call) {
  const ts_program* const program = call->program;
  const ts_tensor* const out = TS_OUT(call, 0);
  const auto is_run = [&](const ts_tensor* t) {
    return t->dtype == out->dtype && (t->flags & (TS_T_CONTIGUOUS | TS_T_SCALAR)) == TS_T_CONTIGUOUS;
  };
  if ((out->dtype != TS_BFLOAT16 && out->dtype != TS_FLOAT16) || !is_run(out) || !is_single(call, program))
    return false;
  const ts_instruction in = program->instructions[0];
  const bool binary = in.op == TS_I_COPYSIGN;
  if ((!binary && in.op != TS_I_NEG && in.op != TS_I_ABS) || in.a >= program->n_inputs || !is_run(TS_IN(call, in.a)))
    return false;
  if (binary && (in.b >= program->n_inputs || !is_run(TS_IN(call, in.b)))) return false;
  const auto elements = [](const ts_tensor* t) {
    return reinterpret_cast<uint16_t*>(static_cast<char*>(t->handle) + t->byte_offset);
  };
  uint16_t* const to = elements(out);
  const uint16_t *const a = elements(TS_IN(call, in.a)), *const b = binary ? elements(TS_IN(call, in.b)) : a;
  constexpr uint16_t kSign = 0x8000;
  parallel_for(0, out->numel, kParallelElements, [&](int64_t first, int64_t last) {
    const auto each = [&](auto of) {
#pragma GCC ivdep
      for (int64_t i = first; i < last; ++i) to[i] = static_cast<uint16_t>(of(i));
    };
    if (binary)
      each([&](int64_t i) { return (a[i] & ~kSign) | (b[i] & kSign); });
    else if (in.op == TS_I_NEG)
      each([&](int64_t i) { return a[i] ^ kSign; });
    else
      each([&](int64_t i) { return a[i] & ~kSign; });
  });
  return true;
}

template <typename T> void run_program(const ts_call* call, const ts_program* program) {
  IdiomSpace idiom;
  Fuser fuser;
  if (program->n_instructions > 1) {
    if constexpr (std::is_floating_point_v<T>) program = shortened<T>(program, idiom);
    if (std::is_floating_point_v<T> && TS_OUT(call, 0)->numel >= kFuseFrom) program = fuser.fuse(program);
  }
  if (is_single(call, program) && run_single<T>(call, program)) return;
  int status = 0;
  if (run_small<T>(call, program, status)) {
    if (status != 0) divided_by_zero();
    return;
  }
  Program<T>(call, program).run();
}

// Of complex numbers: false for a program that is to take their parts apart.
template <typename T> bool run_pairs(const ts_call* call) {
  ComplexPairs<T> pairs(call);
  if (pairs.are_alike()) return run_program<T>(pairs.call(), pairs.program()), true;
  const auto elements = [](const ts_tensor* t) {
    return reinterpret_cast<T*>(static_cast<char*>(t->handle) + t->byte_offset);
  };
  T* const out = elements(TS_OUT(call, 0));
  const auto in_parts = [&](auto&& part) { parallel_for(0, TS_OUT(call, 0)->numel, kParallelElements / 4, part); };
  if (const ts_tensor* const from = pairs.conjugated()) {
    in_parts([&](int64_t first, int64_t last) {
      conjugate_pairs(out + 2 * first, elements(from) + 2 * first, last - first);
    });
    return true;
  }
  const auto factors = pairs.factors();
  if (factors.a == nullptr) return false;
  const T* const a = elements(factors.a);
  const auto multiply = [&](auto by) {
    in_parts(
        [&](int64_t first, int64_t last) { multiply_pairs(out + 2 * first, a + 2 * first, by(first), last - first); });
  };
  if (factors.b == nullptr)
    multiply([number = OneNumber<T>(factors.by[0], factors.by[1])](int64_t) { return number; });
  else if (factors.b_is_real)
    multiply([b = elements(factors.b)](int64_t first) { return RealNumbers<T>{b + first}; });
  else
    multiply([b = elements(factors.b)](int64_t first) { return PairsOf<T>{b + 2 * first}; });
  return true;
}

template <typename T> void run_compute(const ts_call* call) {
  if constexpr (std::is_same_v<T, float>)
    if (run_signs(call)) return;
  if constexpr (std::is_same_v<T, int32_t>)
    if (run_narrow(call)) return;
  if constexpr (std::is_floating_point_v<T>)
    if (call->n_outputs == 2 && run_pairs<T>(call)) return;
  run_program<T>(call, call->program);
}

void pointwise(const backend::Call& wrapped) {
  const ts_call* call = wrapped.raw();
  if (call->compute_dtype == TS_FLOAT32) return run_compute<float>(call);
  with_compute(call->compute_dtype, [&]<typename T>() { run_compute<T>(call); });
}

} // namespace

TS_KERNEL("pointwise", pointwise);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

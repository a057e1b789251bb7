/* The contract of Tesserack with backends and with plugins of operators: plain C, versioned, append-only.
 *
 * Rules every revision keeps:
 *  - every struct begins with its own size in bytes; a smaller struct is normal, and a field beyond the
 *    end, or a NULL slot, means "the core's default";
 *  - fields and enum values are only appended, never moved or reinterpreted; unknown enum values are refused;
 *  - a different TS_ABI_MAJOR is refused with both versions named; a plugin states the lowest minor it needs;
 *  - nothing optional becomes required within a major version;
 *  - whatever is declared here changes together with the version: the minor where things are appended, the major (until
 *    Tesserack 0.1.0, and never after) where a library of the version before would no longer work.
 *
 * "Since 1.1" on a line is the version of the first header that had what the line declares; without it: 1.0, or as the
 * struct around it.
 *
 * Sizes and offsets are bytes where the name says so and elements otherwise. Strides are in elements and may
 * be zero (expanded) or negative (flipped). A storage handle is opaque to the core, which never does
 * arithmetic on it: every tensor is (handle, byte_offset).
 */
/* The tables are laid out by hand. */
/* clang-format off */
#ifndef TESSERACK_ABI_H
#define TESSERACK_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TS_ABI_MAJOR 2
#define TS_ABI_MINOR 5

/* The version of this header, in every library that is compiled with it: the core compares the major before it calls
 * anything of the library. One written in another language exports the same two numbers; a linker's version script
 * must leave the name visible. */
#define TS_ABI_SYMBOL "tesserack_abi"
#ifdef __GNUC__
extern __attribute__((weak, visibility("default"))) const int32_t tesserack_abi[2];
const int32_t tesserack_abi[2] = {TS_ABI_MAJOR, TS_ABI_MINOR}; /* since 2.0 */
#endif

/* Status of every callback. DECLINED: "not this case": the core decomposes or falls back, visibly. */
enum {
  TS_OK = 0,
  TS_DECLINED = 1,
  TS_ERROR = 2,          /* RuntimeError; message through ts_host.set_error */
  TS_OUT_OF_MEMORY = 3,  /* OutOfMemoryError */
  TS_INDEX_ERROR = 4,    /* IndexError */
  TS_INTERRUPTED = 5,    /* ts_host.interrupted() said so; outputs are unspecified */
  TS_VALUE_ERROR = 6,    /* ValueError */
  TS_DEVICE_LOST = 7     /* Since 2.1. DeviceLostError: the device answers no more, or what it holds is gone. From then
                            on every slot that is given the device says so, but for `recover` */
};

enum {
  TS_BOOL = 0, TS_UINT8 = 1, TS_UINT16 = 2, TS_UINT32 = 3, TS_UINT64 = 4,
  TS_INT8 = 5, TS_INT16 = 6, TS_INT32 = 7, TS_INT64 = 8,
  TS_FLOAT16 = 9, TS_BFLOAT16 = 10, TS_FLOAT32 = 11, TS_FLOAT64 = 12,
  TS_COMPLEX64 = 13, TS_COMPLEX128 = 14,
  /* Storage above all: few operators compute with them. COMPLEX32 is two float16. */
  TS_COMPLEX32 = 15, /* since 1.1 */
  TS_FLOAT8_E4M3FN = 16, TS_FLOAT8_E5M2 = 17, TS_FLOAT8_E4M3FNUZ = 18, /* since 1.1 */
  TS_FLOAT8_E5M2FNUZ = 19, TS_FLOAT8_E8M0FNU = 20, /* since 1.1 */
  /* Two values of 4 bits to an element, the lower half first: moved, and given to kernels that know it, never converted
   * and never counted by their values. */
  TS_FLOAT4_E2M1FN_X2 = 21, /* since 2.2 */
  /* One value to a byte, in its lowest bits; the others are 0. None has infinities or NaN. */
  TS_FLOAT6_E2M3FN = 22, TS_FLOAT6_E3M2FN = 23, TS_FLOAT4_E2M1FN = 24, /* since 2.4 */
  TS_INT4 = 25, TS_UINT4 = 26, /* since 2.4 */
  TS_INT4_X2 = 27, TS_UINT4_X2 = 28, /* since 2.4 */
  TS_NUM_DTYPES = 29
};

/* X(code without TS_, name, bytes of an element, values in an element, kind) for every dtype in the order of the codes:
 * whatever C and C++ know of dtypes comes from here. The kind is 'b'ool, 'u'nsigned, 'i'nteger, 'f'loating or 'c'omplex.
 * Several values share an element from the lowest bits on, in equal parts: it is moved, and given to kernels that know
 * it, never converted. Since 2.3 with the last two; three before. */
#define TS_EACH_DTYPE(X)                                                                                          \
  X(BOOL, bool, 1, 1, 'b') X(UINT8, uint8, 1, 1, 'u') X(UINT16, uint16, 2, 1, 'u') X(UINT32, uint32, 4, 1, 'u')   \
  X(UINT64, uint64, 8, 1, 'u') X(INT8, int8, 1, 1, 'i') X(INT16, int16, 2, 1, 'i') X(INT32, int32, 4, 1, 'i')     \
  X(INT64, int64, 8, 1, 'i') X(FLOAT16, float16, 2, 1, 'f') X(BFLOAT16, bfloat16, 2, 1, 'f')                      \
  X(FLOAT32, float32, 4, 1, 'f') X(FLOAT64, float64, 8, 1, 'f') X(COMPLEX64, complex64, 8, 1, 'c')                \
  X(COMPLEX128, complex128, 16, 1, 'c') X(COMPLEX32, complex32, 4, 1, 'c')                                        \
  X(FLOAT8_E4M3FN, float8_e4m3fn, 1, 1, 'f') X(FLOAT8_E5M2, float8_e5m2, 1, 1, 'f')                               \
  X(FLOAT8_E4M3FNUZ, float8_e4m3fnuz, 1, 1, 'f') X(FLOAT8_E5M2FNUZ, float8_e5m2fnuz, 1, 1, 'f')                   \
  X(FLOAT8_E8M0FNU, float8_e8m0fnu, 1, 1, 'f') X(FLOAT4_E2M1FN_X2, float4_e2m1fn_x2, 1, 2, 'f')      \
  X(FLOAT6_E2M3FN, float6_e2m3fn, 1, 1, 'f') X(FLOAT6_E3M2FN, float6_e3m2fn, 1, 1, 'f')                           \
  X(FLOAT4_E2M1FN, float4_e2m1fn, 1, 1, 'f') X(INT4, int4, 1, 1, 'i') X(UINT4, uint4, 1, 1, 'u')                  \
  X(INT4_X2, int4_x2, 1, 2, 'i') X(UINT4_X2, uint4_x2, 1, 2, 'u')

/* Scalar instructions of a pointwise program. All registers of a program hold one type, the call's
 * compute_dtype (float32, float64, int32, int64 or uint64); truth values are 0 and 1 of that type. Integer
 * arithmetic wraps; integer division by zero is TS_ERROR "ZeroDivisionError", never a trap. */
enum {
  TS_I_COPY = 0,
  /* unary: a */
  TS_I_NEG = 1, TS_I_ABS = 2, TS_I_SIGN = 3, TS_I_RECIP = 4, TS_I_SQRT = 5, TS_I_RSQRT = 6,
  TS_I_EXP = 7, TS_I_EXP2 = 8, TS_I_EXPM1 = 9, TS_I_LOG = 10, TS_I_LOG2 = 11, TS_I_LOG10 = 12, TS_I_LOG1P = 13,
  TS_I_SIN = 14, TS_I_COS = 15, TS_I_TAN = 16, TS_I_ASIN = 17, TS_I_ACOS = 18, TS_I_ATAN = 19,
  TS_I_SINH = 20, TS_I_COSH = 21, TS_I_TANH = 22, TS_I_ASINH = 23, TS_I_ACOSH = 24, TS_I_ATANH = 25,
  TS_I_ERF = 26, TS_I_ERFC = 27, TS_I_ERFINV = 28, TS_I_LGAMMA = 29, TS_I_DIGAMMA = 30,
  TS_I_SIGMOID = 31,
  TS_I_FLOOR = 32, TS_I_CEIL = 33, TS_I_TRUNC = 34, TS_I_ROUND = 35, /* ROUND: half to even */
  TS_I_BITNOT = 36, TS_I_NOT = 37,                                  /* NOT: a == 0 */
  /* binary: a, b */
  TS_I_ADD = 38, TS_I_SUB = 39, TS_I_MUL = 40, TS_I_DIV = 41,       /* DIV of integers truncates */
  TS_I_FLOORDIV = 42, TS_I_MOD = 43, TS_I_FMOD = 44,                /* MOD: sign of b; FMOD: sign of a */
  TS_I_POW = 45, TS_I_MAX = 46, TS_I_MIN = 47,                      /* MAX, MIN propagate NaN; a of equal ones */
  TS_I_ATAN2 = 48, TS_I_HYPOT = 49, TS_I_COPYSIGN = 50,
  TS_I_EQ = 51, TS_I_NE = 52, TS_I_LT = 53, TS_I_LE = 54, TS_I_GT = 55, TS_I_GE = 56,
  TS_I_AND = 57, TS_I_OR = 58, TS_I_XOR = 59, TS_I_SHL = 60, TS_I_SHR = 61, /* bitwise; integers only */
  /* ternary: a, b, c */
  TS_I_SELECT = 62, /* a != 0 ? b : c */
  TS_I_FMA = 63,    /* a * b + c, rounded once or twice */
  /* unary: a floating value rounded to one that float16, bfloat16 holds, ties to even; beyond the largest: infinite */
  TS_I_ROUND_FLOAT16 = 64, TS_I_ROUND_BFLOAT16 = 65, /* since 1.1 */
  TS_NUM_INSTRUCTIONS = 66
};

/* X(code without TS_I_, name, operands) for every instruction in the order of the codes: names and numbers of operands
 * in C and C++ come from here. Since 2.2 */
#define TS_EACH_INSTRUCTION(X)                                                                                    \
  X(COPY, copy, 1) X(NEG, neg, 1) X(ABS, abs, 1) X(SIGN, sign, 1) X(RECIP, recip, 1) X(SQRT, sqrt, 1)             \
  X(RSQRT, rsqrt, 1) X(EXP, exp, 1) X(EXP2, exp2, 1) X(EXPM1, expm1, 1) X(LOG, log, 1) X(LOG2, log2, 1)           \
  X(LOG10, log10, 1) X(LOG1P, log1p, 1) X(SIN, sin, 1) X(COS, cos, 1) X(TAN, tan, 1) X(ASIN, asin, 1)             \
  X(ACOS, acos, 1) X(ATAN, atan, 1) X(SINH, sinh, 1) X(COSH, cosh, 1) X(TANH, tanh, 1) X(ASINH, asinh, 1)         \
  X(ACOSH, acosh, 1) X(ATANH, atanh, 1) X(ERF, erf, 1) X(ERFC, erfc, 1) X(ERFINV, erfinv, 1)                      \
  X(LGAMMA, lgamma, 1) X(DIGAMMA, digamma, 1) X(SIGMOID, sigmoid, 1) X(FLOOR, floor, 1) X(CEIL, ceil, 1)          \
  X(TRUNC, trunc, 1) X(ROUND, round, 1) X(BITNOT, bitnot, 1) X(NOT, not, 1) X(ADD, add, 2) X(SUB, sub, 2)         \
  X(MUL, mul, 2) X(DIV, div, 2) X(FLOORDIV, floordiv, 2) X(MOD, mod, 2) X(FMOD, fmod, 2) X(POW, pow, 2)           \
  X(MAX, max, 2) X(MIN, min, 2) X(ATAN2, atan2, 2) X(HYPOT, hypot, 2) X(COPYSIGN, copysign, 2) X(EQ, eq, 2)       \
  X(NE, ne, 2) X(LT, lt, 2) X(LE, le, 2) X(GT, gt, 2) X(GE, ge, 2) X(AND, and, 2) X(OR, or, 2) X(XOR, xor, 2)     \
  X(SHL, shl, 2) X(SHR, shr, 2) X(SELECT, select, 3) X(FMA, fma, 3) X(ROUND_FLOAT16, round_float16, 1)            \
  X(ROUND_BFLOAT16, round_bfloat16, 1)

/* ts_properties.instructions says which of them a device has, a bit each; the core writes programs for the device with
 * those alone. All zero: what TS_I_COPY to TS_I_FMA name, and none that is appended later. Every device has COPY, ADD,
 * SUB, MUL, DIV, FMOD, POW, EQ, LT, SELECT, FLOOR, SQRT, EXP, LOG, SIN, COS, ATAN, AND, OR, XOR, SHL, SHR. */
#define TS_INSTRUCTION_WORDS 4

/* opcode of reduce and scan. ANY and ALL yield bool. ARGMAX/ARGMIN yield int64, first occurrence, NaN wins. */
enum { TS_R_SUM = 0, TS_R_PROD = 1, TS_R_MAX = 2, TS_R_MIN = 3, TS_R_ARGMAX = 4, TS_R_ARGMIN = 5, TS_R_ANY = 6, TS_R_ALL = 7 };
/* opcode of scatter */
enum { TS_S_SET = 0, TS_S_ADD = 1, TS_S_PROD = 2, TS_S_MAX = 3, TS_S_MIN = 4 };

typedef struct ts_instruction {
  uint16_t op, a, b, c; /* operand registers; unused ones are 0 */
} ts_instruction;

/* Registers: inputs 0..n_inputs-1, then constants, then one per instruction, in order. */
typedef struct ts_program {
  size_t struct_size;
  uint64_t id; /* equal ids mean equal programs within a process: the key for caches of compiled kernels */
  int32_t n_inputs, n_constants, n_instructions, n_outputs;
  const double* constants;
  const ts_instruction* instructions;
  const uint16_t* outputs; /* the register stored to each output */
  const char* text;        /* the expression, for messages and generated source */
  const int64_t* integers; /* Since 1.1. The same constants for registers of integers, where a double does not hold them
                              all (uint64: their bits); NULL: the constants, converted */
  uint64_t hash[2]; /* Since 2.1. As `id`, but the same in every process, on every machine: part of the key under which
                       compiled kernels are kept, see ts_host.cache_get. The text is no part of it */
} ts_program;

/* Tags of ts_value. */
enum {
  TS_V_NONE = 0, TS_V_TENSOR = 1, TS_V_INT = 2, TS_V_FLOAT = 3, TS_V_BOOL = 4, TS_V_STR = 5,
  TS_V_INTS = 6, TS_V_FLOATS = 7, TS_V_TENSORS = 8, TS_V_DTYPE = 9, TS_V_DEVICE = 10, TS_V_COMPLEX = 11
};

/* A non-tensor argument. INTS, FLOATS: `len` elements. COMPLEX: two floats. TENSORS: `len` tensors, which stand
 * in ts_call.inputs from index `i` on. DTYPE, DEVICE: `i`. */
typedef struct ts_value {
  int32_t tag;
  int32_t len;
  union {
    int64_t i;
    double f;
    const int64_t* ints;
    const double* floats;
    const char* str;
    const void* ptr;
  } as;
} ts_value;

/* Flags of ts_tensor. */
enum {
  TS_T_SCALAR = 1,  /* no storage: the value stands in `scalar` (ndim 0, or strides all zero) */
  TS_T_NONE = 2,    /* an optional tensor that is absent */
  TS_T_MUTABLE = 4, /* an input the operator also writes */
  TS_T_CONTIGUOUS = 8 /* row-major without gaps; the core sets it whenever it holds */
};

typedef struct ts_tensor {
  size_t struct_size;
  void* handle;
  int64_t byte_offset;
  int64_t numel;
  const int64_t* sizes;
  const int64_t* strides;
  int32_t dtype;
  int32_t ndim;
  uint32_t flags;
  uint32_t reserved;
  union {
    int64_t i; /* dtype bool or integer */
    double f;  /* floating dtypes */
  } scalar;
} ts_tensor;

typedef struct ts_host ts_host;

/* One kernel call. Shapes, dtypes and devices are already checked, and outputs allocated: the kernel fills them.
 * Outputs never overlap inputs, except that an output may be exactly one of the inputs (same handle, offset,
 * sizes, strides) in a pointwise call. Size-zero calls are not made. */
typedef struct ts_call {
  size_t struct_size;
  const ts_host* host;
  void* backend_ctx;
  void* kernel_ctx;
  void* stream;             /* NULL: the device's default stream */
  const char* op;           /* operator name */
  int32_t opcode;           /* reduce, scan, scatter */
  int32_t device_index;
  int32_t compute_dtype;    /* pointwise; accumulation dtype for matmul, reduce and scan */
  int32_t n_outputs, n_inputs, n_params;
  size_t tensor_size;       /* distance in bytes between elements of outputs and inputs: use TS_OUT, TS_IN */
  const ts_tensor* outputs;
  const ts_tensor* inputs;
  const ts_value* params;
  const ts_program* program; /* pointwise */
  void* core;                /* Since 1.1. The core's own, for ts_host.workspace; a copy of the call passes it on */
  uint32_t flags;            /* TS_C_*; since 1.1 */
  uint32_t reserved;
  const ts_program* prologue; /* Since 1.1. Of reduce and scan, for kernels with TS_K_PROLOGUE: what is reduced is the
                                 program of all inputs (of equal sizes) in compute_dtype; one output */
  const ts_program* epilogue; /* Since 1.1. Of matmul, for kernels with TS_K_EPILOGUE: what is stored is the program, in
                                 compute_dtype, of the product (with the third input added, if present) as its input 0, and of the inputs
                                 from the fourth on, which have out0's sizes; absent third: TS_T_NONE */
  uint64_t number; /* Since 2.1. Of the calls that are profiled, for ts_activity.call; 0: nobody profiles */
} ts_call;
enum {
  TS_C_DETERMINISTIC = 1, /* the same results in every run were asked for; DECLINED where the kernel has no such way */
  TS_C_MATH_HIGH = 2,     /* products of float32 may be rounded to what tf32 holds, */
  TS_C_MATH_MEDIUM = 4    /* or bfloat16 */
};

#define TS_OUT(call, k) ((const ts_tensor*)((const char*)(call)->outputs + (size_t)(k) * (call)->tensor_size))
#define TS_IN(call, k) ((const ts_tensor*)((const char*)(call)->inputs + (size_t)(k) * (call)->tensor_size))

/* Layouts a kernel takes. Default 0 = TS_L_STRIDED. */
enum { TS_L_STRIDED = 0, TS_L_CONTIGUOUS = 1, TS_L_CHANNELS_LAST = 2 /* contiguous or channels-last, inputs alike */ };

typedef int (*ts_kernel_fn)(const ts_call* call);

/* A call worked out ahead, to be run many times: see ts_kernel.prepare. */
typedef struct ts_step { /* since 1.1 */
  size_t struct_size; /* set by the caller */
  /* `call` has the prepared one's dtypes, sizes, strides, programs and parameters; handles and offsets may differ. */
  int (*run)(const struct ts_step* step, const ts_call* call);
  void (*destroy)(struct ts_step* step); /* NULL: there is nothing to free */
  void* state;
} ts_step;

/* What a kernel takes beyond the least of its entry point: flags of ts_kernel. */
enum {
  TS_K_PROLOGUE = 1,      /* ts_call.prologue */
  TS_K_EPILOGUE = 2,      /* ts_call.epilogue */
  TS_K_DEVICE_RANDOM = 4  /* random_bits: an input, two uint64 on the device: the key in place of params[0], and a number
                             that params[1] is counted from */
};

typedef struct ts_kernel {
  size_t struct_size;
  ts_kernel_fn run;
  void* ctx;         /* handed back as ts_call.kernel_ctx */
  uint64_t dtypes;   /* bit per dtype of its tensors; 0: those below COMPLEX64 that the device computes with */
  uint32_t layouts;
  uint32_t flags;    /* TS_K_* */
  int (*prepare)(const ts_call* call, ts_step* out); /* Since 1.1. Optional: a call that will be run again and again.
                                                        TS_DECLINED: run it by `run`. Nothing is computed; handles are
                                                        NULL where memory is not known yet */
} ts_kernel;

/* The required entry points, by operator name given to get_kernel:
 *
 *  copy_cast   out0 = cast(in0), same sizes
 *  fill        out0 = params[0] (INT, FLOAT or BOOL)
 *  iota        out0[i] = params[0] + i * params[1], one-dimensional; INT parameters for integer dtypes, else FLOAT
 *  pointwise   out_k = program(in...) elementwise in compute_dtype; all operands have the same sizes, dims merged
 *              where strides allow, outermost first; inputs are converted from, outputs to, their own dtypes
 *  reduce      out0 (kept dims) = opcode over the last params[0] dims of in0 (kept dims..., reduced dims...)
 *  scan        out0 = inclusive opcode along the last dim of in0; MAX and MIN also fill out1 (int64 positions, last
 *              occurrence) when n_outputs is 2
 *  matmul      out0 (batch..., M, N) = in0 (batch..., M, K) @ in1 (batch..., K, N); a third input is added, broadcast by
 *              zero strides; K may be 0. May decline the third input
 *  gather      out0 = in0 taken along dim params[0] at in1 (int64 or int32, out0's sizes); TS_INDEX_ERROR outside
 *  scatter     out0 (holds the base) at in0 (index) along params[0] combined by opcode with in1 (index's sizes);
 *              duplicates under SET: any one of them wins whole
 *  sort        out0, out1 (int64) = values, positions of in0 sorted along the last dim; params[0] BOOL descending;
 *              stable; NaN sorts as greatest
 *  random_bits out0 (uint32 or uint64, contiguous): Philox4x32-10 with key params[0] (64 bits, low word first);
 *              32-bit word w of the stream is word w%4 of the block with counter w/4; out0[i] is word params[1]+i, or
 *              for uint64 words params[1]+2i (low) and params[1]+2i+1 (high)
 *
 * Every other operator name may be answered too: tensors stand in `inputs` in the order of its schema (absent ones
 * flagged TS_T_NONE), all other arguments in `params` in schema order. */

typedef struct ts_properties {
  size_t struct_size;
  char name[128];
  uint64_t total_memory;  /* bytes; 0 unknown */
  uint64_t free_memory;
  uint64_t dtypes;        /* bit per dtype the device computes with */
  int32_t max_ndim;       /* 0: any */
  int32_t compute_units;
  uint64_t max_allocation;/* bytes; 0: total_memory. The core asks for no more in one piece */
  uint32_t alignment;     /* bytes, a power of two: byte offsets that kernels are given are multiples; 0: any */
  uint32_t flags;         /* TS_P_* */
  uint64_t instructions[TS_INSTRUCTION_WORDS]; /* Since 1.1. Bit n of word n/64: it has instruction n; see above */
} ts_properties;
enum {
  TS_P_HOST_MEMORY = 1, /* the host may use host_pointer's addresses, whenever the device is not ASYNC */
  TS_P_ATOMICS = 2,
  TS_P_ASYNC = 4,       /* kernels and copies may be under way when their calls return; so with stream_create, too */
  TS_P_SIMULATED = 8
};

/* --- recorded launches ---------------------------------------------------------------------------------------------
 * What a stream is given between begin and end is not done but written down, and done by every replay, in the thread of
 * the replay's caller, on the stream named. The core keeps the memory until the recording is destroyed, gives the stream
 * no copy from or to the host meanwhile, and does not wait for it. All four or none. */
typedef struct ts_capture { /* since 1.1 */
  size_t struct_size;
  int (*begin)(void* ctx, int32_t device, void* stream);
  int (*end)(void* ctx, int32_t device, void* stream, void** recording); /* after an error, too: it ends the writing */
  int (*replay)(void* ctx, int32_t device, void* recording, void* stream);
  void (*destroy)(void* ctx, int32_t device, void* recording);
} ts_capture;

/* --- communicators -------------------------------------------------------------------------------------------------- */
enum {
  TS_COLL_BROADCAST = 0, TS_COLL_ALL_REDUCE = 1, TS_COLL_REDUCE = 2, TS_COLL_ALL_GATHER = 3, TS_COLL_REDUCE_SCATTER = 4,
  TS_COLL_ALL_TO_ALL = 5, TS_COLL_GATHER = 6, TS_COLL_SCATTER = 7, TS_COLL_SEND = 8, TS_COLL_RECV = 9,
  TS_COLL_BARRIER = 10,
  TS_NUM_COLLECTIVES = 11
};
enum { TS_COLL_AVERAGE = 100 }; /* a reduction beside TS_R_SUM, TS_R_PROD, TS_R_MAX and TS_R_MIN */

/* One collective. Memory lies dense; src and dst may be one and the same range. */
typedef struct ts_collective { /* since 1.1 */
  size_t struct_size;
  const ts_host* host;
  int32_t kind;          /* TS_COLL_* */
  int32_t reduction;
  int32_t dtype;
  int32_t peer;          /* the root; of SEND and RECV the other rank */
  uint64_t sequence;     /* how many came before on this communicator: for messages and for telling mistakes */
  int64_t count;         /* elements that each rank gives (RECV and SCATTER: gets); of REDUCE_SCATTER: gets */
  const int64_t* counts; /* NULL, or elements per rank where they differ: ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL (given) */
  const int64_t* gotten; /* ALL_TO_ALL with counts: elements got from each rank */
  const void* src;
  int64_t src_offset;
  void* dst;
  int64_t dst_offset;
  void* stream;          /* done in its order, as a kernel is */
} ts_collective;

/* A group of devices in several processes. Collectives of one communicator are given in the same order on every rank.
 * TS_DECLINED: the core goes through the host, and counts that. */
typedef struct ts_communicator { /* since 1.1 */
  size_t struct_size;
  uint64_t collectives;  /* bit per kind */
  uint64_t dtypes;       /* bit per dtype */
  uint32_t flags;        /* none yet */
  uint32_t reserved;
  /* required */
  int (*open)(void* ctx, int32_t device, const void* id, size_t id_bytes, int32_t rank, int32_t size, void** comm);
  int (*collective)(void* ctx, void* comm, const ts_collective* call);
  void (*close)(void* ctx, void* comm); /* after all that was given is done */
  /* optional */
  int (*unique_id)(void* ctx, void* id, size_t capacity, size_t* id_bytes); /* made on one rank, carried by the core */
  int (*group_begin)(void* ctx, void* comm); /* what follows is given together, */
  int (*group_end)(void* ctx, void* comm);   /* up to here: both or neither */
  int (*split)(void* ctx, void* comm, int32_t color, int32_t key, void** out); /* color below 0: in none, *out is NULL */
  int (*query_error)(void* ctx, void* comm); /* TS_OK, or what failed since; never waits */
  int (*abort)(void* ctx, void* comm);       /* from any thread: what is under way ends with an error */
} ts_communicator;

/* --- what a device did, and when -------------------------------------------------------------------------------------- */
enum { /* kinds of ts_activity */
  TS_A_KERNEL = 0,  /* work of the call `call` */
  TS_A_COPY = 1,    /* `value` bytes */
  TS_A_MEMORY = 2,  /* `value` bytes taken from the device, below 0: given back; begin is end */
  TS_A_RANGE = 3,   /* between push_range and pop_range, as the device came past them */
  TS_A_COUNTER = 4, /* `value` at `begin`: occupancy, power, whatever `name` says */
  TS_NUM_ACTIVITIES = 5
};

/* Times are nanoseconds of the host's clock that never goes back (CLOCK_MONOTONIC): who has a clock of its own converts. */
typedef struct ts_activity { /* since 2.1 */
  size_t struct_size;
  int32_t kind;      /* TS_A_* */
  uint32_t reserved;
  const char* name;  /* valid while it is taken */
  uint64_t call;     /* ts_call.number of the call it belongs to; 0: of none */
  void* stream;
  int64_t begin, end;
  int64_t value;
} ts_activity;

typedef struct ts_profiler { /* since 2.1 */
  size_t struct_size;
  /* required */
  int (*start)(void* ctx, int32_t device);
  /* Waits for the device, then tells what it did since the start or the last time, each activity once, in any order. */
  int (*collect)(void* ctx, int32_t device, void (*take)(void* to, const ts_activity* activity), void* to);
  int (*stop)(void* ctx, int32_t device); /* what was not collected is forgotten */
  /* optional, both or neither: ranges that the program names, on the stream its work goes to; they nest */
  int (*push_range)(void* ctx, int32_t device, const char* name, void* stream);
  int (*pop_range)(void* ctx, int32_t device, void* stream);
} ts_profiler;

/* --- memory that several processes use ---------------------------------------------------------------------------------- */
typedef struct ts_sharing { /* since 2.1 */
  size_t struct_size;
  /* all three required */
  /* A name under which other processes of this machine find the memory, as long as this one keeps it. *bytes is the
   * capacity, then what was written; TS_OK with more than it: again. */
  int (*export_memory)(void* ctx, int32_t device, void* handle, void* name, size_t* bytes);
  int (*import_memory)(void* ctx, int32_t device, const void* name, size_t bytes, void** handle);
  void (*release)(void* ctx, int32_t device, void* handle); /* of an imported one; the memory stays its owner's */
} ts_sharing;

/* --- the device among others ------------------------------------------------------------------------------------------ */
typedef struct ts_identity { /* since 2.1 */
  size_t struct_size;
  uint8_t uuid[16];  /* the same in every process, and of no other device; all zero: unknown */
  char bus[32];      /* where it is plugged in: "0000:3b:00.0"; "": unknown */
  int32_t numa_node; /* whose processors and memory are near; -1: unknown */
  uint32_t reserved;
} ts_identity;

typedef struct ts_link { /* since 2.1 */
  size_t struct_size;
  uint32_t flags;     /* TS_LINK_* */
  uint32_t reserved;
  uint64_t bandwidth; /* bytes a second, one way; 0: unknown */
} ts_link;
enum { TS_LINK_DIRECT = 1 /* copy_peer between the two does not pass through the host's memory */ };

/* --- graph compilers ------------------------------------------------------------------------------------------------
 * The kernel calls of a graph between two that the core must make itself, as a card is shown them: values by number,
 * nodes in an order in which they may run. Read only, and valid during the call. A value is memory seen in one way: two
 * of one storage are values of their own, one naming the other in `alias_of`, and a node may write what was there
 * before. What a part does not share with the nodes around it, no input and no output, has no memory: where it is kept
 * meanwhile is the card's affair. */
typedef struct ts_graph_value { /* since 1.1 */
  size_t struct_size;
  const int64_t* sizes;
  const int64_t* strides;
  int32_t dtype;
  int32_t ndim;
  uint32_t flags;    /* TS_GV_* */
  int32_t alias_of;  /* the first value of the same memory; -1: this one is */
  int64_t offset;    /* from where that begins, in elements of this one's dtype */
  void* handle;      /* of a CONSTANT: its memory, with byte_offset; NULL for others */
  int64_t byte_offset;
} ts_graph_value;
enum { TS_GV_INPUT = 1, TS_GV_OUTPUT = 2, TS_GV_CONSTANT = 4 };

typedef struct ts_graph_node { /* since 1.1 */
  size_t struct_size;
  const char* op;            /* the kernel's, as get_kernel is asked for it; "copy_within": bytes, see there */
  const ts_program* program;
  const int32_t* inputs;     /* values, in the order of ts_call; -1: absent, or a number */
  const int32_t* outputs;
  const ts_value* params;    /* as in ts_call */
  int32_t n_inputs, n_outputs, n_params;
  uint32_t effects;          /* TS_GE_* */
  const ts_call* call;       /* Since 2.5. The call as the kernel would get it, but for memory: opcode, compute_dtype,
                                flags, numbers among the inputs, TS_T_MUTABLE; NULL of copy_within */
} ts_graph_node;
enum { TS_GE_WRITES = 1, TS_GE_RANDOM = 2, TS_GE_READS_HOST = 4, TS_GE_DATA_DEPENDENT = 8, TS_GE_COMMUNICATES = 16 };

typedef struct ts_graph { /* since 1.1 */
  size_t struct_size;
  const ts_host* host;
  size_t value_size, node_size; /* distances in bytes between elements */
  const ts_graph_value* values;
  const ts_graph_node* nodes;
  const int32_t* inputs;
  const int32_t* outputs;
  int32_t n_values, n_nodes, n_inputs, n_outputs;
} ts_graph;

typedef struct ts_compiler { /* since 1.1 */
  size_t struct_size;
  /* required */
  /* The part that node k is compiled in: groups[k], any number from 1 on; 0: it stays with the core, which splits a part
   * whose nodes could not run together, and has none compiled that gives nothing. */
  int (*claim)(void* ctx, int32_t device, const ts_graph* graph, int32_t* groups);
  int (*compile)(void* ctx, int32_t device, const ts_graph* part, void** compiled);
  /* Tensors as in ts_call, by the order of the part's inputs and outputs; what was there before and is written stands in
   * both, among the inputs with TS_T_MUTABLE. Several threads may run one part at a time. It may not decline. */
  int (*run)(void* ctx, int32_t device, void* compiled, const ts_call* call);
  void (*destroy)(void* ctx, int32_t device, void* compiled);
  /* optional, both or neither: *bytes is the capacity, then what was written; TS_OK with more than it fitted: again */
  int (*serialize)(void* ctx, int32_t device, void* compiled, void* out, size_t* bytes);
  int (*deserialize)(void* ctx, int32_t device, const void* data, size_t bytes, void** compiled);
} ts_compiler;

typedef struct ts_backend {
  size_t struct_size;
  int32_t abi_major;        /* TS_ABI_MAJOR it was built with */
  int32_t abi_minor_needed; /* lowest minor it works with */
  const char* name;         /* device name: "acme" */
  const char* vendor;       /* globally unique string used in interchange: "com.acme.npu" */
  const char* version;
  void* ctx;

  /* required: runtime. What is given to a stream runs in order. `free` gets the stream the memory was allocated on:
   * work that uses it may be under way there, and nowhere else. copy_from_host has read `src` when it returns. What
   * copy_to_host writes is looked at after `synchronize` of the stream, which also gives the status and message of an
   * error that arrives late. */
  int (*probe)(void* ctx, int32_t* device_count, char* reason, size_t reason_capacity); /* cheap; never fails loudly */
  int (*properties)(void* ctx, int32_t device, ts_properties* out);
  int (*alloc)(void* ctx, int32_t device, size_t bytes, void* stream, void** handle);
  void (*free)(void* ctx, int32_t device, void* handle, size_t bytes, void* stream); /* as many bytes as were asked for */
  int (*copy_from_host)(void* ctx, int32_t device, void* dst, int64_t dst_offset, const void* src, size_t bytes, void* stream);
  int (*copy_to_host)(void* ctx, int32_t device, void* dst, const void* src, int64_t src_offset, size_t bytes, void* stream);
  int (*copy_within)(void* ctx, int32_t device, void* dst, int64_t dst_offset, const void* src, int64_t src_offset, size_t bytes, void* stream);
  int (*synchronize)(void* ctx, int32_t device, void* stream);

  /* required: kernels. Fills *out and returns TS_OK, or TS_DECLINED for an operator that this device has no kernel for.
   * Asked once for each device. */
  int (*get_kernel)(void* ctx, int32_t device, const char* op, ts_kernel* out);

  /* optional */
  void* (*host_pointer)(void* ctx, int32_t device, void* handle); /* NULL slot or result: not host-addressable */
  int (*copy_peer)(void* ctx, int32_t device, void* dst, int64_t dst_offset, const char* src_backend, int32_t src_device,
                   const void* src, int64_t src_offset, size_t bytes, void* stream);
  int (*stream_create)(void* ctx, int32_t device, int32_t priority, void** stream);
  void (*stream_destroy)(void* ctx, int32_t device, void* stream);
  int (*event_create)(void* ctx, int32_t device, uint32_t flags, void** event);
  void (*event_destroy)(void* ctx, int32_t device, void* event);
  int (*event_record)(void* ctx, int32_t device, void* event, void* stream);
  int (*event_query)(void* ctx, int32_t device, void* event, int32_t* done);
  int (*event_synchronize)(void* ctx, int32_t device, void* event);
  int (*event_elapsed)(void* ctx, int32_t device, void* begin, void* end, double* milliseconds);
  int (*stream_wait_event)(void* ctx, int32_t device, void* stream, void* event);
  uint32_t flags; /* TS_B_* */
  uint32_t reserved;
  void (*set_num_threads)(void* ctx, int32_t n);
  int32_t (*get_num_threads)(void* ctx);
  const struct ts_communicator* communicator;
  const struct ts_compiler* compiler;
  void (*shutdown)(void* ctx);
  int (*stream_query)(void* ctx, int32_t device, void* stream, int32_t* done); /* default: an event's */
  /* Before all else that is done with a device, once; again after a failure. */
  int (*open)(void* ctx, int32_t device); /* since 1.1 */
  /* Memory of the host that the device copies from and to by itself, and the copies, which may be under way when the
   * call returns: the core keeps the memory until the stream has passed them. All four or none. */
  int (*host_alloc)(void* ctx, size_t bytes, void** address); /* since 1.1 */
  void (*host_free)(void* ctx, void* address, size_t bytes); /* since 1.1 */
  int (*copy_from_pinned)(void* ctx, int32_t device, void* dst, int64_t dst_offset, const void* src, size_t bytes,
                          void* stream); /* since 1.1 */
  int (*copy_to_pinned)(void* ctx, int32_t device, void* dst, const void* src, int64_t src_offset, size_t bytes,
                        void* stream); /* since 1.1 */
  const ts_capture* capture; /* since 1.1 */
  void (*trim)(void* ctx, int32_t device); /* Since 1.1. Memory that the backend keeps for reuse goes back to the device */
  const ts_profiler* profiler; /* since 2.1 */
  const ts_sharing* sharing; /* since 2.1 */
  int (*identify)(void* ctx, int32_t device, ts_identity* out); /* since 2.1 */
  int (*link)(void* ctx, int32_t device, int32_t peer, ts_link* out); /* Since 2.1. From one of its devices to another */
  /* After TS_DEVICE_LOST, or when the user asks: makes the device usable again, without anything that was on it. Memory,
   * streams, events and recordings of before are gone: the core gives none of them to any slot from now on, to free
   * them neither. Not for memory that the host addresses. NULL: the process has to be started anew. */
  int (*recover)(void* ctx, int32_t device); /* since 2.1 */
  /* Memory of the host that somebody else allocated (a mapped file, what processes share) becomes such as host_alloc
   * gives, for the copies there, until it is given back. It need not begin or end at a page; no part of it is given
   * twice at once. TS_DECLINED: not this memory. Both or neither, with the four slots of host_alloc. */
  int (*host_register)(void* ctx, void* address, size_t bytes); /* since 2.2 */
  void (*host_unregister)(void* ctx, void* address, size_t bytes); /* since 2.2 */
} ts_backend;
enum { TS_B_OWN_ALLOCATOR = 1 /* alloc/free are pooled already: the core adds no cache */ };

/* What the core offers a backend; valid for the life of the process. */
struct ts_host {
  size_t struct_size;
  int32_t abi_major, abi_minor;
  void (*set_error)(const char* message); /* message for the status about to be returned; thread-local, copied */
  int (*interrupted)(void);               /* non-zero: the user asked to stop; return TS_INTERRUPTED soon. Cheap */
  void (*log)(int32_t level, const char* message); /* 0 debug, 1 info, 2 warning */
  const struct ts_dispatch* dispatch; /* since 1.1 */
  /* Scratch memory for a kernel, on the call's stream; nobody's once the kernel returns, which what it has queued there
   * may outlast. Several times a call, if need be. Only within the kernel, in its thread. */
  int (*workspace)(const ts_call* call, size_t bytes, void** handle); /* since 1.1 */
  /* A copy of a call with all it points to, but for the memory of its tensors, to be looked at or run after the kernel
   * has returned: by a thread of the backend, a recorder, a tuner. It has no workspace. Freed by free_call. */
  int (*copy_call)(const ts_call* call, ts_call** out); /* since 1.1 */
  void (*free_call)(ts_call* copy); /* since 1.1 */
  /* Compiled kernels on the user's disk, for processes to come; any thread, any time. The key says all that they depend
   * on: whose they are, the source or ts_program.hash, dtypes, device, driver, options. *bytes is the capacity, then the
   * size of what is kept: TS_OK with more than the capacity: again. TS_DECLINED: nothing is kept, or not whole. */
  int (*cache_get)(const void* key, size_t key_bytes, void* out, size_t* bytes); /* since 2.1 */
  int (*cache_put)(const void* key, size_t key_bytes, const void* data, size_t bytes); /* since 2.1 */
};

/* The one symbol a native backend exports. Returns TS_OK and a table that outlives the process's use of it,
 * or an error after host->set_error. */
typedef int (*ts_backend_entry)(const ts_host* host, const ts_backend** out);
#define TS_BACKEND_ENTRY_SYMBOL "tesserack_backend"

/* --- Since 1.1: dispatch keys and operators from C ----------------------------------------------------------------
 *
 * A kernel at a dispatch key serves one call of an operator, boxed: arguments and results are ts_values. A tensor is
 * its number in the call: a TENSOR's `i`, and TENSORS are the `len` numbers from `i` on. Arguments have the first
 * numbers; what redispatch, invoke and empty give gets new ones, which the call owns until it ends or drops them.
 * A call is valid in the thread of its kernel and until that returns. Every function below tells a call, number,
 * name or value that is not valid by a status other than TS_OK, with a message set as by ts_host.set_error; a kernel
 * that gives such a status back raises that very error. */
typedef struct ts_boxed ts_boxed;

/* TS_OK: the results are those of set_result, and for others of the last redispatch. TS_DECLINED: as if there were no
 * such kernel, the next key is considered. Anything else raises. May run in several threads at once. */
typedef int (*ts_boxed_fn)(ts_boxed* call, void* ctx);

enum { TS_V_GENERATOR = 12 /* `i`: the number of the argument it came with; may only be passed on in that call */ };

typedef struct ts_boxed_info { /* since 1.1 */
  size_t struct_size; /* set by the caller, here and below: what fits is filled */
  const char* op;     /* "sum.dim" */
  const char* schema;
  const char* key;    /* that the kernel stands at: "Autograd", "cpu"; "" for the operator's own function */
  int32_t n_args, n_results;
  int64_t n_tensors;  /* numbers given so far */
} ts_boxed_info;

/* Where a tensor is. */
typedef struct ts_place { /* since 1.1 */
  size_t struct_size;
  const char* backend; /* "cpu"; "meta": it has no data */
  void* stream;        /* that work of this thread goes to; NULL: the device's default stream */
  int32_t device_index;
  int32_t requires_grad;
} ts_place;

enum { TS_O_COMPOSITE = 1 /* computes by invoke alone: differentiated through its parts, and takes meta tensors */ };

typedef struct ts_operator { /* since 1.1 */
  size_t struct_size;
  const char* schema; /* "acme::saxpy(Tensor x, Tensor y, float a=1) -> Tensor": always with a namespace */
  const char* doc;    /* NULL: none */
  const char* owner;  /* NULL: the plugin that is being set up */
  ts_boxed_fn run;    /* for every backend without a kernel of its own; NULL: there is none. Not asked for meta */
  void* ctx;
  uint32_t flags;     /* TS_O_* */
  uint32_t reserved;
} ts_operator;

/* Strings and lists that are passed in are copied. */
typedef struct ts_dispatch { /* since 1.1 */
  size_t struct_size;

  /* A functionality key, considered right before (or, with `before` 0, after) the key `neighbour`. */
  int (*register_key)(const char* name, const char* neighbour, int32_t before);
  /* Whether calls of this thread come to the key; `was` may be NULL. */
  int (*enable_key)(const char* key, int32_t on, int32_t* was);
  /* A kernel for one overload; for a key that is not a backend's, op NULL means every operator without one of its own.
   * The key may be a backend's name, which loads it, or "meta". fn NULL: calls pass by the key. owner as above. */
  int (*set_kernel)(const char* op, const char* key, ts_boxed_fn fn, void* ctx, const char* owner);
  int (*define_operator)(const ts_operator* op);

  /* What a kernel is asked. Pointers stay valid as long as the call, lists as long as what they came with. */
  int (*info)(ts_boxed* call, ts_boxed_info* out);
  int (*argument)(ts_boxed* call, int32_t k, ts_value* out);
  int (*result)(ts_boxed* call, int32_t k, ts_value* out); /* NONE before there is one */
  int (*tensor)(ts_boxed* call, int64_t number, ts_tensor* out);
  int (*place)(ts_boxed* call, int64_t number, ts_place* out);
  /* The address of the first element; TS_ERROR where the host cannot read the memory. */
  int (*data)(ts_boxed* call, int64_t number, void** out);

  /* What it does. A kernel's own invoke does not come back to its key; redispatch goes on with the keys after it. */
  int (*set_argument)(ts_boxed* call, int32_t k, const ts_value* value); /* for redispatch */
  int (*redispatch)(ts_boxed* call);
  /* Arguments in the order of the schema; those left out take their defaults. Results: up to n_results. */
  int (*invoke)(ts_boxed* call, const char* op, const ts_value* args, int32_t n_args, ts_value* results,
                int32_t n_results);
  /* An uninitialised contiguous tensor on the device of `like`. */
  int (*empty)(ts_boxed* call, const int64_t* sizes, int32_t ndim, int32_t dtype, int64_t like, int64_t* number);
  int (*list)(ts_boxed* call, const int64_t* numbers, int32_t n, ts_value* out); /* TENSORS of these; -1: None */
  int (*set_result)(ts_boxed* call, int32_t k, const ts_value* value);
  int (*drop)(ts_boxed* call, int64_t number); /* lets go of the tensor, whose number is then no longer valid */
  /* 1: let other threads of the interpreter run; 0, or returning: no longer. Between the two nothing else of this
   * table may be called. Pays above some ten thousand elements. */
  int (*release_interpreter)(ts_boxed* call, int32_t on);
} ts_dispatch;

/* A library of keys and operators. */
typedef struct ts_plugin { /* since 1.1 */
  size_t struct_size;
  int32_t abi_major;        /* TS_ABI_MAJOR it was built with */
  int32_t abi_minor_needed; /* lowest minor it works with */
  const char* name;         /* stands in messages, and as owner */
  const char* version;
  void* ctx;
  int (*setup)(void* ctx, const ts_host* host); /* registers; called once, after the versions were compared */
} ts_plugin;

/* The one symbol of such a library. It may export tesserack_backend as well. Returns as that does. */
typedef int (*ts_plugin_entry)(const ts_host* host, const ts_plugin** out);
#define TS_PLUGIN_ENTRY_SYMBOL "tesserack_plugin"

#ifdef __cplusplus
}
#endif
#endif /* TESSERACK_ABI_H */

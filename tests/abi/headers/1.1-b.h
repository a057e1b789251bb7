/* The contract of Tesserack with backends and with plugins of operators: plain C, versioned, append-only.
 *
 * Rules every revision keeps:
 *  - every struct begins with its own size in bytes; a smaller struct is normal, and a field beyond the
 *    end, or a NULL slot, means "the core's default";
 *  - fields and enum values are only appended, never moved or reinterpreted; unknown enum values are refused;
 *  - a different TS_ABI_MAJOR is refused with both versions named; a plugin states the lowest minor it needs;
 *  - nothing optional becomes required within a major version.
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

#define TS_ABI_MAJOR 1
#define TS_ABI_MINOR 1

/* Status of every callback. DECLINED: "not this case": the core decomposes or falls back, visibly. */
enum {
  TS_OK = 0,
  TS_DECLINED = 1,
  TS_ERROR = 2,          /* RuntimeError; message through ts_host.set_error */
  TS_OUT_OF_MEMORY = 3,  /* OutOfMemoryError */
  TS_INDEX_ERROR = 4,    /* IndexError */
  TS_INTERRUPTED = 5,    /* ts_host.interrupted() said so; outputs are unspecified */
  TS_VALUE_ERROR = 6     /* ValueError */
};

enum {
  TS_BOOL = 0, TS_UINT8 = 1, TS_UINT16 = 2, TS_UINT32 = 3, TS_UINT64 = 4,
  TS_INT8 = 5, TS_INT16 = 6, TS_INT32 = 7, TS_INT64 = 8,
  TS_FLOAT16 = 9, TS_BFLOAT16 = 10, TS_FLOAT32 = 11, TS_FLOAT64 = 12,
  TS_COMPLEX64 = 13, TS_COMPLEX128 = 14,
  TS_NUM_DTYPES = 15
};

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
  TS_I_POW = 45, TS_I_MAX = 46, TS_I_MIN = 47,                      /* MAX, MIN propagate NaN */
  TS_I_ATAN2 = 48, TS_I_HYPOT = 49, TS_I_COPYSIGN = 50,
  TS_I_EQ = 51, TS_I_NE = 52, TS_I_LT = 53, TS_I_LE = 54, TS_I_GT = 55, TS_I_GE = 56,
  TS_I_AND = 57, TS_I_OR = 58, TS_I_XOR = 59, TS_I_SHL = 60, TS_I_SHR = 61, /* bitwise; integers only */
  /* ternary: a, b, c */
  TS_I_SELECT = 62, /* a != 0 ? b : c */
  TS_I_FMA = 63,    /* a * b + c, rounded once or twice */
  TS_NUM_INSTRUCTIONS = 64
};

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
  void* core;                /* the core's own, for ts_host.workspace; a copy of the call passes it on */
} ts_call;

#define TS_OUT(call, k) ((const ts_tensor*)((const char*)(call)->outputs + (size_t)(k) * (call)->tensor_size))
#define TS_IN(call, k) ((const ts_tensor*)((const char*)(call)->inputs + (size_t)(k) * (call)->tensor_size))

/* Layouts a kernel takes. Default 0 = TS_L_STRIDED. */
enum { TS_L_STRIDED = 0, TS_L_CONTIGUOUS = 1, TS_L_CHANNELS_LAST = 2 /* contiguous or channels-last, inputs alike */ };

typedef int (*ts_kernel_fn)(const ts_call* call);

typedef struct ts_kernel {
  size_t struct_size;
  ts_kernel_fn run;
  void* ctx;         /* handed back as ts_call.kernel_ctx */
  uint64_t dtypes;   /* bit per dtype that any tensor of the call may have; 0: all but complex */
  uint32_t layouts;
  uint32_t flags;
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
} ts_properties;
enum {
  TS_P_HOST_MEMORY = 1, /* the host may use host_pointer's addresses, whenever the device is not ASYNC */
  TS_P_ATOMICS = 2,
  TS_P_ASYNC = 4,       /* kernels and copies may be under way when their calls return; so with stream_create, too */
  TS_P_SIMULATED = 8
};

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
  void (*free)(void* ctx, int32_t device, void* handle, size_t bytes, void* stream);
  int (*copy_from_host)(void* ctx, int32_t device, void* dst, int64_t dst_offset, const void* src, size_t bytes, void* stream);
  int (*copy_to_host)(void* ctx, int32_t device, void* dst, const void* src, int64_t src_offset, size_t bytes, void* stream);
  int (*copy_within)(void* ctx, int32_t device, void* dst, int64_t dst_offset, const void* src, int64_t src_offset, size_t bytes, void* stream);
  int (*synchronize)(void* ctx, int32_t device, void* stream);

  /* required: kernels. Fills *out and returns TS_OK, or TS_DECLINED for an operator it has no kernel for. */
  int (*get_kernel)(void* ctx, const char* op, ts_kernel* out);

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
  void* communicator; /* reserved for the communicator factory */
  void* compiler;     /* reserved for the graph compiler */
  void (*shutdown)(void* ctx);
  int (*stream_query)(void* ctx, int32_t device, void* stream, int32_t* done); /* default: an event's */
  int (*open)(void* ctx, int32_t device); /* before all else that is done with a device, once; again after a failure */
  /* Memory of the host that the device copies from and to by itself, and the copies, which may be under way when the
   * call returns: the core keeps the memory until the stream has passed them. All four or none. */
  int (*host_alloc)(void* ctx, size_t bytes, void** address);
  void (*host_free)(void* ctx, void* address, size_t bytes);
  int (*copy_from_pinned)(void* ctx, int32_t device, void* dst, int64_t dst_offset, const void* src, size_t bytes, void* stream);
  int (*copy_to_pinned)(void* ctx, int32_t device, void* dst, const void* src, int64_t src_offset, size_t bytes, void* stream);
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
  int (*workspace)(const ts_call* call, size_t bytes, void** handle);
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

typedef struct ts_boxed_info {
  size_t struct_size; /* set by the caller, here and below: what fits is filled */
  const char* op;     /* "sum.dim" */
  const char* schema;
  const char* key;    /* that the kernel stands at: "Autograd", "cpu"; "" for the operator's own function */
  int32_t n_args, n_results;
  int64_t n_tensors;  /* numbers given so far */
} ts_boxed_info;

/* Where a tensor is. */
typedef struct ts_place {
  size_t struct_size;
  const char* backend; /* "cpu"; "meta": it has no data */
  void* stream;        /* that work of this thread goes to; NULL: the device's default stream */
  int32_t device_index;
  int32_t requires_grad;
} ts_place;

enum { TS_O_COMPOSITE = 1 /* computes by invoke alone: differentiated through its parts, and takes meta tensors */ };

typedef struct ts_operator {
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
typedef struct ts_dispatch {
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
typedef struct ts_plugin {
  size_t struct_size;
  int32_t abi_major;        /* TS_ABI_MAJOR it was built with */
  int32_t abi_minor_needed; /* lowest minor it works with: 1 */
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

/* A library of dispatch keys and operators in C, for test_c_dispatch.py. */
#define _POSIX_C_SOURCE 200809L

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <tesserack/abi.h>

static const ts_host* host;
static const ts_dispatch* d;

#define TRY(call_)                                                                                                     \
  do {                                                                                                                 \
    int status_ = (call_);                                                                                             \
    if (status_ != TS_OK) return status_;                                                                              \
  } while (0)

static int refuse(int status, const char* message) {
  host->set_error(message);
  return status;
}
static ts_value tensor_value(int64_t number) { return (ts_value){TS_V_TENSOR, 1, {.i = number}}; }

/* --- a key: counts calls and the multiplications of matmul, and refuses results that are not a number ---------- */

static atomic_long calls, flops;

static int trap(ts_boxed* call, void* ctx) {
  ts_boxed_info info = {.struct_size = sizeof info};
  ts_value result;
  (void)ctx;
  atomic_fetch_add(&calls, 1);
  TRY(d->redispatch(call));
  TRY(d->info(call, &info));
  for (int32_t k = 0; k < info.n_results; ++k) {
    TRY(d->result(call, k, &result));
    for (int64_t n = result.as.i; result.tag == TS_V_TENSOR && n < result.as.i + result.len; ++n) {
      ts_tensor t = {.struct_size = sizeof t};
      float* at;
      TRY(d->tensor(call, n, &t));
      if (t.flags & TS_T_NONE || t.dtype != TS_FLOAT32 || !(t.flags & TS_T_CONTIGUOUS) || !t.handle) continue;
      TRY(d->data(call, n, (void**)&at));
      for (int64_t i = 0; i < t.numel; ++i)
        if (isnan(at[i])) {
          char text[100];
          snprintf(text, sizeof text, "%s gave NaN at %d", info.op, (int)i);
          return refuse(TS_VALUE_ERROR, text);
        }
    }
  }
  return TS_OK;
}

static int count_flops(ts_boxed* call, void* ctx) {
  ts_value a;
  ts_tensor x = {.struct_size = sizeof x}, y = {.struct_size = sizeof y};
  TRY(d->argument(call, 0, &a));
  TRY(d->tensor(call, a.as.i, &x));
  TRY(d->redispatch(call));
  TRY(d->result(call, 0, &a));
  TRY(d->tensor(call, a.as.i, &y));
  atomic_fetch_add((atomic_long*)ctx, 2 * y.numel * x.sizes[x.ndim - 1]);
  return TS_OK;
}

static int give_count(ts_boxed* call, void* ctx) {
  ts_value count = {TS_V_INT, 0, {.i = atomic_load((atomic_long*)ctx)}};
  return d->set_result(call, 0, &count);
}

/* --- acme::saxpy: with other operators anywhere, with a loop on the cpu ----------------------------------------- */

static int saxpy(ts_boxed* call, void* ctx) {
  ts_value x, y, a, args[2], scaled, sum;
  (void)ctx;
  TRY(d->argument(call, 0, &x));
  TRY(d->argument(call, 1, &y));
  TRY(d->argument(call, 2, &a));
  args[0] = x, args[1] = a;
  TRY(d->invoke(call, "mul", args, 2, &scaled, 1));
  args[0] = scaled, args[1] = y;
  TRY(d->invoke(call, "add", args, 2, &sum, 1));
  TRY(d->drop(call, scaled.as.i));
  return d->set_result(call, 0, &sum);
}

static int saxpy_cpu(ts_boxed* call, void* ctx) {
  ts_value a;
  ts_tensor x = {.struct_size = sizeof x}, y = x;
  float *from_x, *from_y, *to;
  int64_t out;
  atomic_fetch_add((atomic_long*)ctx, 1);
  TRY(d->argument(call, 2, &a));
  TRY(d->tensor(call, 0, &x));
  TRY(d->tensor(call, 1, &y));
  int plain = x.dtype == TS_FLOAT32 && y.dtype == TS_FLOAT32 && (x.flags & y.flags & TS_T_CONTIGUOUS) &&
              x.ndim == y.ndim && memcmp(x.sizes, y.sizes, sizeof(int64_t) * (size_t)x.ndim) == 0;
  if (!plain) return TS_DECLINED;
  TRY(d->empty(call, x.sizes, x.ndim, x.dtype, 0, &out));
  TRY(d->data(call, 0, (void**)&from_x));
  TRY(d->data(call, 1, (void**)&from_y));
  TRY(d->data(call, out, (void**)&to));
  TRY(d->release_interpreter(call, 1));
  for (int64_t i = 0; i < x.numel; ++i) to[i] = (float)a.as.f * from_x[i] + from_y[i];
  TRY(d->release_interpreter(call, 0));
  ts_value result = tensor_value(out);
  return d->set_result(call, 0, &result);
}
static atomic_long loops;

/* --- arguments of every kind, results of several ----------------------------------------------------------------- */

static int kinds(ts_boxed* call, void* ctx) {
  ts_value v, list, extra[3];
  int64_t numbers[3];
  char text[200], *at = text;
  ts_boxed_info info = {.struct_size = sizeof info};
  (void)ctx;
  TRY(d->info(call, &info));
  for (int32_t k = 0; k < info.n_args; ++k) {
    TRY(d->argument(call, k, &v));
    at += snprintf(at, 20, "%d/%d ", (int)v.tag, (int)v.len);
  }
  TRY(d->argument(call, 2, &v)); /* the ints */
  int64_t sum = 0;
  for (int32_t k = 0; k < v.len; ++k) sum += v.as.ints[k];
  v = (ts_value){TS_V_INT, 0, {.i = sum}};
  TRY(d->set_result(call, 1, &v));
  TRY(d->argument(call, 0, &list));
  if (list.len < 2) return refuse(TS_VALUE_ERROR, text);
  numbers[0] = list.as.i + 1, numbers[1] = list.as.i;
  TRY(d->list(call, numbers, 2, &list)); /* reversed */
  TRY(d->invoke(call, "cat", &list, 1, &extra[0], 1));
  TRY(d->set_result(call, 0, &extra[0]));
  numbers[2] = extra[0].as.i;
  TRY(d->list(call, numbers, 3, &list));
  return d->set_result(call, 2, &list);
}

static int add_one(ts_boxed* call, void* ctx) {
  ts_tensor t = {.struct_size = sizeof t};
  float* at;
  (void)ctx;
  TRY(d->tensor(call, 0, &t));
  if (!(t.flags & TS_T_MUTABLE)) return refuse(TS_ERROR, "expected a tensor to write");
  TRY(d->data(call, 0, (void**)&at));
  for (int64_t i = 0; i < t.numel; ++i) at[i] += 1;
  return TS_OK;
}

/* A number from the generator that came with the call. */
static int draw(ts_boxed* call, void* ctx) {
  const int64_t sizes[1] = {3};
  ts_value args[2] = {{TS_V_INTS, 1, {.ints = sizes}}}, made, again;
  (void)ctx;
  TRY(d->argument(call, 0, &args[1]));
  const ts_value empty_like[1] = {{TS_V_INTS, 1, {.ints = sizes}}};
  TRY(d->invoke(call, "zeros", empty_like, 1, &made, 1));
  ts_value uniform[4] = {made, {TS_V_FLOAT, 0, {.f = 0}}, {TS_V_FLOAT, 0, {.f = 1}}, args[1]};
  TRY(d->invoke(call, "uniform_", uniform, 4, &again, 1));
  return d->set_result(call, 0, &made);
}

/* --- threads ------------------------------------------------------------------------------------------------------- */

static atomic_int signalled;

/* Waits until another thread calls acme::signal: forever, if Python's lock were held. */
static int wait_for_signal(ts_boxed* call, void* ctx) {
  (void)ctx;
  TRY(d->release_interpreter(call, 1));
  for (int round = 0; round < 10000 && !atomic_load(&signalled); ++round) {
    struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
  }
  ts_value seen = {TS_V_BOOL, 0, {.i = atomic_exchange(&signalled, 0)}};
  TRY(d->release_interpreter(call, 0));
  return d->set_result(call, 0, &seen);
}
static int signal_it(ts_boxed* call, void* ctx) {
  (void)call, (void)ctx;
  atomic_store(&signalled, 1);
  return TS_OK;
}
static int enable(ts_boxed* call, void* ctx) {
  ts_value on;
  int32_t was = -1;
  (void)ctx;
  TRY(d->argument(call, 0, &on));
  TRY(d->enable_key("AcmeTrap", (int32_t)on.as.i, &was));
  on = (ts_value){TS_V_BOOL, 0, {.i = was}};
  return d->set_result(call, 0, &on);
}

static int give_text(ts_boxed* call, void* ctx) {
  ts_value text = {TS_V_STR, 0, {.str = "text"}};
  (void)ctx;
  return d->set_result(call, 0, &text);
}

/* The rule for shapes of acme::cpu_only. */
static int like_the_first(ts_boxed* call, void* ctx) {
  ts_tensor x = {.struct_size = sizeof x};
  ts_place place = {.struct_size = sizeof place};
  ts_boxed_info info = {.struct_size = sizeof info};
  int64_t out;
  void* data;
  (void)ctx;
  TRY(d->tensor(call, 0, &x));
  TRY(d->place(call, 0, &place));
  TRY(d->info(call, &info));
  if (strcmp(place.backend, "meta") || strcmp(info.key, "meta") || d->data(call, 0, &data) == TS_OK || data)
    return refuse(TS_ERROR, "expected a tensor without data");
  TRY(d->empty(call, x.sizes, x.ndim, x.dtype, 0, &out));
  ts_value result = tensor_value(out);
  return d->set_result(call, 0, &result);
}

/* --- what a careless library does: each step must end in an error, not in a crash -------------------------------- */

static ts_boxed* kept;
static ts_boxed* foreign(void) { return (ts_boxed*)(void*)&kept; }

static int misuse(ts_boxed* call, void* ctx) {
  ts_value what, v, wrong;
  ts_tensor t = {.struct_size = sizeof t};
  ts_place place = {.struct_size = sizeof place};
  int64_t number, sizes[2] = {-1, 2};
  void* data;
  (void)ctx;
  TRY(d->argument(call, 1, &what));
  memset(&wrong, 0, sizeof wrong);
  wrong.tag = 77;
  switch (what.as.i) {
  case 0: return d->argument(call, 9, &v);
  case 1: return d->argument(call, -1, &v);
  case 2: return d->tensor(call, 99, &t);
  case 3: return d->tensor(call, -1, &t);
  case 4: t.struct_size = 0; return d->tensor(call, 0, &t);
  case 5: return d->tensor(call, 0, NULL);
  case 6: return d->result(call, 1, &v);
  case 7: return d->set_result(call, 3, &what);
  case 8: return d->set_result(call, 0, &what); /* an int for a tensor */
  case 9: return d->set_result(call, 0, &wrong);
  case 10: return d->set_result(call, 0, NULL);
  case 11: return d->invoke(call, "no_such_operator", NULL, 0, NULL, 0);
  case 12: return d->invoke(call, NULL, NULL, 0, NULL, 0);
  case 13: return d->invoke(call, "relu", &what, 1, NULL, 0);
  case 14: return d->invoke(call, "relu", NULL, 2, NULL, 0);
  case 15: return d->redispatch(call);
  case 16: return d->empty(call, sizes, 2, TS_FLOAT32, 0, &number);
  case 17: return d->empty(call, NULL, 2, TS_FLOAT32, 0, &number);
  case 18: return d->empty(call, sizes + 1, 1, 77, 0, &number);
  case 19: return d->empty(call, sizes + 1, 1, TS_FLOAT32, 5, &number);
  case 20: TRY(d->drop(call, 0)); return d->tensor(call, 0, &t);
  case 21: return d->info(NULL, NULL);
  case 22: return d->argument(foreign(), 0, &v);
  case 23: return d->argument(kept, 0, &v); /* of a call that has ended */
  case 24: TRY(d->release_interpreter(call, 1)); return d->tensor(call, 0, &t);
  case 25: return TS_ERROR;                 /* without a message */
  case 26: return TS_OK;                    /* without a result */
  case 27: v = tensor_value(0); return d->set_result(call, 0, &v); /* its own argument */
  case 28: return TS_DECLINED;
  case 29: return 1234;
  case 30: return d->place(call, 7, &place);
  case 31: TRY(d->release_interpreter(call, 1)); return refuse(TS_INDEX_ERROR, "said while released");
  case 32: v = tensor_value(0); return d->invoke(call, "acme::misuse", (ts_value[]){v, what}, 2, NULL, 0);
  case 33: /* what failed is dealt with */
    if (d->argument(call, 9, &v) == TS_OK || d->invoke(call, "acme::fails", NULL, 0, NULL, 0) == TS_OK) return TS_ERROR;
    v = tensor_value(0);
    TRY(d->invoke(call, "clone", &v, 1, &v, 1));
    return d->set_result(call, 0, &v);
  case 34: return d->invoke(call, "acme::fails", NULL, 0, NULL, 0); /* raised in Python, handed on */
  case 35: /* other words for it */
    if (d->invoke(call, "acme::fails", NULL, 0, NULL, 0) == TS_OK) return TS_OK;
    return refuse(TS_VALUE_ERROR, "in my own words");
  case 36: return d->set_argument(call, 5, &what);
  case 37: return d->set_argument(call, 0, &wrong);
  case 38: return d->list(call, NULL, 2, &v);
  case 39: number = 50; return d->list(call, &number, 1, &v);
  case 40: wrong = (ts_value){TS_V_TENSORS, 2000000000, {.i = 0}}; return d->invoke(call, "cat", &wrong, 1, NULL, 0);
  case 41: wrong = (ts_value){TS_V_DEVICE, 0, {.i = 0x7777777777}}; return d->set_argument(call, 1, &wrong);
  case 42: return d->data(call, 0, &data) ? TS_ERROR : d->drop(call, 1234);
  default: kept = call; return refuse(TS_VALUE_ERROR, "kept");
  }
}

/* --- at a key: other arguments, and a kernel that declines -------------------------------------------------------- */

static int halve_argument(ts_boxed* call, void* ctx) {
  ts_value args[2], half;
  (void)ctx;
  TRY(d->argument(call, 0, &args[0]));
  args[1] = (ts_value){TS_V_FLOAT, 0, {.f = 0.5}};
  TRY(d->invoke(call, "mul", args, 2, &half, 1));
  TRY(d->set_argument(call, 0, &half));
  TRY(d->drop(call, half.as.i)); /* the argument keeps it */
  return d->redispatch(call);
}
static int decline(ts_boxed* call, void* ctx) {
  (void)call, (void)ctx;
  return TS_DECLINED;
}


static int setup(void* ctx, const ts_host* given) {
  (void)ctx;
  host = given, d = given->dispatch;
  if (given->struct_size < sizeof *given || d->struct_size < sizeof *d) return TS_ERROR;
  TRY(d->register_key("AcmeTrap", "Autograd", 1));
  TRY(d->set_kernel(NULL, "AcmeTrap", trap, NULL, NULL));
  TRY(d->set_kernel("matmul", "AcmeTrap", count_flops, &flops, "acme flops"));
  TRY(d->register_key("AcmeHalf", "Autograd", 0));
  TRY(d->set_kernel("exp", "AcmeHalf", halve_argument, NULL, NULL));
  TRY(d->set_kernel("log", "AcmeHalf", decline, NULL, NULL));
  const ts_operator operators[] = {
      {sizeof(ts_operator), "acme::saxpy(Tensor x, Tensor y, float a=2) -> Tensor", "a * x + y.", NULL, saxpy, NULL, 0, 0},
      {sizeof(ts_operator), "acme::traced(Tensor x, Tensor y, float a=2) -> Tensor", NULL, NULL, saxpy, NULL,
       TS_O_COMPOSITE, 0},
      {sizeof(ts_operator), "acme::cpu_only(Tensor x, Tensor y, float a=2) -> Tensor", NULL, NULL, NULL, NULL, 0, 0},
      {sizeof(ts_operator), "acme::calls() -> int", NULL, NULL, give_count, &calls, 0, 0},
      {sizeof(ts_operator), "acme::flops() -> int", NULL, NULL, give_count, &flops, 0, 0},
      {sizeof(ts_operator), "acme::loops() -> int", NULL, NULL, give_count, &loops, 0, 0},
      {sizeof(ts_operator),
       "acme::kinds(Tensor[] xs, Tensor? w, int[] n, float[] f, str s='s', bool b=True, ScalarType? t=None, "
       "Scalar v=1) -> (Tensor, int, Tensor[])",
       NULL, NULL, kinds, NULL, 0, 0},
      {sizeof(ts_operator), "acme::add_one_(Tensor(a!) x) -> ()", NULL, NULL, add_one, NULL, 0, 0},
      {sizeof(ts_operator), "acme::wait() -> bool", NULL, NULL, wait_for_signal, NULL, 0, 0},
      {sizeof(ts_operator), "acme::signal() -> ()", NULL, NULL, signal_it, NULL, 0, 0},
      {sizeof(ts_operator), "acme::enable(bool on) -> bool", NULL, NULL, enable, NULL, 0, 0},
      {sizeof(ts_operator), "acme::text() -> str", NULL, NULL, give_text, NULL, 0, 0},
      {sizeof(ts_operator), "acme::draw(Generator? generator) -> Tensor", NULL, NULL, draw, NULL, 0, 0},
      {sizeof(ts_operator), "acme::misuse(Tensor x, int what) -> Tensor", NULL, NULL, misuse, NULL, 0, 0},
  };
  for (size_t k = 0; k < sizeof operators / sizeof *operators; ++k) TRY(d->define_operator(&operators[k]));
  TRY(d->set_kernel("acme::saxpy", "cpu", saxpy_cpu, &loops, "acme loops"));
  TRY(d->set_kernel("acme::cpu_only", "meta", like_the_first, NULL, NULL));
  TRY(d->set_kernel("trunc", "cpu", decline, NULL, NULL));
  TRY(d->set_kernel("trunc_", "cpu", decline, NULL, NULL));
  TRY(d->set_kernel("acme::cpu_only", "cpu", saxpy_cpu, &loops, NULL));
  return TS_OK;
}

__attribute__((visibility("default"))) int tesserack_plugin(const ts_host* given, const ts_plugin** out) {
  static const ts_plugin plugin = {sizeof(ts_plugin), TS_ABI_MAJOR, 0, "acme-extras", "1.0", NULL, setup};
  (void)given;
  *out = &plugin;
  return TS_OK;
}

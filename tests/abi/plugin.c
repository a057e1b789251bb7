/* A backend in plain C against any header that ever landed, as a vendor built it then: memory, copies and one kernel.
 * What is wrong with it, if anything, is chosen with -D; see test_plugins.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tesserack/abi.h>

#ifndef NAME
#define NAME "elder"
#endif
#ifndef MAJOR
#define MAJOR TS_ABI_MAJOR
#endif
#ifndef MINOR_NEEDED
#define MINOR_NEEDED 0
#endif

static int probe(void* ctx, int32_t* count, char* reason, size_t capacity) {
  (void)ctx, (void)reason, (void)capacity;
  *count = 1;
  return TS_OK;
}
static int properties(void* ctx, int32_t device, ts_properties* out) {
  ts_properties mine;
  (void)ctx, (void)device;
  memset(&mine, 0, sizeof mine);
  strcpy(mine.name, "Elder");
  mine.dtypes = (1u << TS_COMPLEX64) - 1;
#ifdef TELL /* of its device, what cannot be */
  TELL;
#endif
  mine.struct_size = out->struct_size < sizeof mine ? out->struct_size : sizeof mine;
  memcpy(out, &mine, mine.struct_size);
  return TS_OK;
}
static int allocate(void* ctx, int32_t device, size_t bytes, void* stream, void** handle) {
  (void)ctx, (void)device, (void)stream;
  *handle = malloc(bytes);
  return *handle ? TS_OK : TS_OUT_OF_MEMORY;
}
static void release(void* ctx, int32_t device, void* handle, size_t bytes, void* stream) {
  (void)ctx, (void)device, (void)bytes, (void)stream;
  free(handle);
}
static int from_host(void* ctx, int32_t device, void* dst, int64_t at, const void* src, size_t n, void* stream) {
  (void)ctx, (void)device, (void)stream;
  memcpy((char*)dst + at, src, n);
  return TS_OK;
}
static int to_host(void* ctx, int32_t device, void* dst, const void* src, int64_t at, size_t n, void* stream) {
  (void)ctx, (void)device, (void)stream;
  memcpy(dst, (const char*)src + at, n);
  return TS_OK;
}
static int within(void* ctx, int32_t device, void* dst, int64_t to, const void* src, int64_t from, size_t n,
                  void* stream) {
  (void)ctx, (void)device, (void)stream;
  memmove((char*)dst + to, (const char*)src + from, n);
  return TS_OK;
}
static int synchronize(void* ctx, int32_t device, void* stream) {
  (void)ctx, (void)device, (void)stream;
  return TS_OK;
}

static float* element(const ts_tensor* t, int64_t flat) {
  int64_t at = 0;
  for (int d = t->ndim - 1; d >= 0; --d) {
    at += flat % t->sizes[d] * t->strides[d];
    flat /= t->sizes[d];
  }
  return (float*)(void*)((char*)t->handle + t->byte_offset) + at;
}

/* Adds and multiplies float32; other programs it leaves to the core. */
static int pointwise(const ts_call* call) {
  const ts_tensor *a = TS_IN(call, 0), *b = TS_IN(call, call->n_inputs - 1), *out = TS_OUT(call, 0);
  const ts_program* program = call->program;
  int op = program->n_instructions == 1 ? program->instructions[0].op : -1;
  if ((op != TS_I_ADD && op != TS_I_MUL) || call->n_inputs != 2 || a->dtype != TS_FLOAT32 || b->dtype != TS_FLOAT32 ||
      out->dtype != TS_FLOAT32)
    return TS_DECLINED;
  for (int64_t i = 0; i < out->numel; ++i) {
    float x = a->flags & TS_T_SCALAR ? (float)a->scalar.f : *element(a, i);
    float y = b->flags & TS_T_SCALAR ? (float)b->scalar.f : *element(b, i);
    *element(out, i) = op == TS_I_ADD ? x + y : x * y;
  }
  return TS_OK;
}
#ifdef WITHOUT_DEVICE /* as it was up to 1.1-b */
static int get_kernel(void* ctx, const char* op, ts_kernel* out) {
#else
static int get_kernel(void* ctx, int32_t device, const char* op, ts_kernel* out) {
  (void)device;
#endif
  (void)ctx;
#ifndef ANY_KERNEL
  if (strcmp(op, "pointwise") != 0) return TS_DECLINED;
#endif
  (void)op;
  out->run = pointwise;
#ifdef TELL_OF_KERNEL
  TELL_OF_KERNEL;
#endif
  return TS_OK;
}

/* One field more than this header knows, as a later header has. */
static struct {
  ts_backend table;
  void* later;
} given;

__attribute__((visibility("default"))) int tesserack_backend(const ts_host* host, const ts_backend** out) {
  ts_backend* t = &given.table;
  (void)host;
#ifdef TELLS
  puts("the entry point ran");
  fflush(stdout);
#endif
  memset(&given, 0xDB, sizeof given); /* whatever the core reads beyond the end leads nowhere */
  memset(t, 0, sizeof *t);
  t->struct_size = sizeof *t;
  t->abi_major = MAJOR;
  t->abi_minor_needed = MINOR_NEEDED;
  t->name = NAME;
  t->vendor = "com.example.elder";
  t->version = "1.0";
  t->probe = probe;
  t->properties = properties;
  t->alloc = allocate;
  t->free = release;
  t->copy_from_host = from_host;
  t->copy_to_host = to_host;
  t->copy_within = within;
  t->synchronize = synchronize;
  t->get_kernel = get_kernel;
  *out = t;
#ifdef SHORT_TABLE /* ends after the required slots: the optional ones are no part of it */
  t->struct_size = offsetof(ts_backend, host_pointer);
  memset((char*)t + t->struct_size, 0xDB, sizeof *t - t->struct_size);
#endif
#ifdef LONG_TABLE
  t->struct_size = sizeof given;
#endif
#ifdef TINY_TABLE
  t->struct_size = offsetof(ts_backend, alloc);
#endif
#ifdef NO_SIZE
  t->struct_size = 0;
#endif
#ifdef EMPTY_SLOT
  t->EMPTY_SLOT = NULL;
#endif
#ifdef GIVE /* in its table, what cannot be */
  GIVE;
#endif
#ifdef NO_TABLE
  *out = NULL;
#endif
#ifdef REFUSES
  if (*REFUSES) host->set_error(REFUSES);
  return TS_ERROR;
#endif
  return TS_OK;
}

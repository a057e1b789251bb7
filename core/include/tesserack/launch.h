/* Launch plans: what a backend that compiles its kernels while the program runs answers a kernel call with, so that the
 * core repeats the call without asking again. A launcher is a C function over the driver's own launch entry: it sets
 * the arguments of a compiled kernel, in order, and queues it on the stream. Plain C, as abi.h. */
/* clang-format off */
#ifndef TESSERACK_LAUNCH_H
#define TESSERACK_LAUNCH_H

#include "tesserack/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  TS_LA_HANDLE = 0, /* value points at a storage handle (void*) */
  TS_LA_BYTES = 1   /* value points at `size` bytes, passed by value; copied before the launcher returns */
};

typedef struct ts_launch_argument {
  size_t struct_size;
  const void* value;
  size_t size;
  int32_t kind; /* TS_LA_* */
  int32_t reserved;
} ts_launch_argument;

typedef struct ts_launch {
  size_t struct_size;
  const ts_host* host;
  void* stream;            /* NULL: the device's default stream */
  void* kernel;            /* what the plan named: a driver's kernel, or a struct of the launcher's own */
  int32_t device_index;
  int32_t n_arguments;
  size_t argument_size;    /* distance in bytes between elements of arguments */
  const ts_launch_argument* arguments;
  uint64_t groups[3];      /* how many work-groups (blocks) along each axis; none is 0 */
  uint32_t group_size[3];  /* work-items (threads) in a group */
  uint32_t shared_bytes;   /* dynamic local (shared) memory */
  /* Since 2.2. What is launched, for as long as the launcher runs, and the ts_call.number; 0: nobody profiles. */
  const char* op;
  uint64_t number;
} ts_launch;

#define TS_LAUNCH_ARGUMENT(launch, k) \
  ((const ts_launch_argument*)((const char*)(launch)->arguments + (size_t)(k) * (launch)->argument_size))

/* TS_OK once queued; another status after host->set_error. May run in several threads at once. */
typedef int (*ts_launch_fn)(const ts_launch* launch);

#ifdef __cplusplus
}
#endif
#endif /* TESSERACK_LAUNCH_H */

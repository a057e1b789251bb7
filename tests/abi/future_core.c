/* A core of a later minor version, of whose structs every one has grown: it opens a plugin built against an older
 * header, and has it add two vectors. Prints the sum. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <tesserack/abi.h>

#define N 3

static void set_error(const char* message) { fprintf(stderr, "plugin: %s\n", message); }

static int check(int ok, const char* what) {
  if (!ok) fprintf(stderr, "failed: %s\n", what);
  return ok;
}

static ts_tensor describe(void* handle, const int64_t* sizes, const int64_t* strides) {
  ts_tensor t;
  memset(&t, 0xDB, sizeof t); /* the new field too */
  t.struct_size = sizeof t;
  t.handle = handle;
  t.byte_offset = 0;
  t.numel = N;
  t.sizes = sizes;
  t.strides = strides;
  t.dtype = TS_FLOAT32;
  t.ndim = 1;
  t.flags = TS_T_CONTIGUOUS;
  return t;
}

int main(int count, char** words) {
  (void)count;
  ts_host host;
  memset(&host, 0, sizeof host);
  host.struct_size = sizeof host;
  host.abi_major = TS_ABI_MAJOR;
  host.abi_minor = TS_ABI_MINOR + 1;
  host.set_error = set_error;
  void* library = dlopen(words[1], RTLD_NOW);
  if (!check(library != NULL, "dlopen")) return 1;
  ts_backend_entry entry;
  *(void**)&entry = dlsym(library, TS_BACKEND_ENTRY_SYMBOL);
  const ts_backend* table;
  if (!check(entry && entry(&host, &table) == TS_OK, "entry point")) return 1;
  ts_backend own; /* what lies beyond the plugin's end stays NULL */
  memset(&own, 0, sizeof own);
  memcpy(&own, table, table->struct_size < sizeof own ? table->struct_size : sizeof own);
  if (!check(own.struct_size < sizeof own && own.appended == 0, "the plugin knows no new field")) return 1;

  ts_properties properties;
  memset(&properties, 0, sizeof properties);
  properties.struct_size = sizeof properties;
  if (!check(own.properties(own.ctx, 0, &properties) == TS_OK && properties.appended == 0, "properties")) return 1;

  const float a[N] = {1, 2, 3}, b[N] = {10, 20, 30};
  float sum[N] = {0};
  void* blocks[N];
  for (int k = 0; k < 3; ++k)
    if (!check(own.alloc(own.ctx, 0, sizeof a, NULL, &blocks[k]) == TS_OK, "alloc")) return 1;
  own.copy_from_host(own.ctx, 0, blocks[0], 0, a, sizeof a, NULL);
  own.copy_from_host(own.ctx, 0, blocks[1], 0, b, sizeof b, NULL);

  ts_kernel kernel;
  memset(&kernel, 0, sizeof kernel);
  kernel.struct_size = sizeof kernel;
  if (!check(own.get_kernel(own.ctx, 0, "pointwise", &kernel) == TS_OK && kernel.appended == 0, "get_kernel")) return 1;
  const int64_t sizes[] = {N}, strides[] = {1};
  ts_tensor inputs[2] = {describe(blocks[0], sizes, strides), describe(blocks[1], sizes, strides)};
  ts_tensor output = describe(blocks[2], sizes, strides);
  const ts_instruction add = {TS_I_ADD, 0, 1, 0};
  const uint16_t outputs[] = {2};
  ts_program program;
  memset(&program, 0xDB, sizeof program);
  program.struct_size = sizeof program;
  program.id = 1;
  program.n_inputs = 2;
  program.n_constants = 0;
  program.n_instructions = program.n_outputs = 1;
  program.instructions = &add;
  program.outputs = outputs;
  program.text = "a + b";
  ts_call call;
  memset(&call, 0, sizeof call);
  call.struct_size = sizeof call;
  call.host = &host;
  call.op = "pointwise";
  call.compute_dtype = TS_FLOAT32;
  call.n_outputs = 1;
  call.n_inputs = 2;
  call.tensor_size = sizeof(ts_tensor);
  call.outputs = &output;
  call.inputs = inputs;
  call.program = &program;
  if (!check(kernel.run(&call) == TS_OK, "the kernel")) return 1;
  own.copy_to_host(own.ctx, 0, sum, blocks[2], 0, sizeof sum, NULL);
  printf("%g %g %g\n", sum[0], sum[1], sum[2]);
  return 0;
}

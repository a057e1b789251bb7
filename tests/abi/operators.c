/* A library of operators that gives up as soon as it is called. */
#include <tesserack/abi.h>

__attribute__((visibility("default"))) int tesserack_plugin(const ts_host* host, const ts_plugin** out) {
  (void)out;
  host->set_error("the entry point ran");
  return TS_ERROR;
}

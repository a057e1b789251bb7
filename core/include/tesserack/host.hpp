// The kernels that every device must have, over memory that the host reads in place: correct for every dtype and
// stride, and as plain as they can be. A new backend registers them, trains with them, and puts its own in their
// places:
//
//   TS_KERNEL("matmul", tesserack::backend::host_kernels::matmul);
//
// Integers wrap, so the library is built with -fwrapv, as tesserack_add_backend does.
#ifndef TESSERACK_HOST_HPP
#define TESSERACK_HOST_HPP

#include <tesserack/host/copy.hpp>
#include <tesserack/host/indexing.hpp>
#include <tesserack/host/matmul.hpp>
#include <tesserack/host/pointwise.hpp>
#include <tesserack/host/random.hpp>
#include <tesserack/host/reduce.hpp>

#endif // TESSERACK_HOST_HPP

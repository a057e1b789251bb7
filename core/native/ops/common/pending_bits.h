// What operators do with tensors whose conjugation or negation is pending; see the .cpp.
#pragma once

namespace ts {

// copy_ and clone, once they are declared, have kernels of their own for such tensors.
void install_copies_of_pending();

} // namespace ts

"""``functorch``, which came with PyTorch, as programs under the hook import it."""

from tesserack.compat._version import TORCH as __version__
from tesserack.compat.shims._functorch.deprecated import (
    combine_state_for_ensemble,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    make_functional,
    make_functional_with_buffers,
    vjp,
    vmap,
)
from tesserack.compat.shims._functorch.make_functional import FunctionalModule, FunctionalModuleWithBuffers
from tesserack.fx.experimental.proxy_tensor import make_fx

__all__ = [
    "FunctionalModule",
    "FunctionalModuleWithBuffers",
    "__version__",
    "combine_state_for_ensemble",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "make_functional",
    "make_functional_with_buffers",
    "make_fx",
    "vjp",
    "vmap",
]

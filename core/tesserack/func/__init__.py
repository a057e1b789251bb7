"""Transforms of functions, with the names of ``torch.func``: gradients, Jacobians, and mapping over a dimension.

They are made of recorded gradients: ``vmap`` calls the function once for each entry of the dimension, and forward-mode
products are taken by differentiating a backward pass. Results are PyTorch's; calls cost what their parts cost.

>>> import tesserack as ts
>>> ts.func.grad(ts.sin)(ts.tensor(0.0))
tensor(1.)
"""

from tesserack.func import _rules
from tesserack.func._batched import use_rules
from tesserack.func._gradients import grad, grad_and_value, jvp, linearize, vjp
from tesserack.func._jacobians import hessian, jacfwd, jacrev
from tesserack.func._modules import (
    debug_unwrap,
    functional_call,
    functionalize,
    replace_all_batch_norm_modules_,
    stack_module_state,
)
from tesserack.func._rearrange import rearrange
from tesserack.func._vmap import vmap

use_rules(_rules)

__all__ = [
    "debug_unwrap",
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "rearrange",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]

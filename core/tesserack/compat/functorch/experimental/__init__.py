"""``functorch.experimental``."""

from tesserack.compat.shims._functorch.apis import chunk_vmap
from tesserack.func import functionalize, hessian, jacfwd, jvp, replace_all_batch_norm_modules_

__all__ = ["chunk_vmap", "functionalize", "hessian", "jacfwd", "jvp", "replace_all_batch_norm_modules_"]

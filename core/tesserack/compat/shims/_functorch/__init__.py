"""``torch._functorch``: the parts that containers of tensors take to be mapped over by ``vmap``."""

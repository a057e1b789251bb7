"""``torch._functorch.python_key``: tracing functions into graphs."""

from tesserack.fx.experimental.proxy_tensor import make_fx

__all__ = ["make_fx"]

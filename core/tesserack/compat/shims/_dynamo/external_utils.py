"""``torch._dynamo.external_utils``."""

from tesserack.jit.compiler import is_compiling

__all__ = ["is_compiling"]

"""``torch._custom_ops``: the former names of ``torch.library``'s functions."""

from tesserack.library import custom_op
from tesserack.library.definitions import get_ctx, impl, impl_abstract

__all__ = ["custom_op", "get_ctx", "impl", "impl_abstract"]

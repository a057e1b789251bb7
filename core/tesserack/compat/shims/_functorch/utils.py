"""``torch._functorch.utils``: the type of what says by which arguments a transform differentiates."""

__all__ = ["argnums_t"]

argnums_t = int | tuple[int, ...]

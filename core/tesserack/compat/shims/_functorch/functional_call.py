"""``torch._functorch.functional_call``: modules called with other parameters."""

from tesserack.func import functional_call, stack_module_state

__all__ = ["functional_call", "stack_module_state"]

"""Passes, their manager, and sets of nodes for backends."""

from tesserack.fx.passes.infra import pass_base, pass_manager

__all__ = ["pass_base", "pass_manager"]

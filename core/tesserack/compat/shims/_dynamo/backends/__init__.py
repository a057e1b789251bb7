"""``torch._dynamo.backends``: compilers by name."""

from __future__ import annotations

from tesserack.compat.shims._dynamo.backends import registry

__all__ = ["registry"]

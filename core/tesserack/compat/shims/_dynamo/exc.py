"""``torch._dynamo.exc``: what goes wrong around compilers."""

from __future__ import annotations

from tesserack.fx.export._errors import UserError
from tesserack.jit._compile.errors import BackendCompilerFailed, InvalidBackend, TorchDynamoException, Unsupported

__all__ = [
    "BackendCompilerFailed",
    "FailOnRecompileLimitHit",
    "InternalTorchDynamoError",
    "InvalidBackend",
    "RecompileLimitExceeded",
    "ResetRequired",
    "TorchDynamoException",
    "TorchRuntimeError",
    "Unsupported",
    "UserError",
]  # fmt: skip


class InternalTorchDynamoError(TorchDynamoException):
    """A fault of the compiler's own; nothing here raises it."""


class ResetRequired(TorchDynamoException):
    """A function is to be compiled by another compiler; nothing here raises it: both may."""


class TorchRuntimeError(TorchDynamoException):
    """A function failed while it was captured; here its own error is raised."""


class RecompileLimitExceeded(Unsupported):
    """A function has had too many graphs; nothing here raises it: it runs as Python from then on."""


class FailOnRecompileLimitHit(Exception):
    """As :class:`RecompileLimitExceeded`, where that is to fail."""

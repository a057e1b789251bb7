"""``torch.library``: operators defined piece by piece, by a schema and then by kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tesserack.library import CustomOp, OpCheckError, custom_op, infer_schema, opcheck
from tesserack.library.definitions import (
    Library,
    define,
    fallthrough_kernel,
    get_ctx,
    get_kernel,
    impl,
    impl_abstract,
    register_autocast,
    register_autograd,
    register_fake,
    register_kernel,
    register_torch_dispatch,
    register_vmap,
)

__all__ = [
    "CustomOp",
    "Library",
    "OpCheckError",
    "custom_op",
    "define",
    "fallthrough_kernel",
    "get_ctx",
    "get_kernel",
    "impl",
    "impl_abstract",
    "infer_schema",
    "opcheck",
    "register_autocast",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_torch_dispatch",
    "register_vmap",
    "triton_op",
    "wrap_triton",
]


@contextlib.contextmanager
def _scoped_library(*args: Any, **kwargs: Any) -> Iterator[Library]:
    """A library within a context: what it defines and replaces is taken back after it."""
    made = Library(*args, **kwargs)
    try:
        yield made
    finally:
        made._destroy()


def triton_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    schema: str | None = None,
) -> Any:
    """An operator of a function that launches kernels of Triton: as :func:`custom_op`, since no graph looks inside."""
    return custom_op(name, fn, mutates_args=mutates_args, schema=schema)


def wrap_triton(triton_kernel: Any) -> Any:
    """The kernel as it is: it is launched as ever within an operator."""
    return triton_kernel

"""Results of sparse operators handed over in a tensor that the caller gave as ``out=``."""

from __future__ import annotations

import functools
from typing import Any

from tesserack import Tensor, _native
from tesserack.sparse._dispatch import layout_name, replace
from tesserack.sparse._parts import is_sparse, recorded

__all__ = ["write_out"]


@functools.cache
def _keywords(op: str) -> tuple[int, tuple[str, ...]]:
    """How many arguments before ``out`` go by position, and the names of the others."""
    schema = next(record["schema"] for record in _native._operators() if record["name"] == op)
    positional, _, named = schema.partition("(")[2].rpartition(") -> ")[0].partition("*, ")
    names = [part.split("=")[0].split()[-1] for part in named.split(", ")][:-1]
    return len([part for part in positional.split(", ") if part]), tuple(names)


def write_out(op: str, *args: Any) -> Any:
    """What the operator without ``out`` gives, in the last argument, a tensor or several, which take its shape; ``op``
    is ``"sin.out"``.

    ``RuntimeError`` where the layouts differ or a gradient would be lost, and for a dtype that cannot hold the result.
    """
    given, out = args[:-1], args[-1]
    outs = [out] if isinstance(out, Tensor) else list(out)
    if recorded(*given, *outs):
        raise RuntimeError(f"{op}: functions with out=... arguments don't support automatic differentiation, but one "
                           "of the arguments requires grad")  # fmt: skip
    count, names = _keywords(op)
    base, _, overload = op.partition(".")  # "div.mode_out" writes what "div.mode" gives
    function = _native._operator_function(base if overload == "out" else f"{base}.{overload.removesuffix('_out')}")
    options = dict(zip(names, given[count:], strict=True))
    if base in ("empty", "zeros"):  # the layout is that of out
        if options["dtype"] not in (None, out.dtype):
            raise RuntimeError(f"{op}: dtype {options['dtype']} does not match the dtype of out, {out.dtype}")
        options.update(dtype=out.dtype, device=options["device"] or out.device, layout=out.layout)
    result = function(*given[:count], **options)
    if isinstance(out, Tensor):
        return _written(op, result, out)
    return tuple(_written(op, *pair) for pair in zip(result, outs, strict=True))


def _written(op: str, result: Tensor, out: Tensor) -> Tensor:
    if not is_sparse(result) and not is_sparse(out):
        if out.shape != result.shape:
            out.resize_(result.shape)
        out.copy_(result)
        return out
    if not is_sparse(out) or not is_sparse(result) or out.layout is not result.layout:
        raise RuntimeError(f"{op}: expected an out= of layout {layout_name(result)}, got {layout_name(out)}")
    if result.dtype is not out.dtype and not _native.can_cast(result.dtype, out.dtype):
        raise RuntimeError(f"{op}: result type {result.dtype} can't be cast to the desired output type {out.dtype}")
    replace(out, result.to(out.dtype))
    return out

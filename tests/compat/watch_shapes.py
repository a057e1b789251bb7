"""Runs a program, then tries every kind of module that it called, with the sizes it had and with any batch.

    tesserack run watch_shapes.py PROGRAM

Prints ``right N`` and a line for each module that ran in the program and was found wrong by ``try_shapes``. With any
batch, a module that does not run with another one is no program.
"""

from __future__ import annotations

import atexit
import runpy
import sys
from typing import Any

import tesserack as ts
from tesserack import Tensor, nn
from tesserack.utils.shapes import try_shapes

EACH = 4  # shapes of one kind
call = nn.Module.__call__
met: dict[tuple[Any, ...], nn.Module] = {}


def watch(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    result = call(self, *args, **kwargs)
    casts = ts.is_autocast_enabled(ts.get_default_device().type)
    if args and not kwargs and not casts and all(isinstance(x, Tensor) for x in args):
        key = (type(self).__qualname__, *((tuple(x.shape), x.dtype) for x in args))
        if sum(k[0] == key[0] for k in met) < EACH:
            met.setdefault(key, self)
    return result


def text(shape: tuple[int, ...], dtype: ts.dtype, first: str | None) -> str:
    axes = [*map(str, shape)]
    return f"{str(dtype).rpartition('.')[2]}[{' '.join([first, *axes[1:]] if first else axes)}]"


def runs(module: nn.Module, inputs: tuple[Any, ...], batch: int) -> bool:
    """Whether it takes another batch."""
    try:
        with ts.no_grad():
            module(*(ts.zeros(batch, *shape[1:], dtype=dtype) for shape, dtype in inputs))
    except Exception:
        return False
    return True


def report() -> None:
    nn.Module.__call__ = call  # type: ignore[method-assign]
    right = 0
    for (name, *inputs), module in met.items():
        for first in (None, "batch"):
            if first and (not all(s for s, _ in inputs) or len({s[0] for s, _ in inputs}) > 1):
                continue
            found = try_shapes(module, *(text(*each, first) for each in inputs))
            wrong = found.mismatch
            if wrong is None:
                right += 1
            elif not wrong.message.endswith("a trial has none") and (
                first is None or runs(module, tuple(inputs), found.sizes["batch"])
            ):
                print("wrong", name, [text(*each, first) for each in inputs], wrong)
    print("right", right)


nn.Module.__call__ = watch  # type: ignore[method-assign]
atexit.register(report)
del sys.argv[0]
sys.path.insert(0, ".")
runpy.run_path(sys.argv[0], run_name="__main__")

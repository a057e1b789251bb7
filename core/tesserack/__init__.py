"""Tesserack: tensors with gradients on any device, every device a plugin. The API is PyTorch's.

>>> import tesserack as ts
>>> x = ts.tensor([1.0, 2.0, 3.0], requires_grad=True)
>>> (x * x).sum().backward()
>>> x.grad
tensor([2., 4., 6.])
"""

# The names of this package are collected, not listed: operators come from the native registry. What type checkers and
# editors see is __init__.pyi, written by `python -m tesserack.cli._stubs.stubs`.
from __future__ import annotations

import importlib

from tesserack._native import *  # noqa: F403
from tesserack._native import Tensor, __version__  # noqa: F401
from tesserack.ops.registry import public_functions
from tesserack.utils import _compiler
from tesserack.utils import homes as _homes

_homes.install()
globals().update(public_functions())

from tesserack import backends as backends  # noqa: E402
from tesserack._tensor import aliases as _tensor_aliases  # noqa: E402
from tesserack._tensor import methods as _tensor_methods  # noqa: E402
from tesserack._tensor.functions import *  # noqa: E402, F403
from tesserack._tensor.printing import set_printoptions as set_printoptions  # noqa: E402
from tesserack.backends.streams import *  # noqa: E402, F403
from tesserack.ops import nonzero_unique as _nonzero_unique  # noqa: E402
from tesserack.ops.nonzero_unique import *  # noqa: E402, F403
from tesserack.ops.products import *  # noqa: E402, F403
from tesserack.ops.random import default_generator as _default_generator  # noqa: E402
from tesserack.ops.random import get_rng_state, initial_seed, manual_seed, seed, set_rng_state  # noqa: E402, F401

_tensor_methods.install(Tensor)
_nonzero_unique.install(Tensor)
_tensor_aliases.install(Tensor)
backends.install()


def _find_compiler() -> object:
    from tesserack.jit import compiler  # which takes a while

    return compiler


_compiler.use_compiler(_find_compiler)


def __getattr__(name: str) -> object:
    if name in _homes.MODULES or name in _homes.PUBLIC:
        return importlib.import_module(f"tesserack.{name}")
    if name in _homes.NAMES:
        value = getattr(importlib.import_module(f"tesserack.{_homes.NAMES[name]}"), name)
        globals()[name] = value
        return value
    if name.startswith("_foreach_"):
        return _foreach_function(name)
    if name == "default_generator":
        return _default_generator()
    if not name.startswith("_") and backends.has_module(name):
        return get_device_module(name)  # noqa: F405
    raise AttributeError(f"module 'tesserack' has no attribute {name!r}")


def _foreach_function(name: str) -> object:
    from tesserack.ops.foreach import FUNCTIONS

    if name in FUNCTIONS:
        return FUNCTIONS[name]
    raise AttributeError(f"module 'tesserack' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_homes.MODULES, *_homes.NAMES})

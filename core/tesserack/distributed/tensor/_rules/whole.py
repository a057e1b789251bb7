"""Operators that need no rule: what stays as it is, and what is read as a number."""

from __future__ import annotations

from typing import Any

from tesserack.distributed.tensor._api import DTensor, wrapped
from tesserack.distributed.tensor._call import handler


@handler("detach", "alias")
def _same(func: Any, args: Any, kwargs: Any) -> DTensor:
    given = args[0]
    made = wrapped(given._local_tensor.detach(), given._spec)
    if given.__dict__.get("_moved"):
        made._moved = True
    return made


@handler("_local_scalar_dense")
def _number(func: Any, args: Any, kwargs: Any) -> Any:
    return func(args[0].full_tensor())

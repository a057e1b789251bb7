"""How a call finds its kernel.

>>> import tesserack as ts
>>> print(ts.dispatch.explain("relu", ts.ones(2, requires_grad=True)))  # doctest: +ELLIPSIS
relu(Tensor self) -> Tensor
...
"""

from __future__ import annotations

from typing import Any

from tesserack import _native
from tesserack._native import Tensor

__all__ = ["explain", "keys", "schemas", "table"]


def schemas(name: str) -> list[str]:
    """The schemas of all overloads of an operator. ``RuntimeError`` for unknown names."""
    found = [
        record["schema"]
        for record in _native._operators()
        if name in (record["name"], record["base"], record["python_name"])
    ]
    if not found:
        raise RuntimeError(f"dispatch: no operator named {name!r}")
    return found


def table(name: str) -> list[tuple[str, str]]:
    """The functionality keys an overload (``"sum.dim"``) has kernels for, with who registered them."""
    return _native._kernel_table(name)  # type: ignore[no-any-return]


def keys(tensor: Tensor) -> list[str]:
    """The keys a tensor brings to a call in this thread now, in the order they are considered."""
    return _native._keys_of(tensor)  # type: ignore[no-any-return]


def explain(op: Any, *args: Any) -> str:
    """The path a call of an operator with these arguments would take, as text.

    ``op`` is a name, such as ``"add"``, or the function itself.
    """
    name = op if isinstance(op, str) else op.__name__
    lines = schemas(name)[:1]
    tensors = [a for a in args if isinstance(a, Tensor)]
    considered: list[str] = []
    for tensor in tensors:
        considered += [key for key in keys(tensor) if key not in considered]
    record = next(r for r in _native._operators() if name in (r["name"], r["base"], r["python_name"]))
    known = dict(table(record["name"]))
    for key in considered:
        lines.append(f"  {key}: {_step(key, known.get(key), record)}")
    if not tensors:
        lines.append("  no tensor arguments: the operator's own body runs")
    return "\n".join(lines)


def _step(key: str, owner: str | None, record: dict[str, Any]) -> str:
    if key == "Autograd":
        if not record["differentiable"]:
            return "not differentiable: nothing is recorded"
        return (
            "traced through: its parts are recorded" if record["composite"] else "a node is recorded, then the next key"
        )
    if owner is not None:
        return f"kernel registered by {owner}"
    if record["view"]:
        return "a view: metadata only, no kernel"
    if record["pointwise"]:
        return "the backend's pointwise kernel runs the operator's expression"
    if _native._is_loaded(key) and record["base"] in _native._backend_kernels(key):
        return "the backend's own kernel; if it declines, the decomposition"
    return f"the operator's body, on other kernels: the backend has none named {record['base']!r}"

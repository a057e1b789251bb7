"""Checks of a custom operator on example arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tesserack import _native
from tesserack._native import Tensor

__all__ = ["OpCheckError", "opcheck"]


class OpCheckError(AssertionError):
    """A custom operator does not behave as its schema and registrations say."""


def _tensors(values: Any) -> list[Tensor]:
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, Mapping):
        values = values.values()
    return [t for v in values for t in _tensors(v)] if isinstance(values, (list, tuple, type({}.values()))) else []


def _map(values: Any, change: Callable[[Tensor], Any]) -> Any:
    if isinstance(values, Tensor):
        return change(values)
    if isinstance(values, Mapping):
        return {name: _map(value, change) for name, value in values.items()}
    return type(values)(_map(v, change) for v in values) if isinstance(values, (list, tuple)) else values


def _copy(values: Any) -> Any:
    return _map(values, lambda t: t.detach().clone().requires_grad_(t.requires_grad))


def _storage(t: Tensor) -> int:
    return t.untyped_storage().data_ptr() if t.numel() and t.device.type == "cpu" else 0


def _check_schema(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Only what the schema marks is written, and results are fresh memory."""
    args, kwargs = _map((args, kwargs), lambda t: t.detach().clone())
    before = _tensors((args, kwargs))
    values = [t.clone() for t in before]
    versions = [t._version for t in before]
    result = op(*args, **kwargs)
    written = [k for k, t in enumerate(before) if not _native_equal(t, values[k]) or t._version != versions[k]]
    if written and "!" not in op.schema:
        raise OpCheckError(f"{op.name}: the kernel writes tensor argument {written[0]}; name it in mutates_args")
    places = {_storage(t) for t in before} - {0}
    for k, t in enumerate(_tensors(result)):
        if _storage(t) in places:
            raise OpCheckError(f"{op.name}: result {k} shares memory with an argument; return a copy")


def _native_equal(a: Tensor, b: Tensor) -> bool:
    same = (a == b) | ((a != a) & (b != b))
    return bool(same.all())


def _check_fake(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """The shape rule agrees with what the kernel makes."""
    real = _tensors(op(*_copy(args), **_copy(kwargs)))
    fake = _tensors(op(*_map(args, lambda t: t.detach().to("meta")), **_map(kwargs, lambda t: t.detach().to("meta"))))
    if len(real) != len(fake):
        raise OpCheckError(f"{op.name}: the kernel gives {len(real)} tensors, register_fake's function {len(fake)}")
    for k, (r, f) in enumerate(zip(real, fake, strict=True)):
        if r.shape != f.shape or r.dtype != f.dtype:
            raise OpCheckError(
                f"{op.name}: result {k} is {r.dtype}{list(r.shape)}, register_fake's function says "
                f"{f.dtype}{list(f.shape)}"
            )


def _check_autograd(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """The registered gradient agrees with finite differences, where the inputs are float64."""
    from tesserack.autograd import gradcheck

    wanted = [t for t in _tensors((args, kwargs)) if t.requires_grad]
    if not wanted:
        return
    result = [t for t in _tensors(op(*_copy(args), **_copy(kwargs))) if t.requires_grad]
    if not result:
        raise OpCheckError(f"{op.name}: arguments require gradients, no result does; call register_autograd")
    if any(t.dtype is not _native.float64 for t in wanted):
        return
    if not gradcheck(lambda *given: op(*given, **kwargs), tuple(_copy(args)), raise_exception=False):
        raise OpCheckError(
            f"{op.name}: the registered gradient disagrees with finite differences (gradcheck tells more)"
        )


_CHECKS = {"test_schema": _check_schema, "test_faketensor": _check_fake, "test_autograd_registration": _check_autograd}


def opcheck(
    op: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    test_utils: str | Sequence[str] = tuple(_CHECKS),
    raise_exception: bool = True,
) -> dict[str, Any]:
    """Check a custom operator on example arguments.

    Checks that only declared arguments are written and results are fresh (``test_schema``), that the shape rule agrees
    with the kernel (``test_faketensor``), and that the gradient agrees with finite differences for float64 arguments
    that require one (``test_autograd_registration``).

    Returns ``{check: "SUCCESS" or the exception}``. Raises :class:`OpCheckError` at the first failure unless
    ``raise_exception`` is False, and ``ValueError`` for unknown checks.
    """
    names = [test_utils] if isinstance(test_utils, str) else [*test_utils]
    outcome: dict[str, Any] = {}
    for name in names:
        if name not in _CHECKS:
            raise ValueError(f"opcheck: expected checks among {', '.join(_CHECKS)}, got {name!r}")
        try:
            _CHECKS[name](op, args, kwargs or {})
            outcome[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise
            outcome[name] = error
    return outcome

"""Checks of a custom operator on example arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tesserack import _native
from tesserack._native import Tensor
from tesserack.library.open_sizes import leaving_open
from tesserack.utils._compiler import the_compiler

__all__ = ["OpCheckError", "opcheck"]


class OpCheckError(AssertionError):
    """A custom operator does not behave as its schema and registrations say."""


class _Named:
    """An operator by another handle than the custom operator itself: as ``torch.ops`` has it, or as modes see it."""

    def __init__(self, op: Any) -> None:
        self.call = op
        schemas = getattr(op, "schemas", None)  # an operator's; of torch.ops any name is an overload
        self.schema = str(schemas[0] if isinstance(schemas, list) else getattr(op, "schema", op))
        self.name = self.schema.partition("(")[0]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)


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
    given = _map((args, kwargs), lambda t: t.detach().to("meta"))
    with leaving_open() as sizes:
        fake = _tensors(op(*given[0], **given[1]))
    if len(real) != len(fake):
        raise OpCheckError(f"{op.name}: the kernel gives {len(real)} tensors, register_fake's function {len(fake)}")
    for k, (r, f) in enumerate(zip(real, fake, strict=True)):
        same = len(r.shape) == len(f.shape) and all(map(sizes.fits, r.shape, f.shape))
        if not same or r.dtype != f.dtype:
            raise OpCheckError(
                f"{op.name}: result {k} is {r.dtype}{list(r.shape)}, register_fake's function says "
                f"{f.dtype}{list(f.shape)}"
            )


def _check_autograd(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """The registered gradient agrees with finite differences, where the inputs are float64; none is as good."""
    from tesserack.autograd import gradcheck

    wanted = [t for t in _tensors((args, kwargs)) if t.requires_grad]
    if not wanted:
        return
    if not any(t.requires_grad for t in _tensors(op(*_copy(args), **_copy(kwargs)))):
        raise OpCheckError(f"{op.name}: arguments require gradients, no result does; call register_autograd")
    if any(t.dtype is not _native.float64 for t in wanted):
        return
    has_gradient = [g is not None for g in _gradients(op, args, kwargs)[1]]

    def call(*given: Tensor) -> Any:
        leaves, order = iter(given), iter(has_gradient)
        change = lambda t: next(leaves) if t.requires_grad and next(order) else t.detach()  # noqa: E731
        a, k = _map((args, kwargs), change)
        return op(*a, **k)

    leaves = tuple(t for t, has in zip(_copy(wanted), has_gradient, strict=True) if has)
    if leaves and not gradcheck(call, leaves, raise_exception=False):
        raise OpCheckError(
            f"{op.name}: the registered gradient disagrees with finite differences (gradcheck tells more)"
        )


def _check_compiled(dynamic: bool, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Captured, planned and run it gives what it gives eagerly, and so do its gradients."""
    run = the_compiler().compile(lambda *a, **k: op(*a, **k), dynamic=dynamic)
    expected = _values_and_gradients(op, args, kwargs)
    for _ in range(2):  # the second call runs the plan
        got = _values_and_gradients(run, args, kwargs)
        if len(got) != len(expected):
            raise OpCheckError(f"{op.name}: compiled it gives {len(got)} tensors, eagerly {len(expected)}")
        for k, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
            if ours.shape != theirs.shape or ours.dtype != theirs.dtype or not _native_equal(ours, theirs):
                raise OpCheckError(f"{op.name}: compiled, result or gradient {k} is not what it is eagerly")


def _values_and_gradients(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """The results, then the gradients of those of the arguments that have one."""
    results, gradients = _gradients(function, args, kwargs)
    return results + [g for g in gradients if g is not None]


def _gradients(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Tensor], list[Tensor | None]]:
    """The results, and the gradients of those of the arguments that require one."""
    from tesserack import ones_like
    from tesserack.autograd import grad

    args, kwargs = _copy(args), _copy(kwargs)
    results = _tensors(function(*args, **kwargs))
    wanted = [t for t in _tensors((args, kwargs)) if t.requires_grad]
    roots = [t for t in results if t.requires_grad]
    if not (wanted and roots):
        return [t.detach() for t in results], [None for _ in wanted]
    gradients = grad(roots, wanted, [ones_like(t) for t in roots], allow_unused=True)
    return [t.detach() for t in results], [*gradients]


_CHECKS: dict[str, Callable[[Any, Sequence[Any], Mapping[str, Any]], None]] = {
    "test_schema": _check_schema,
    "test_faketensor": _check_fake,
    "test_autograd_registration": _check_autograd,
    "test_aot_dispatch_dynamic": functools.partial(_check_compiled, True),
    "test_aot_dispatch_static": functools.partial(_check_compiled, False),
}


_BY_DEFAULT = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def opcheck(
    op: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    test_utils: str | Sequence[str] = _BY_DEFAULT,
    raise_exception: bool = True,
) -> dict[str, Any]:
    """Check a custom operator on example arguments.

    Checks that only declared arguments are written and results are fresh (``test_schema``), that the shape rule agrees
    with the kernel (``test_faketensor``), that the gradient agrees with finite differences for float64 arguments that
    require one (``test_autograd_registration``), and that compiled it gives the same, bit by bit
    (``test_aot_dispatch_dynamic``; by name alone ``test_aot_dispatch_static``).

    Returns ``{check: "SUCCESS" or the exception}``. Raises :class:`OpCheckError` at the first failure unless
    ``raise_exception`` is False, and ``ValueError`` for unknown checks.
    """
    op = op if isinstance(getattr(op, "name", None), str) else _Named(op)
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

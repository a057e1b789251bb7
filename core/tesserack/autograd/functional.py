"""Jacobians, Hessians and their products with vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack._native import Tensor, enable_grad
from tesserack.autograd._run import grad

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _prepare(inputs: Any, create_graph: bool) -> tuple[tuple[Tensor, ...], bool]:
    single = isinstance(inputs, Tensor)
    tensors = (inputs,) if single else tuple(inputs)
    if create_graph:
        return tuple(t.view_as(t) if t.requires_grad else t.detach().requires_grad_() for t in tensors), single
    return tuple(t.detach().clone().requires_grad_() for t in tensors), single


def _outputs(func: Callable[..., Any], inputs: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], bool]:
    with enable_grad():
        result = func(*inputs)
    single = isinstance(result, Tensor)
    return ((result,) if single else tuple(result)), single


def _zeros_where_none(grads: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    from tesserack import zeros_like

    return tuple(zeros_like(t) if g is None else g for g, t in zip(grads, inputs, strict=True))


def _grad(outputs: Any, inputs: tuple[Tensor, ...], vectors: Any, create_graph: bool) -> tuple[Tensor, ...]:
    pairs = [(o, v) for o, v in zip(outputs, vectors, strict=True) if o.requires_grad]
    if not pairs:
        return _zeros_where_none([None] * len(inputs), inputs)
    roots, weights = zip(*pairs, strict=True)
    return _zeros_where_none(
        grad(roots, inputs, weights, retain_graph=True, create_graph=create_graph, allow_unused=True), inputs
    )


def _strip(values: Any, single: bool, create_graph: bool) -> Any:
    if not create_graph:
        values = tuple(v.detach() for v in values)
    return values[0] if single else values


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The derivatives of every element of ``func(*inputs)`` by every element of every input.

    A tensor of shape ``output.shape + input.shape`` for one output and one input; for several, tuples, outputs
    outermost. ``vectorize`` and ``strategy`` ("reverse-mode", or "forward-mode" with ``vectorize``) change no value and
    are only checked.

    >>> import tesserack as ts
    >>> ts.autograd.functional.jacobian(lambda x: x * x, ts.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    from tesserack import stack, zeros_like

    _check_strategy("jacobian", strategy, vectorize, create_graph)
    tensors, single_input = _prepare(inputs, create_graph)
    outputs, single_output = _outputs(func, tensors)
    rows = []
    for output in outputs:
        columns: list[list[Tensor]] = [[] for _ in tensors]
        for index in range(output.numel()):
            unit = zeros_like(output).reshape(-1)
            unit[index] = 1
            for column, g in zip(
                columns, _grad((output,), tensors, (unit.reshape(output.shape),), create_graph), strict=True
            ):
                column.append(g)
        shaped = tuple(
            stack(column).reshape(output.shape + t.shape) if column else t.new_zeros(output.shape + t.shape)
            for column, t in zip(columns, tensors, strict=True)
        )
        rows.append(_strip(shaped, single_input, create_graph))
    return rows[0] if single_output else tuple(rows)


def _check_strategy(name: str, strategy: str, vectorize: bool, create_graph: bool) -> None:
    if strategy not in ("reverse-mode", "forward-mode"):
        raise AssertionError(
            f'{name}: Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function has more '
            f'outputs than inputs, "forward-mode" tends to be more performant. Got {strategy!r}'
        )
    if strategy == "forward-mode" and create_graph:
        raise NotImplementedError(f'{name}: `create_graph=True` and `strategy="forward-mode"` are not supported '
                                  "together (yet). Please either set `create_graph=False` or "
                                  '`strategy="reverse-mode"`.')  # fmt: skip
    if strategy == "forward-mode" and not vectorize:
        raise NotImplementedError(f'{name}: `vectorize=False` and `strategy="forward-mode"` are not supported '
                                  'together (yet). Please either set `vectorize=True` or '
                                  '`strategy="reverse-mode"`.')  # fmt: skip


def hessian(
    func: Callable[..., Tensor],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a function with a single-element result; options as for :func:`jacobian`."""
    _check_strategy("hessian", outer_jacobian_strategy, vectorize, create_graph)
    single = isinstance(inputs, Tensor)

    def gradient(*tensors: Tensor) -> Any:
        output = func(*tensors)
        if output.numel() != 1:
            raise RuntimeError(
                f"hessian: expected a function with a single-element result, got shape {tuple(output.shape)}"
            )
        grads = _zeros_where_none(grad(output, tensors, create_graph=True, allow_unused=True), tensors)
        return grads[0] if single else grads

    return jacobian(gradient, inputs, create_graph=create_graph)


def vjp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The outputs of ``func``, and the product of ``v`` with its Jacobian."""
    from tesserack import ones_like

    tensors, single_input = _prepare(inputs, create_graph)
    outputs, single_output = _outputs(func, tensors)
    vectors = tuple(ones_like(o) for o in outputs) if v is None else ((v,) if isinstance(v, Tensor) else tuple(v))
    product = _grad(outputs, tensors, vectors, create_graph)
    return _strip(outputs, single_output, create_graph), _strip(product, single_input, create_graph)


def jvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The outputs of ``func``, and the product of its Jacobian with ``v``: by differentiating twice backwards."""
    from tesserack import ones_like, zeros_like

    tensors, _ = _prepare(inputs, create_graph)
    outputs, single_output = _outputs(func, tensors)
    vectors = tuple(ones_like(t) for t in tensors) if v is None else ((v,) if isinstance(v, Tensor) else tuple(v))
    weights = tuple(zeros_like(o).requires_grad_() for o in outputs)
    with enable_grad():
        # Linear in the weights: its derivative by them is the Jacobian's product with v.
        transposed = _grad(outputs, tensors, weights, True)
    product = _grad(transposed, weights, vectors, create_graph)
    return _strip(outputs, single_output, create_graph), _strip(product, single_output, create_graph)


def hvp(
    func: Callable[..., Tensor], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The output of a scalar ``func``, and the product of its Hessian with ``v``."""
    return vhp(func, inputs, v, create_graph, strict)


def vhp(
    func: Callable[..., Tensor], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The output of a scalar ``func``, and the product of ``v`` with its Hessian."""
    from tesserack import ones_like

    tensors, single_input = _prepare(inputs, create_graph)
    outputs, single_output = _outputs(func, tensors)
    with enable_grad():
        first = _grad(outputs, tensors, tuple(ones_like(o) for o in outputs), True)
    vectors = tuple(ones_like(t) for t in tensors) if v is None else ((v,) if isinstance(v, Tensor) else tuple(v))
    product = _grad(first, tensors, vectors, create_graph)
    return _strip(outputs, single_output, create_graph), _strip(product, single_input, create_graph)

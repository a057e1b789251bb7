"""Jacobians, Hessians and their products with vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from tesserack import _native
from tesserack._native import Tensor, enable_grad
from tesserack.autograd._run import grad
from tesserack.autograd._whole import whole

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

F = TypeVar("F", bound=Callable[..., Any])


def _recording(function: F) -> F:
    """The function run with gradients recorded, whatever the mode: what it gives is detached unless asked for. Graphs
    hold calls of it whole.
    """
    return whole(cast(F, enable_grad()(function)), computes=True)


def _tuple(values: Any, what: str, name: str) -> tuple[tuple[Tensor, ...], bool]:
    if isinstance(values, Tensor):
        return (values,), True
    if isinstance(values, tuple) and all(isinstance(value, Tensor) for value in values):
        return values, False
    wrong = type(values) if not isinstance(values, tuple) else [type(value) for value in values]
    raise TypeError(f"The {what} given to {name} must be either a Tensor or a tuple of Tensors, got {wrong}")


def _prepare(name: str, inputs: Any, create_graph: bool) -> tuple[tuple[Tensor, ...], bool]:
    if _native._writes_are_guarded():
        raise RuntimeError(
            f"{name}: autograd.functional takes no part in func's transforms; use those of func within them"
        )
    tensors, single = _tuple(inputs, "inputs", name)
    if create_graph:
        return tuple(t.view_as(t) if t.requires_grad else t.detach().requires_grad_() for t in tensors), single
    return tuple(t.detach().clone().requires_grad_() for t in tensors), single


def _outputs(
    name: str, func: Callable[..., Any], inputs: tuple[Tensor, ...], strict: bool
) -> tuple[tuple[Tensor, ...], bool]:
    with enable_grad():
        result = func(*inputs)
    outputs, single = _tuple(result, "outputs of the user-provided function", name)
    _depends(outputs, "output", strict)
    return outputs, single


def _depends(tensors: tuple[Tensor, ...], what: str, strict: bool) -> None:
    """Refuse what does not come from the inputs, where that was asked for."""
    for index, tensor in enumerate(tensors if strict else ()):
        if not tensor.requires_grad:
            raise RuntimeError(
                f"strict mode: {what} {index} of the user-provided function is independent of the inputs or does not "
                "require gradients; compute it in a differentiable manner, or pass strict=False for zeros"
            )


def _filled(grads: Any, like: tuple[Tensor, ...], what: str, strict: bool, create_graph: bool) -> tuple[Tensor, ...]:
    """Zeros for gradients that are None; those refused where the caller is strict."""
    from tesserack import zeros_like

    for index, g in enumerate(grads if strict else ()):
        if g is None or (create_graph and not g.requires_grad):
            which = "output" if g is None else "derivative"
            raise RuntimeError(
                f"strict mode: the {which} of the user-provided function is independent of {what} {index}; "
                "pass strict=False for zeros"
            )
    return tuple(zeros_like(t) if g is None else g for g, t in zip(grads, like, strict=True))


def _grad(
    outputs: Any,
    inputs: tuple[Tensor, ...],
    vectors: Any,
    create_graph: bool,
    what: str = "input",
    strict: bool = False,
) -> tuple[Tensor, ...]:
    pairs = [(o, v) for o, v in zip(outputs, vectors, strict=True) if o.requires_grad]
    if not pairs:
        return _filled([None] * len(inputs), inputs, what, strict, create_graph)
    roots, weights = zip(*pairs, strict=True)
    grads = grad(roots, inputs, weights, retain_graph=True, create_graph=create_graph, allow_unused=True)
    return _filled(grads, inputs, what, strict, create_graph)


def _vectors(name: str, v: Any, like: tuple[Tensor, ...], of: str) -> tuple[Tensor, ...]:
    """``v`` checked against the tensors it goes with; ones where it may be left out."""
    from tesserack import ones_like

    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(f"{name}: the vector v can only be None for a single {of} with a single element")
        return (ones_like(like[0]),)
    vectors, _ = _tuple(v, "v", name)
    if len(vectors) != len(like):
        raise RuntimeError(f"{name}: v has invalid length: expected {len(like)} tensors, got {len(vectors)}")
    for index, (vector, tensor) in enumerate(zip(vectors, like, strict=True)):
        if vector.shape != tensor.shape:
            raise RuntimeError(
                f"{name}: entry {index} of v has invalid size: expected {tuple(tensor.shape)}, got "
                f"{tuple(vector.shape)}, one element for each of the {of}"
            )
    return vectors


def _check_lone(name: str, outputs: tuple[Tensor, ...]) -> None:
    if len(outputs) != 1 or outputs[0].numel() != 1:
        shapes = [tuple(output.shape) for output in outputs]
        raise RuntimeError(f"{name}: expected a function with a single-element result, got shapes {shapes}")


def _strip(values: Any, single: bool, create_graph: bool) -> Any:
    if not create_graph:
        values = tuple(v.detach() for v in values)
    return values[0] if single else values


@_recording
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
    are only checked. ``strict`` raises ``RuntimeError`` where an output does not depend on an input, instead of zeros;
    it does not go with ``vectorize``.

    >>> import tesserack as ts
    >>> ts.autograd.functional.jacobian(lambda x: x * x, ts.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    from tesserack import stack, zeros_like

    _check_strategy("jacobian", strategy, vectorize, create_graph, strict)
    tensors, single_input = _prepare("jacobian", inputs, create_graph)
    outputs, single_output = _outputs("jacobian", func, tensors, strict)
    rows = []
    for output in outputs:
        columns: list[list[Tensor]] = [[] for _ in tensors]
        for index in range(output.numel()):
            unit = zeros_like(output).reshape(-1)
            unit[index] = 1
            row = _grad((output,), tensors, (unit.reshape(output.shape),), create_graph, "input", strict)
            for column, g in zip(columns, row, strict=True):
                column.append(g)
        shaped = tuple(
            stack(column).reshape(output.shape + t.shape) if column else t.new_zeros(output.shape + t.shape)
            for column, t in zip(columns, tensors, strict=True)
        )
        rows.append(_strip(shaped, single_input, create_graph))
    return rows[0] if single_output else tuple(rows)


def _check_strategy(name: str, strategy: str, vectorize: bool, create_graph: bool, strict: bool) -> None:
    if strict and vectorize:
        raise RuntimeError(
            f"{name}: `strict=True` and `vectorize=True` are not supported together; "
            "set `strict=False` or `vectorize=False`"
        )
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


@_recording
def hessian(
    func: Callable[..., Tensor],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a function with a single-element result; options as for :func:`jacobian`."""
    _check_strategy("hessian", outer_jacobian_strategy, vectorize, create_graph, strict)
    _, single = _tuple(inputs, "inputs", "hessian")

    def gradient(*tensors: Tensor) -> Any:
        first = _gradient("hessian", func, tensors, strict)[1]
        return first[0] if single else first

    return jacobian(gradient, inputs, create_graph, strict)


def _gradient(
    name: str, func: Callable[..., Any], tensors: tuple[Tensor, ...], strict: bool
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The outputs of a function with a single-element result, and its gradient, with a graph."""
    outputs, _ = _outputs(name, func, tensors, strict)
    _check_lone(name, outputs)
    with enable_grad():
        first = _grad(outputs, tensors, (outputs[0].new_ones(outputs[0].shape),), True, "input", strict)
    _depends(first, "derivative", strict)
    return outputs, first


@_recording
def vjp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The outputs of ``func``, and the product of ``v`` with its Jacobian.

    ``v`` is shaped like the outputs, and may be left out for a single element. ``strict`` as for :func:`jacobian`.
    """
    tensors, single_input = _prepare("vjp", inputs, create_graph)
    outputs, single_output = _outputs("vjp", func, tensors, strict)
    vectors = _vectors("vjp", v, outputs, "outputs")
    product = _grad(outputs, tensors, vectors, create_graph, "input", strict)
    return _strip(outputs, single_output, create_graph), _strip(product, single_input, create_graph)


@_recording
def jvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The outputs of ``func``, and the product of its Jacobian with ``v``: by differentiating twice backwards.

    ``v`` is shaped like the inputs, and may be left out for a single element. ``strict`` as for :func:`jacobian`.
    """
    from tesserack import zeros_like

    tensors, _ = _prepare("jvp", inputs, create_graph)
    vectors = _vectors("jvp", v, tensors, "inputs")
    outputs, single_output = _outputs("jvp", func, tensors, strict)
    weights = tuple(zeros_like(o).requires_grad_() for o in outputs)
    with enable_grad():
        # Linear in the weights: its derivative by them is the Jacobian's product with v.
        transposed = _grad(outputs, tensors, weights, True, "input", strict)
    product = _grad(transposed, weights, vectors, create_graph, "output", strict)
    return _strip(outputs, single_output, create_graph), _strip(product, single_output, create_graph)


@_recording
def hvp(
    func: Callable[..., Tensor], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The output of a scalar ``func``, and the product of its Hessian with ``v``; options as for :func:`jvp`."""
    return _hessian_product("hvp", func, inputs, v, create_graph, strict)


@_recording
def vhp(
    func: Callable[..., Tensor], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The output of a scalar ``func``, and the product of ``v`` with its Hessian; options as for :func:`jvp`."""
    return _hessian_product("vhp", func, inputs, v, create_graph, strict)


def _hessian_product(
    name: str, func: Callable[..., Tensor], inputs: Any, v: Any, create_graph: bool, strict: bool
) -> tuple[Any, Any]:
    """That from the left, which the one from the right equals: a Hessian is symmetric."""
    tensors, single = _prepare(name, inputs, create_graph)
    vectors = _vectors(name, v, tensors, "inputs")
    outputs, first = _gradient(name, func, tensors, strict)
    product = _grad(first, tensors, vectors, create_graph, "input", strict)
    return _strip(outputs, True, create_graph), _strip(product, single, create_graph)

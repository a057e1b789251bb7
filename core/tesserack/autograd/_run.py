"""``backward`` and ``grad``: running the tape."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tesserack import _native
from tesserack._native import Tensor
from tesserack._tensor.overrides import handle_torch_function, has_torch_function
from tesserack.autograd._whole import whole

if TYPE_CHECKING:
    from tesserack.autograd.graph import GradientEdge

__all__ = ["backward", "grad"]

TensorOrTensors = Tensor | Sequence[Tensor]


def _tuple(value: Any) -> tuple[Any, ...]:
    alone = value is None or isinstance(value, Tensor) or _is_edge(value)
    # A stand-in for a tensor, as a proxy of fx, is one too, and may not be iterated.
    return (value,) if alone or hasattr(type(value), "__torch_function__") else tuple(value)


def _is_edge(value: Any) -> bool:
    return hasattr(value, "output_nr") and isinstance(value, tuple)


def _places(value: Any) -> tuple[Any, ...]:
    """Tensors, and for edges of the graph what the engine takes for them."""
    return tuple(_native._edge_stand_in(v.node, v.output_nr) if _is_edge(v) else v for v in _tuple(value))


def _output_grads(outputs: tuple[Tensor, ...], given: Any) -> tuple[Tensor | None, ...]:
    if given is None:
        return (None,) * len(outputs)
    grads = _tuple(given)
    if len(grads) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(grads)} gradients")
    return grads


@whole
def backward(
    tensors: TensorOrTensors | GradientEdge | Sequence[GradientEdge],
    grad_tensors: TensorOrTensors | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: TensorOrTensors | None = None,
    inputs: TensorOrTensors | GradientEdge | Sequence[GradientEdge] | None = None,
) -> None:
    """Add the gradients of ``tensors`` to ``.grad`` of the leaves they were computed from.

    Args:
        tensors: what to differentiate; also places in the graph (:class:`~tesserack.autograd.graph.GradientEdge`).
        grad_tensors: for each of them, the derivative of some scalar by it; None stands for one.
        retain_graph: keep the graph for another run; defaults to ``create_graph``.
        create_graph: record the computation of the gradients, for higher derivatives.
        inputs: accumulate into these leaves only.
    """
    tensors = _tuple(tensors)
    if has_torch_function(tensors):
        handle_torch_function(
            backward, tensors, tensors, grad_tensors=grad_tensors, retain_graph=retain_graph,
            create_graph=create_graph, grad_variables=grad_variables, inputs=inputs,
        )  # fmt: skip
        return
    roots = _places(tensors)
    wanted = () if inputs is None else _places(inputs)
    if inputs is not None and not wanted:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    grads = _output_grads(roots, grad_variables if grad_tensors is None else grad_tensors)
    _native._run_backward(roots, grads, _retain(retain_graph, create_graph), create_graph, wanted, True, True)


def _retain(retain_graph: bool | None, create_graph: bool) -> bool:
    return create_graph if retain_graph is None else retain_graph


@whole
def grad(
    outputs: TensorOrTensors | GradientEdge | Sequence[GradientEdge],
    inputs: TensorOrTensors | GradientEdge | Sequence[GradientEdge],
    grad_outputs: TensorOrTensors | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor, ...]:
    """The gradients of ``outputs`` with respect to ``inputs``, summed over outputs; touches no ``.grad``.

    Args:
        allow_unused: give None for inputs that do not matter, instead of an error.
        is_grads_batched: the first dimension of every ``grad_outputs`` counts independent gradients.
        materialize_grads: zeros instead of None for inputs that do not matter.

    >>> import tesserack as ts
    >>> x = ts.tensor(3.0, requires_grad=True)
    >>> ts.autograd.grad(x * x, x)[0]
    tensor(6.)
    """
    outputs, inputs = _tuple(outputs), _tuple(inputs)
    if has_torch_function((*outputs, *inputs)):
        return handle_torch_function(  # type: ignore[no-any-return]
            grad, (*outputs, *inputs), outputs, inputs, grad_outputs=grad_outputs, retain_graph=retain_graph,
            create_graph=create_graph, only_inputs=only_inputs, allow_unused=allow_unused,
            is_grads_batched=is_grads_batched, materialize_grads=materialize_grads,
        )  # fmt: skip
    roots, wanted = _places(outputs), _places(inputs)
    if not only_inputs:
        warnings.warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate gradient for "
            "other parts of the graph, please use torch.autograd.backward.",
            FutureWarning,
            stacklevel=2,
        )
    if not wanted:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    if allow_unused is None:
        allow_unused = materialize_grads
    if materialize_grads and not allow_unused:
        raise ValueError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: False.")
    keep = _retain(retain_graph, create_graph)
    if is_grads_batched:
        results = _batched(roots, wanted, _output_grads(roots, grad_outputs), keep, create_graph, allow_unused)
    else:
        results = _native._run_backward(
            roots, _output_grads(roots, grad_outputs), keep, create_graph, wanted, allow_unused, False
        )
    if materialize_grads:
        if any(result is None and _is_edge(place) for result, place in zip(results, inputs, strict=True)):
            raise RuntimeError("materialize_grads cannot be used when the given input is a GradientEdge")
        from tesserack import zeros_like as zeros

        results = tuple(
            zeros(tensor, requires_grad=create_graph) if result is None else result
            for result, tensor in zip(results, wanted, strict=True)
        )
    if any(hasattr(place, "_nested_gradient") for place in wanted):
        results = tuple(
            place._nested_gradient(result) if result is not None and hasattr(place, "_nested_gradient") else result
            for result, place in zip(results, wanted, strict=True)
        )
    return results


def _batched(
    roots: Any, wanted: Any, grads: Any, keep: bool, create_graph: bool, allow_unused: bool
) -> tuple[Any, ...]:
    from tesserack import stack

    sizes = {g.shape[0] for g in grads if g is not None}
    if len(sizes) != 1:
        raise RuntimeError(
            f"grad: with is_grads_batched every gradient needs the same first dimension, got {sorted(sizes)}"
        )
    count = sizes.pop()
    runs = []
    for index in range(count):
        chosen = tuple(None if g is None else g[index] for g in grads)
        runs.append(
            _native._run_backward(roots, chosen, keep or index + 1 < count, create_graph, wanted, allow_unused, False)
        )
    return tuple(None if column[0] is None else stack(list(column)) for column in zip(*runs, strict=True))

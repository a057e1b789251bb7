"""A merged graph beside the program, on data: where sizes made operators take other steps."""

from __future__ import annotations

import copy
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.fx.export._trace import Program, Trace
from tesserack.fx.export.graph_signature import InputKind
from tesserack.fx.graph_module import GraphModule
from tesserack.utils._pytree import tree_leaves, tree_unflatten

__all__ = ["differs"]

_TOLERANCE = {ts.float64: 1e-7, ts.float32: 1e-3, ts.complex64: 1e-3}


_DRAWS = 3  # of data: results of other computations may be as close by chance as those of one


def differs(program: Program, found: Trace, sizes: dict[tuple[int, int], int]) -> str:
    """In what the graph's results differ from the program's; empty if they do not."""
    return next((why for seed in range(_DRAWS) if (why := _differs(program, found, sizes, seed))), "")


def _differs(program: Program, found: Trace, sizes: dict[tuple[int, int], int], seed: int) -> str:
    state = ts.get_rng_state()
    ts.manual_seed(seed)
    leaves = [_data(leaf, place, sizes) for place, leaf in enumerate(program.leaves)]
    own = [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    module = copy.deepcopy(program.module)
    try:
        with ts.no_grad():
            ts.manual_seed(0)
            args, kwargs = tree_unflatten(own, program.in_spec)
            expected = tree_leaves(module(*args, **kwargs))
            buffers = dict(module.named_buffers())
            ts.manual_seed(0)
            results = _graph(program, found, leaves)
    except Exception as error:  # what the graph or the program does not take is no size for it
        return f"and fails on data of that size: {str(error).strip().splitlines()[0]}"
    finally:
        ts.set_rng_state(state)
    changed = [buffers.get(name) if kind is InputKind.BUFFER else None for kind, name, _ in found.changed]
    if len(changed) + len(expected) != len(results):
        return "and it gives more results for some sizes"
    for one, other in zip((*changed, *expected), results, strict=True):
        if one is not None and not _close(one, other):
            return "and its results are others"
    return ""


def _data(leaf: Any, place: int, sizes: dict[tuple[int, int], int]) -> Any:
    """The example's data, repeated or cut to another size."""
    if not isinstance(leaf, Tensor):
        return leaf
    leaf = _other_data(leaf.detach())
    for dim, size in enumerate(leaf.shape):
        wanted = sizes.get((place, dim), size)
        if wanted != size:
            leaf = leaf.index_select(dim, ts.arange(wanted, device=leaf.device) % max(size, 1))
    return leaf


def _other_data(leaf: Tensor) -> Tensor:
    """Data of the example's signs and magnitudes, by which sums and products, ones and zeros can be told apart."""
    if not (leaf.is_floating_point() or leaf.is_complex()):
        return leaf
    drawn = ts.rand(leaf.shape, device=leaf.device).to(leaf.dtype)
    return ts.where(leaf == 0, drawn, leaf * (0.75 + 0.5 * drawn))


def _graph(program: Program, found: Trace, leaves: list[Any]) -> tuple[Any, ...]:
    held = {(InputKind.PARAMETER, name): x for name, x in program.parameters}
    held |= {(InputKind.BUFFER, name): x for name, x, _ in program.buffers}
    held |= {(InputKind.CONSTANT_TENSOR, name): x for name, x in found.constants}
    users = iter(leaves)
    given = [next(users) if kind is InputKind.USER_INPUT else held[kind, name] for kind, name, _ in found.inputs]
    return GraphModule(found.root, found.graph, "Tried")(*given)  # type: ignore[no-any-return]


def _close(one: Any, other: Any) -> bool:
    if not isinstance(one, Tensor):
        return bool(one == other)
    if not isinstance(other, Tensor) or one.shape != other.shape or one.dtype is not other.dtype:
        return False
    if not (one.is_floating_point() or one.is_complex()):
        return bool(ts.equal(one, other))
    tolerance = _TOLERANCE.get(one.dtype, 3e-2)
    return bool(ts.allclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True))

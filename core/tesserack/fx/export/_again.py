"""An exported program traced once more, with operators made of others."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import tesserack as ts
from tesserack.aten.operators import namespace
from tesserack.aten.whole import by_values, whole_overloads
from tesserack.fx.experimental._proxy_tracer import RetracingInterpreter
from tesserack.fx.export._export import assemble, program_of
from tesserack.fx.export._ranges import flat_inputs
from tesserack.fx.export._unlift import ExportedModule, unlifted
from tesserack.fx.export.exported_program import _tracing
from tesserack.utils._pytree import tree_unflatten

__all__ = ["DECOMPOSITIONS", "decomposed"]

aten = namespace("aten")
DECOMPOSITIONS: dict[Any, Any] = {
    aten.t.default: lambda self: aten.permute.default(self, [1, 0] if self.ndim == 2 else [0] * self.ndim),
    aten.square.default: lambda self: aten.pow.Tensor_Scalar(self, 2),
    aten._unsafe_view.default: lambda self, size: aten.view.default(self, size),
    # A call of one that is in the table goes by its parts.
    **{overload: functools.partial(overload) for overload in whole_overloads() - by_values()},
}


class _Replayed(ExportedModule):
    """A program that is traced."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = RetracingInterpreter(self).run(*flat_inputs(self._of_arguments, args, kwargs))
        return tree_unflatten(list(found), self._of_results)


def decomposed(ep: Any, table: Mapping[Any, Any]) -> Any:
    """The program without the operators of a table."""
    args, kwargs = ep.example_inputs or _made(ep)
    module = unlifted(ep, False, _Replayed)
    program = program_of(module, args, kwargs, ep._check.names)
    program.constants = {id(value): name for name, value in ep.constants.items()}
    named = {*ep.graph_signature.lifted_tensor_constants}
    program.buffers = [buffer for buffer in program.buffers if buffer[0] not in named]
    program.decompositions = dict(table)
    program.fixed = ep._check.fixed
    program.whole = frozenset(x for x in whole_overloads() if x not in table and x.overloadpacket not in table)
    symbols = [dataclasses.replace(s, declared=True) for s in ep._check.symbols]
    signature = ep.module_call_graph[0].signature
    made = assemble(program, symbols, (args, kwargs), signature.forward_arg_names or [])
    made._state_dict, made._example_inputs = {**ep.state_dict}, ep.example_inputs
    return made


def _made(ep: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Inputs like the example's, of zeros, for a program that came from a file."""
    leaves = [
        ts.zeros(leaf[0], dtype=leaf[1], device=leaf[2]) if isinstance(leaf, tuple) else leaf
        for leaf in ep._check.leaves
    ]
    return tree_unflatten(leaves, ep._check.in_spec)  # type: ignore[no-any-return]


_tracing.decomposed, _tracing.table = decomposed, DECOMPOSITIONS

"""How many floating-point operations a program asks for."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from tesserack import _native
from tesserack._native import Tensor
from tesserack.aten.operators import OpOverloadPacket, namespace
from tesserack.library import dispatch
from tesserack.utils._pytree import tree_map
from tesserack.utils.module_tracker import ModuleTracker
from tesserack.utils.profiler._flops import PRODUCTS

__all__ = ["FlopCounterMode", "flop_registry", "register_flop_formula"]


# The names that PyTorch has for what is counted; a product with a bias is an addmm there.
_PACKETS = {
    **dict.fromkeys(("mv", "_matmul_turned", "linear", "linear_backward_input", "linear_backward_weight"), "mm"),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), "convolution"),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), "convolution"),
    **dict.fromkeys(("convolution_backward_input", "convolution_backward_weight"), "convolution_backward"),
    "addmv": "addmm",
    "scaled_dot_product_attention": "_scaled_dot_product_flash_attention",
    "attention_blocks_backward": "_scaled_dot_product_flash_attention_backward",
}

flop_registry: dict[Any, Callable[..., Any]] = {}


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator of ``f(*shapes, out_shape, **kwargs)``, the operations of an operator, or of several.

    ``targets`` are packets of overloads, such as ``torch.ops.aten.add``, or their names. With ``get_raw`` the function
    gets the tensors, and the result as ``out_val``. ``ValueError`` for anything else.

    >>> import tesserack as ts
    >>> @register_flop_formula("aten::kron")
    ... def kron_flop(a, b, *, out_shape=None):
    ...     return out_shape.numel()
    >>> with FlopCounterMode(display=False) as counter:
    ...     _ = ts.kron(ts.ones(2, 2), ts.ones(3))
    >>> counter.get_total_flops()
    12
    """

    def register(formula: Callable[..., Any]) -> Callable[..., Any]:
        asked = formula if get_raw else _of_shapes(formula)
        for given in targets if isinstance(targets, (list, tuple)) else [targets]:
            target = _packet(given, ()) if isinstance(given, str) else given
            if not isinstance(target, OpOverloadPacket):
                raise ValueError(f"register_flop_formula(targets): expected each target to be OpOverloadPacket (i.e. "
                                 f"torch.ops.mylib.foo), got {target} which is of type {type(target)}")  # fmt: skip
            if target in flop_registry:
                raise RuntimeError(f"register_flop_formula: duplicate registrations for {target}")
            flop_registry[target] = asked
        return formula

    return register


def _shape(value: Any) -> Any:
    return value.shape if isinstance(value, Tensor) else value


def _of_shapes(formula: Callable[..., Any]) -> Callable[..., Any]:
    def asked(*args: Any, out_val: Any = None, **kwargs: Any) -> Any:
        return formula(*tree_map(_shape, args), out_shape=tree_map(_shape, out_val), **tree_map(_shape, kwargs))

    return asked


class FlopCounterMode:
    """As a context: counts the products of matrices and convolutions, forward and backward, for each module that is
    called and its submodules; entered again, it counts anew. An operation is a multiplication or an addition.

    ``custom_mapping`` gives formulas for this counter alone, as :func:`register_flop_formula` gives them for all; one
    with an attribute ``_get_raw`` that is true gets tensors. PyTorch counts the gradient of the weight of a convolution
    in groups as often as there are groups; here it counts once.

    >>> import tesserack as ts
    >>> with FlopCounterMode(display=False) as counter:
    ...     _ = ts.ones(2, 3) @ ts.ones(3, 4)
    >>> counter.get_total_flops()
    48
    """

    def __init__(
        self, mods: Any = None, depth: int = 2, display: bool = True, custom_mapping: dict[Any, Any] | None = None
    ) -> None:
        if mods is not None:
            warnings.warn("FlopCounterMode: mods is not needed: modules are found as they are called", stacklevel=2)
        self.depth, self.display = depth, display
        self.flop_counts: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
        self.mod_tracker = ModuleTracker()
        self._own = {
            packet: formula if getattr(formula, "_get_raw", False) else _of_shapes(formula)
            for packet, formula in (custom_mapping or {}).items()
        }
        self._quiet = 0

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts.clear()
        self.mod_tracker.__enter__()
        _counters.append(self)
        self._context = _key().enabled()
        self._context.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._context.__exit__(*exc)
        _counters.remove(self)
        self.mod_tracker.__exit__(*exc)
        if self.display:
            print(self.get_table(self.depth))

    def _formula(self, packet: Any) -> Any:
        return self._own.get(packet) or flop_registry.get(packet)

    def _count(self, op: Any, flops: int) -> None:
        for place in self.mod_tracker.parents:
            self.flop_counts[place][op] += flops

    def get_total_flops(self) -> int:
        """All operations."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """Operations by submodule and operator, such as ``torch.ops.aten.mm``; ``"Global"`` is everything."""
        return {place: dict(counts) for place, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """The counts as text, down to ``depth`` levels of submodules."""
        total = self.get_total_flops() or 1
        lines = []
        for place, counts in sorted(self.get_flop_counts().items(), key=lambda item: item[0] != "Global"):
            if place.count(".") <= (self.depth if depth is None else depth):
                flops = sum(counts.values())
                lines.append(f"{place:40s}  {flops:>16,d}  {100 * flops / total:6.2f}%")
                lines += [f" - {op!s:37s}  {n:>16,d}  {100 * n / total:6.2f}%" for op, n in counts.items()]
        return "\n".join([f"{'Module':40s}  {'FLOP':>16s}  {'% Total':>7s}", *lines])


_counters: list[FlopCounterMode] = []
_registered: list[dispatch.Key] = []


def _key() -> dispatch.Key:
    if not _registered:
        key = dispatch.register_key("FlopCounter", before="Profiler")
        key.fallback(_observe)
        _registered.append(key)
    return _registered[0]


def _packet(op: str, args: Any) -> Any:
    """Which of ``torch.ops`` an operator is told as."""
    space, _, name = op.rpartition("::")
    name = name.partition(".")[0]
    if name == "linear" and len(args) > 2 and args[2] is not None:
        name = "addmm"
    name = _PACKETS.get(name, name)
    if name == "convolution" and _native._current_run() >= 0:  # the gradient of a transposed one
        name = "convolution_backward"
    return getattr(namespace(space or "aten"), name)


def _observe(call: Any, *args: Any) -> Any:
    if not _counters:
        return call.redispatch(*args)
    counter = _counters[-1]
    packet = _packet(call.op, args)
    formula: Any = counter._formula(packet)
    rule: Any = PRODUCTS.get(call.op.partition(".")[0])
    if formula is None and rule is None:
        return call.redispatch(*args)
    counter._quiet += 1
    try:
        result = call.redispatch(*args)
    finally:
        counter._quiet -= 1
    if counter._quiet == 0:
        counter._count(packet, formula(*args, out_val=result) if formula else rule(args, result))
    return result

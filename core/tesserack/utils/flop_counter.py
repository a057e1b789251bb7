"""How many floating-point operations a program asks for."""

from __future__ import annotations

import math
import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from tesserack.library import dispatch
from tesserack.nn.modules._hooks import register_module_forward_hook, register_module_forward_pre_hook
from tesserack.nn.modules.module import Module

__all__ = ["FlopCounterMode"]


def _matmul(args: Any, result: Any) -> int:
    return int(2 * result.numel() * args[0].shape[-1])


def _turned(args: Any, result: Any) -> int:
    return int(2 * result.numel() * args[0].shape[-2 if args[2] else -1])


def _linear_weight(args: Any, result: Any) -> int:
    return int(2 * args[0].numel() * args[1].shape[-1])


def _addmm(args: Any, result: Any) -> int:
    return int(2 * result.numel() * args[1].shape[-1])


def _conv(args: Any, result: Any) -> int:
    return int(2 * result.numel() * math.prod(args[1].shape[1:]))


def _conv_input(args: Any, result: Any) -> int:
    return int(2 * args[0].numel() * math.prod(args[1].shape[1:]))


def _conv_weight(args: Any, result: Any) -> int:
    return int(2 * args[0].numel() * math.prod(result.shape[1:]))


def _attention(args: Any, result: Any) -> int:
    query, key, value = args[:3]
    pairs = query.numel() // query.shape[-1] * key.shape[-2]
    return int(2 * pairs * (query.shape[-1] + value.shape[-1]))


def _attention_backward(args: Any, result: Any) -> int:
    grad, query, key = args[:3]  # the scores again, three products of their size for q, k and v, and that with grad
    pairs = query.numel() // query.shape[-1] * key.shape[-2]
    return int(2 * pairs * (3 * query.shape[-1] + 2 * grad.shape[-1]))


def _recurrent(weights: int, data: int = 0, times: int = 1) -> Callable[[Any, Any], int]:
    """For a layer's steps: every row of the data with both matrices, which begin at argument ``weights``."""

    def rule(args: Any, result: Any) -> int:
        rows = args[data].numel() // args[data].shape[-1]
        return int(2 * times * rows * (args[weights].numel() + args[weights + 1].numel()))

    return rule


# Products by operator; what these are made of is not counted again.
_RULES = {
    **dict.fromkeys(("mm", "bmm", "matmul", "mv", "linear", "linear_backward_input"), _matmul),
    "_matmul_turned": _turned,
    "linear_backward_weight": _linear_weight,
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), _addmm),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), _conv),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _conv_input),
    "convolution_backward_input": _conv_input,
    "convolution_backward_weight": _conv_weight,
    "scaled_dot_product_attention": _attention,
    "attention_blocks_backward": _attention_backward,
    **dict.fromkeys(("_rnn_layer", "_gru_layer"), _recurrent(2)),
    **dict.fromkeys(("_rnn_layer_backward", "_gru_layer_backward"), _recurrent(4, 2, times=2)),
    "_lstm_layer": _recurrent(3),
    "_lstm_layer_backward": _recurrent(6, 3, times=2),
}


class FlopCounterMode:
    """As a context: counts the products of matrices and convolutions, forward and backward, for each module that is
    called and its submodules; entered again, it counts anew. An operation is a multiplication or an addition. PyTorch
    counts the gradient of the weight of a convolution in groups as often as there are groups; here it counts once.

    >>> import tesserack as ts
    >>> with FlopCounterMode(display=False) as counter:
    ...     _ = ts.ones(2, 3) @ ts.ones(3, 4)
    >>> counter.get_total_flops()
    48
    """

    def __init__(self, mods: Any = None, depth: int = 2, display: bool = True, custom_mapping: Any = None) -> None:
        self.depth, self.display = depth, display
        self._roots = [mods] if isinstance(mods, Module) else [*(mods or ())]
        self._names: weakref.WeakKeyDictionary[Module, str] = weakref.WeakKeyDictionary()
        self.flop_counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._inside: list[str] = []
        self._handles: list[Any] = []
        self._quiet = 0

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts.clear()
        for root in self._roots:
            self._name(root)
        self._handles = [
            register_module_forward_pre_hook(lambda module, _: self._inside.append(self._name(module))),
            register_module_forward_hook(lambda *_: self._leave(), always_call=True),
        ]
        _counters.append(self)
        self._context = _key().enabled()
        self._context.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._context.__exit__(*exc)
        _counters.remove(self)
        for handle in self._handles:
            handle.remove()
        if self.display:
            print(self.get_table(self.depth))

    def _name(self, module: Module) -> str:
        """Where a module is in the first one that was called with it inside."""
        if module not in self._names:
            root = type(module).__name__
            for name, part in module.named_modules():
                self._names.setdefault(part, f"{root}.{name}" if name else root)
        return self._names[module]

    def _leave(self) -> None:
        if self._inside:
            self._inside.pop()

    def _count(self, op: str, flops: int) -> None:
        for place in ("Global", *dict.fromkeys(self._inside)):
            self.flop_counts[place][op] += flops

    def get_total_flops(self) -> int:
        """All operations."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[str, int]]:
        """Operations by submodule and operator; ``"Global"`` is everything."""
        return {place: dict(counts) for place, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """The counts as text, down to ``depth`` levels of submodules."""
        total = self.get_total_flops() or 1
        lines = []
        for place, counts in self.get_flop_counts().items():
            if place.count(".") <= (self.depth if depth is None else depth):
                flops = sum(counts.values())
                lines.append(f"{place:40s}  {flops:>16,d}  {100 * flops / total:6.2f}%")
                lines += [f" - {op:37s}  {n:>16,d}  {100 * n / total:6.2f}%" for op, n in counts.items()]
        return "\n".join([f"{'Module':40s}  {'FLOP':>16s}  {'% Total':>7s}", *lines])


_counters: list[FlopCounterMode] = []
_registered: list[dispatch.Key] = []


def _key() -> dispatch.Key:
    if not _registered:
        key = dispatch.register_key("FlopCounter", before="Profiler")
        key.fallback(_observe)
        _registered.append(key)
    return _registered[0]


def _observe(call: Any, *args: Any) -> Any:
    name = call.op.partition(".")[0]
    rule = _RULES.get(name)
    if rule is None or not _counters:
        return call.redispatch(*args)
    counter = _counters[-1]
    counter._quiet += 1
    try:
        result = call.redispatch(*args)
    finally:
        counter._quiet -= 1
    if counter._quiet == 0:
        counter._count(name, rule(args, result))
    return result

"""What a model is made of, found out without running it: on tensors that have shapes but no data."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tesserack import Tensor, device, empty_like, no_grad
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import Buffer, Parameter, is_lazy
from tesserack.utils._pytree import tree_leaves, tree_map
from tesserack.utils._results import shapes_of
from tesserack.utils.flop_counter import FlopCounterMode

__all__ = ["Layer", "Summary", "summary"]


@dataclass(frozen=True)
class Layer:
    """One module of the model, as the forward pass met it first."""

    path: str
    kind: str
    depth: int
    output_shape: Any
    parameters: int  # its own and those of the modules inside it
    flops: int


@dataclass(frozen=True)
class Summary:
    """What :func:`summary` found; printed, a table. Bytes are those of the parameters, of the buffers, and of what the
    innermost modules give, which is about what a backward pass keeps."""

    layers: list[Layer]
    parameters: int
    trainable: int
    flops: int
    parameter_bytes: int
    buffer_bytes: int
    activation_bytes: int
    output_shape: Any = field(default=None)

    def __str__(self) -> str:
        rows = [("module", "kind", "output", "parameters", "FLOPs")]
        inside: list[str] = []  # of which modules the layer is a part, outermost first
        for layer in self.layers:
            while inside and not layer.path.startswith(inside[-1]):
                inside.pop()
            name = "  " * len(inside) + (layer.path[len(inside[-1]) if inside else 0 :] or "(model)")
            inside.append(f"{layer.path}." if layer.path else "")
            counts = f"{layer.parameters:,}" if layer.parameters else "", f"{layer.flops:,}" if layer.flops else ""
            rows.append((name, layer.kind, _shown(layer.output_shape), *counts))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [_line(row, widths) for row in rows]
        rule = "-" * max(map(len, lines))
        frozen = self.parameters - self.trainable
        memory = f"{_size(self.parameter_bytes)} parameters, {_size(self.activation_bytes)} activations"
        if self.buffer_bytes:
            memory += f", {_size(self.buffer_bytes)} buffers"
        totals = (
            f"parameters: {self.parameters:,}" + (f", of which {frozen:,} are frozen" if frozen else ""),
            f"FLOPs: {self.flops:,} of products and convolutions, forward",
            f"memory: {memory}",
        )
        return "\n".join([lines[0].rstrip(), rule, *(line.rstrip() for line in lines[1:]), rule, *totals])

    __repr__ = __str__


def summary(model: Module, input: Any, **kwargs: Any) -> Summary:
    """Parameters, floating-point operations, memory and shapes of a model, layer by layer.

    Nothing is computed and the model stays as it is: a copy without data goes through ``forward``.

    Args:
        model: any module; its forward must not ask tensors for their values.
        input: a tensor (its values do not matter), a shape of float32 such as ``(8, 3, 32, 32)``, or a list of tensors
            for several arguments.
        kwargs: passed on to ``forward``.

    Raises:
        TypeError: for a model that is no module, or an input that is neither.
        RuntimeError: as the model itself raises, if shapes do not fit.

    >>> import tesserack as ts
    >>> found = ts.summary(ts.nn.Sequential(ts.nn.Linear(4, 3), ts.nn.ReLU()), (2, 4))
    >>> found.parameters, found.flops, found.output_shape
    (15, 48, (2, 3))
    >>> print(found.layers[1].path, found.layers[1].output_shape)
    0 (2, 3)
    """
    if not isinstance(model, Module):
        raise TypeError(f"summary: expected a Module, got {type(model).__name__}")
    twin, arguments = _without_data(model), _inputs(input)
    met: dict[str, tuple[str, Any]] = {}
    activations = 0

    def watch(path: str, module: Module, result: Any) -> None:
        nonlocal activations
        met.setdefault(path, (type(module).__name__, shapes_of(result)))
        if not module._modules:
            activations += sum(t.numel() * t.element_size() for t in _tensors(result))

    entered: list[str] = []
    for path, module in twin.named_modules():
        module.register_forward_pre_hook(lambda *_, p=path: entered.append(p) if p not in entered else None)
        module.register_forward_hook(lambda m, _, result, p=path: watch(p, m, result))
    with no_grad(), FlopCounterMode(display=False) as counter:
        twin(*arguments, **tree_map(_meta, kwargs))
    counts = counter.get_flop_counts()
    layers = [_layer(path, twin, met, counts) for path in entered if path in met]
    own = [*model.parameters()]
    return Summary(
        layers,
        sum(p.numel() for p in own),
        sum(p.numel() for p in own if p.requires_grad),
        counter.get_total_flops(),
        sum(p.numel() * p.element_size() for p in own),
        sum(b.numel() * b.element_size() for b in model.buffers()),
        activations,
        met[""][1],
    )


def _without_data(model: Module) -> Module:
    """A copy whose parameters and buffers are on the device "meta". Tied ones stay tied."""
    memo: dict[int, Any] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        memo[id(tensor)] = _unsized(tensor) if is_lazy(tensor) else _twin_of(tensor)
    for module in model.modules():  # what a forward pass left in them: results cannot be copied
        for tensor in tree_leaves([value for key, value in vars(module).items() if not key.startswith("_")]):
            if isinstance(tensor, Tensor) and not tensor.is_leaf:
                memo[id(tensor)] = _meta(tensor.detach())
    return copy.deepcopy(model, memo)


def _twin_of(tensor: Tensor) -> Tensor:
    twin: Tensor = _meta(tensor)
    if isinstance(tensor, Parameter):
        return Parameter(twin, tensor.requires_grad)
    return Buffer(twin) if isinstance(tensor, Buffer) else twin


def _unsized(tensor: Any) -> Any:
    """Another placeholder for one whose shape the first input decides."""
    return type(tensor)(requires_grad=tensor.requires_grad, device="meta", dtype=tensor.dtype)


def _meta(x: Any) -> Any:
    return empty_like(x, device=device("meta")) if isinstance(x, Tensor) else x


def _inputs(given: Any) -> tuple[Any, ...]:
    from tesserack import empty

    if isinstance(given, Tensor):
        return (_meta(given),)
    if isinstance(given, (tuple, list)) and given and all(isinstance(n, int) for n in given):
        return (empty(*given, device="meta"),)
    if isinstance(given, (tuple, list)) and any(isinstance(x, Tensor) for x in given):
        return tuple(tree_map(_meta, [*given]))
    raise TypeError(f"summary: expected a tensor, a shape or a list of tensors as input, got {given!r}")


def _layer(path: str, model: Module, met: dict[str, tuple[str, Any]], flops: dict[str, dict[str, int]]) -> Layer:
    kind, shape = met[path]
    module = model.get_submodule(path)
    place = f"{type(model).__name__}.{path}" if path else type(model).__name__
    own = sum(p.numel() for p in module.parameters())
    return Layer(path, kind, path.count(".") + 1 if path else 0, shape, own, sum(flops.get(place, {}).values()))


def _tensors(result: Any) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, (tuple, list)):
        for item in result:
            yield from _tensors(item)
    elif isinstance(result, dict):
        yield from _tensors([*result.values()])


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    names, numbers = cells[:3], cells[3:]
    left = [f"{cell:<{width}}" for cell, width in zip(names, widths, strict=False)]
    return "  ".join(left + [f"{cell:>{width}}" for cell, width in zip(numbers, widths[3:], strict=True)])


def _shown(shape: Any) -> str:
    text = str(shape)
    return text if len(text) <= 40 else text[:37] + "..."


def _size(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"

"""What ``tesserack check`` finds: a model tried at four sets of sizes, told in the names of its axes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tesserack._native import device
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import is_lazy
from tesserack.utils._results import size_text
from tesserack.utils.shapes._inputs import InputText
from tesserack.utils.shapes._symbolic import fit, sizes_of
from tesserack.utils.shapes._trial import Failure, Trial, run_trial

__all__ = ["Row", "ShapeReport", "try_shapes"]

_NUMBER = re.compile(r"(?<![\w.#])\d+(?!\.\d|\w)|(?<![\w.#])\d+(?=x\d)|(?<=\dx)\d+")


@dataclass(frozen=True)
class Row:
    """A module of the model, by the order of its first call. Sizes are texts in names of axes."""

    path: str
    kind: str
    output: str
    parameters: int
    flops: str


@dataclass(frozen=True)
class ShapeReport:
    """What :func:`try_shapes` found. ``mismatch`` is the first one, or None; ``sizes`` what named axes stood for."""

    rows: list[Row] = field(default_factory=list)
    parameters: int = 0
    flops: str = "0"
    peak: str = "0 B"
    kept: str = "0 B"
    mismatch: Failure | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return mismatch_text(self) if self.mismatch is not None else table_text(self)


def try_shapes(model: Callable[..., Any], *inputs: str | InputText) -> ShapeReport:
    """Run a module or a function by the rules of its operators alone: no memory, no kernels.

    Named axes are tried with three sets of primes and one of even sizes; every size is told in the names, by a formula
    that fits these four. Memory is an estimate: the results of operators that are alive at once in a forward pass
    without gradients, views with what they look at, and what the innermost modules give, which is about what a
    backward pass keeps.

    Args:
        model: a module, of which a copy without data is run, or a function of tensors.
        inputs: axes of each input, ``"batch 3 224 224"``, with a dtype ``"int64[batch time]"``, or with the name of
            the argument ``"mask=bool[batch time]"``.

    Raises:
        ValueError: an input is not written so.
        TypeError: the model does not take these inputs.

    >>> from tesserack import nn
    >>> report = try_shapes(nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), "batch 3 4")
    >>> report.rows[-1].output, report.flops
    ('[batch, 5]', '120*batch')
    >>> print(try_shapes(nn.Sequential(nn.Linear(12, 5), nn.Linear(4, 2)), "batch 12"))  # doctest: +ELLIPSIS
    mismatch at `1` (Linear): linear: mat1 and mat2 shapes cannot be multiplied: input [batch, 5] has last size 5, ...
    """
    asked = [InputText.parse(text) if isinstance(text, str) else text for text in inputs]
    names = [*dict.fromkeys(name for text in asked for name in text.names())]
    runs = sizes_of(names)
    twin, parts = _twin(model)
    called = twin.forward if isinstance(twin, Module) else twin
    lazy = any(is_lazy(tensor) for module in parts.values() for tensor in _own(module))
    trials: list[Trial] = []
    for sizes in runs:
        if lazy and trials:  # its layers have the sizes of the run before
            twin, parts = _twin(model)
        args = [text.tensor(sizes) for text in asked if text.name is None]
        kwargs = {text.name: text.tensor(sizes) for text in asked if text.name is not None}
        try:
            inspect.signature(called).bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"the model does not take these {len(asked)} inputs: {error}") from None
        trials.append(_tried(twin, args, kwargs, parts))
        if trials[-1].builds:
            raise TypeError(_building(model, trials[-1].builds))
    # A row that lacks for every size lacks for the model's own; one that lacks for some is a matter of these sizes.
    beyond = {trial.beyond for trial in trials}
    if len(beyond) == 1 and (lacking := beyond.pop()) is not None:
        return ShapeReport(mismatch=lacking, sizes=runs[0])
    failed = [k for k, trial in enumerate(trials) if trial.failure is not None]
    if failed:
        failures = [failure for trial in trials if (failure := trial.failure) is not None]
        return ShapeReport(mismatch=_told(failures, [runs[k] for k in failed]), sizes=runs[failed[0]])
    # Of sizes that no name decides it may be what is meant.
    for found in zip(*(trial.spread for trial in trials), strict=False):
        if len({size for size, _ in found}) > 1:
            return ShapeReport(mismatch=_told([failure for _, failure in found], runs), sizes=runs[0])
    return _report(twin, parts, trials, runs)


def _tried(
    model: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], parts: Mapping[str, Module]
) -> Trial:
    """One run, and others where the model asks for what that did not have."""
    ways: dict[str, bool] = {"gradients": False, "exported": False}
    trial = run_trial(model, args, kwargs, parts)
    for _ in range(3):
        if trial.asks_values and not ways["exported"]:
            ways["exported"] = True
        elif trial.asks_gradients and not ways["gradients"]:
            ways["gradients"] = True
        elif trial.asks_gradients:  # of inputs, that a caller has require them
            _require_gradients([*args, *kwargs.values()])
        else:
            break
        trial = run_trial(model, args, kwargs, parts, **ways)
    return trial


def _require_gradients(inputs: Sequence[Any]) -> None:
    for tensor in inputs:
        tensor.requires_grad_(tensor.is_floating_point() or tensor.is_complex())


def _building(model: Any, kind: str) -> str:
    name, needed = getattr(model, "__name__", "the function"), ", ".join(inspect.signature(model).parameters)
    return (
        f"{name} builds a module ({kind}) of its arguments ({needed}), which are no tensors; give them in a function "
        f"without arguments, `def build(): return {name}(...)`, and try that"
    )


def _twin(model: Callable[..., Any]) -> tuple[Callable[..., Any], dict[str, Module]]:
    if not isinstance(model, Module):
        return model, {}
    from tesserack.utils.summary import _without_data

    with device("meta"):
        twin = _without_data(model)
    return twin, dict(twin.named_modules())


def _own(module: Module) -> list[Any]:
    return [*module._parameters.values(), *module._buffers.values()]


def _told(failures: Sequence[Failure], runs: Sequence[Mapping[str, int]]) -> Failure:
    return replace(failures[0], message=_in_names([failure.message for failure in failures], runs))


def _in_names(messages: Sequence[str], runs: Sequence[Mapping[str, int]]) -> str:
    """One message for all, with numbers that differ between runs as formulas."""
    numbers = [[int(n) for n in _NUMBER.findall(message)] for message in messages]
    patterns = {_NUMBER.sub("#", message) for message in messages}
    if len(patterns) > 1 or len(runs) < 2:
        sizes = {str(size): name for name, size in runs[0].items()}
        return _NUMBER.sub(lambda match: sizes.get(match[0], match[0]), messages[0])
    columns = iter(zip(*numbers, strict=True))

    def told(match: re.Match[str]) -> str:
        formula = fit(next(columns), runs)
        return formula.text() if formula is not None else match[0]

    # `batch=101 from x` says nothing once 101 is batch.
    return re.sub(r"\b(\w+)=\1\b", r"\1", _NUMBER.sub(told, messages[0]))


def _report(
    model: Any, parts: Mapping[str, Module], trials: Sequence[Trial], runs: Sequence[Mapping[str, int]]
) -> ShapeReport:
    def told(values: Sequence[int], number: Callable[[int], str] = str) -> str:
        formula = fit(values, runs)
        if formula is not None and formula.divisor == 1:
            return formula.text(number)
        if formula is not None and number is not size_text:
            return formula.text()
        at = ", ".join(f"{name}={size}" for name, size in runs[0].items())
        return f"{number(values[0])} (at {at})"

    rows = []
    for path in trials[0].order:
        if not all(path in trial.outputs for trial in trials):
            continue
        kind = trials[0].outputs[path][0]
        output = _output([trial.outputs[path][1] for trial in trials], told)
        own = sum(p.numel() for p in parts[path].parameters()) if path in parts else 0
        flops = [trial.flops.get(path, 0) for trial in trials] if parts else [t.total_flops for t in trials]
        rows.append(Row(path, kind, output, own, told(flops, "{:,}".format)))
    total = sum(p.numel() for p in model.parameters()) if isinstance(model, Module) else 0
    return ShapeReport(
        rows,
        total,
        told([t.total_flops for t in trials], "{:,}".format),
        told([t.peak for t in trials], size_text),
        told([t.kept for t in trials], size_text),
        sizes=runs[0],
    )


def _output(shapes: Sequence[Any], told: Callable[[Sequence[int]], str]) -> str:
    first = shapes[0]
    if any(type(shape) is not type(first) for shape in shapes):
        return "differs"
    if isinstance(first, tuple):
        if len({len(shape) for shape in shapes}) > 1:
            return "differs"
        return "[" + ", ".join(told(column) for column in zip(*shapes, strict=True)) + "]"
    if isinstance(first, list):
        return "(" + ", ".join(_output(column, told) for column in zip(*shapes, strict=False)) + ")"
    if isinstance(first, dict):
        return "{" + ", ".join(f"{key}: {_output([s[key] for s in shapes], told)}" for key in first) + "}"
    return str(first)


def mismatch_text(report: ShapeReport) -> str:
    """The first mismatch, for people."""
    found = report.mismatch
    assert found is not None
    where = f"`{found.path}` ({found.kind})" if found.path else f"the model ({found.kind})"
    error = "" if found.error in ("RuntimeError", "ShapeError") else f"{found.error}: "
    begin = "cannot be tried beyond" if "a trial has none" in found.message else "mismatch at"
    lines = [f"{begin} {where}: {error}{found.message}"]
    if found.line:
        lines.append(f"  {found.line}")
    if report.sizes:
        sizes = ", ".join(f"{name}={size}" for name, size in report.sizes.items())
        lines.append(f"  tried with {sizes}; write a number where only certain sizes fit")
    return "\n".join(lines)


def table_text(report: ShapeReport) -> str:
    """Modules and totals, for people."""
    header = ("module", "kind", "output", "parameters", "FLOPs")
    rows = [(r.path or "(model)", r.kind, r.output, f"{r.parameters:,}", r.flops) for r in report.rows]
    widths = [max(len(row[k]) for row in (header, *rows)) for k in range(len(header))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in (header, *rows)]
    return "\n".join(
        [
            *lines,
            f"parameters: {report.parameters:,}",
            f"FLOPs: {report.flops}, of products and convolutions, forward",
            f"activations: {report.peak} at the peak of a forward pass without gradients,"
            f" {report.kept} kept for a backward pass",
        ]
    )

"""Layer and batch normalisation with their gradients, and the spread of rows."""

from __future__ import annotations

import math
from typing import Any

from tesserack.backends import LaunchPlan

from tesserack_kernelgen.call import Call
from tesserack_kernelgen.dtypes import ITEMSIZE, accumulator, name_of
from tesserack_kernelgen.kernel import Kernel
from tesserack_kernelgen.layout import merge
from tesserack_kernelgen.templates._registry import template
from tesserack_kernelgen.templates._rows import Rows
from tesserack_kernelgen.templates.reduce import DTYPE

__all__ = [
    "batch_norm",
    "batch_norm_backward",
    "layer_norm",
    "layer_norm_backward",
    "rms_norm",
    "std_mean",
    "var_mean",
]

_SHARED = 1 << 16  # elements of a row from which it is worth more than one group
_PARTS = 64  # of such a row, at most


def _there(x: Any) -> bool:
    return hasattr(x, "strides")


def _moments(rows: Rows, eps: str) -> None:
    n = f"(({rows.c})length)"
    rows.stage("sum", "sum", "x")
    rows.let("mean", f"sum / {n}")
    rows.stage("square", "sum", "(x - mean) * (x - mean)")
    rows.let("var", f"square / {n}")
    rows.let("rstd", f"1 / sqrt(var + {eps})")


def _corrected_moments(rows: Rows, eps: str) -> str:
    """As _moments, where far from zero the mean of a long row is rounded by more than its spread bears: what is left of
    it is added up beside the squares, and taken, too. The text of a centered element."""
    n = f"(({rows.c})length)"
    rows.stage("sum", "sum", "x")
    rows.let("rough", f"sum / {n}")
    rows.stage("left", "sum", "x - rough")
    rows.stage("square", "sum", "(x - rough) * (x - rough)")
    rows.let("rest", f"left / {n}")
    rows.let("mean", "rest == rest ? rough + rest : rough")  # infinite as the elements are
    rows.let("less", "square - left * rest")
    rows.let("var", f"(less >= 0 ? less : less < 0 ? 0 : square) / {n}")  # infinite squares as they are
    rows.let("rstd", f"1 / sqrt(var + {eps})")
    return "((x - rough) - rest)"


@template("native_layer_norm", fuses=(0,), finishes=True)
def layer_norm(call: Call) -> LaunchPlan:
    """Outputs y, mean, rstd of inputs x, weight, bias; ``params`` are the normalised shape and eps."""
    (out, mean, rstd), (x, weight, bias), (shape, eps) = call.outputs, call.inputs, call.params
    at = x.ndim - len(shape)
    kernel = Kernel(call, "layer_norm")
    rows = Rows(kernel, x.shape[:at], x.shape[at:], accumulator(name_of(x.dtype)))
    rows.element("x", kernel.input(0), x.strides[:at], x.strides[at:])
    text = "(x - mean) * rstd"
    for k, (name, operand, sign) in enumerate((("weight", weight, "*"), ("bias", bias, "+")), 1):
        if _there(operand):
            rows.element(name, kernel.input(k), (0,) * at, operand.strides)
            text = f"({text}) {sign} {name}"
    _moments(rows, kernel.number(eps, rows.c))
    rows.store(kernel.output(0), out.strides[:at], out.strides[at:], text)
    rows.store_row(kernel.output(1), mean.strides[:at], "mean")
    rows.store_row(kernel.output(2), rstd.strides[:at], "rstd")
    return LaunchPlan([rows.launch()])


@template("native_layer_norm_backward", fuses=(0,), finishes=True)
def layer_norm_backward(call: Call) -> LaunchPlan:
    """Outputs dx, dweight, dbias of inputs grad, x, mean, rstd, weight: one launch by rows and one by columns."""
    dx, (g, x, mean, rstd, weight) = call.outputs[0], call.inputs
    at = x.ndim - len(call.params[0])
    c = accumulator(name_of(x.dtype))
    kernel = Kernel(call, "layer_norm_backward")
    rows = Rows(kernel, x.shape[:at], x.shape[at:], c)
    rows.element("g", kernel.input(0), g.strides[:at], g.strides[at:])
    rows.element("x", kernel.input(1), x.strides[:at], x.strides[at:])
    rows.row("mean", kernel.input(2), mean.strides[:at])
    rows.row("rstd", kernel.input(3), rstd.strides[:at])
    wide = "g"
    if _there(weight):
        rows.element("weight", kernel.input(4), (0,) * at, weight.strides)
        wide = "g * weight"
    rows.stage("first", "sum", wide)
    rows.stage("second", "sum", f"{wide} * (x - mean) * rstd")
    rows.let("n", f"({rows.c})length")
    text = f"rstd * ({wide} - first / n - (x - mean) * rstd * second / n)"
    rows.store(kernel.output(0), dx.strides[:at], dx.strides[at:], text)
    return LaunchPlan([rows.launch(), _columns(call, at, c)])


def _columns(call: Call, at: int, c: str) -> Any:
    """The gradients of weight and bias: sums over rows."""
    (_, dw, db), (g, x, mean, rstd, _) = call.outputs, call.inputs
    kernel = Kernel(call, "layer_norm_columns")
    columns = Rows(kernel, x.shape[at:], x.shape[:at], c)
    columns.element("g", kernel.input(0), g.strides[at:], g.strides[:at])
    columns.element("x", kernel.input(1), x.strides[at:], x.strides[:at])
    columns.element("mean", kernel.input(2), (0,) * (x.ndim - at), mean.strides[:at])
    columns.element("rstd", kernel.input(3), (0,) * (x.ndim - at), rstd.strides[:at])
    columns.stage("dw", "sum", "g * (x - mean) * rstd")
    columns.stage("db", "sum", "g")
    columns.store_row(kernel.output(1), dw.strides, "dw")
    columns.store_row(kernel.output(2), db.strides, "db")
    return columns.launch()


@template("rms_norm", fuses=(0,), finishes=True)
def rms_norm(call: Call) -> LaunchPlan:
    """``x / sqrt(mean(x^2) + eps) * weight`` of inputs x, weight; ``params``: the normalised shape, eps or None."""
    out, x, shape, eps = call.outputs[0], call.inputs[0], call.params[0], call.params[-1]
    weight: Any = call.inputs[1] if len(call.inputs) > 1 else None  # an absent one is a parameter
    at = x.ndim - len(shape)
    kernel = Kernel(call, "rms_norm")
    c = accumulator(name_of(x.dtype))
    rows = Rows(kernel, x.shape[:at], x.shape[at:], c)
    rows.element("x", kernel.input(0), x.strides[:at], x.strides[at:])
    text = "x * rstd"
    if _there(weight):
        rows.element("weight", kernel.input(1), (0,) * at, weight.strides)
        text = "x * rstd * weight"
    rows.stage("square", "sum", "x * x")
    least = kernel.number((2.0**-52 if c == "f64" else 2.0**-23) if eps is None else eps, c)
    rows.let("rstd", f"1 / sqrt(square / ({c})length + {least})")
    rows.store(kernel.output(0), out.strides[:at], out.strides[at:], text)
    return LaunchPlan([rows.launch()])


def _channels(call: Call, kernel: Kernel, x: Any) -> Rows:
    """A row is a channel, dim 1."""
    return Rows(kernel, (x.shape[1],), _others(x.shape), accumulator(name_of(x.dtype)))


def _others(values: tuple[int, ...]) -> tuple[int, ...]:
    return (values[0], *values[2:])


@template("native_batch_norm", fuses=(0,), finishes=True)
def batch_norm(call: Call) -> LaunchPlan:
    """Outputs y, mean, rstd of inputs x, weight, bias and running statistics, which training writes."""
    (out, mean, rstd), (x, weight, bias, running_mean, running_var) = call.outputs, call.inputs
    training, momentum, eps = call.params
    kernel = Kernel(call, "batch_norm")
    rows = _channels(call, kernel, x)
    rows.element("x", kernel.input(0), (x.strides[1],), _others(x.strides))
    centered = "(x - mean)"
    if training:
        centered = _corrected_moments(rows, kernel.number(eps, rows.c))
    else:
        rows.row("mean", kernel.input(3), running_mean.strides)
        rows.row("var", kernel.input(4), running_var.strides)
        rows.let("rstd", f"1 / sqrt(var + {kernel.number(eps, rows.c)})")
    text = f"{centered} * rstd"
    for k, (name, operand, sign) in enumerate((("weight", weight, "*"), ("bias", bias, "+")), 1):
        if _there(operand):
            rows.row(name, kernel.input(k), operand.strides)
            text = f"({text}) {sign} {name}"
    rows.store(kernel.output(0), (out.strides[1],), _others(out.strides), text)
    rows.store_row(kernel.output(1), mean.strides, "mean")
    rows.store_row(kernel.output(2), rstd.strides, "rstd")
    if training:
        blend, keep = kernel.number(momentum, rows.c), kernel.number(1 - momentum, rows.c)
        unbiased = f"var * (({rows.c})length / ({rows.c})(length - 1))"
        for k, (name, operand, value) in enumerate(
            (("was_mean", running_mean, "mean"), ("was_var", running_var, unbiased)), 3
        ):
            if _there(operand):
                running = kernel.input(k)
                rows.row(name, running, operand.strides)
                rows.store_row(running, operand.strides, f"{name} * {keep} + {value} * {blend}")
    return LaunchPlan([rows.launch()])


@template("native_batch_norm_backward", fuses=(0,), finishes=True)
def batch_norm_backward(call: Call) -> LaunchPlan:
    """Outputs dx, dweight, dbias of inputs grad, x, weight, mean, rstd; ``params[0]`` is training."""
    (dx, dw, db), (g, x, weight, mean, rstd) = call.outputs, call.inputs
    kernel = Kernel(call, "batch_norm_backward")
    rows = _channels(call, kernel, x)
    rows.element("g", kernel.input(0), (g.strides[1],), _others(g.strides))
    rows.element("x", kernel.input(1), (x.strides[1],), _others(x.strides))
    if _there(weight):
        rows.row("weight", kernel.input(2), weight.strides)
    rows.row("mean", kernel.input(3), mean.strides)
    rows.row("rstd", kernel.input(4), rstd.strides)
    rows.stage("db", "sum", "g")
    rows.stage("dw", "sum", "g * (x - mean) * rstd")
    rows.let("scale", "weight * rstd" if _there(weight) else "rstd")
    rows.let("n", f"({rows.c})length")
    text = "scale * (g - db / n - (x - mean) * rstd * dw / n)" if call.params[0] else "scale * g"
    rows.store(kernel.output(0), (dx.strides[1],), _others(dx.strides), text)
    rows.store_row(kernel.output(1), dw.strides, "dw")
    rows.store_row(kernel.output(2), db.strides, "db")
    return LaunchPlan([rows.launch()])


@template("var_mean")
def var_mean(call: Call) -> Any:
    """Outputs variance and mean over the last ``params[0]`` dims; ``params[1]`` is taken from the count."""
    return _spread(call, "{}")


@template("std_mean")
def std_mean(call: Call) -> Any:
    """As var_mean, with the root of the variance."""
    return _spread(call, "sqrt({})")


def _spread(call: Call, shown: str) -> Any:
    (spread, mean), (x,), (reduced, correction) = call.outputs, call.inputs, call.params
    at = x.ndim - reduced
    count, length = math.prod(x.shape[:at]), math.prod(x.shape[at:])
    if count < call.device.compute_units and length > _SHARED:
        return _shared_spread(call, shown)
    kernel = Kernel(call, call.op)
    rows = Rows(kernel, x.shape[:at], x.shape[at:], accumulator(name_of(x.dtype)))
    rows.element("x", kernel.input(0), x.strides[:at], x.strides[at:])
    rows.stage("sum", "sum", "x")
    rows.let("mean", f"sum / ({rows.c})length")
    rows.stage("square", "sum", "(x - mean) * (x - mean)")
    free = kernel.number(max(0.0, length - correction), rows.c)
    rows.store_row(kernel.output(0), spread.strides, shown.format(f"square / {free}"))
    rows.store_row(kernel.output(1), mean.strides, "mean")
    return LaunchPlan([rows.launch()])


def _shared_spread(call: Call, shown: str) -> Any:
    """Long rows in equal parts: the mean and the squares of each, then all together (Chan, Golub and LeVeque)."""
    (spread, mean), (x,), (reduced, correction) = call.outputs, call.inputs, call.params
    at = x.ndim - reduced
    kept, sizes = x.shape[:at], x.shape[at:]
    (first, *rest), ((step, *steps),) = merge(sizes, x.strides[at:])
    parts = next((n for n in range(_PARTS, 1, -1) if first % n == 0), 1)
    if parts < 2 * call.device.compute_units and parts < _PARTS // 2:
        return NotImplemented  # reductions share long rows among groups
    length, part, c = math.prod(sizes), first // parts, accumulator(name_of(x.dtype))
    own = (*(parts * math.prod(kept[d + 1 :]) for d in range(at)), 1)
    half = -(-math.prod(kept) * parts * ITEMSIZE[DTYPE[c]] // 16) * 16
    kernel = Kernel(call, f"{call.op}_parts")
    rows = Rows(kernel, (*kept, parts), (part, *rest), c)
    rows.element("x", kernel.input(0), (*x.strides[:at], part * step), (step, *steps))
    rows.stage("sum", "sum", "x")
    rows.let("mean", f"sum / ({c})length")
    rows.stage("square", "sum", "(x - mean) * (x - mean)")
    rows.store_row(kernel.workspace(0, DTYPE[c]), own, "mean")
    rows.store_row(kernel.workspace(half, DTYPE[c]), own, "square")
    launches = [rows.launch()]
    kernel = Kernel(call, call.op)
    rows = Rows(kernel, kept, (parts,), c)
    rows.element("m", kernel.workspace(0, DTYPE[c]), own[:-1], (1,))
    rows.element("q", kernel.workspace(half, DTYPE[c]), own[:-1], (1,))
    rows.stage("sum", "sum", "m")
    rows.let("mean", f"sum / ({c})length")
    each, free = kernel.number(length // parts, c), kernel.number(max(0.0, length - correction), c)
    rows.stage("square", "sum", f"q + {each} * ((m - mean) * (m - mean))")
    rows.store_row(kernel.output(0), spread.strides, shown.format(f"square / {free}"))
    rows.store_row(kernel.output(1), mean.strides, "mean")
    return LaunchPlan([*launches, rows.launch()], 2 * half)

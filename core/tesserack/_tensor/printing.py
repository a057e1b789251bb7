"""``repr`` of tensors, in PyTorch's format."""

from __future__ import annotations

import math
import sys

from tesserack import _native
from tesserack._native import Tensor

TYPE_CHECKING = False  # typing takes a good part of the time to import the package
if TYPE_CHECKING:
    from typing import Any

__all__ = ["set_printoptions", "tensor_repr"]


class _Options:
    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_PROFILES: dict[str, dict[str, float]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}
_options = _Options()


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are printed.

    Args:
        precision: digits after the point (4).
        threshold: number of elements above which only the edges are shown (1000).
        edgeitems: how many at each edge (3).
        linewidth: characters per line (80).
        profile: ``"default"``, ``"short"`` or ``"full"``: sets all of these; any other sets none.
        sci_mode: force scientific notation on or off; None decides by the values.
    """
    if profile is not None:
        for name, value in _PROFILES.get(profile.lower(), {}).items():
            setattr(_options, name, value)
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    for name, choice in given.items():
        if choice is not None:
            setattr(_options, name, choice)
    _options.sci_mode = sci_mode


# --- values: nested lists in which _GAP stands for what is left out --------------------------------------------------

_GAP = object()


def _values(tensor: Tensor, shorten: bool) -> Any:
    edge = _options.edgeitems
    if tensor.dim() == 0 or not shorten:
        return tensor.tolist()
    count = tensor.size(0)
    if count <= 2 * edge:
        return [_values(tensor[k], True) for k in range(count)] if tensor.dim() > 1 else tensor.tolist()
    if tensor.dim() == 1:
        return [*tensor[:edge].tolist(), _GAP, *tensor[count - edge :].tolist()]
    shown = [_values(tensor[k], True) for k in [*range(edge), *range(count - edge, count)]]
    return [*shown[:edge], _GAP, *shown[edge:]]


def _leaves(values: Any) -> list[Any]:
    if not isinstance(values, list):
        return [values]
    return [leaf for item in values if item is not _GAP for leaf in _leaves(item)]


# --- numbers -------------------------------------------------------------------------------------------------------


class _Plain:
    """Integers and bools: right-aligned to the widest."""

    def __init__(self, values: list[Any]) -> None:
        self.width = max((len(str(value)) for value in values), default=1)

    def __call__(self, value: Any) -> str:
        return str(value).rjust(self.width)


class _Float:
    """Floats: all as integers with a point, all with fixed digits, or all in scientific notation."""

    def __init__(self, values: list[float]) -> None:
        sizes = [abs(value) for value in values if value != 0 and math.isfinite(value)]
        counted = [value for value in values if value != 0 and math.isfinite(value)]
        self.integral = all(value == math.ceil(value) for value in counted)
        self.scientific = False
        self.width = 1
        if counted:
            low, high = min(sizes), max(sizes)
            self.scientific = high / low > 1000.0 or high > 1.0e8 or (not self.integral and low < 1.0e-4)
            if _options.sci_mode is not None:
                self.scientific = _options.sci_mode
            self.width = max(len(self._digits(value)) for value in counted)

    def _digits(self, value: float) -> str:
        if self.scientific:
            return f"{value:.{_options.precision}e}"
        if self.integral:
            return f"{value:.0f}" + ("." if math.isfinite(value) else "")
        return f"{value:.{_options.precision}f}"

    def __call__(self, value: float) -> str:
        return self._digits(value).rjust(self.width)


class _Complex:
    """Complex numbers: both parts formatted for themselves."""

    def __init__(self, values: list[complex]) -> None:
        self._real = _Float([value.real for value in values])
        self._imaginary = _Float([value.imag for value in values])
        self.width = self._real.width + self._imaginary.width + 1

    def __call__(self, value: complex) -> str:
        imaginary = self._imaginary(value.imag).lstrip() + "j"
        sign = "" if imaginary[0] in "+-" else "+"
        return self._real(value.real) + sign + imaginary


def _formatter(tensor: Tensor, values: list[Any]) -> Any:
    if tensor.is_complex():
        return _Complex(values)
    return _Float(values) if tensor.is_floating_point() else _Plain(values)


# --- layout --------------------------------------------------------------------------------------------------------


def _row(items: list[Any], indent: int, form: Any) -> str:
    texts = [" ..." if item is _GAP else form(item) for item in items]
    if texts == [" ..."]:
        texts = ["..."]
    per_line = max(1, (_options.linewidth - indent) // (form.width + 2))
    lines = [", ".join(texts[start : start + per_line]) for start in range(0, len(texts), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _block(values: Any, dims: int, indent: int, form: Any) -> str:
    if dims == 0:
        return str(form(values))
    if dims == 1:
        return _row(values, indent, form)
    parts = ["..." if item is _GAP else _block(item, dims - 1, indent + 1, form) for item in values]
    return "[" + ("," + "\n" * (dims - 1) + " " * (indent + 1)).join(parts) + "]"


def contents(tensor: Tensor, indent: int) -> str:
    """The text of the values alone, its lines indented."""
    if tensor.dtype._values > 1:  # whose elements are no numbers
        tensor = tensor.view(_native.uint8)
    values = _values(tensor, tensor.numel() > _options.threshold)
    return _block(values, tensor.dim(), indent, _formatter(tensor, _leaves(values)))


def _has_usual_dtype(tensor: Tensor) -> bool:
    default = _native.get_default_dtype()
    usual_complex = _native.complex128 if default is _native.float64 else _native.complex64
    return tensor.dtype in (default, _native.int64, _native.bool, usual_complex)


def _is_default_device(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" or tensor.device == _native.get_default_device()


def _part_contents(tensor: Tensor, indent: int) -> str:
    return contents(tensor, indent) if tensor.numel() else "[]"


def _describe(tensor: Tensor, indent: int) -> tuple[str, list[str]]:
    """The text of the values, and what follows it."""
    suffixes = []
    if tensor.layout is not _native.strided:
        from tesserack.sparse._text import describe

        return describe(tensor, indent, _part_contents, _has_usual_dtype(tensor))
    if tensor.is_meta:
        text, suffixes = "...", ["device='meta'", f"size={tuple(tensor.shape)}"]
        if tensor.dtype is not _native.get_default_dtype():
            suffixes.append(f"dtype={tensor.dtype}")
        return text, suffixes
    if not _is_default_device(tensor):
        suffixes.append(f"device='{tensor.device}'")
    if tensor.numel() == 0:
        if tensor.dim() != 1:
            suffixes.append(f"size={tuple(tensor.shape)}")
        if tensor.dtype is not _native.get_default_dtype():
            suffixes.append(f"dtype={tensor.dtype}")
        return "[]", suffixes
    if _options.edgeitems == 0:
        suffixes.append(f"size={tuple(tensor.shape)}")
    if not _has_usual_dtype(tensor):
        suffixes.append(f"dtype={tensor.dtype}")
    return contents(tensor, indent), suffixes


def _history(tensor: Tensor) -> list[str]:
    forward = sys.modules.get("tesserack.autograd.forward_ad")
    if forward is not None and forward.carries_tangent(tensor):
        return [f"tangent={forward.unpack_dual(tensor).tangent}"]
    try:
        node = tensor.grad_fn
    except RuntimeError:  # a view from before its memory was written to without a record
        return ["grad_fn=<Invalid>"]
    if node is not None:
        return [f"grad_fn=<{type(node).__name__}>"]
    return ["requires_grad=True"] if tensor.requires_grad else []


def add_suffixes(text: str, suffixes: list[str], indent: int, force_newline: bool) -> str:
    """The text with what follows the values, on a line of its own where it would be too long, and the bracket."""
    column = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if force_newline or column + len(suffix) + 2 > _options.linewidth:
            text += ",\n" + " " * indent + suffix
            column = indent + len(suffix)
            force_newline = False
        else:
            text += ", " + suffix
            column += len(suffix) + 2
    return text + ")"


def tensor_repr(tensor: Tensor, tensor_contents: str | None = None) -> str:
    """The text ``repr(tensor)`` gives, with ``tensor_contents`` in place of the values if given."""
    if getattr(tensor, "_is_param", False):
        return f"Parameter({_text(tensor, tensor_contents)})"
    return _text(tensor, tensor_contents)


def _text(tensor: Tensor, tensor_contents: str | None) -> str:
    kind = type(tensor)
    plain = kind is Tensor or kind.__name__ in ("Parameter", "Buffer")
    prefix = "tensor(" if plain else f"{kind.__name__}("
    if tensor_contents is not None:
        suffixes = [] if _has_usual_dtype(tensor) else [f"dtype={tensor.dtype}"]
        return add_suffixes(prefix + tensor_contents, suffixes + _history(tensor), len(prefix), False)
    with _native.no_grad():
        text, suffixes = _describe(tensor.detach() if tensor.requires_grad else tensor, len(prefix))
    return add_suffixes(prefix + text, suffixes + _history(tensor), len(prefix), False)

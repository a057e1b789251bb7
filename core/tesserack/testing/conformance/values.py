"""Results against the float64 reference: how far off they are, and what a pattern of failures points to."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import tesserack as ts
from tesserack.testing import cases, samples
from tesserack.testing.conformance.waits import Waits
from tesserack.testing.references import REFERENCES

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "MADE",
    "NEAR_ONE",
    "SUMS",
    "TIED",
    "TOLERANCE",
    "Findings",
    "Measured",
    "dtype_name",
    "expectation",
    "fit",
    "measure",
]

TOLERANCE = {"float64": 1e-9, "float32": 3e-5, "float16": 4e-3, "bfloat16": 3e-2}
_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
# The smallest number of all: what is rounded to it, or to zero, is not wrong by more.
_LEAST = {"float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}
# Pointwise operators whose small results are differences of numbers near 1: relative to 1. All others, to the result.
NEAR_ONE = frozenset(("sinc", "special_sinc", "tanhshrink"))
# Sums of terms of about 1 that may cancel altogether: relative to 1 too.
SUMS = frozenset(("var", "std", "var_mean", "std_mean"))
# Operators whose result is of one dtype, whatever they are given.
MADE = {"float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16"}
# Their result depends on the dtype they are called with, by definition.
DTYPE_BOUND = {"type_as", *MADE}
# Operators whose positions are not determined among equal elements.
TIED = {"sort", "argsort", "topk", "kthvalue", "median.dim", "nanmedian.dim"}


def dtype_name(tensor: Any) -> str:
    """``"float32"`` for a float32 tensor."""
    return str(tensor.dtype).rsplit(".", 1)[-1]


def fit(expected: Any, dtype: str) -> NDArray[Any]:
    """The exact result as a dtype holds it: integers wrap around, floats overflow to infinity."""
    if dtype == "bool":
        return np.asarray(expected).astype(bool)
    if cases.is_floating(dtype):
        wide = np.asarray(expected, dtype=np.float64)
        with np.errstate(over="ignore"):
            return wide.astype({"bfloat16": "float32"}.get(dtype, dtype)).astype(np.float64)
    return np.asarray(expected).astype(np.int64).astype(dtype).astype(np.int64)


def expectation(name: str, sample: samples.Sample, dtype: str) -> list[Any]:
    """What the call should give: from the reference, or else from the operator itself on the cpu, in float64 if it
    computes with floats."""
    reference = REFERENCES.get(samples.ALIASES.get(name, name))
    if reference:
        args, kwargs = sample.map(lambda item: _reference_input(item, name, dtype))
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return cases.leaves(reference(*args, **kwargs))
    exact = _widen if cases.is_floating(dtype) and name not in DTYPE_BOUND else ts.Tensor.clone
    args, kwargs = sample.map(lambda item: exact(cases.tensor(item, getattr(ts, dtype), "cpu")))
    results = cases.leaves(cases.call(name, args, kwargs))
    return [leaf if isinstance(leaf, bool) else cases.values(leaf) for leaf in results]


def _reference_input(item: samples.Input, name: str, dtype: str) -> NDArray[Any]:
    """The numbers the operator sees; truth values as 0 and 1 where it computes with them."""
    array = cases.rounded(item, dtype)
    return array.astype(np.int64) if item.varies and dtype == "bool" and samples.dtypes(name) != "integral" else array


def _widen(tensor: ts.Tensor) -> ts.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


@dataclass(frozen=True)
class Measured:
    """How far a result is from what it should be. ``error`` is relative; ``ulp`` counts steps of the dtype, over
    elements that are neither tiny nor tiny beside the others; ``problem`` says what is wrong, if anything."""

    problem: str | None = None
    error: float = 0.0
    ulp: float = 0.0


def measure(actual: Any, expected: Any, slack: float = 1.0, least: float = 0.0) -> Measured:
    """Compare a tensor (or a number) with the exact result: each element relative to itself, or to ``least`` where that
    is more. With a ``slack``, results are sums, whose terms may be as large as the largest of them."""
    if not isinstance(actual, ts.Tensor):
        return Measured(None if actual == expected else f"expected {expected}, got {actual}")
    dtype = dtype_name(actual)
    wanted = fit(expected, dtype)
    if tuple(actual.shape) != wanted.shape:
        return Measured(f"expected shape {wanted.shape}, got {tuple(actual.shape)}")
    found = cases.values(actual)
    if not cases.is_floating(dtype):
        wrong = found != wanted
        if dtype == "bool" and not wrong.any() and actual.numel():
            bytes_of = actual.detach().contiguous().view(ts.uint8).cpu().numpy().astype(np.int64)
            found, wanted = bytes_of, wanted.astype(np.int64)
            wrong = found != wanted
            return Measured(_describe(found, wanted, wrong, "; the bytes of bools") if wrong.any() else None)
        return Measured(_describe(found, wanted, wrong, "") if wrong.any() else None)
    return _measure_floats(found, wanted, dtype, TOLERANCE[dtype] * slack, slack > 1, least)


def _measure_floats(
    found: NDArray[Any], wanted: NDArray[Any], dtype: str, tolerance: float, by_scale: bool, least: float
) -> Measured:
    finite = np.isfinite(wanted)
    largest = float(np.abs(wanted[finite]).max(initial=0.0))
    scale = max(least, largest if by_scale else 0.0)
    with np.errstate(all="ignore"):
        distance = np.abs(found - wanted)
        same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
        distance = np.where(same, 0.0, np.where(np.isfinite(distance), distance, np.inf))
        error = np.maximum(distance - 2 * _LEAST[dtype], 0.0) / (scale + np.where(finite, np.abs(wanted), 0.0) + 1e-323)
        spacing = _EPSILON[dtype] * np.exp2(np.floor(np.log2(np.maximum(np.abs(wanted), 1e-300))))
        ulp = np.where(finite & (np.abs(wanted) >= max(1e-2 * largest, 1e-6)), distance / spacing, 0.0)
    wrong = error > tolerance
    problem = _describe(found, wanted, wrong, f"; tolerance {tolerance:.1e}") if wrong.any() else None
    return Measured(problem, float(error.max(initial=0.0)), float(ulp.max(initial=0.0)))


def _describe(found: NDArray[Any], wanted: NDArray[Any], wrong: NDArray[Any], more: str) -> str:
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    count = f"{int(wrong.sum())} of {wrong.size} elements wrong"
    return f"element {list(at)}: expected {wanted[at]}, got {found[at]} ({count}{more})"


@dataclass
class Findings:
    """What came of calling one operator many times."""

    subject: str
    error: float = 0.0
    ulp: float = 0.0
    tried: dict[str, int] = field(default_factory=dict)
    failed: dict[str, list[tuple[samples.Sample, str]]] = field(default_factory=dict)
    sound: list[samples.Sample] = field(default_factory=list)
    unsteady: str | None = None
    kept: bool = False  # a call was right, and wrong when it was made again
    waits: Waits = field(default_factory=Waits)

    def add(self, layout: str, sample: samples.Sample, measured: Measured) -> None:
        """Take in the result of one call."""
        self.tried[layout] = self.tried.get(layout, 0) + 1
        if measured.problem:
            self.failed.setdefault(layout, []).append((sample, measured.problem))
        else:
            self.sound.append(sample)
            self.error, self.ulp = max(self.error, measured.error), max(self.ulp, measured.ulp)

    def repeated(self, right: int, times: int) -> None:
        """Take in that a call was wrong and then, made again, right so often."""
        if right and not self.unsteady:
            self.unsteady = (
                f"not always wrong: a wrong call was right in {right} of {times} repetitions: a race, or memory "
                "read before it is written"
            )

    def verdict(self) -> str | None:
        """What is wrong, in words a kernel's author can use, with the first failure; None if nothing is."""
        if not self.failed:
            return None
        layout, failures = next(iter(self.failed.items()))
        sample, problem = failures[0]
        count = sum(map(len, self.failed.values()))
        head = f"{self.subject}: {self._pattern()}"
        return f"{head}\n  {count} of {sum(self.tried.values())} calls failed; first, {layout}, ({sample}): {problem}"

    def _pattern(self) -> str:
        bad, good = [*self.failed], [layout for layout in self.tried if layout not in self.failed]
        plain = {repr(sample) for sample, _ in self.failed.get("contiguous", [])}
        inputs = [sample for failures in self.failed.values() for sample, _ in failures]
        problems = [problem for failures in self.failed.values() for _, problem in failures]
        if self.unsteady:
            return self.unsteady
        if self.kept:
            return "the second of two same calls is wrong: the kernel keeps something from one to the next"
        if all(problem.startswith("raised ") for problem in problems):
            return f"raises {problems[0].removeprefix('raised ')}"
        if "contiguous" in good and bad:
            return f"wrong for {' and '.join(bad)} input but right for contiguous: {_STRIDES.get(' '.join(bad), _ANY)}"
        if any(repr(sample) not in plain for layout in bad for sample, _ in self.failed[layout]):
            return f"right or wrong by the layout of the same values ({' and '.join(bad)}): {_ANY}"
        if all(any(i.array.size == 0 for i in s.inputs()) for s in inputs):
            return "wrong for empty tensors only"
        if all(any(i.array.ndim == 0 for i in s.inputs()) for s in inputs) and self.sound:
            return "wrong for tensors without dimensions only"
        if all(max((i.array.size for i in s.inputs()), default=0) > 16 for s in inputs) and self.sound:
            return "wrong for larger tensors only: look at what follows the last full block or vector"
        return "wrong values"


_ANY = "the kernel does not follow the strides it is given"
_STRIDES = {
    "flipped": "the kernel does not follow negative strides",
    "expanded": "the kernel does not follow strides of zero",
}

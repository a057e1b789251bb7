"""Samples of torch's own database given to our operators.

torch's callables are given stand-ins for our tensors, which pass every function of torch's on to ours of the same name,
so that lambdas and methods of the database run as they are.
"""

from __future__ import annotations

import dataclasses
import re
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    database = pytest.importorskip("torch.testing._internal.common_methods_invocations", exc_type=ImportError)

INTEGERS = ["uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"]
NAMES = ["bool", *INTEGERS, "float16", "bfloat16", "float32", "float64", "complex64", "complex128", "complex32"]
DTYPES = {getattr(torch, name): getattr(ts, name) for name in NAMES}
TOLERANCE = {torch.float32: (1e-4, 1e-4), torch.complex64: (1e-4, 1e-4), torch.complex32: (2e-3, 2e-3)}
# Whose results are random: shapes and dtypes are compared.
RANDOM = ("rand", "normal", "multinomial", "bernoulli", "dropout", "empty", "uniform", "exponential", "cauchy")
RANDOM += ("geometric", "rrelu", "gumbel", "fractional_max_pool")


@dataclasses.dataclass(frozen=True)
class Difference:
    """Why a case differs from torch, and whether it always does."""

    reason: str
    always: bool


def differences(name: str) -> dict[str, Difference]:
    """Known differences by case, from a file of this folder."""
    return read(Path(__file__).with_name(name).read_text(), ts.__version__)


def read(text: str, version: str) -> dict[str, Difference]:
    """Lines of "case: why".

    A case that may agree, by the order of equal elements or the processor, says "case: sometimes until 0.2: why": from
    that version on the line excuses nothing, and whoever finds that it still differs looks at it again.
    """
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            case, reason = line.split(": ", 1)
            limited = re.fullmatch(r"sometimes until ([\d.]+): (.+)", reason)
            if reason.startswith("sometimes") and limited is None:
                raise ValueError(f"{case}: expected 'sometimes until VERSION: why', got {reason!r}")
            if limited is None:
                found[case] = Difference(reason, always=True)
            elif _release(version) < _release(limited[1]):
                found[case] = Difference(limited[2], always=False)
    return found


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


class Unsupported(Exception):
    """A sample about something else than dense tensors."""


def ours_named(path: str) -> Any:
    """What has the name of a torch function here. Unsupported where it is internal to torch."""
    parts = path.replace("torch.functional.", "torch.").split(".")
    if parts[0] != "torch" or "ops" in parts[:2]:
        raise Unsupported(path)
    found: Any = ts
    for part in parts[1:]:
        found = getattr(found, part)
    return found


class Standin:
    """Holds one of our tensors where torch's functions expect theirs."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = torch.overrides.resolve_name(func)
        if name is None:
            raise Unsupported(str(func))
        if name.endswith((".__get__", ".__set__")):
            return wrapped(getattr(args[0].tensor, name.split(".")[-2]))
        return wrapped(ours_named(name)(*bare(args), **bare(kwargs or {})))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.tensor, name)
        if not callable(found) or isinstance(found, ts.Tensor):
            return wrapped(found)
        return lambda *args, **kwargs: wrapped(found(*bare(args), **bare(kwargs)))


def _forward(name: str) -> Any:
    def method(self: Standin, *args: Any) -> Any:
        return wrapped(getattr(self.tensor, name)(*bare(args)))

    return method


BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift"]
OTHER = ["eq", "ne", "lt", "le", "gt", "ge", "neg", "abs", "invert", "getitem"]
OTHER += ["len", "bool", "float", "int", "iter", "index"]
for _name in (*OTHER, *BINARY, *(f"r{name}" for name in BINARY)):
    setattr(Standin, f"__{_name}__", _forward(f"__{_name}__"))
Standin.__hash__ = object.__hash__  # type: ignore[method-assign]


def mapped(value: Any, change: Any) -> Any:
    """The value with ``change`` applied to what is no container."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(item, change) for item in value))
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return (list if isinstance(value, list) else tuple)(mapped(item, change) for item in value)
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    return change(value)


def bare(value: Any) -> Any:
    """Arguments for our functions."""

    def change(item: Any) -> Any:
        if isinstance(item, Standin):
            return item.tensor
        if isinstance(item, torch.dtype):
            if item not in DTYPES:
                raise Unsupported(str(item))
            return DTYPES[item]
        if isinstance(item, torch.device):
            return ts.device(str(item))
        if isinstance(item, (torch.layout, torch.memory_format)):
            return getattr(ts, str(item).split(".")[1])
        if isinstance(item, torch.nn.LinearCrossEntropyOptions):
            return ts.nn.LinearCrossEntropyOptions(item.allow_retain_graph, item.batch_chunk_size, item.chunking_method)
        if isinstance(item, (torch.nn.Module, types.FunctionType)):  # of torch's tensors: called with stand-ins
            return lambda *args: bare(item(*wrapped(args)))
        return ts.Size(item) if isinstance(item, torch.Size) else item

    return mapped(value, change)


def wrapped(value: Any) -> Any:
    return mapped(value, lambda item: Standin(item) if isinstance(item, ts.Tensor) else item)


def numpy_of(tensor: Any) -> np.ndarray[Any, Any]:
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if str(tensor.dtype).endswith(("bfloat16", ".float16")):
        tensor = tensor.float()
    if str(tensor.dtype).endswith("complex32"):
        tensor = tensor.cfloat()
    return np.asarray(tensor.cpu().numpy() if isinstance(tensor, ts.Tensor) else tensor.numpy(force=True))


class Sample:
    """A sample of torch's with a copy of its tensors that are ours, of the same strides where they do not overlap."""

    def __init__(self, given: Any, device: Any) -> None:
        self.device = device
        self.leaves: list[tuple[Any, Any]] = []
        self.memory: dict[Any, Any] = {}
        self.kept: list[Any] = []
        self.theirs = (given.input, *given.args), given.kwargs
        args, kwargs = mapped(self.theirs, self._copy)
        self.ours = args, kwargs
        self.finish = given.output_process_fn_grad

    def _placed(self, value: Any) -> Any:
        """A copy with the strides of ``value``, in a copy of all its memory, which tensors of a sample may share."""
        if value.is_conj():
            return self._placed(value.conj()).conj()
        if value.is_neg():
            return self._placed(torch._neg_view(value))._neg_view()
        storage, dtype = value.untyped_storage(), DTYPES[value.dtype]
        self.kept.append(value)  # or the address might be another's soon
        count = storage.nbytes() // value.element_size()
        if not value.numel() or count > 4 * value.numel() + 1024:
            return ts.tensor(numpy_of(value), dtype=dtype, device=self.device)
        key = storage.data_ptr(), dtype
        if key not in self.memory and value.is_contiguous() and count == value.numel():  # no view
            alone = ts.tensor(numpy_of(value), dtype=dtype, device=self.device)
            self.memory[key] = alone.reshape(-1)
            return alone
        if key not in self.memory:
            whole = torch.empty(0, dtype=value.dtype).set_(storage, 0, (count,))
            self.memory[key] = ts.tensor(numpy_of(whole.clone()), dtype=dtype, device=self.device)
        return self.memory[key].as_strided(tuple(value.shape), value.stride(), value.storage_offset())

    def _copy(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if value.layout != torch.strided or value.dtype not in DTYPES or value.dim() > 64:  # NumPy's most
            raise Unsupported(f"{value.layout}, {value.dim()} dims")
        tensor = self._placed(value)
        if value.requires_grad:
            tensor = tensor.detach().requires_grad_()
            self.leaves.append((value, tensor))
        return Standin(tensor)


class PendingSample(Sample):
    """A sample whose complex tensors are views of their conjugates, and whose real ones are views of their negatives:
    the values of torch's, over memory that holds others."""

    def _placed(self, value: Any) -> Any:
        tensor = super()._placed(value)
        if tensor.is_conj() or tensor.is_neg() or tensor.dtype is ts.bool:
            return tensor
        if tensor.is_complex():
            return tensor.conj_physical().conj()
        return tensor.neg()._neg_view()


def flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return [leaf for item in value for leaf in flat(item)]
    return [leaf for item in value.values() for leaf in flat(item)] if isinstance(value, dict) else [value]


def check(ours: Any, theirs: Any, what: str, dtype: Any, values: bool = True) -> None:
    ours, theirs = flat(ours), flat(theirs)
    assert len(ours) == len(theirs), f"{what}: {len(ours)} results, torch has {len(theirs)}"
    for got, expected in zip(ours, theirs, strict=True):
        if isinstance(expected, torch.Tensor):
            got = got.tensor if isinstance(got, Standin) else got
            assert isinstance(got, ts.Tensor), f"{what}: got {type(got).__name__}"
            assert tuple(got.shape) == tuple(expected.shape), f"{what}: shape"
            assert got.dtype is DTYPES[expected.dtype], f"{what}: {got.dtype}, torch has {expected.dtype}"
            relative, absolute = TOLERANCE.get(expected.dtype, TOLERANCE.get(dtype, (1e-6, 1e-7)))
            if values:
                np.testing.assert_allclose(numpy_of(got), numpy_of(expected), relative, absolute, err_msg=what)
        elif isinstance(expected, (bool, int, float, complex)) and values:
            assert got == pytest.approx(expected, nan_ok=True), what


def weighed(tensor: Any, lib: Any) -> Any:
    """One number whose gradient tells the elements apart."""
    if tensor.dtype.is_complex:
        return (tensor.abs() ** 2).sum()
    weights = lib.linspace(0.5, 1.5, max(tensor.numel(), 1), dtype=tensor.dtype, device=tensor.device)
    return (tensor * weights[: tensor.numel()].reshape(tuple(tensor.shape))).sum()


def check_gradients(sample: Sample, ours: Any, theirs: Any, dtype: Any) -> None:
    expected_of = [t for t in flat(theirs) if isinstance(t, torch.Tensor) and t.requires_grad]
    tensors = [t.tensor if isinstance(t, Standin) else t for t in flat(ours)]
    got_of = [t for t in tensors if isinstance(t, ts.Tensor) and t.requires_grad]
    assert len(got_of) == len(expected_of), f"{len(got_of)} results require grad, torch has {len(expected_of)}"
    if not expected_of:
        return
    leaves = [leaf for leaf, _ in sample.leaves]
    try:
        expected = torch.autograd.grad([weighed(t, torch) for t in expected_of], leaves, allow_unused=True)
    except RuntimeError:
        return  # torch has no gradient of this sample
    mine = [leaf for _, leaf in sample.leaves]
    got = ts.autograd.grad([weighed(t, ts) for t in got_of], mine, allow_unused=True)
    full_expected = [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(expected, leaves, strict=True)]
    full = [ts.zeros_like(leaf) if g is None else g for g, leaf in zip(got, mine, strict=True)]
    check(full, full_expected, "gradient", dtype)


def ours_of(op: Any, sample: Sample) -> Any:
    """What our function gives for a sample."""
    args, kwargs = sample.ours
    if type(op.op).__name__ in ("method_descriptor", "wrapper_descriptor"):  # of torch's own class
        if not isinstance(args[0], Standin):
            raise TypeError(f"descriptor {op.name} needs a tensor")
        return wrapped(getattr(args[0].tensor, op.op.__name__)(*bare(args[1:]), **bare(kwargs)))
    tensors = [item for item in flat((args, kwargs)) if isinstance(item, Standin)]
    if not tensors or op.name.startswith("masked."):  # torch would answer, or looks into its tensors
        return wrapped(ours_named(f"torch.{op.name}")(*bare(args), **bare(kwargs)))
    try:
        return op.op(*args, **kwargs)
    except TypeError as error:
        if "descriptor" in str(error):
            raise Unsupported(op.name) from None
        raise


def title(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def judge(known: dict[str, Difference], case: str, general: str, check: Callable[[], Any]) -> None:
    """Run a check that may fail where it is known to, and must where its line does not say "sometimes"."""
    line = known.get(case) or known.get(general)
    try:
        check()
    except Exception:
        if line is None:
            raise
        pytest.xfail(line.reason)
    if line is not None and line.always:
        pytest.fail(f"agrees with torch now: take it off the list ({line.reason})")

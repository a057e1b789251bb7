"""Classes of tests for each device: a generic class becomes one for the cpu, and one for the default device."""

from __future__ import annotations

import functools
import unittest
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

import tesserack as ts
from tesserack.compat.shims.testing._internal import _parametrize
from tesserack.compat.shims.testing._internal._parametrize import ATTRIBUTE, Case, TestParametrizer
from tesserack.compat.shims.testing._internal.common_utils import TEST_CUDA, TEST_WITH_ROCM, TestCase, _as_it_is

__all__ = [
    "TEST_WITH_ROCM",
    "OpDTypes",
    "deviceCountAtLeast",
    "dtypes",
    "dtypesIfCPU",
    "dtypesIfCUDA",
    "expectedFailureMeta",
    "get_all_device_types",
    "instantiate_device_type_tests",
    "largeTensorTest",
    "onlyCPU",
    "onlyCUDA",
    "onlyNativeDeviceTypes",
    "onlyOn",
    "ops",
    "precisionOverride",
    "skipIf",
    "skipMeta",
    "tol",
    "toleranceOverride",
]

PYTORCH_CUDA_MEMCHECK = False


def get_all_device_types() -> list[str]:
    """The cpu, and what the tests run on beside it."""
    default = ts.get_default_device().type
    found = ["cpu", *["cuda"] * TEST_CUDA]
    return found if default in found else [*found, default]


class DeviceTypeTestBase(TestCase):
    """A class of tests on one device."""

    device_type = "generic_device_type"

    @classmethod
    def get_primary_device(cls) -> str:
        """The device that tests are given."""
        return cls.device_type if cls.device_type == "cpu" else f"{cls.device_type}:0"

    @classmethod
    def get_all_devices(cls) -> list[str]:
        """All of that type."""
        module = getattr(ts, cls.device_type, None)
        count = module.device_count() if cls.device_type != "cpu" and module is not None else 1
        return [f"{cls.device_type}:{k}" for k in range(count)] if cls.device_type != "cpu" else ["cpu"]


class tol(NamedTuple):
    """Tolerances."""

    atol: float
    rtol: float


class precisionOverride:
    """Absolute tolerances of a test, by dtype."""

    def __init__(self, d: dict[Any, float]) -> None:
        self.d = d

    def __call__(self, test: Any) -> Any:
        test.precision_overrides = self.d
        return test


class toleranceOverride(precisionOverride):
    """Both tolerances of a test, by dtype."""

    def __call__(self, test: Any) -> Any:
        test.tolerance_overrides = self.d
        return test


class dtypes:
    """The dtypes of a test, or tuples of them; ``device_type`` names the devices that it is said of."""

    def __init__(self, *args: Any, device_type: str = "all") -> None:
        self.args = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) and not args[0] else args
        self.device_type = device_type

    def __call__(self, test: Any) -> Any:
        test.dtypes = {**getattr(test, "dtypes", {}), self.device_type: self.args}
        return test


dtypesIfCPU = functools.partial(dtypes, device_type="cpu")
dtypesIfCUDA = functools.partial(dtypes, device_type="cuda")
dtypesIfMPS = functools.partial(dtypes, device_type="mps")
dtypesIfXPU = functools.partial(dtypes, device_type="xpu")


class OpDTypes(Enum):
    """Which of an operator's dtypes are tried."""

    supported = 0
    unsupported = 1
    supported_backward = 2
    unsupported_backward = 3
    any_one = 4
    none = 5
    any_common_cpu_cuda_one = 6


class ops(TestParametrizer):
    """Cases from descriptions of operators and their dtypes."""

    def __init__(self, op_list: Iterable[Any], *, dtypes: Any = OpDTypes.supported, **options: Any) -> None:
        self.op_list, self.opinfo_dtypes = [*op_list], dtypes
        self.allowed: Any = options.get("allowed_dtypes")

    def cases(self, test: Any, generic_cls: Any, device_cls: Any) -> Iterator[Case]:
        """One for each operator and dtype."""
        device = device_cls.device_type if device_cls else "cpu"
        for op in self.op_list:
            for dtype in self._dtypes(op, device):
                if dtype is None or self.allowed is None or dtype in self.allowed:
                    name = getattr(op, "formatted_name", op.name.replace(".", "_"))
                    yield Case(name, {"op": op, **({} if dtype is None else {"dtype": dtype})})

    def _dtypes(self, op: Any, device: str) -> Sequence[Any]:
        if self.opinfo_dtypes is OpDTypes.none:
            return [None]
        if not isinstance(self.opinfo_dtypes, OpDTypes):
            return [*self.opinfo_dtypes]
        backward = self.opinfo_dtypes is OpDTypes.supported_backward
        found = sorted(op.supported_backward_dtypes(device) if backward else op.supported_dtypes(device), key=str)
        return found[:1] if self.opinfo_dtypes is OpDTypes.any_one else found


# --- which devices a test is for -----------------------------------------------------------------------------------


def _on_device(applies: Callable[[Any], bool | str]) -> Callable[[Any], Any]:
    """Skip a test whose class ``applies`` does not take; a text is the reason."""

    def decorate(test: Any) -> Any:
        @functools.wraps(test)
        def on_some(self: Any, *args: Any, **kwargs: Any) -> Any:
            answer = applies(self)
            if answer is not True:
                raise unittest.SkipTest(str(answer) if answer else f"not on {self.device_type}")
            return test(self, *args, **kwargs)

        return on_some

    return decorate


def _only(*types: str) -> Callable[[Any], Any]:
    return _on_device(lambda self: self.device_type in types)


class onlyOn:
    """For devices of the types named alone."""

    def __init__(self, device_type: str | Sequence[str]) -> None:
        self.types = [device_type] if isinstance(device_type, str) else [*device_type]

    def __call__(self, test: Any) -> Any:
        return _only(*self.types)(test)


onlyCPU, onlyCUDA, onlyMPS, onlyXPU = (_only(name) for name in ("cpu", "cuda", "mps", "xpu"))
onlyAccelerator = _on_device(lambda self: self.device_type != "cpu")
onlyNativeDeviceTypes = _on_device(lambda self: self.device_type != "meta")


def onlyNativeDeviceTypesAnd(devices: Any = None) -> Callable[[Any], Any]:
    """For all devices here."""
    return onlyNativeDeviceTypes


def _skip_on(kind: str) -> Any:
    def skip_where(condition: Any, reason: str) -> Callable[[Any], Any]:
        return _on_device(lambda self: reason if condition and self.device_type == kind else True)

    return skip_where


skipCPUIf, skipCUDAIf, skipMPSIf, skipXPUIf = (_skip_on(name) for name in ("cpu", "cuda", "mps", "xpu"))


class skipIf:
    """Skip on one type of device where the condition holds; ``device_type`` None: on all."""

    def __init__(self, dep: Any, reason: str, device_type: str | None = None) -> None:
        self.dep, self.reason, self.device_type = dep, reason, device_type

    def __call__(self, test: Any) -> Any:
        dep, where = self.dep, self.device_type
        return _on_device(lambda self_: self.reason if dep and where in (None, self_.device_type) else True)(test)


def deviceCountAtLeast(num_required_devices: int) -> Callable[[Any], Any]:
    """Skip where there are fewer devices; the test is given them all."""

    def decorate(test: Any) -> Any:
        test.num_required_devices = num_required_devices
        return test

    return decorate


def largeTensorTest(size: str | int, device: Any = None, inductor: Any = None) -> Callable[[Any], Any]:
    """Skip where the cpu has less memory: a number of bytes, or a text such as ``"4GB"``."""
    if isinstance(size, str):
        size = int(float(size.upper().removesuffix("GB")) * 1024**3)

    def enough(self: Any) -> bool | str:
        import os

        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return True if free >= size else f"needs {size} bytes of memory, {free} are free"

    return _on_device(enough)


skipMeta = skipXLA = skipLazy = skipMPS = skipXPU = skipHPU = skipPRIVATEUSE1 = _as_it_is
expectedFailureMeta = expectedFailureXLA = expectedFailureMPS = expectedFailureHPU = expectedFailureCUDA = _as_it_is
expectedFailureMPSPre14 = expectedFailureMPSPre15 = disablecuDNN = disableMkldnn = _as_it_is
skipCPUIfNoLapack = skipCPUIfNoFFT = skipCPUIfNoMkldnn = skipCPUIfNoMklSparse = _as_it_is
skipCUDAIfNoMagma = skipCUDAIfNoCusolver = skipCUDAIfNoMagmaAndNoCusolver = skipCUDAIfRocm = _as_it_is
skipCUDAIfNoSparseGeneric = skipCUDAIfNoCudnn = skipCUDAIfNoMiopen = skipCUDAIfMiopen = _as_it_is
skipCUDAIfNotRocm = skipCUDAIfRocmVersionLessThan = skipCUDAIfCudnnVersionLessThan = skipCUDAVersionIn = _as_it_is


# --- making the classes --------------------------------------------------------------------------------------------


def instantiate_device_type_tests(
    generic_test_class: Any,
    scope: dict[str, Any],
    except_for: str | Sequence[str] | None = None,
    only_for: str | Sequence[str] | None = None,
    **options: Any,
) -> None:
    """Put a class for each device, named ``GenericCPU`` and so on, into ``scope`` in the place of the generic one."""
    del scope[generic_test_class.__name__]
    unwanted, wanted = ([x] if isinstance(x, str) else x for x in (except_for, only_for))
    for kind in get_all_device_types():
        if kind in (unwanted or ()) or (wanted is not None and kind not in wanted):
            continue
        name = generic_test_class.__name__ + kind.upper()
        bases = (DeviceTypeTestBase, generic_test_class)
        made = type(name, bases, {"device_type": kind, "__module__": generic_test_class.__module__})
        for attribute in [name for name in dir(generic_test_class) if name.startswith("test")]:
            _instantiate(made, generic_test_class, attribute)
        scope[name] = made


def _instantiate(cls: Any, generic: Any, name: str) -> None:
    """Replace a generic test by those of its cases and dtypes."""
    test = getattr(generic, name)
    setattr(cls, name, None)  # hides the generic one
    find = getattr(test, ATTRIBUTE, None)
    cases = [Case("", {})] if find is None else [*find(test, generic, cls)]
    named = getattr(test, "dtypes", {})
    kinds = named.get(cls.device_type, named.get("all", (None,)))
    for case in cases:
        for dtype in kinds if "dtype" not in case.arguments else (case.arguments["dtype"],):
            ends = [case.name, cls.device_type, *_dtype_names(dtype)]
            full = "_".join([name, *filter(None, ends)])
            extra = {} if dtype is None or "dtype" in case.arguments else {_dtype_argument(dtype): dtype}
            _parametrize.add(cls, full, _with_device(_parametrize.bind(test, case, extra), dtype))


def _dtype_argument(dtype: Any) -> str:
    return "dtypes" if isinstance(dtype, (list, tuple)) else "dtype"


def _dtype_names(dtype: Any) -> list[str]:
    each = [dtype] if not isinstance(dtype, (list, tuple)) else dtype
    return [str(one).rpartition(".")[2] for one in each if one is not None]


def _with_device(test: Any, dtype: Any) -> Any:
    """The test, given the device, with the tolerances of the dtype."""
    precision = getattr(test, "precision_overrides", {}).get(dtype)
    both = getattr(test, "tolerance_overrides", {}).get(dtype)
    several = getattr(test, "num_required_devices", 0)

    @functools.wraps(test)
    def on_device(self: Any) -> Any:
        before = self.precision, self.rel_tol
        devices = self.get_all_devices()
        if len(devices) < several:
            raise unittest.SkipTest(f"needs {several} devices, there are {len(devices)}")
        if precision is not None:
            self.precision = precision
        if both is not None:
            self.precision, self.rel_tol = both.atol, both.rtol
        try:
            return test(self, devices if several else self.get_primary_device())
        finally:
            self.precision, self.rel_tol = before

    on_device.__dict__.pop("__wrapped__", None)
    return on_device

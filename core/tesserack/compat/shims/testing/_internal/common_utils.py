"""A class of tests that compares tensors, cases, and what tests ask of the machine."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.util
import io
import itertools
import os
import platform
import random
import sys
import tempfile
import unittest
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tesserack as ts
from tesserack.autograd import gradcheck, gradgradcheck
from tesserack.compat.shims._card import Card
from tesserack.compat.shims.testing import _comparison
from tesserack.compat.shims.testing._internal._parametrize import (
    TestParametrizer as _TestParametrizer,
)
from tesserack.compat.shims.testing._internal._parametrize import (
    decorateIf,
    instantiate_parametrized_tests,
    parametrize,
    reparametrize,
    subtest,
)
from tesserack.testing import make_tensor
from tesserack.utils import deterministic

__all__ = [
    "DeterministicGuard",
    "TemporaryDirectoryName",
    "TemporaryFileName",
    "TestCase",
    "_TestParametrizer",
    "decorateIf",
    "freeze_rng_state",
    "gradcheck",
    "gradgradcheck",
    "instantiate_parametrized_tests",
    "load_tests",
    "make_tensor",
    "noncontiguous_like",
    "numpy_to_torch_dtype_dict",
    "parametrize",
    "reparametrize",
    "run_tests",
    "set_default_dtype",
    "set_rng_seed",
    "skipIfTorchDynamo",
    "slowTest",
    "subtest",
    "torch_to_numpy_dtype_dict",
]

SEED = 1234
IS_LINUX, IS_WINDOWS, IS_MACOS = (sys.platform.startswith(name) for name in ("linux", "win32", "darwin"))
IS_X86, IS_ARM64 = (platform.machine() in names for names in (("x86_64", "AMD64"), ("arm64", "aarch64")))
IS_PPC = platform.machine().startswith("ppc")
IS_CI, TEST_WITH_SLOW = (bool(int(os.environ.get(name) or 0)) for name in ("CI_TESTS", "PYTORCH_TEST_WITH_SLOW"))
IS_FBCODE = IS_SANDCASTLE = IS_REMOTE_GPU = IS_JETSON = False
TEST_WITH_ROCM = TEST_WITH_ASAN = TEST_WITH_TSAN = TEST_WITH_UBSAN = TEST_WITH_CROSSREF = False
TEST_WITH_TORCHDYNAMO = TEST_WITH_TORCHINDUCTOR = TEST_MPS = TEST_XPU = TEST_HPU = TEST_PRIVATEUSE1 = TEST_MKL = False
IS_FILESYSTEM_UTF8_ENCODING = sys.getfilesystemencoding() == "utf-8"
NO_MULTIPROCESSING_SPAWN = False
GRADCHECK_NONDET_TOL = 0.0
TEST_CUDA = Card("cuda").is_available()


def _is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


TEST_NUMPY, TEST_SCIPY, TEST_DILL, TEST_LIBROSA = map(_is_there, ("numpy", "scipy", "dill", "librosa"))

_NAMES: tuple[str, ...] = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
_NAMES += ("float16", "float32", "float64", "complex64", "complex128")
numpy_to_torch_dtype_dict: dict[Any, Any] = {}
torch_to_numpy_dtype_dict: dict[Any, Any] = {}
if TEST_NUMPY:
    import numpy

    numpy_to_torch_dtype_dict |= {numpy.bool_: ts.bool} | {getattr(numpy, name): getattr(ts, name) for name in _NAMES}
    torch_to_numpy_dtype_dict |= {ours: theirs for theirs, ours in numpy_to_torch_dtype_dict.items()}
    torch_to_numpy_dtype_dict[ts.bfloat16] = numpy.float32


# --- decorators -------------------------------------------------------------------------------------------------------


def _as_it_is(*args: Any, **kwargs: Any) -> Any:
    """A decorator, with or without arguments, of what does not apply here."""
    if len(args) == 1 and not kwargs and (isinstance(args[0], type) or callable(args[0])):
        return args[0]
    return lambda test: test


skipIfTorchDynamo = xfailIfTorchDynamo = skipIfTorchInductor = skipIfCrossRef = skipIfRocm = skipIfMPS = _as_it_is
skipIfXpu = skipIfHpu = skipIfRocmVersionLessThan = skipIfNoLapack = serialTest = markDynamoStrictTest = _as_it_is
unMarkDynamoStrictTest = xfailIfS390X = skipIfSlowGradcheckEnv = skipIfLegacyJitExecutor = _as_it_is
wrapDeterministicFlagAPITest = skipCUDAMemoryLeakCheckIf = skipCUDANonDefaultStreamIf = _as_it_is
skipIfWindows = unittest.skipIf(IS_WINDOWS, "not on Windows")
skipIfNoSciPy = unittest.skipIf(not TEST_SCIPY, "needs SciPy")
skipIfNoDill = unittest.skipIf(not TEST_DILL, "needs dill")
slowTest = unittest.skipIf(not TEST_WITH_SLOW, "slow; set PYTORCH_TEST_WITH_SLOW=1")


def slowTestIf(condition: bool) -> Callable[[Any], Any]:
    """A test that is slow where the condition holds."""
    return slowTest if condition else _as_it_is


def suppress_warnings(test: Any) -> Any:
    """The test without its warnings."""

    @functools.wraps(test)
    def quiet(*args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return test(*args, **kwargs)

    return quiet


# --- state of the process ---------------------------------------------------------------------------------------------


def set_rng_seed(seed: int | None = None) -> None:
    """Seed Python, NumPy and the tensors' generators."""
    seed = SEED if seed is None else seed
    ts.manual_seed(seed)
    random.seed(seed)
    if TEST_NUMPY:
        numpy.random.seed(seed)


@contextlib.contextmanager
def freeze_rng_state() -> Iterator[None]:
    """The generators are afterwards as they were."""
    with ts.random.fork_rng():
        yield


@contextlib.contextmanager
def set_default_dtype(dtype: ts.dtype) -> Iterator[None]:
    """Another default dtype inside."""
    before = ts.get_default_dtype()
    ts.set_default_dtype(dtype)
    try:
        yield
    finally:
        ts.set_default_dtype(before)


@contextlib.contextmanager
def disable_gc() -> Iterator[None]:
    """No collection of cycles inside."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


class DeterministicGuard:
    """Deterministic algorithms alone, or not, inside."""

    def __init__(self, deterministic: bool, *, warn_only: bool = False, fill_uninitialized_memory: bool = True) -> None:
        self.deterministic, self.warn_only, self.fill = deterministic, warn_only, fill_uninitialized_memory

    def __enter__(self) -> None:
        self.before = (
            ts.are_deterministic_algorithms_enabled(),
            ts.is_deterministic_algorithms_warn_only_enabled(),
            deterministic.fill_uninitialized_memory,
        )
        ts.use_deterministic_algorithms(self.deterministic, warn_only=self.warn_only)
        deterministic.fill_uninitialized_memory = self.fill

    def __exit__(self, *error: object) -> None:
        ts.use_deterministic_algorithms(self.before[0], warn_only=self.before[1])
        deterministic.fill_uninitialized_memory = self.before[2]


@contextlib.contextmanager
def TemporaryFileName(*args: Any, **kwargs: Any) -> Iterator[str]:
    """The name of a file that is gone afterwards."""
    with tempfile.NamedTemporaryFile(*args, **{**kwargs, "delete": False}) as file:
        pass
    try:
        yield file.name
    finally:
        os.unlink(file.name)


@contextlib.contextmanager
def TemporaryDirectoryName(suffix: str | None = None) -> Iterator[str]:
    """The name of a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(suffix=suffix) as folder:
        yield folder


class BytesIOContext(io.BytesIO):
    """A file in memory that stays open after a ``with``."""

    def __exit__(self, *error: object) -> None:
        pass


# --- tensors ----------------------------------------------------------------------------------------------------------


def noncontiguous_like(t: ts.Tensor) -> ts.Tensor:
    """The same values, every second element of larger memory."""
    if t.numel() <= 1:
        return t.clone()
    apart = ts.stack([t, ts.full_like(t, 12 if not t.dtype.is_floating_point else float("nan"))], -1)[..., 0]
    return apart.detach().requires_grad_(t.requires_grad)


def iter_indices(tensor: ts.Tensor) -> Iterator[Any]:
    """Each element's index."""
    if tensor.dim() == 1:
        return iter(range(tensor.size(0)))
    return iter(itertools.product(*map(range, tensor.shape)))


def is_iterable_of_tensors(iterable: Any, include_empty: bool = False) -> bool:
    """Whether it is an iterable, other than a tensor, of tensors alone."""
    if isinstance(iterable, ts.Tensor):
        return False
    try:
        values = [*iterable]
    except TypeError:
        return False
    return bool(values or include_empty) and all(isinstance(value, ts.Tensor) for value in values)


def random_hermitian_pd_matrix(matrix_size: int, *batch_dims: int, dtype: Any, device: Any) -> ts.Tensor:
    """Positive definite ones, of shape ``(*batch_dims, matrix_size, matrix_size)``."""
    a = ts.randn(*batch_dims, matrix_size, matrix_size, dtype=dtype, device=device)
    return a @ a.mH + ts.eye(matrix_size, dtype=dtype, device=device)


random_symmetric_pd_matrix = random_hermitian_pd_matrix


def random_symmetric_matrix(matrix_size: int, *batch_dims: int, **options: Any) -> ts.Tensor:
    """Symmetric ones, of shape ``(*batch_dims, matrix_size, matrix_size)``."""
    a = ts.randn(*batch_dims, matrix_size, matrix_size, **options)
    return (a + a.mT).div_(2)


def random_hermitian_matrix(matrix_size: int, *batch_dims: int, **options: Any) -> ts.Tensor:
    """Hermitian ones, of shape ``(*batch_dims, matrix_size, matrix_size)``."""
    a = ts.randn(*batch_dims, matrix_size, matrix_size, **options)
    return (a + a.mH).div_(2)


# --- the class of tests -----------------------------------------------------------------------------------------------


class _AnyPair(_comparison.ObjectPair):
    """What no other pair takes; sets and texts too."""


class _NumberPair(_comparison.NumberPair):
    """Numbers, of which a whole one may equal another."""

    def __init__(self, actual: Any, expected: Any, *, check_dtype: bool = False, **other_parameters: Any) -> None:
        super().__init__(actual, expected, check_dtype=False, **other_parameters)


def _numbers(actual: Any, expected: Any) -> tuple[Any, Any]:
    """Of a tensor of one element and a number both as the one or the other, which says how near they are to be."""
    for x, y in ((actual, expected), (expected, actual)):
        if isinstance(x, ts.Tensor) and x.dim() == 0 and isinstance(y, (int, float, complex)):
            plain = not (x.dtype.is_floating_point or x.dtype.is_complex)
            ours, number = (x.item(), y) if plain else (x, ts.tensor(y, dtype=x.dtype, device=x.device))
            return (ours, number) if x is actual else (number, ours)
    return actual, expected


class TestCase(unittest.TestCase):
    """A test case whose ``assertEqual`` takes tensors, and values that contain some."""

    precision: float = 0
    rel_tol: float = 0
    longMessage = True
    maxDiff = None

    def setUp(self) -> None:
        """Seed the generators."""
        set_rng_seed(SEED)

    def assertEqual(
        self,
        x: Any,
        y: Any,
        msg: Any = None,
        *,
        atol: float | None = None,
        rtol: float | None = None,
        equal_nan: bool = True,
        exact_dtype: bool = True,
        exact_device: bool = False,
        exact_layout: bool = False,
        exact_stride: bool = False,
        exact_is_coalesced: bool = False,
    ) -> None:
        """Tensors, numbers, arrays and what contains them agree within tolerances, everything else is equal."""
        x, y = _numbers(x, y)
        if isinstance(x, ts.Tensor) != isinstance(y, ts.Tensor) and all(
            isinstance(v, ts.Tensor) or hasattr(v, "__array__") or isinstance(v, (list, tuple)) for v in (x, y)
        ):
            tensor = x if isinstance(x, ts.Tensor) else y
            x, y = (v if v is tensor else ts.as_tensor(v, device=tensor.device) for v in (x, y))
            exact_dtype = False
        found = _comparison.not_close_error_metas(
            x,
            y,
            pair_types=(
                _comparison.NonePair,
                _comparison.BooleanPair,
                _NumberPair,
                _comparison.TensorLikePair,
                _AnyPair,
            ),
            rtol=self._tolerance(rtol, atol, self.rel_tol, x, y, 0),
            atol=self._tolerance(atol, rtol, self.precision, x, y, 1),
            equal_nan=equal_nan,
            check_device=exact_device,
            check_dtype=exact_dtype,
            check_layout=exact_layout,
            check_stride=exact_stride,
        )
        if found:
            text = msg if msg is None or callable(msg) else str(msg)
            raise found[0].to_error(text if callable(text) else (lambda words: f"{words}\n{text}" if text else words))

    @staticmethod
    def _tolerance(given: float | None, other: float | None, least: float, x: Any, y: Any, which: int) -> float | None:
        """The one given; where none of both is, the dtypes', but no less than the class's."""
        if given is not None or other is not None:
            return given or 0
        if not least:
            return None
        dtypes = [value.dtype for value in (x, y) if isinstance(value, ts.Tensor)] or [ts.float64]
        return max(least, _comparison.default_tolerances(*dtypes)[which])

    def assertNotEqual(
        self,
        first: Any,
        second: Any,
        msg: Any = None,
        *,
        atol: float | None = None,
        rtol: float | None = None,
        **options: Any,
    ) -> None:
        """The opposite."""
        with self.assertRaises(AssertionError, msg=msg):
            self.assertEqual(first, second, msg, atol=atol, rtol=rtol, **options)

    def assertEqualIgnoreType(self, *args: Any, **kwargs: Any) -> None:
        """Equal, of whatever dtypes."""
        self.assertEqual(*args, exact_dtype=False, **kwargs)

    def assertEqualTypeString(self, x: Any, y: Any) -> None:
        """Of the same device and dtype."""
        self.assertEqual((x.device, x.dtype), (y.device, y.dtype))

    def assertObjectIn(self, obj: Any, iterable: Any) -> None:
        """It itself is among them."""
        if not any(obj is element for element in iterable):
            raise AssertionError("object not found in iterable")

    def assertNotWarn(self, callable: Callable[[], Any], msg: str = "") -> None:
        """A call gives no warning."""
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            callable()
        self.assertTrue(len(seen) == 0, msg)

    @contextlib.contextmanager
    def assertWarnsOnceRegex(self, category: type[Warning], regex: str = "") -> Iterator[None]:
        """A warning of the category comes, however often it came before."""
        with set_warn_always_context(True), self.assertWarnsRegex(category, regex):
            yield

    def compare_with_numpy(
        self, torch_fn: Any, np_fn: Any, tensor_like: Any, device: Any = None, dtype: Any = None, **kwargs: Any
    ) -> None:
        """A function and NumPy's agree on a tensor, or on what makes one."""
        given = (
            tensor_like if isinstance(tensor_like, ts.Tensor) else ts.tensor(tensor_like, device=device, dtype=dtype)
        )
        array = given.detach().cpu()
        array = array.float().numpy() if array.dtype is ts.bfloat16 else array.numpy()
        expected = np_fn(array)
        expected = [ts.from_numpy(e) for e in expected] if isinstance(expected, (list, tuple)) else expected
        self.assertEqual(torch_fn(given), expected, **{"exact_dtype": False, **kwargs})


@contextlib.contextmanager
def set_warn_always_context(new_val: bool) -> Iterator[None]:
    """Warnings that come once come each time, or not, inside."""
    before = ts.is_warn_always_enabled()
    ts.set_warn_always(new_val)
    try:
        yield
    finally:
        ts.set_warn_always(before)


def load_tests(loader: Any, tests: Any, pattern: Any) -> Any:
    """The tests as they are."""
    return tests


def run_tests(argv: Sequence[str] | None = None) -> None:
    """Run the tests of the program."""
    unittest.main(argv=[*argv] if argv else None)

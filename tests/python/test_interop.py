"""Sharing memory with NumPy, buffers and DLPack."""

from __future__ import annotations

import gc
import itertools
import operator
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import tesserack as ts

NUMPY_DTYPES = [
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]


@pytest.mark.parametrize("name", NUMPY_DTYPES)
def test_numpy_round_trip_shares_memory(name: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(name)
    x = ts.from_numpy(array)
    assert x.dtype is getattr(ts, name) and x.shape == (2, 3)
    back = x.numpy()
    assert back.dtype == array.dtype and np.shares_memory(back, array)
    assert type(back.flat[0]) is type(array.flat[0])


@pytest.mark.parametrize("view", [np.s_[::-1], np.s_[:, ::2], np.s_[1:2], np.s_[None, 0], np.s_[0:0]], ids=repr)
def test_strided_arrays(view: object) -> None:
    array = np.arange(12.0).reshape(3, 4)[view]
    x = ts.from_numpy(array)
    assert x.tolist() == array.tolist() and x.numpy().tolist() == array.tolist()
    if array.size:
        x.add_(100)
        assert x.tolist() == array.tolist()
    assert (x * 2).tolist() == (array * 2).tolist()


def test_memory_outlives_both_sides() -> None:
    x = ts.from_numpy(np.arange(1000.0))
    gc.collect()
    array = (x + 0).numpy()
    del x
    gc.collect()
    assert array.sum() == 499500.0
    t = ts.ones(3)
    array = t.numpy()
    with pytest.raises(RuntimeError, match="resize_"):
        t.resize_(100_000)
    del t
    assert array.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
def test_read_only_arrays_cannot_be_written() -> None:
    array = np.arange(3.0)
    array.flags.writeable = False
    x = ts.from_numpy(array)
    assert (x + 1).tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(RuntimeError):
        x.add_(1)
    assert not x.numpy().flags.writeable


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
def test_what_cannot_be_shared() -> None:
    for array, error in [
        (np.array(["a"]), TypeError),
        (np.array([object()]), TypeError),
        (np.zeros(3, dtype=">f4"), ValueError),
        (np.zeros(3, dtype="M8[s]"), TypeError),
        (np.frombuffer(bytes(17), dtype=np.uint8)[1:].view(np.float64), ValueError),
    ]:
        with pytest.raises(error):
            ts.from_numpy(array)
    with pytest.raises(TypeError, match=r"expected np\.ndarray"):
        ts.from_numpy([1, 2])
    with pytest.raises(RuntimeError, match=r"tensor\.detach\(\)\.numpy\(\)"):
        ts.ones(2, requires_grad=True).numpy()
    with pytest.raises(TypeError, match="BFloat16"):
        ts.ones(2, dtype=ts.bfloat16).numpy()
    with pytest.raises(TypeError, match="meta"):
        ts.ones(2, device="meta").numpy()
    assert ts.ones(2, requires_grad=True).numpy(force=True).tolist() == [1.0, 1.0]


def test_ml_dtypes_bfloat16() -> None:
    x = ts.from_numpy(np.array([1.5, 2.5], dtype=ml_dtypes.bfloat16))
    assert x.dtype is ts.bfloat16 and x.tolist() == [1.5, 2.5]


def test_memory_that_an_array_looks_at_does_not_move() -> None:
    x = ts.arange(4.0)
    array, view = x.numpy(), memoryview(x)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="resize_"):
            x.resize_(5)
        assert x.resize_(2).numel() == 2 and x.resize_(4).tolist() == [0, 1, 2, 3]
        array[0], view = 0, memoryview(b"")  # the array alone looks on
    assert len(view) == 0
    del array
    gc.collect()
    assert x.resize_(5)[1].item() == 1


def test_numpy_scalars_and_arrays_in_arithmetic() -> None:
    x = ts.ones(3)
    for result in (np.float64(2) * x, x * np.float64(2), np.float32(2) * x, 1 + np.int64(1) * x, x + np.bool_(True)):
        assert type(result) is ts.Tensor and result.dtype is ts.float32 and result.tolist() == [2.0, 2.0, 2.0]
    for result in (x + np.ones(3), np.ones(3) * 2 / x):
        assert type(result) is ts.Tensor and result.dtype is ts.float64 and result.tolist() == [2.0, 2.0, 2.0]
    assert (np.ones(3) < x + 1).tolist() == [True, True, True]
    assert ts.tensor([1.0, 4.0])[np.array([1])].tolist() == [4.0]


ARITHMETIC = ("add", "sub", "mul", "floordiv", "mod", "pow", "and_", "or_", "xor", "lshift", "rshift", "matmul")


@pytest.mark.parametrize("name", [*ARITHMETIC, *(f"i{name.strip('_')}" for name in ARITHMETIC)])
def test_arithmetic_with_an_array_on_the_left_is_refused_as_by_pytorch(name: str) -> None:
    """Of arithmetic only division takes it; what is no array but a number of NumPy's is a number."""
    for array, x in itertools.product((np.array([3, 2]), np.array(3)), (ts.tensor([1, 2]), ts.tensor(1))):
        with pytest.raises(TypeError):
            getattr(operator, name)(array, x)
        if name != "matmul" and not name.startswith("i"):
            assert getattr(operator, name)(x, array).tolist() == getattr(operator, name)(x, ts.tensor(array)).tolist()
            assert type(getattr(operator, name)(np.int64(3), x)) is ts.Tensor


def test_numpy_functions_take_tensors() -> None:
    x = ts.tensor([1.0, 4.0])
    assert np.asarray(x).tolist() == [1.0, 4.0]
    assert np.array(x, dtype=np.int64).tolist() == [1, 4]
    assert type(np.sqrt(x)) is ts.Tensor and np.sqrt(x).tolist() == [1.0, 2.0]
    assert np.stack([x, x]).shape == (2, 2)
    copied = np.array(x, copy=True)
    copied[0] = 9
    assert x[0].item() == 1.0


def test_buffer_protocol() -> None:
    x = ts.arange(6, dtype=ts.int32).reshape(2, 3)
    view = memoryview(x)
    assert (view.shape, view.strides, view.format, view.readonly) == ((2, 3), (12, 4), "i", False)
    view.cast("B")[0:4] = (7).to_bytes(4, sys.byteorder)
    assert x[0, 0].item() == 7
    assert memoryview(x.t()).strides == (4, 12)
    assert memoryview(ts.ones(2, dtype=ts.bfloat16)).nbytes == 4
    assert memoryview(ts.tensor(3)).shape == ()
    with pytest.raises(BufferError, match="detach"):
        memoryview(ts.ones(2, requires_grad=True))
    with pytest.raises(BufferError, match="no host address"):
        memoryview(ts.ones(2, device="meta"))


def test_frombuffer() -> None:
    data = bytearray(range(8))
    x = ts.frombuffer(data, dtype=ts.int16, offset=2, count=2)
    assert x.tolist() == [0x0302, 0x0504]
    x.zero_()
    assert data[2:6] == bytes(4)
    for options, message in [
        ({"offset": 8}, "offset"),
        ({"count": 9}, "requested buffer length"),
        ({"offset": 1}, "multiple"),
        ({"count": 0}, "0"),
    ]:
        with pytest.raises(ValueError, match=message):
            ts.frombuffer(data, dtype=ts.int16, **options)
    with pytest.raises(ValueError):
        ts.frombuffer([1, 2], dtype=ts.int16)


@pytest.mark.parametrize("name", [name for name in NUMPY_DTYPES if name != "bool"])
def test_dlpack_from_numpy_and_back(name: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(name)
    x = ts.from_dlpack(array)
    assert x.tolist() == array.tolist() and x.data_ptr() == array.ctypes.data
    assert np.shares_memory(np.from_dlpack(x), array)


def test_dlpack_capsules_of_both_versions() -> None:
    x = ts.arange(4.0)
    for capsule in (x.__dlpack__(), x.__dlpack__(max_version=(1, 0))):
        y = ts.from_dlpack(capsule)
        assert y.data_ptr() == x.data_ptr()
        with pytest.raises(RuntimeError, match="only once"):
            ts.from_dlpack(capsule)
    assert x.__dlpack_device__() == (1, 0)
    del capsule
    x.__dlpack__()  # never consumed: freed with the capsule


class _Lent:
    """What another library's array is to us: memory behind the protocol, and nothing else."""

    def __init__(self, memory: ts.Tensor) -> None:
        self._memory = memory

    def __dlpack__(self, **options: object) -> object:
        return self._memory.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._memory.__dlpack_device__()

    def __len__(self) -> int:
        return len(self._memory)

    def __getitem__(self, at: int) -> object:
        raise AssertionError("an array was read number by number")


def test_tensors_of_what_lends_its_memory() -> None:
    memory = ts.arange(6).reshape(2, 3)
    copy = ts.tensor(_Lent(memory))
    assert copy.dtype == ts.int64 and copy.data_ptr() != memory.data_ptr() and ts.equal(copy, memory)
    assert ts.tensor(_Lent(memory), dtype=ts.float32, requires_grad=True).tolist() == memory.tolist()
    assert ts.as_tensor(_Lent(memory)).data_ptr() == memory.data_ptr()
    assert ts.as_tensor(_Lent(memory), dtype=ts.float64).dtype == ts.float64


def test_dlpack_refusals() -> None:
    with pytest.raises(BufferError, match="detach"):
        ts.ones(2, requires_grad=True).__dlpack__()
    with pytest.raises(BufferError):
        ts.ones(2, device="meta").__dlpack__()
    with pytest.raises(BufferError):
        ts.ones(2).__dlpack__(dl_device=(2, 0))
    with pytest.raises(TypeError, match="__dlpack__"):
        ts.from_dlpack(5)


def test_asarray() -> None:
    array = np.arange(3.0)
    assert ts.asarray(array).data_ptr() == array.ctypes.data
    assert ts.asarray(array, copy=True).data_ptr() != array.ctypes.data
    assert ts.asarray([1, 2], dtype=ts.float64).dtype is ts.float64
    with pytest.raises(ValueError, match="copy"):
        ts.asarray([1, 2], copy=False)
    assert ts.asarray(ts.ones(2, requires_grad=True), requires_grad=False).requires_grad is False


def test_import_brings_no_numpy_and_no_backend() -> None:
    program = (
        "import sys, tesserack as ts; assert 'numpy' not in sys.modules; assert not ts._native._backends(); "
        "x = ts.ones(3) + 1; repr(x); x[1:].tolist(); assert 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("left", "right", "wanted"),
    [
        ("float32", "int64", "float32"), ("bool", "int64", "float32"), ("uint8", "bool", "float32"),
        ("int64", "int64", "float64"), ("float16", "int8", "float32"), ("float64", "float32", "float64"),
    ],
)  # fmt: skip
def test_an_array_over_a_tensor(left: str, right: str, wanted: str) -> None:
    found = np.full(2, 1, left) / ts.ones(2, dtype=getattr(ts, right))
    assert isinstance(found, ts.Tensor) and str(found.dtype) == f"tesserack.{wanted}" and found.tolist() == [1, 1]

"""Storages as programs name, make and copy them, each as one program for both libraries."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
import torch

NAMES = ("BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short")


def _error(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return type(error).__name__


def made_of_a_dtype(m: Any) -> Any:
    found = []
    for name in NAMES:
        kind = getattr(m, f"{name}Storage")
        storage = kind(6)
        storage[:] = 0
        storage[1:4] = 1
        storage[4] = 1
        tensor = m.ones(3).to(kind.dtype)
        found += [storage.tolist(), kind([1, 0]).tolist(), kind.__name__, tensor.storage_type() is kind]
        found += [isinstance(tensor.storage(), kind), isinstance(m.ones(1, dtype=m.complex64).storage(), kind)]
    return found


def typed(m: Any) -> Any:
    raw = m.UntypedStorage(8)
    raw.fill_(0)
    numbers = m.TypedStorage(wrap_storage=raw, dtype=m.float32)
    numbers[1] = 2.5
    other = m.TypedStorage([3, 4], dtype=m.int64)
    read = [
        numbers.size(),
        numbers.tolist(),
        other.float().tolist(),
        other.double().dtype.itemsize,
        other.clone().tolist(),
    ]
    numbers.copy_(other.float())
    read += [raw.tolist(), numbers.fill_(1).tolist(), numbers.untyped().nbytes(), m.TypedStorage().size()]
    errors = [lambda: m.TypedStorage(1, 2), lambda: m.TypedStorage(wrap_storage=raw), lambda: m.UntypedStorage("a")]
    errors += [
        lambda: numbers.copy_(other),
        lambda: m.FloatStorage(3, dtype=m.float64),
        lambda: m.TypedStorage([1], wrap_storage=raw, dtype=m.int8),
    ]
    return read + [_error(e) for e in errors]


def untyped(m: Any) -> Any:
    raw = m.UntypedStorage([1, 2, 3])
    read = [raw.tolist(), raw.nbytes(), raw[1], raw.is_cuda, raw.is_sparse, raw.is_shared(), raw.clone().tolist()]
    raw.resize_(2)
    read += [raw.tolist(), len(raw)]
    raw.resize_(4)
    read += [raw.tolist()[:2], len(raw), m.UntypedStorage().nbytes(), m.UntypedStorage(2).fill_(7).tolist()]
    return [*read, raw.copy_(m.UntypedStorage([9, 8, 7, 6])).tolist()]


def without_data(m: Any) -> Any:
    storage = m.TypedStorage([1, 2, 3, 4], device="meta", dtype=m.float32)
    raw = m.UntypedStorage(10, device="meta")
    read = [storage.size(), storage.nbytes(), storage.data_ptr(), storage.device.type, raw.nbytes(), raw.data_ptr()]
    calls = [lambda: storage[0], lambda: raw[0], storage.tolist, storage.cpu, raw.cpu, storage.share_memory_]
    return read + [_error(call) for call in (*calls, lambda: m.FloatStorage(4).copy_(storage))]


def tensors_of_storages(m: Any) -> Any:
    a = m.arange(6.0).reshape(2, 3)
    made = [m.tensor(a.storage()), m.tensor(a.untyped_storage(), dtype=m.float32), m.tensor([]).set_(a.storage())]
    other = m.ones(2, dtype=m.float64).storage()
    return [*made, _error(lambda: m.tensor(other, dtype=m.float32)), _error(lambda: m.tensor([]).set_(other))]


def deep_copies_share_memory(m: Any) -> Any:
    a, b = m.arange(6.0).reshape(2, 3), m.ones(4)
    copies = copy.deepcopy([a, [a.storage(), b.untyped_storage()], b, a.view(6)[1:4], a.t(), b.view(m.int32)])
    copies[0].add_(1)
    copies[2][0] = 3
    strides = [tuple(copies[k].stride()) for k in (0, 3, 4)]
    return [copies[0], copies[3], copies[4], copies[5], copies[1][0].tolist(), copies[1][1].tolist(), strides, a, b]


def arrays_keep_their_graph(m: Any) -> Any:
    x = m.ones(2, requires_grad=True)
    kept = [m.asarray(x), m.asarray(x * 2), m.asarray(m.ones(2), requires_grad=True), m.asarray(m.ones(2))]
    return [(y.requires_grad, y.is_leaf) for y in kept]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "program",
    [
        made_of_a_dtype,
        typed,
        untyped,
        without_data,
        tensors_of_storages,
        deep_copies_share_memory,
        arrays_keep_their_graph,
    ],
)
def test_storages(compare_program: Callable[..., None], program: Callable[[Any], Any]) -> None:
    compare_program(program)


def test_no_storage_of_fewer_bytes_than_none() -> None:
    for m in (torch, ts):
        with pytest.raises(RuntimeError):
            m.UntypedStorage(-1)

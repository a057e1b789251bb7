"""Storages as objects: one for all tensors of a memory, growing for all of them, of the default dtype."""

from __future__ import annotations

import gc
import pickle

import numpy as np
import pytest
import tesserack as ts


def test_a_storage_is_one_object() -> None:
    x = ts.arange(4.0)
    assert x.untyped_storage() is x.untyped_storage() is x[1:].untyped_storage() is x.detach().untyped_storage()
    assert x.clone().untyped_storage() is not x.untyped_storage()
    assert ts.empty(0).untyped_storage() is not ts.empty(0).untyped_storage()


def test_a_storage_outlives_its_tensor() -> None:
    x = ts.arange(4.0)
    storage = x.untyped_storage()
    storage.note = "kept"  # type: ignore[attr-defined]
    del x
    gc.collect()
    again = ts.empty(0).set_(storage, 0, (4,))
    assert again.tolist() == [0, 1, 2, 3] and again.untyped_storage() is storage
    assert again.untyped_storage().note == "kept"  # type: ignore[attr-defined]


def test_a_storage_grows_for_all_its_tensors() -> None:
    x = ts.arange(2.0)
    before, part = x.numpy(), x[1:]
    x.untyped_storage().resize_(16)
    longer = x.as_strided((4,), (1,))
    longer[2:] = 7
    part.fill_(5)
    assert longer.tolist() == [0, 5, 7, 7] and x.tolist() == [0, 5]
    assert before.tolist() == [0, 1]  # an array keeps what it looked at
    np.testing.assert_array_equal(x.numpy(), [0, 5])
    x.untyped_storage().resize_(64)
    assert x.tolist() == [0, 5] and len(x.untyped_storage()) == 64
    del before, part, longer
    gc.collect()
    assert x.tolist() == [0, 5]


def test_a_part_does_not_grow() -> None:
    part = ts.arange(4.0).untyped_storage()[4:8]
    with pytest.raises(RuntimeError, match="slice"):
        part.resize_(64)


def test_storage_follows_the_default_dtype() -> None:
    assert ts.Storage(2).dtype is ts.float32
    ts.set_default_dtype(ts.float64)
    try:
        assert ts.Storage(2).dtype is ts.Storage([1, 2]).dtype is ts.Storage.dtype is ts.float64
        assert isinstance(ts.Storage(2), ts.DoubleStorage) and isinstance(ts.ones(2).storage(), ts.Storage)
    finally:
        ts.set_default_dtype(ts.float32)
    assert pickle.loads(pickle.dumps(ts.Storage)) is ts.Storage


def test_a_storage_without_data_takes_any_size():
    storage = ts.TypedStorage([1, 2, 3, 4], dtype=ts.int16, device="meta")
    storage.resize_(10)
    assert storage.size() == 10 and storage.nbytes() == 20
    storage.resize_(2)
    assert storage.size() == 2


def test_bytes_of_numbers_are_turned_around_in_place():
    x = ts.tensor([1, 256], dtype=ts.int16)
    x.untyped_storage().byteswap(ts.int16)
    assert x.tolist() == [256, 1]
    z = ts.tensor([1 + 2j], dtype=ts.complex64)
    z.untyped_storage().byteswap(ts.complex64)
    z.untyped_storage().byteswap(ts.float32)
    assert z.tolist() == [1 + 2j]
    x.untyped_storage().byteswap(ts.uint8)
    assert x.tolist() == [256, 1]


def test_a_storage_names_the_file_that_it_maps(tmp_path):
    path = tmp_path / "numbers"
    path.write_bytes(bytes(8))
    mapped = ts.UntypedStorage.from_file(path, nbytes=8)
    assert mapped.filename == str(path) and not mapped.resizable()
    assert ts.UntypedStorage(8).filename is None and ts.UntypedStorage(8).resizable()


def test_bytes_that_are_no_numbers_are_not_turned_around():
    storage = ts.zeros(5, dtype=ts.uint8).untyped_storage()
    with pytest.raises(RuntimeError, match="length of data, 5, is not a multiple of 2"):
        storage.byteswap(ts.int16)
    with pytest.raises(TypeError, match="expected a dtype, got str"):
        storage.byteswap("int16")
    with pytest.raises(NotImplementedError, match="no data"):
        ts.ones(2, device="meta").untyped_storage().byteswap(ts.int16)

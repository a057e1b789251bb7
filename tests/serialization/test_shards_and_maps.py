"""Several files with an index, and files that are mapped instead of read."""

from __future__ import annotations

import json

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.serialization import SerializationError


def a_state(device="cpu"):
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 2)).to(device).state_dict()


@pytest.mark.parametrize("mapped", [False, True])
def test_state_dicts_in_parts(mapped, tmp_path, device):
    state = a_state(device)
    index = tmp_path / "model.safetensors.index.json"
    ts.save(state, index, max_shard_size="300")
    described = json.loads(index.read_text())
    files = sorted(set(described["weight_map"].values()))
    assert len(files) > 2 and files[0] == f"model-00001-of-{len(files):05}.safetensors"
    assert described["metadata"]["total_size"] == sum(t.nbytes for t in state.values())
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*files, index.name])
    again = ts.load(index, map_location=device, mmap=mapped)
    assert list(again) == list(state)
    assert all(ts.equal(again[name], value) for name, value in state.items())
    from safetensors import safe_open

    with safe_open(tmp_path / files[0], "numpy") as opened:
        assert set(opened.keys()) <= {*state}


def test_one_part_holds_what_fits_and_large_tensors_stand_alone(tmp_path):
    index = tmp_path / "m.safetensors.index.json"
    ts.save({"a": ts.ones(10), "b": ts.ones(1000), "c": ts.ones(10), "d": ts.ones(10)}, index, max_shard_size=100)
    where = json.loads(index.read_text())["weight_map"]
    assert where["a"] != where["b"] != where["c"] == where["d"]
    ts.save({}, index)
    assert ts.load(index) == {}


@pytest.mark.parametrize(
    ("obj", "size", "error"),
    [
        ([1], "5GB", TypeError),
        ({"a": 1}, "5GB", TypeError),
        ({1: ts.ones(1)}, "5GB", TypeError),
        ({"a": ts.ones(1, dtype=ts.complex128)}, "5GB", TypeError),
        ({"a": ts.ones(1)}, "big", ValueError),
        ({"a": ts.ones(1)}, 0, ValueError),
    ],
)
def test_refusals_leave_nothing_behind(obj, size, error, tmp_path):
    with pytest.raises(error, match="save"):
        ts.save(obj, tmp_path / "m.safetensors.index.json", max_shard_size=size)
    assert not list(tmp_path.iterdir())


def test_mapped_tensors_do_not_write_the_file(tmp_path):
    path = tmp_path / "m.safetensors"
    dtypes = [ts.float64, ts.float32, ts.bfloat16, ts.int8, ts.bool, ts.complex64, ts.complex128]
    state = {str(dtype): ts.ones(3, 2, dtype=dtype) for dtype in dtypes}
    state["none"] = ts.ones(0, 4)
    ts.save({"state": state, "epoch": 3}, path)
    before = path.read_bytes()
    again = ts.load(path, mmap=True)
    assert again["epoch"] == 3
    for name, value in state.items():
        assert again["state"][name].dtype is value.dtype and ts.equal(again["state"][name], value)
        again["state"][name].zero_()
    assert path.read_bytes() == before
    path.unlink()
    assert not again["state"]["tesserack.float32"].any()  # the mapping lives as long as the tensors


def test_mapping_allocates_no_copy(tmp_path):
    path = tmp_path / "m.safetensors"
    ts.save({"w": ts.ones(1 << 16)}, path)
    before = ts.memory_stats("cpu")["allocated"]
    mapped = ts.load(path, mmap=True)
    assert ts.memory_stats("cpu")["allocated"] - before < (1 << 16)
    assert mapped["w"].sum().item() == 1 << 16


def test_damage_is_found_before_anything_is_mapped(tmp_path):
    path = tmp_path / "m.safetensors"
    ts.save({"w": ts.ones(100)}, path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(SerializationError, match="truncated"):
        ts.load(path, mmap=True)
    path.write_bytes(b"")
    with pytest.raises(SerializationError, match="empty"):
        ts.load(path, mmap=True)

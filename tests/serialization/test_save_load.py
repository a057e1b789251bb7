"""save and load: round trips, sharing, files of others, damaged files."""

import collections
import contextlib
import io
import itertools
import json
import math
import os
import stat
import struct
import threading

import pytest
import tesserack as ts
from hypothesis import given, settings
from hypothesis import strategies as st
from tesserack import nn, optim
from tesserack.serialization import SerializationError, load, save
from tesserack.serialization import _objects as objects

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


def back(value, **options):
    buffer = io.BytesIO()
    save(value, buffer)
    buffer.seek(0)
    return load(buffer, **options)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 3)])
def test_tensors_of_all_dtypes_and_shapes(name, shape, device, tmp_path):
    dtype = getattr(ts, name)
    t = ts.arange(math.prod(shape)).reshape(shape).to(dtype).to(device)
    save(t, tmp_path / "t.safetensors")
    r = load(tmp_path / "t.safetensors", map_location=device)
    assert r.dtype == dtype and tuple(r.shape) == shape and r.tolist() == t.tolist() and r.device == t.device


def test_strided_tensors(device):
    base = ts.arange(24, device=device).reshape(2, 3, 4)
    for view in (base.transpose(0, 2), base[:, ::2], base[0, 1].expand(5, 4), base[1]):
        assert back(view).tolist() == view.tolist()


def test_structures_come_back():
    value = {
        "none": None,
        "flags": [True, False],
        "numbers": (0, -(2**80), 1.5, 1e-300, float("inf"), -0.0),
        "text": "ünï\0code ☃",
        "bytes": b"\0\xff",
        "complex": 1 - 2j,
        3: {None: 1, 2.5: 2, (1, "a"): 3, True: 4},
        "": {},
        "lone surrogate \ud800": ["\udfff"],
        "empty": [[], (), {}],
    }
    again = back(value)
    assert again == value and list(again) == list(value) and type(again["numbers"]) is tuple
    assert math.copysign(1, again["numbers"][5]) == -1 and math.isnan(back(math.nan))
    assert back(3) == 3 and back("x") == "x" and back(None) is None
    assert type(back(collections.OrderedDict(a=1))) is dict


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
KEYS = st.text() | st.integers()
TREES = st.recursive(
    SCALARS, lambda t: st.lists(t, max_size=4) | st.dictionaries(KEYS, t, max_size=4) | st.tuples(t, t), max_leaves=20
)


@settings(max_examples=100, deadline=None)
@given(TREES)
def test_any_structure_comes_back(tree):
    assert back(tree) == tree


def test_shared_tensors_stay_shared():
    w = ts.ones(3)
    again = back({"a": w, "b": w.detach(), "c": [w.view(3)], "d": w.clone(), "e": w[:2]})
    assert again["a"] is again["b"] is again["c"][0]
    again["a"].fill_(5)
    assert again["d"].tolist() == [1, 1, 1] and again["e"].tolist() == [5, 5]


def test_names_in_the_file_are_dotted_paths(tmp_path):
    path = tmp_path / "m.safetensors"
    save({"model": {"fc.weight": ts.ones(1)}, "model.fc": {"weight": ts.zeros(1)}, "list": [ts.ones(2)]}, path)
    header = read_header(path)
    assert set(header) == {"__metadata__", "model.fc.weight", "model.fc.weight#2", "list.0"}
    again = load(path)
    assert again["model"]["fc.weight"].tolist() == [1] and again["model.fc"]["weight"].tolist() == [0]
    for odd in ("__metadata__", "", "\ud800"):
        save({odd: ts.ones(1)}, path)
        assert load(path)[odd].tolist() == [1]


def read_header(path):
    content = path.read_bytes()
    return json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])


def test_a_model_and_its_optimizer(device, tmp_path):
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).to(device)
    opt = optim.AdamW(model.parameters(), lr=0.1)
    model(ts.randn(4, 2, device=device)).sum().backward()
    opt.step()
    path = tmp_path / "state.safetensors"
    save({"model": model.state_dict(), "optimizer": opt.state_dict(), "epoch": 7}, path)
    saved = load(path, map_location=device)
    other = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).to(device)
    other_opt = optim.AdamW(other.parameters())
    other.load_state_dict(saved["model"])
    other_opt.load_state_dict(saved["optimizer"])
    assert saved["epoch"] == 7 and other_opt.param_groups[0]["lr"] == 0.1
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        assert ts.equal(p, q) and ts.equal(opt.state[p]["exp_avg"], other_opt.state[q]["exp_avg"])
        assert other_opt.state[q]["step"] == 1


def test_parameters_are_saved_as_their_values():
    again = back(nn.Parameter(ts.ones(2)))
    assert type(again) is ts.Tensor and not again.requires_grad


@pytest.mark.parametrize(
    ("value", "error", "match"),
    [
        (object(), TypeError, "cannot store object"),
        ({"a": [{1.5j}]}, TypeError, "set element of type complex at "),
        ({"net": nn.ReLU()}, TypeError, r"ReLU at \['net'\]; save its state_dict"),
        ({b"key": 1}, TypeError, "dict key or set element of type bytes"),
        ({(1.5,): 1}, TypeError, "dict key or set element of type tuple"),
    ],
)
def test_what_cannot_be_saved_is_named(value, error, match, tmp_path):
    with pytest.raises(error, match=match):
        save(value, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_recursive_and_very_deep_structures_are_refused():
    loop = []
    loop.append({"again": loop})
    with pytest.raises(ValueError, match="contains itself"):
        back(loop)
    deep = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(ValueError, match="levels deep"):
        back(deep)
    twice = [1]
    assert back([twice, twice]) == [[1], [1]]


def test_writing_replaces_at_once_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "model"
    save({"a": ts.ones(2)}, path)
    link = tmp_path / "link"
    link.symlink_to(path)
    save({"a": ts.zeros(2)}, link)
    assert link.is_symlink() and load(path)["a"].tolist() == [0, 0]

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save({"a": ts.ones(2)}, path)
    assert load(path)["a"].tolist() == [0, 0] and sorted(p.name for p in tmp_path.iterdir()) == ["link", "model"]
    with pytest.raises(FileNotFoundError, match="folder"):
        save(1, tmp_path / "no" / "where")


def test_map_location(tmp_path):
    path = tmp_path / "x"
    save({"a": ts.ones(1)}, path)
    assert load(path, "cpu")["a"].device.type == "cpu" == load(path, ts.device("cpu"))["a"].device.type
    assert load(path, lambda tensor, place: tensor + 1)["a"].tolist() == [2]
    assert load(path, lambda tensor, place: None)["a"].tolist() == [1]
    objects.save({"a": ts.ones(1)}, tmp_path / "archive")
    for each, plain in itertools.product((path, tmp_path / "archive"), (True, False)):
        assert objects.load(each, lambda tensor, place: None, weights_only=plain)["a"].tolist() == [1]
    assert load(path, weights_only=True, mmap=False)["a"].tolist() == [1]
    with pytest.raises(TypeError, match="map_location"):
        load(path, 3)
    assert load(path, {"cpu": "cpu", "acme:0": "cpu"})["a"].device.type == "cpu"
    assert load(path, {"cpu": "meta"})["a"].is_meta and not load(path, {"acme:0": "meta"})["a"].is_meta


# --- files of others, and damaged ones -------------------------------------------------------------------------------


def file_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def test_files_of_others_load_as_a_dict():
    header = {"b": entry("F32", (2,), (0, 8)), "a": entry("I64", (), (8, 16)), "__metadata__": {"format": "np"}}
    loaded = load(io.BytesIO(file_of(header, struct.pack("<ffq", 1.5, -2.0, 7))))
    assert {name: t.tolist() for name, t in loaded.items()} == {"b": [1.5, -2.0], "a": 7}
    assert load(io.BytesIO(file_of({}))) == {}


def test_files_are_readable_by_the_safetensors_library(tmp_path):
    from safetensors import deserialize

    save({"w": ts.tensor([1.0, 2.0], dtype=ts.bfloat16), "n": [3]}, tmp_path / "x")
    ((name, content),) = deserialize((tmp_path / "x").read_bytes())
    assert name == "w" and content["dtype"] == "BF16" and bytes(content["data"]) == b"\x80\x3f\x00\x40"


def tree_file(tree, version=1):
    described = json.dumps({"version": version, "tree": tree})
    return file_of({"__metadata__": {"tesserack": described}, "a": entry()}, b"\0" * 8)


DAMAGED = {
    "empty": (b"", "is empty"),
    "short": (b"abc", "no safetensors file"),
    "zip": (b"PK\x03\x04" + b"\0" * 50, "zip archive.*PyTorch"),
    "pickle": (b"\x80\x04\x95" + b"." * 50, "pickle"),
    "numpy": (b"\x93NUMPY" + b"." * 50, "NumPy"),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + b"." * 50, "HDF5"),
    "text": (b"hello world, this is no model", "no safetensors file"),
    "huge header": (struct.pack("<Q", 2**63) + b"{}", "no safetensors file"),
    "not json": (file_of(b"{oops"), "header cannot be read"),
    "not utf-8": (file_of(b"\xff\xfe{}"), "header cannot be read"),
    "a list": (file_of([1]), "header cannot be read"),
    "nested": (file_of(b"[" * 100000), "header cannot be read"),
    "twice": (file_of(b'{"a": {}, "a": {}}'), "occurs twice"),
    "metadata": (file_of({"__metadata__": {"x": 1}}), "strings"),
    "metadata list": (file_of({"__metadata__": [1]}), "header cannot be read"),
    "no dtype": (file_of({"a": {"shape": [2], "data_offsets": [0, 8]}}, b"\0" * 8), "'a' is wrong"),
    "unknown dtype": (file_of({"a": entry("F4")}, b"\0" * 8), "F4"),
    "dtype list": (file_of({"a": entry(["F32"])}, b"\0" * 8), "'a' is wrong"),
    "negative": (file_of({"a": entry(shape=(-2,))}, b"\0" * 8), "bad shape"),
    "fraction": (file_of({"a": entry(shape=(2.0,))}, b"\0" * 8), "bad shape"),
    "shape": (file_of({"a": entry(shape=(3,))}, b"\0" * 8), "needs 12 bytes"),
    "empty and enormous": (file_of({"a": entry(shape=(0, 2**80), offsets=(0, 0))}), "bad shape"),
    "empty and too large": (file_of({"a": entry(shape=(0, 2**62, 2**62), offsets=(0, 0))}), None),
    "shape text": (file_of({"a": {**entry(offsets=(0, 4)), "shape": ""}}, b"\0" * 4), "bad shape"),
    "shape dict": (file_of({"a": {**entry(offsets=(0, 4)), "shape": {}}}, b"\0" * 4), "bad shape"),
    "many dimensions": (file_of({"a": entry(shape=(1,) * 1000, offsets=(0, 4))}, b"\0" * 4), "bad shape"),
    "bad versions": (tree_file({"state_dict": [[], {"magic": 1}]}), "unknown kind"),
    "enormous": (file_of({"a": entry(shape=(2**62, 2**62))}, b"\0" * 8), "needs"),
    "overlap": (file_of({"a": entry(), "b": entry(offsets=(4, 12))}, b"\0" * 12), "begins at 4, expected 8"),
    "hole": (file_of({"a": entry(offsets=(4, 12))}, b"\0" * 12), "begins at 4, expected 0"),
    "truncated": (file_of({"a": entry()}, b"\0" * 7), "truncated.*8 bytes.*has 7"),
    "too long": (file_of({"a": entry()}, b"\0" * 9), "damaged.*8 bytes.*has 9"),
    "newer": (tree_file(None, version=3), "newer Tesserack"),
    "unknown kind": (tree_file({"magic": 1}), "unknown kind"),
    "unknown tensor": (tree_file({"tensor": "b"}), "damaged"),
    "bad dict": (tree_file({"dict": [1]}), "damaged"),
    "bad key": (tree_file({"dict": [[{"list": []}, 1]]}), "damaged"),
    "bad list": (tree_file([1]), "damaged"),
    "two kinds": (tree_file({"list": [], "tuple": []}), "damaged"),
    "no tree": (file_of({"__metadata__": {"tesserack": "{}"}}), "damaged"),
    "bad tree": (file_of({"__metadata__": {"tesserack": "{"}}), "damaged"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_explained(name, tmp_path):
    content, match = DAMAGED[name]
    path = tmp_path / "the_file"
    path.write_bytes(content)
    with pytest.raises(SerializationError, match=match) as caught:
        load(path)
    assert "the_file" in str(caught.value) and isinstance(caught.value, RuntimeError)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_flipped_and_cut_bytes_never_crash(data):
    buffer = io.BytesIO()
    save({"a": ts.ones(2), "b": [1, {"c": ts.tensor([True])}]}, buffer)
    content = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    for damaged in (content, content[:cut]):
        with contextlib.suppress(SerializationError):
            load(io.BytesIO(bytes(damaged)))


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError):
        load(tmp_path)


def test_what_is_no_file_is_written_to_and_stays(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    save({"a": ts.ones(2)}, pipe)
    reader.join(60)
    assert load(io.BytesIO(received[0]))["a"].tolist() == [1, 1] and pipe.is_fifo()
    assert [p.name for p in tmp_path.iterdir()] == ["pipe"]
    null = tmp_path / "null"
    null.symlink_to(os.devnull)
    save(1, null)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode) and null.is_symlink()


def test_long_file_names(tmp_path):
    path = tmp_path / ("n" * 250)
    save([1], path)
    save([2], path)
    assert load(path) == [2] and len([*tmp_path.iterdir()]) == 1


def test_the_versions_of_a_state_dict_are_kept():
    class Old(nn.Linear):
        _version = 7

    seen = []

    class Seeing(nn.Linear):
        def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
            seen.append(local_metadata.get("version"))
            super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    state = nn.Sequential(Old(1, 1)).state_dict()
    again = back({"model": state})["model"]
    assert isinstance(again, collections.OrderedDict) and again._metadata == state._metadata
    nn.Sequential(Seeing(1, 1)).load_state_dict(again)
    assert seen == [7]


def test_shared_memory_of_any_device_is_stored_once(device):
    whole = ts.arange(4.0, device=device)
    again = back({"a": whole, "b": whole.detach(), "c": whole[:2], "d": whole[2:], "e": whole.clone()})
    assert again["a"] is again["b"] and again["c"].tolist() == [0, 1] and again["d"].tolist() == [2, 3]
    assert len({id(t) for t in again.values()}) == 4


@pytest.mark.parametrize("dtype", [ts.complex64, ts.complex128])
def test_complex_tensors_come_back(dtype):
    z = ts.tensor([[1 - 2j, 3j], [0, float("inf")]], dtype=dtype)
    again = back({"z": z, "same": z, "part": z.T[1], "empty": z[:0], "number": z[0, 1]})
    assert again["z"] is again["same"]
    assert again["z"].dtype is dtype and again["z"].tolist() == z.tolist()
    assert again["part"].tolist() == z.T[1].tolist() and again["empty"].shape == (0, 2)
    assert again["number"].item() == 3j

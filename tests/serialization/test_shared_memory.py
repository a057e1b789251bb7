"""Tensors that share memory share it again, whichever way they overlap, and repeated elements are written once."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.serialization import SerializationError, _objects

FORMS = {
    "safetensors": (ts.save, ts.load, {}),
    "torch": (ts.save, ts.load, {"format": "torch"}),
    "old": (ts.save, ts.load, {"format": "torch", "_use_new_zipfile_serialization": False}),
    "objects": (_objects.save, _objects.load, {}),
    "old objects": (_objects.save, _objects.load, {"_use_new_zipfile_serialization": False}),
}


@pytest.fixture(params=FORMS)
def back(request):
    save, load, options = FORMS[request.param]

    def back(value, most=None):
        file = io.BytesIO()
        save(value, file, **options)
        assert most is None or file.tell() < most
        file.seek(0)
        return load(file)

    return back


def test_a_whole_and_its_parts(back, device):
    whole = ts.arange(12.0, device=device).reshape(3, 4)
    found = back({"row": whole[1], "whole": whole, "columns": whole[:, 1:3], "turned": whole.t(), "one": whole[2, 3]})
    assert found["turned"].stride() == (1, 4) and found["one"].shape == ()
    found["whole"].fill_(7)
    for name in ("row", "columns", "turned", "one"):
        assert (found[name] == 7).all(), name


def test_overlaps_that_no_tensor_holds_whole(back):
    memory = ts.arange(10.0)
    found = back([memory[1:6], memory[4:9], memory[::3]])
    assert [t.tolist() for t in found] == [[1, 2, 3, 4, 5], [4, 5, 6, 7, 8], [0, 3, 6, 9]]
    found[0].fill_(-1)
    assert found[1].tolist() == [-1, -1, 6, 7, 8] and found[2].tolist() == [0, -1, 6, 9]


def test_views_of_another_dtype(back):
    numbers = ts.arange(4.0)
    found = back([numbers, numbers.view(ts.int32), numbers.view(ts.uint8)[3:6], numbers.view(ts.complex64)])
    assert [t.dtype for t in found] == [ts.float32, ts.int32, ts.uint8, ts.complex64]
    found[0].fill_(1)
    assert found[1].tolist() == [0x3F80_0000] * 4 and found[2].tolist() == [0x3F, 0, 0] and found[3][0].item() == 1 + 1j
    odd = ts.zeros(10, dtype=ts.uint8)
    found = back([odd, odd[:8].view(ts.float64)])
    found[1].fill_(1)
    assert found[0].tolist() == [0, 0, 0, 0, 0, 0, 0xF0, 0x3F, 0, 0]


def test_what_is_pending(back):
    pairs = ts.tensor([1 + 2j, 3 - 1j])
    found = back([pairs, pairs.conj(), pairs.conj().imag])
    assert found[1].tolist() == [1 - 2j, 3 + 1j] and found[2].tolist() == [-2, 1]
    found[0].fill_(5j)
    assert found[1].tolist() == [-5j, -5j] and found[2].tolist() == [-5, -5]


def test_repeated_elements_are_written_once(back):
    found = back({"a": ts.ones(1).expand(1000, 1000), "b": ts.arange(3.0).as_strided((2, 2), (1, 1))}, most=10_000)
    assert found["a"].shape == (1000, 1000) and found["a"].stride() == (0, 0) and found["a"][5, 7] == 1
    assert found["b"].tolist() == [[0, 1], [1, 2]] and found["b"].stride() == (1, 1)


def test_bools_in_bytes(back):
    flags = ts.tensor([True, False, True, True])
    found = back([flags[:3], flags[1:]])
    assert [t.tolist() for t in found] == [[True, False, True], [False, True, True]]
    found = back([flags, flags.view(ts.uint8)])
    assert found[0].tolist() == flags.tolist() and found[1].tolist() == [1, 0, 1, 1]


def test_one_tensor_in_two_places_is_one(back):
    part = ts.arange(4.0)[1:3]
    base = ts.arange(4.0)
    found = back({"base": base, "a": base[1:], "b": base[1:], "c": [part, part]})
    assert found["a"].data_ptr() == found["b"].data_ptr() == found["base"].data_ptr() + 4
    assert found["c"][0].data_ptr() == found["c"][1].data_ptr()


@pytest.mark.parametrize("protocol", [2, 5])
def test_pickles_keep_repeated_elements_as_they_lie(protocol):
    repeated = ts.ones(1).expand(1000, 1000)
    text = pickle.dumps(repeated, protocol)
    found = pickle.loads(text)
    assert len(text) < 1000 and found.stride() == (0, 0) and found.shape == repeated.shape and found.sum() == 10**6
    slid = ts.arange(6.0)[1:].as_strided((3, 3), (1, 1), 1)
    found = pickle.loads(pickle.dumps(slid, protocol))
    assert found.tolist() == slid.tolist() and found.stride() == (1, 1)


def test_copies_of_parameters_that_lie_in_one_memory():
    memory = ts.zeros(6)
    net = nn.Module()
    net.a, net.b = nn.Parameter(memory[:4].view(2, 2)), nn.Parameter(memory[2:])
    net.a.grad, net.b.grad = (gradients := ts.ones(6))[:4].view(2, 2), gradients[2:]
    copied = copy.deepcopy(net)
    with ts.no_grad():
        copied.a.fill_(3)
    assert copied.b.tolist() == [3, 3, 0, 0] and net.b.tolist() == [0] * 4
    assert copied.b.grad is None  # as PyTorch has it
    one, two = copy.deepcopy([net.a.grad, net.b.grad])
    assert two[:2].data_ptr() == one[1].data_ptr()


@pytest.mark.parametrize(
    "view",
    [
        ["a", "float32", [3], [1], 0, ""],
        ["a", "float32", [1], [1], 2, ""],
        ["a", "float32", [2], [-1], 1, ""],
        ["a", "float32", [2], [1, 1], 0, ""],
        ["a", "float32", [2**40, 2**40], [0, 0], 0, ""],
        ["a", "nothing", [1], [1], 0, ""],
        ["a", "float32", [1], [1], 0, "sign"],
        ["a", "bool", [8], [1], 0, ""],
        ["b", "float32", [1], [1], 0, ""],
        [["a"], "float32", [1], [1], 0, ""],
        ["a"],
    ],
)
def test_views_that_lie_elsewhere_are_refused(view):
    import json

    from tests.serialization.test_save_load import file_of

    described = json.dumps({"version": 2, "tree": {"list": [{"tensor": "a"}, {"view": view}]}})
    header = {
        "__metadata__": {"tesserack": described},
        "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
    }
    with pytest.raises(SerializationError):
        ts.load(io.BytesIO(file_of(header, b"\0\0\x80\x3f" * 2)))


def test_values_that_files_of_pytorch_may_hold():
    value = {
        "layout": [ts.strided, ts.sparse_coo],
        "dtype": ts.bfloat16,
        "device": ts.device("cpu"),
        "sets": [frozenset({1, 2}), {"a"}],
    }
    for save, load, options in FORMS.values():
        file = io.BytesIO()
        save(value, file, **options)
        file.seek(0)
        found = load(file)
        assert found == value and type(found["sets"][0]) is frozenset
    from collections import Counter

    for save, load, options in FORMS.values():
        file = io.BytesIO()
        save(Counter("aab"), file, **options)
        file.seek(0)
        found = load(file)
        assert type(found) is Counter and found == Counter("aab")


def test_deep_structures_and_every_protocol():
    deep = end = []
    for _ in range(400):
        end.append([])
        end = end[0]
    for save, load, options in [*FORMS.values()][1:]:
        file = io.BytesIO()
        save(deep, file, **options)
        file.seek(0)
        found = load(file)
        for _ in range(400):
            (found,) = found
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        for weights_only in (True, False):
            value = {"a": ts.ones(2), "b": [1, "x", b"y", (1.5, None)], "p": nn.Parameter(ts.zeros(1))}
            file = io.BytesIO()
            _objects.save(value, file, pickle_protocol=protocol)
            file.seek(0)
            found = _objects.load(file, weights_only=weights_only)
            assert found["a"].tolist() == [1, 1] and found["b"] == value["b"] and type(found["p"]) is nn.Parameter


def test_pickle_modules():
    calls = []

    class Module:
        class Pickler(pickle.Pickler):
            def reducer_override(self, obj):
                if isinstance(obj, type(lambda: None)):
                    return eval, (f"lambda: {obj()}",)
                return NotImplemented

        class Unpickler(pickle.Unpickler):
            def find_class(self, module, name):
                calls.append(name)
                return super().find_class(module, name)

    file = io.BytesIO()
    _objects.save({"f": lambda: 3, "t": ts.ones(2)}, file, Module)
    file.seek(0)
    found = _objects.load(file, pickle_module=Module)
    assert found["f"]() == 3 and found["t"].tolist() == [1, 1] and "eval" in calls
    file.seek(0)
    with pytest.raises(RuntimeError, match="pickle"):
        _objects.load(file, pickle_module=Module, weights_only=True)

"""Files of torch.save read here, and files written here read by torch."""

import collections
import io

import numpy as np
import pytest
import tesserack as ts
import torch
from tesserack import nn, optim
from tesserack.serialization import SerializationError

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
DTYPES += ["complex64", "complex128", "uint16", "uint32", "uint64"]


def read(obj, older=False, **options):
    buffer = io.BytesIO()
    torch.save(obj, buffer, _use_new_zipfile_serialization=not older)
    buffer.seek(0)
    return ts.load(buffer, **options)


def written(obj):
    buffer = io.BytesIO()
    ts.save(obj, buffer, format="torch")
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def same(a, b):
    assert str(a.dtype).rpartition(".")[2] == str(b.dtype).rpartition(".")[2]
    assert tuple(a.shape) == tuple(b.shape) and a.tolist() == b.tolist()


OLDER = pytest.mark.parametrize("older", [False, True], ids=["archive", "older"])


@OLDER
@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_is_read(name, older):
    for values in (torch.tensor([0, 1, 1]), torch.tensor(1), torch.zeros(0, 3), torch.ones(2, 3).t()):
        same(read(values.to(getattr(torch, name)), older), values.to(getattr(torch, name)))


@OLDER
def test_tied_and_strided_tensors_are_read(older):
    whole = torch.arange(12.0).reshape(3, 4)
    again = read(
        {"w": whole, "t": whole.t(), "row": whole[1], "step": whole[:, ::2], "many": whole[:1].expand(5, 4)}, older
    )
    assert again["t"].stride() == (1, 4) and again["many"].stride() == (0, 1) and again["step"].stride() == (4, 2)
    again["w"].zero_()
    for name in ("t", "row", "step", "many"):
        assert not again[name].any()


@OLDER
def test_whole_checkpoints_are_read(older):
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    opt = torch.optim.AdamW(net.parameters(), lr=0.125)
    net(torch.randn(5, 3)).sum().backward()
    opt.step()
    schedule = torch.optim.lr_scheduler.MultiStepLR(opt, [2, 5])
    saved = read(
        {"model": net.state_dict(), "optimizer": opt.state_dict(), "schedule": schedule.state_dict(), "epoch": 3}, older
    )
    ours = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    assert repr(ours.load_state_dict(saved["model"])) == "<All keys matched successfully>"
    assert saved["model"]._metadata == net.state_dict()._metadata and saved["epoch"] == 3
    our_opt = optim.AdamW(ours.parameters())
    our_opt.load_state_dict(saved["optimizer"])
    assert our_opt.param_groups[0]["lr"] == 0.125
    same(our_opt.state[ours[0].weight]["exp_avg"], opt.state[net[0].weight]["exp_avg"])
    assert saved["schedule"]["milestones"] == collections.Counter([2, 5])


@OLDER
def test_plain_values_are_read(older):
    value = {
        "none": None,
        "flags": [True, False],
        "numbers": (0, -5, 2**70, -(2**40), 1.5),
        "text": "ünï☃",
        "bytes": b"\0\xff",
        "complex": 1 - 2j,
        3: "key",
        (1, "a"): "pair",
        "sets": {1, 2},
        "array": bytearray(b"ab"),
        "nested": [[], (), {}],
        "ordered": collections.OrderedDict(b=1, a=2),
        "counter": collections.Counter("aab"),
        "default": collections.defaultdict(list, a=[1]),
        "many": list(range(3000)),
    }
    again = read(value, older)
    assert again == value and type(again["ordered"]) is collections.OrderedDict
    rest = read(
        [torch.float32, torch.Size([2, 3]), torch.device("cpu"), torch.device("cuda:1"), np.float32(1.5)], older
    )
    assert rest == [ts.float32, ts.Size([2, 3]), ts.device("cpu"), "cuda:1", 1.5]
    parameter = read(torch.nn.Parameter(torch.ones(2)), older)
    assert type(parameter) is nn.Parameter and parameter.requires_grad
    assert read(torch.ones(2, requires_grad=True), older).requires_grad


@OLDER
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "jagged"])
def test_sparse_and_nested_tensors_are_read(layout, older):
    """The older form has the structure before what is in the storages."""
    if layout == "jagged":
        given = torch.nested.nested_tensor([torch.ones(2, 1), torch.zeros(3, 1)], layout=torch.jagged)
        again = read([given, torch.ones(2)], older)
        assert [row.tolist() for row in again[0].unbind()] == [row.tolist() for row in given.unbind()]
    else:
        given = torch.diag(torch.arange(3.0)).to_sparse(layout=getattr(torch, layout))
        again = read([given, torch.ones(2)], older)
        assert again[0].layout is getattr(ts, layout) and again[0].to_dense().tolist() == given.to_dense().tolist()
    assert again[1].tolist() == [1, 1]


@OLDER
def test_objects_are_refused_by_name(older):
    with pytest.raises(SerializationError, match=r"torch\.nn\.modules\.linear\.Linear.*state_dict"):
        read(torch.nn.Linear(1, 1), older)


@OLDER
def test_map_location_of_torch_files(older, device):
    assert read({"a": torch.ones(2)}, older, map_location=device)["a"].device.type == ts.device(device).type
    seen = []

    def place(tensor, location):
        seen.append(location)
        return tensor + 1

    assert read({"a": torch.ones(2)}, older, map_location=place)["a"].tolist() == [2, 2] and seen == ["cpu"]

    def fail(tensor, location):
        raise KeyError("no place")

    with pytest.raises(KeyError, match="no place"):
        read(torch.ones(2), older, map_location=fail)


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_is_written(name):
    dtype = getattr(ts, name)
    for values in (ts.tensor([0, 1, 1]).to(dtype), ts.tensor(1).to(dtype), ts.zeros(0, 3, dtype=dtype)):
        same(written(values), values)
        same(written(ts.ones(2, 3).to(dtype).t()), ts.ones(3, 2).to(dtype))


def test_structures_are_written():
    value = {
        "none": None,
        "flags": [True, False],
        "numbers": (0, -5, 2**70, -(2**40), 1.5, float("inf")),
        "text": "ünï☃",
        "bytes": b"\0\xff",
        "complex": 1 - 2j,
        3: "key",
        (1, "a", 2, 3): "four",
        "sets": {1, 2},
        "array": bytearray(b"ab"),
        "nested": [[], (), {}],
        "ordered": collections.OrderedDict(b=1, a=2),
        "many": list(range(3000)),
    }
    assert written(value) == value and type(written(value)["ordered"]) is collections.OrderedDict
    assert written([ts.float32, ts.Size([2, 3])]) == [torch.float32, torch.Size([2, 3])]
    assert written([ts.device("cpu")]) == [torch.device("cpu")]
    twice = [1]
    again = written([twice, twice])
    assert again[0] is again[1]


def test_tied_and_strided_tensors_are_written(device):
    whole = ts.arange(12.0, device=device).reshape(3, 4)
    again = written(
        {"w": whole, "t": whole.t(), "row": whole[1], "p": nn.Parameter(whole), "many": whole[:1].expand(5, 4)}
    )
    assert again["t"].tolist() == whole.t().tolist() and again["many"].shape == (5, 4)
    assert type(again["p"]) is torch.nn.Parameter and again["p"].requires_grad
    if whole.device.type == "cpu":
        assert again["t"].stride() == (1, 4)
        again["w"].zero_()
        assert not again["t"].any() and not again["row"].any() and not again["p"].any()


def test_models_and_optimizers_are_written(tmp_path):
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    opt = optim.AdamW(net.parameters(), lr=0.125)
    net(ts.randn(5, 3)).sum().backward()
    opt.step()
    path = tmp_path / "checkpoint.pt"
    ts.save({"model": net.state_dict(), "optimizer": opt.state_dict()}, path, format="torch")
    saved = torch.load(path, weights_only=True)
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    theirs.load_state_dict(saved["model"])
    their_opt = torch.optim.AdamW(theirs.parameters())
    their_opt.load_state_dict(saved["optimizer"])
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    np.testing.assert_allclose(net.eval()(ts.tensor(x)).tolist(), theirs.eval()(torch.tensor(x)).tolist(), atol=1e-5)
    same(opt.state[net[0].weight]["exp_avg"], their_opt.state[theirs[0].weight]["exp_avg"])
    assert saved["model"]._metadata == net.state_dict()._metadata
    mapped = torch.load(path, weights_only=True, mmap=True)
    same(mapped["model"]["0.weight"], net[0].weight)

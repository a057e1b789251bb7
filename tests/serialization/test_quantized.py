"""Quantized tensors in files and pickles of programs that do not import torch."""

from __future__ import annotations

import importlib.util
import io
import pickle
import subprocess
import sys

import pytest
import tesserack as ts
from tesserack.nn import quantized

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch to compare with")

SHOW = """
import sys
{imports}
found = load(sys.argv[1])
for name in ("q", "part", "c"):
    print(name, found[name].int_repr().tolist(), found[name].dequantize().tolist())
print(found["q"].q_scale(), found["q"].q_zero_point(), found["c"].q_per_channel_scales().tolist())
print(found["c"].q_per_channel_axis(), *(str(found[name]).rpartition(".")[2] for name in ("dtype", "scheme")))
"""
NATIVE = "from tesserack import load"
TORCH = "from torch import load"


def values():
    x = ts.linspace(-2, 2, 12).reshape(3, 4)
    q = quantized.quantize_per_tensor(x, 0.1, 3, quantized.qint8)
    c = quantized.quantize_per_channel(x, ts.tensor([0.1, 0.2, 0.3]), ts.tensor([0, 1, 2]), 0, quantized.quint8)
    return {"q": q, "part": q[:, 1:], "c": c, "dtype": quantized.qint8, "scheme": quantized.per_channel_affine}


def shown(imports: str, path) -> str:
    command = [sys.executable, "-W", "ignore", "-c", SHOW.format(imports=imports), str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("reader", [NATIVE, pytest.param(TORCH, marks=needs_torch)])
def test_files_of_torch_hold_them(zipped, reader, tmp_path):
    """Read by a process that knows of no quantized tensors before."""
    path, wanted = tmp_path / "saved.pt", values()
    ts.save(wanted, path, format="torch", _use_new_zipfile_serialization=zipped)
    lines = shown(reader, path).splitlines()
    for line, name in zip(lines, ("q", "part", "c"), strict=False):
        assert line == f"{name} {wanted[name].int_repr().tolist()} {wanted[name].dequantize().tolist()}"
    assert lines[3] == f"0.1 3 {wanted['c'].q_per_channel_scales().tolist()}"
    assert lines[4] == "0 qint8 per_channel_affine"


def test_a_view_is_stored_once(tmp_path):
    q = quantized.quantize_per_tensor(ts.zeros(100_000), 0.1, 0, quantized.qint8)
    ts.save([q, q[1:]], tmp_path / "saved.pt", format="torch")
    assert (tmp_path / "saved.pt").stat().st_size < 110_000
    whole, part = ts.load(tmp_path / "saved.pt")
    whole[1] = 0.5
    assert part[0].dequantize().item() == 0.5


def test_a_model_of_quantized_layers(tmp_path):
    def made():
        return quantized.quantize_dynamic(ts.nn.Sequential(ts.nn.Linear(3, 2), ts.nn.ReLU()))

    first, second, x = made(), made(), ts.randn(4, 3)
    ts.save(first.state_dict(), tmp_path / "saved.pt", format="torch")
    second.load_state_dict(ts.load(tmp_path / "saved.pt"))
    assert ts.equal(first(x), second(x))
    assert ts.equal(first(x), pickle.loads(pickle.dumps(first))(x))


def test_safetensors_have_no_such_dtype():
    with pytest.raises(TypeError, match=r"quantized tensor at \['q'\] in safetensors; use format='torch'"):
        ts.save({"q": values()["q"]}, io.BytesIO())
    with pytest.raises(
        TypeError, match=r"QuantizedType at \['dtype'\]; dtypes of quantized tensors are kept by format"
    ):
        ts.save({"dtype": quantized.quint8}, io.BytesIO())


def test_a_zero_point_that_is_no_number_is_refused(tmp_path):
    q = values()["q"]
    ts.save(
        quantized.QuantizedTensor(q.integers(), q.dtype, 0.1, float("inf"), None), tmp_path / "q.pt", format="torch"
    )
    with pytest.raises(ts.serialization.SerializationError, match="a quantized tensor in it is none"):
        ts.load(tmp_path / "q.pt")


@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_dtypes_and_schemes_are_pickled_by_their_names(protocol):
    for each in (quantized.quint8, quantized.qint32, quantized.per_tensor_affine, quantized.per_channel_symmetric):
        assert pickle.loads(pickle.dumps(each, protocol)) is each
        assert repr(each).startswith("tesserack.nn.quantized.")

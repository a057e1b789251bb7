"""Models and their folders, without a server."""

from __future__ import annotations

import struct
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
from serving_process import write_model, write_version
from tesserack_serving.engine.config import ModelConfig, parse_input, read_folder, read_repository
from tesserack_serving.engine.engine import Engine
from tesserack_serving.protocol.errors import ServingError
from tesserack_serving.protocol.messages import TensorData, check_input


def rows(*values: float, name: str = "x") -> list[TensorData]:
    data = [value for value in values for _ in range(4)]
    return [TensorData(name, "FP32", (len(values), 4), struct.pack(f"<{len(data)}f", *data))]


def answers(found: Any) -> ts.Tensor:
    (tensor,) = found
    if not tensor.data:
        return ts.empty(tensor.shape)
    return ts.frombuffer(bytearray(tensor.data), dtype=ts.float32).reshape(tensor.shape)


@pytest.fixture
def net(repository: Path, device: str) -> Any:
    return Engine(device).load(read_folder(repository, "net")[-1])


def test_weights_of_a_version(repository: Path, device: str) -> None:
    for config in read_folder(repository, "net"):
        state = ts.load(repository / "net" / config.version / "weights.safetensors")
        want = ts.ones(1, 4) @ state["linear.weight"].t() + state["linear.bias"]
        found = Engine(device).load(config).run([rows(1.0)])
        assert ts.allclose(answers(found[0]), want, atol=1e-5)


def test_a_batch_is_split_as_it_was_joined(net: Any) -> None:
    requests = [rows(1.0), rows(2.0, 3.0), rows(), rows(4.0)]
    together, alone = net.run(requests), [net.run([request])[0] for request in requests]
    for a, b in zip(together, alone, strict=True):
        assert a[0].shape == b[0].shape and ts.allclose(answers(a), answers(b), atol=1e-5)


def test_one_that_fails_fails_alone(net: Any) -> None:
    first, second, third = net.run([rows(1.0), rows(666.0), rows(2.0)])
    assert isinstance(second, ServingError) and second.status == 500 and "caught fire" in second.message
    assert ts.allclose(answers(first), answers(net.run([rows(1.0)])[0]), atol=1e-5) and not isinstance(
        third, ServingError
    )


def test_warming_up_finds_what_comes_out(net: Any, repository: Path, device: str) -> None:
    assert [(s.name, s.datatype, s.shape) for s in net.outputs] == [("y", "FP32", (-1, 3))]
    counts = Engine(device).load(read_folder(repository, "counts")[0])
    assert [(s.name, s.datatype, s.shape) for s in counts.outputs] == [
        ("output0", "INT64", (-1,)),
        ("output1", "INT64", (-1,)),
    ]


def test_only_requests_alike_run_together(net: Any) -> None:
    assert net.key(rows(1.0)) == net.key(rows(1.0, 2.0)) != net.key(rows(1.0, name="z"))
    assert net.key([TensorData("x", "FP32", (), b"abcd")]) is None


def test_outputs_that_do_not_follow_the_rows_run_alone(tmp_path: Path, device: str) -> None:
    (tmp_path / "whole.py").write_text("def build():\n    return lambda x: x.sum()\n")
    config = ModelConfig("whole", "whole.py:build", folder=str(tmp_path), inputs=("x=float32[batch 4]",))
    model = Engine(device).load(config)
    found = model.run([rows(1.0), rows(2.0)])
    assert [answers(a).item() for a in found] == [4, 8] and not model.batching


def test_functions_classes_and_arguments(tmp_path: Path, device: str) -> None:
    place = write_model(tmp_path, "wide", 'build = "model.py:Net"\n[arguments]\nwidth = 7\n')
    write_version(place, 4, width=7)
    (config,) = read_folder(tmp_path, "wide")
    assert config.version == "4" and Engine(device).load(config).run([rows(1.0)])[0][0].shape == (1, 7)
    (tmp_path / "double.py").write_text("def double(x):\n    return 2 * x\n")
    config = ModelConfig("double", "double.py:double", folder=str(tmp_path))
    assert answers(Engine(device).load(config).run([rows(1.5)])[0]).tolist() == [[3, 3, 3, 3]]


TORCH_MODEL = """
import torch.nn as nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        import torch
        return torch.relu(self.linear(x))
"""


def test_a_model_written_for_pytorch(tmp_path: Path, device: str) -> None:
    (tmp_path / "torch_model.py").write_text(TORCH_MODEL)
    linear = ts.nn.Linear(4, 3)
    ts.save({f"linear.{name}": value for name, value in linear.state_dict().items()}, tmp_path / "w.safetensors")
    config = ModelConfig("net", "torch_model.py:Net", folder=str(tmp_path), weights="w.safetensors")
    try:
        found = answers(Engine(device).load(config).run([rows(1.5)])[0])
    finally:
        ts.compat.disable()  # a worker leaves it on
    assert ts.allclose(found, linear(ts.full((1, 4), 1.5)).relu(), atol=1e-5)


def test_a_model_that_means_pytorch(tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = types.ModuleType("torch")
    theirs.factor = 3  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", theirs)
    (tmp_path / "both.py").write_text("import torch\ndef times(x):\n    return torch.factor * x\n")
    config = ModelConfig("times", "both.py:times", folder=str(tmp_path), torch=False)
    assert answers(Engine(device).load(config).run([rows(1.5)])[0]).tolist() == [[4.5] * 4]
    with monkeypatch.context() as patched:
        patched.setattr(ts.compat, "is_enabled", lambda: True)
        with pytest.raises(ServingError, match="torch = false, but another model here"):
            Engine(device).load(config)


WRONG = {
    "syntax": ("build = ", "cannot be read"),
    "no build": ("queue = 3", "no 'build'"),
    "unknown": ('build = "m:b"\nqeue = 3', "qeue"),
    "versions": ('build = "m:b"\nversions = [7]', "versions"),
    "batch": ('build = "m:b"\nmax_batch = 0', "max_batch"),
    "input": ('build = "m:b"\ninputs = ["x=float99[3]"]', "float99"),
    "types": ('build = "m:b"\nqueue = "many"', "queue"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_in_a_folder_is_named(tmp_path: Path, name: str) -> None:
    text, message = WRONG[name]
    write_model(tmp_path, "m", text)
    with pytest.raises(ServingError, match=message):
        read_folder(tmp_path, "m")


def test_what_cannot_be_built_says_why(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("def raises():\n    raise OSError('no disk')\nnumber = 3\n")
    for build, message in [
        ("m.py:raises", "no disk"),
        ("m.py:number", "int"),
        ("n.py:x", "no file"),
        ("m.py:y", "'y'"),
    ]:
        with pytest.raises(ServingError, match=message):
            Engine("cpu").load(ModelConfig("m", build, folder=str(tmp_path)))
    with pytest.raises(ServingError, match="weights are for a module"):
        Engine("cpu").load(ModelConfig("m", "json:loads", folder=str(tmp_path), weights="none.safetensors"))


def test_names_stay_within_the_repository(tmp_path: Path) -> None:
    write_model(tmp_path / "inside", "good", 'build = "model.py:Net"\n')
    write_model(tmp_path, "outside", 'build = "model.py:Net"\n')
    assert read_repository(tmp_path / "inside") == ["good"]
    for name in ("../outside", "/etc", "..", ""):
        with pytest.raises(ServingError, match="no model"):
            read_folder(tmp_path / "inside", name)


def test_inputs_are_held_against_their_declaration() -> None:
    spec = parse_input("x=float32[batch 4]")
    check_input(rows(1.0, 2.0), [spec])
    for bad in (
        rows(1.0, name="z"),
        rows(1.0) * 2,
        [TensorData("x", "FP32", (4,), b"")],
        [TensorData("x", "INT8", (1, 4), b"")],
    ):
        with pytest.raises(ServingError):
            check_input(bad, [spec])
    for text in ("x=float32[3", "x=what[3]"):
        with pytest.raises(ServingError, match="input"):
            parse_input(text)

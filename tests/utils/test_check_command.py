"""``tesserack check``: what it prints, and its exit status."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import pytest
import tesserack as ts
from tesserack.cli import main

MODEL = """
import tesserack as ts
from tesserack import nn

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.embed, self.head = nn.Embedding(10, 8), nn.Linear(width, 3)

    def forward(self, x, mask=None):
        y = self.head(self.embed(x))
        return y if mask is None else y * mask.unsqueeze(-1)

def build():
    return Net()

def wrong():
    return Net(9)

def product(x, y):
    return x @ y

def fails():
    raise RuntimeError("no weights")

def number():
    return 3

def widths():
    return Net(ts.arange(1, 9).tolist()[-1])

def sized(width: int):
    return Net(width)

def width_of(layer):
    return nn.Linear(8, layer)

class _Forces(nn.Module):
    def __init__(self):
        super().__init__()
        self.energy = nn.Linear(3, 1)

    def forward(self, place):
        place.requires_grad_(True)
        return -ts.autograd.grad(self.energy(place).sum(), place, create_graph=True)[0]

forces = lambda: _Forces()

made = Net()
huge = lambda: nn.Linear(10**6, 10**6)
constant = 3
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "checked_model.py"
    path.write_text(MODEL)
    return str(path)


@pytest.mark.parametrize("name", ["build", "Net", "made", "widths"])
def test_a_table(model: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{model}:{name}", "--input", "int64[batch time]"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["module", "kind", "output", "parameters", "FLOPs"],
        ["(model)", "Net", "[batch,", "time,", "3]", "107", "48*batch*time"],
        ["embed", "Embedding", "[batch,", "time,", "8]", "80", "0"],
    ]
    assert lines[4:6] == ["parameters: 107", "FLOPs: 48*batch*time, of products and convolutions, forward"]
    assert lines[6].startswith("activations: ") and "*batch*time at the peak" in lines[6]


def test_the_first_mismatch(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{model}:wrong", "--input", "int64[batch time]"]) == 1
    first, line, sizes = capsys.readouterr().out.splitlines()
    assert first.startswith("mismatch at `head` (Linear): linear: ") and "[batch, time, 8]" in first
    assert line.strip().startswith(model) and "y = self.head(self.embed(x))" in line
    assert "batch=113" in sizes


def test_several_inputs_functions_and_json(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{model}:product", "--input", "n k", "--input", "k 4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows"][0]["output"] == "[n, 4]" and found["flops"] == "8*n*k" and found["mismatch"] is None
    named = ["--input", "int64[batch time]", "--input", "mask=float32[batch time]"]
    assert main(["check", f"{model}:build", *named]) == 0
    assert main(["check", f"{model}:build", *named[:-1], "mask=bool[time batch]", "--json"]) == 1
    found = json.loads(capsys.readouterr().out.partition("parameters: ")[2].partition("\n{")[2].join(("{", "")))
    assert found["mismatch"]["path"] == "" and "batch" in found["mismatch"]["message"]


def test_memory_is_not_asked_for(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{model}:huge", "--input", "batch 1000000"]) == 0
    assert "[batch, 1000000]" in capsys.readouterr().out


def test_a_model_that_differentiates(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{model}:forces", "--input", "n 3"]) == 0
    assert "[n, 3]" in capsys.readouterr().out


def test_a_module_by_its_name(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "checked_model:Net", "--input", "int64[batch]"]) == 0
    assert "[batch, 3]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["{}:build"], 2, "expected --input with the axes of each input"),
        (["model", "--input", "a"], 2, "expected FILE:NAME such as model.py:build, got 'model'"),
        (["{}:nothing", "--input", "a"], 2, "has no 'nothing'; it has Net, build"),
        (["missing.py:build", "--input", "a"], 2, "there is no file 'missing.py'"),
        (["missing_module:build", "--input", "a"], 2, "there is no module 'missing_module'"),
        (["{}:build", "--input", "batch ..."], 2, "'...' has no size"),
        (["{}:build", "--input", "float33[batch]"], 2, "'float33' is no dtype"),
        (["{}:build", "--input", "a[b"], 2, "expected axes"),
        (["{}:build", "--input", "a", "--input", "b", "--input", "c"], 2, "does not take these 3 inputs"),
        (["{}:build", "--input", "masc=a"], 2, "does not take these 1 inputs"),
        (["{}:constant", "--input", "a"], 2, "to be a module or a function, got int"),
        (["{}:number", "--input", "a"], 2, "to return a module, got int"),
        (["{}:sized", "--input", "a"], 2, "sized takes width, no tensors; give them in a function without arguments"),
        (["{}:width_of", "--input", "a"], 2, "width_of builds a module (Linear) of its arguments (layer)"),
        (["{}:fails", "--input", "a"], 1, "fails: RuntimeError: no weights"),
    ],
)
def test_wrong_use(model: str, words: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *(word.format(model) for word in words)]) == status
    assert said in capsys.readouterr().err


TORCH_MODEL = """
import torch.nn as nn

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        from torch.nn import functional as F
        return self.head(F.relu(x))

def late():
    from torch import nn
    return nn.Sequential(nn.Linear(8, 3))

def wrong():
    return Net(9)
"""


@pytest.mark.parametrize("name", ["Net", "late"])
def test_a_model_written_for_pytorch(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "torch_model.py"
    path.write_text(TORCH_MODEL)
    assert main(["check", f"{path}:{name}", "--input", "batch 8"]) == 0
    assert "[batch, 3]" in capsys.readouterr().out
    assert main(["check", f"{path}:wrong", "--input", "batch 8"]) == 1
    assert "mismatch at `head` (Linear)" in capsys.readouterr().out
    assert not ts.compat.is_enabled()


def test_a_file_that_means_pytorch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = types.ModuleType("torch")
    theirs.width = 8  # type: ignore[attr-defined]
    theirs.Module = type("Module", (), {"__module__": "torch.nn.modules.module"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", theirs)
    path = tmp_path / "both.py"
    path.write_text("import torch\nfrom tesserack import nn\ndef build(): return nn.Linear(torch.width, 3)\n")
    assert main(["check", f"{path}:build", "--input", "batch 8", "--no-torch"]) == 0
    assert "[batch, 3]" in capsys.readouterr().out and sys.modules["torch"] is theirs
    path.write_text("import torch\nclass Net(torch.Module): pass\n")
    assert main(["check", f"{path}:Net", "--input", "batch 8", "--no-torch"]) == 2
    assert "got Net, a module of PyTorch's; leave out --no-torch" in capsys.readouterr().err


def test_a_file_that_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "failing.py"
    path.write_text("import missing_package\n")
    assert main(["check", f"{path}:build", "--input", "a"]) == 2
    assert "fails when imported: ModuleNotFoundError" in capsys.readouterr().err

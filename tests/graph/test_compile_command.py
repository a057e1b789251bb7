"""``tesserack compile``: the program's own output, what its modules gained, and its status."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.jit._compile.measured import TURNS, watching

PROGRAM = """
import sys, torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.LayerNorm(8)) for _ in range(4)])

    def forward(self, x):
        return self.layers(x).sin()

class Looks(nn.Module):
    def forward(self, x):
        print("seen", round(x.sum().item(), 3))
        return x

torch.manual_seed(0)
net, looks = Net(), Looks()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for k in range(60):
    optimizer.zero_grad()
    loss = looks(net(torch.ones(4, 8) * k)).square().sum()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
sys.exit(int(sys.argv[1]))
"""


def told(command: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "tesserack", command, *words]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True)


def test_a_program_prints_the_same_and_what_it_gained(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    plain, compiled = (told(command, tmp_path, "program.py", "3") for command in ("run", "compile"))
    assert (compiled.stdout, compiled.returncode) == (plain.stdout, 3) == (plain.stdout, plain.returncode)
    lines = compiled.stderr.splitlines()
    assert re.match(r"tesserack compile: [\d.]+ s, of which making graphs took \d+ ms; calls by graph took", lines[0])
    net = re.split(r"\s{2,}", lines[2])
    assert net[:3] == ["Net", "60", "1"] and all(re.fullmatch(r"-?[\d.e+-]+( ms)?", cell) for cell in net[3:])
    assert re.split(r"\s{2,}", lines[3]) == ["Looks", "60", "0"]
    assert re.fullmatch(r"Looks runs as Python: .*program\.py:15 \(forward\).*", lines[4])


def test_wrong_use_is_told_under_its_name(tmp_path: Path) -> None:
    missing, option = told("compile", tmp_path, "missing.py"), told("compile", tmp_path, "--bogus", "x.py")
    assert (missing.returncode, option.returncode) == (2, 2)
    assert missing.stderr.strip() == "tesserack: error: compile: there is no file 'missing.py'"
    assert "compile: unknown option '--bogus'" in option.stderr and "usage: tesserack compile" in option.stderr


def net() -> nn.Module:
    return nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.LayerNorm(4)) for _ in range(4)])


def test_what_the_program_calls_is_met_and_nothing_else() -> None:
    before = net()
    with watching() as met, ts.no_grad():
        outer, second, own = net(), net(), net()
        for module in (outer, second, own):
            module.load_state_dict(before.state_dict())
        own.compile()
        copied = copy.deepcopy(second)
        nn.modules.module.register_module_forward_hook(lambda *call: None).remove()  # every module looks for hooks now
        for _ in range(TURNS * 2):
            x = ts.randn(3, 4)
            want = before(x)
            assert all(module(x).equal(want) for module in (outer, copied, own))
    assert [m.name for m in met] == ["Sequential"] * 2
    assert all(not part.__dict__.get("_hooked") for part in outer.children())
    for m in met:
        (times,) = m.times.values()
        assert m.calls == TURNS * 2 and times.later > 0
        assert TURNS // 2 <= len(times.graph) <= len(times.plain) <= TURNS
    assert "_hooked" not in net().__dict__


def test_hooks_and_errors_are_the_programs_own() -> None:
    class Raises(nn.Module):
        def forward(self, x: ts.Tensor, fail: bool = False) -> ts.Tensor:
            if fail:
                raise KeyError("mine")
            return x.sin()

    seen: list[int] = []
    with watching() as met:
        module, raises = net(), Raises()
        module.register_forward_hook(lambda *_: seen.append(1))
        for _ in range(5):
            module(ts.ones(2, 4))
        with pytest.raises(KeyError, match="mine"):
            raises(ts.ones(2), fail=True)
        assert raises(ts.ones(2)).equal(ts.ones(2).sin())
    assert len(seen) == 5 and [m.name for m in met] == ["Sequential", "Raises"]

"""What becomes of compiled functions, told as it happens."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator

import pytest
import tesserack as ts
from tesserack.jit._compile import logs

PROGRAM = """
import tesserack as ts

def chain(x):
    y = (x * 2 + 1).relu() * x - 0.5
    return ((y.abs() + x) * 0.25).tanh()

def says(x):
    print("here")
    return chain(x)

for function in (chain, says):
    compiled = ts.compile(function)
    for _ in range(4):
        compiled(ts.ones(3))
"""


@pytest.mark.parametrize(
    ("name", "value", "graphs", "breaks"),
    [
        ("TESSERACK_LOGS", "graphs,breaks", True, True),
        ("TESSERACK_LOGS", "breaks", False, True),
        ("TORCH_LOGS", "+dynamo", True, True),
        ("TORCH_LOGS", "recompiles", True, False),
        ("TORCH_LOGS", "-dynamo", False, False),
    ],
)
def test_the_environment_switches_it_on(
    name: str, value: str, graphs: bool, breaks: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.delenv("TORCH_LOGS", raising=False)
    monkeypatch.delenv("TESSERACK_LOGS", raising=False)
    monkeypatch.setenv(name, value)
    file = f"{tmp_path}/program.py"
    with open(file, "w", encoding="utf-8") as f:
        f.write(PROGRAM)
    told = subprocess.run([sys.executable, file], capture_output=True, text=True, check=True).stderr
    assert ("[tesserack.compile] chain: graph 1, of 9 steps" in told) == graphs, told
    assert ("says runs as plain Python: " in told and "program.py:9" in told) == breaks, told


@pytest.fixture
def _quiet() -> Iterator[None]:
    yield
    logs.switch(())


@pytest.mark.usefixtures("_quiet")
def test_programs_switch_it(caplog: pytest.LogCaptureFixture) -> None:
    def function(x: ts.Tensor) -> ts.Tensor:
        return ((((x * 2 + 1).relu() - 1).abs() + 3) * 2).tanh().exp()

    caplog.set_level("INFO", logger="tesserack.compile")
    logs.switch(["recompiles"])
    ts.compile(function)(ts.ones(3))
    assert any("graph 1" in record.getMessage() for record in caplog.records)
    caplog.clear()
    logs.switch(["-all"])
    ts.compile(function)(ts.ones(4))
    assert not caplog.records


@pytest.mark.usefixtures("_quiet")
def test_names_that_tell_nothing_are_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_warned", set())
    with pytest.warns(UserWarning, match="got 'grahps', which tells nothing here; those that do: .*graphs"):
        logs.switch(["grahps", " +Breaks", "-inductor", ""], warn=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logs.switch(["grahps", "all"], warn=True)
        logs.switch(["inductor"])  # as programs note it

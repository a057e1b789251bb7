"""``tesserack doctor --distributed``: alone, and of ranks together."""

import json
from pathlib import Path
from typing import Any

import pytest
from tesserack.cli import main


def test_a_machine_is_looked_at(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "no-such-host.invalid")
    monkeypatch.setenv("TESSERACK_SOCKET_IFNAME", "lo")
    assert main(["doctor", "--distributed", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["findings"]
    told = [f"{f['level']} {f['subject']}: {f['message']}" for f in found]
    assert any("error names: MASTER_ADDR=no-such-host.invalid does not resolve" in line for line in told), told
    assert "ok network: other ranks are given 127.0.0.1, which answers" in told
    for engine in ("local", "tcp"):
        assert any(line.startswith(f"ok speed: 2 ranks by {engine}: all_reduce of 1 KiB") for line in told), told


def test_an_interface_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from tesserack.cli._checks import distributed

    monkeypatch.setenv("TESSERACK_SOCKET_IFNAME", "nosuch0")
    (finding,) = distributed._sockets()
    assert finding.level == "error" and "nosuch0" in finding.message


def test_ranks_compare_what_they_are(launch: Any) -> None:
    module = Path(__file__).parent / "programs" / "doctor.py"
    done = launch(module, 3)
    assert done.returncode == 0, done.stderr
    assert "3 ranks on 1 machines met" in done.stdout and "3 ranks by local: all_reduce" in done.stdout, done.stdout
    assert "versions: tesserack" in done.stdout and "clocks: that of rank" in done.stdout

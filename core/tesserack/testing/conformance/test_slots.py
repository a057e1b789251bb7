"""The runtime slots that every backend must have, called directly: the core would go by a host pointer where it can."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tesserack.backends._discovery import claims
from tesserack.testing.conformance.card import Card
from tesserack.testing.conformance.direct.rehearsal import CHECKS

_SECONDS = 120
_PROGRAM = "tesserack.testing.conformance.direct.rehearsal"


@pytest.fixture(scope="module")
def outcomes(card: Card, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """What each check found, in a process of its own."""
    if card.name not in claims():
        pytest.skip("not installed: registered by this process")
    answer: Path = tmp_path_factory.mktemp("slots") / "answer"
    noise = answer.with_name("noise")
    with noise.open("wb") as out:
        command = [sys.executable, "-m", _PROGRAM, card.name, str(answer)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            ending = f"ended the process ({process.wait(_SECONDS)})"
        except subprocess.TimeoutExpired:
            ending = f"did not end within {_SECONDS} s"
        finally:
            process.kill()
            process.wait()
    lines = [json.loads(line) for line in answer.read_text().splitlines()] if answer.exists() else []
    found: dict[str, str | None] = {line["check"]: line["problem"] for line in lines if "check" in line}
    missing = [name for name in CHECKS if name not in found]
    if missing:
        last = noise.read_text(errors="replace").strip()[-2000:]
        found |= dict.fromkeys(missing, f"not tried: {missing[0]} {ending}")
        found[missing[0]] = f"{ending}\n{last}"
    return found


@pytest.mark.parametrize("check", CHECKS)
def test_slot(check: str, outcomes: dict[str, str | None], card: Card) -> None:
    """Offsets, surroundings, lifetimes, leaks."""
    problem = outcomes[check]
    if problem:
        pytest.fail(f"{card.name}: {problem}", pytrace=False)

"""Nothing outside an input is read: operands lie against pages that end whoever reads them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tesserack.backends._discovery import claims
from tesserack.testing.conformance.card import Card
from tesserack.testing.conformance.guarding.pages import KERNELS

_SECONDS = 300
_PROGRAM = "tesserack.testing.conformance.guarding.pages"


@pytest.fixture(scope="module")
def outcomes(card: Card, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """What ended each kernel, if something did; each time, the rest is tried by another process."""
    if card.name not in claims():
        pytest.skip("not installed: registered by this process")
    if not card.capabilities["host_memory"] or not sys.platform.startswith("linux"):
        pytest.skip("the host does not see the device's memory, and cannot guard it")
    folder: Path = tmp_path_factory.mktemp("reads")
    found: dict[str, str | None] = {}
    while len(found) < len(KERNELS):
        answer = folder / f"answer{len(found)}"
        command = [sys.executable, "-m", _PROGRAM, str(card.device), str(answer), *found]
        with (folder / "noise").open("wb") as noise:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=noise, stderr=noise)
            try:
                status = process.wait(_SECONDS)
            finally:
                process.kill()
                process.wait()
        lines = [json.loads(line) for line in answer.read_text().splitlines()] if answer.exists() else []
        found |= {line["kernel"]: None for line in lines if line["what"] is None}
        last = lines[-1] if lines and lines[-1]["what"] is not None else None
        if last is None:
            if len(found) < len(KERNELS):
                told = (folder / "noise").read_text(errors="replace")[-1500:]
                rest = [kernel for kernel in KERNELS if kernel not in found]
                found |= dict.fromkeys(rest, f"could not be tried ({status}): {told}")
            continue
        found[last["kernel"]] = _words(last["what"], status, (folder / "noise").read_text(errors="replace")[-1500:])
    return found


def _words(what: str, status: int, told: str) -> str:
    if -status in (signal.SIGSEGV, signal.SIGBUS):
        ended = signal.Signals(-status).name
        return f"{what}: reaches outside an operand ({ended}): its memory ends where the operand does"
    return f"{what}: ended the process ({status}): {told}"


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_keeps_to_its_operands(kernel: str, outcomes: dict[str, str | None], card: Card) -> None:
    """One element too far, or a page: vectors, tails and prefetches that load what is not theirs."""
    problem = outcomes[kernel]
    if problem:
        pytest.fail(f"{kernel} on {card.name}: {problem}", pytrace=False)

"""Copies between devices, hidden waits and fallbacks are reported where the guard says so."""

from __future__ import annotations

import logging
import threading

import pytest
import tesserack as ts


def test_copies(reference: ts.device) -> None:
    x = ts.ones(2, 3)
    with ts.transfer_guard("error"):
        with pytest.raises(RuntimeError, match=r"copies float32\[2, 3\] from cpu to reference:0 .*test_transfer_guard"):
            x.to(reference)
        assert (x + x).sum().item() == 12.0, "the host reads its own memory"
    assert x.to(reference).device == reference


def test_hidden_waits(reference: ts.device) -> None:
    x = ts.ones(3, device=reference)
    for read in (lambda: x[0].item(), lambda: x.tolist(), lambda: str(x), lambda: x.nonzero(), lambda: bool(x[0] > 0)):
        with ts.transfer_guard("error"), pytest.raises(RuntimeError, match="transfer_guard"):
            read()
    with ts.transfer_guard("error", kinds="copy"):
        assert x.tolist() == [1.0] * 3


def test_fallbacks(reference: ts.device) -> None:
    z = ts.tensor([[1 + 2j, 3 - 1j], [0j, 1j]]).to(reference)
    ts.backends.set_fallback("allow")
    try:
        with (
            ts.transfer_guard("error", kinds="fallback"),
            pytest.raises(RuntimeError, match=r"'reference' has no kernel for \(float32\[2, 2\]"),
        ):
            ts.linalg.cholesky(ts.eye(2, device=reference))
        with ts.transfer_guard("error", kinds="fallback"), pytest.raises(RuntimeError, match="fft: backend 'refe"):
            ts.fft.fft(z)
        ts.backends.reset_fallbacks()
        ts.fft.fft(z.real)
        assert ts.backends.fallbacks() == {"fft": 1}
    finally:
        ts.backends.set_fallback("warn")


def test_log(reference: ts.device, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="tesserack"), ts.transfer_guard("log"):
        ts.ones(3).to(reference).cpu()
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert "from cpu to reference:0" in caplog.text and "from reference:0 to cpu" in caplog.text


def test_it_belongs_to_the_thread(reference: ts.device) -> None:
    moved: list[ts.Tensor] = []
    with ts.transfer_guard("error"):
        thread = threading.Thread(target=lambda: moved.append(ts.ones(1).to(reference)))
        thread.start()
        thread.join()
    assert len(moved) == 1


def test_nesting_restores(reference: ts.device) -> None:
    with ts.transfer_guard("error"):
        with ts.transfer_guard("off"):
            ts.ones(1).to(reference)
        with pytest.raises(RuntimeError, match="transfer_guard"):
            ts.ones(1).to(reference)
    ts.ones(1).to(reference)


def test_misuse() -> None:
    with pytest.raises(ValueError, match="expected a mode"):
        ts.transfer_guard("loud")
    with pytest.raises(ValueError, match="expected kinds"):
        ts.transfer_guard("log", kinds=["copies"])

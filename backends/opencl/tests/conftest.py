"""Tests of the opencl backend: skipped, with the reason, where no platform works."""

from __future__ import annotations

import pytest
import tesserack as ts


@pytest.fixture(autouse=True)
def _device(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = ts.backends.why_unavailable("opencl")
    if reason:
        pytest.skip(reason)
    monkeypatch.delenv("PYOPENCL_BUILD_OPTIONS", raising=False)  # kernels as users have them, whatever others get

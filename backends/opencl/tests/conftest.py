"""Tests of the opencl backend: skipped, with the reason, where no platform works."""

from __future__ import annotations

import pytest
import tesserack as ts


@pytest.fixture(autouse=True)
def _device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = ts.backends.why_unavailable("opencl")
    if reason:
        pytest.skip(reason)
    if request.path.name != "test_conformance.py":  # which would compile for a minute and a half
        monkeypatch.delenv("PYOPENCL_BUILD_OPTIONS", raising=False)  # kernels as users have them, whatever others get

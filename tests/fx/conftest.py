"""A compiler for each test."""

from __future__ import annotations

import pytest

from tests.fx.compiled import Backend


@pytest.fixture
def backend():
    return Backend()

"""The device that tests run on."""

import pytest


@pytest.fixture
def device(tesserack_device: object) -> str:
    """As the others' tests name it."""
    return str(tesserack_device)

"""Names of PyTorch's that are missing: no way of using one goes on for ever."""

from __future__ import annotations

from typing import Any

import pytest
from tesserack.compat._missing import MissingNameError, missing

WAYS: dict[str, Any] = {
    "iterated over": lambda name: list(name),
    "unpacked": lambda name: print(*name),
    "searched": lambda name: 3 in name,
    "reversed": lambda name: list(reversed(name)),
    "counted": lambda name: len(name),
    "called": lambda name: name(),
    "tested": lambda name: bool(name),
    "asked": lambda name: name.other(),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_use_is_refused(way: str) -> None:
    with pytest.raises(MissingNameError, match=r"torch\.nosuch"):
        WAYS[way](missing("torch.nosuch"))


def test_replaced_kernels_are_listed() -> None:
    from tesserack.compat.shims.backends import python_native

    assert list(python_native.available_dsls) == [] and "triton" in python_native.all_dsls
    assert not python_native.triton.available and python_native.triton.enabled
    with python_native.triton.disabled():
        assert python_native.is_dsl_disabled("triton")
    with python_native.operations_disabled("mm"):
        assert python_native.is_operation_disabled("mm")
    assert not python_native.is_operation_disabled("mm") and python_native.triton.enabled

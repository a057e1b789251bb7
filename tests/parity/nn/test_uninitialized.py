"""What may be asked of parameters without a shape: the same in both libraries."""

from __future__ import annotations

import pytest
import tesserack
import torch

NAMES = ["cpu", "float", "double", "half", "detach", "sum", "t", "clone", "numel", "dim", "tolist", "item",
         "is_floating_point", "get_device", "data_ptr"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_methods(name):
    found = []
    for lib in (tesserack, torch):
        weight = lib.nn.LazyLinear(2).weight
        try:
            value = getattr(weight, name)()
        except (ValueError, RuntimeError) as error:
            found.append(type(error).__name__)
        else:
            found.append(str(value.dtype).partition(".")[2] if isinstance(value, lib.Tensor) else str(value))
    assert found[0] == found[1]


def test_other_places_and_dtypes():
    for lib in (tesserack, torch):
        weight = lib.nn.LazyLinear(2).weight
        assert weight.to("cpu").device.type == "cpu" and weight.to(lib.float64).dtype is lib.float64
        assert weight.float() is weight or weight.float().dtype is lib.float32

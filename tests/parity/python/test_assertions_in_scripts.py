"""``torch._assert`` in what was scripted raises what PyTorch's interpreter raises, and elsewhere what Python does."""

from __future__ import annotations

from typing import Any

import pytest
import tesserack
import torch


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The TorchScript type system")
@pytest.mark.parametrize("lib", [tesserack, torch], ids=["tesserack", "torch"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_assertions_of_modules(lib: Any, wrapped: bool) -> None:
    class Checked(lib.nn.Module):
        def forward(self, x):  # type: ignore[no-untyped-def]
            lib._assert(x.shape[-1] == 3, "invalid input shape")
            return x + 1

    module = lib.fx.symbolic_trace(Checked())
    if wrapped:
        module = lib.nn.Sequential(module)
    assert module(lib.ones(3)).tolist() == [2, 2, 2]
    with pytest.raises(AssertionError, match="invalid input shape"):
        module(lib.ones(2))
    scripted = lib.jit.script(module)
    assert scripted(lib.ones(3)).tolist() == [2, 2, 2]
    with pytest.raises(lib.jit.Error, match="AssertionError: invalid input shape"):
        scripted(lib.ones(2))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_assertions_of_functions() -> None:
    def checked(x: Any) -> Any:
        tesserack._assert(len(x) == 3, "three")
        return x

    def free(x: Any) -> None:
        tesserack._assert(len(x) == 3, "three")

    scripted = tesserack.jit.script(checked)
    with pytest.raises(tesserack.jit.Error, match="AssertionError: three"):
        scripted(tesserack.ones(2))
    with pytest.raises(AssertionError, match=r"^three"):
        free(tesserack.ones(2))

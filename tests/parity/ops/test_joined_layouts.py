"""How what is joined, and what sums nothing, lies in memory: programs see it as PyTorch does, as by view_as_complex."""

from __future__ import annotations

from typing import Any

import pytest
import tesserack as ts
import torch

JOINED = [
    "stack([x, x], -1)", "stack([x, x])", "stack([x, x], 1)", "stack([z, z])", "stack([z, z], 1)", "stack([z, z], 2)",
    "cat([z, z], 1)", "cat([x, x], 2)", "cat([y, y])", "cat([y, y.contiguous()], 1)", "cat([y, y[:1]])",
    "stack([y, y])", "stack([y, y], 2)", "stack([y, y], -1)", "stack([z, z.double()], -1)", "cat([gaps, gaps])",
    "stack([gaps, gaps], 3)", "cat([thin, thin], 2)", "cat([single, single], 1)", "stack([slab, slab], -1)",
    "cat([w, w], 1)", "stack([w, w])", "dstack([z, z])", "hstack([x, x])", "stack([one, one])", "cat([none, none])",
]  # fmt: skip
SUMMED = [
    "einsum('bft,dt->bdft', a[:, 0], b[:, 0])", "einsum('bcft,dct->bdft', a[:, :1], b[:, :1])",
    "einsum('i,j->ij', a[0, 0, 0], b[0, 0])", "einsum('i,j->ji', a[0, 0, 0], b[0, 0])",
    "einsum('bcft,dct->bdft', a[:, :1], b[:, :1].double())", "einsum('ft,t->ft', a[0, 0], b[0, 0])",
    "einsum('fc,c->f', a[0, 0, :, :1], b[0, :1, 0])", "einsum('bcft,c->bt', a[:, :1], b[0, 0, :4])",
]  # fmt: skip


def operands(m: Any, device: str) -> dict[str, Any]:
    def on(*sizes: int) -> Any:
        count = 1
        for size in sizes:
            count *= size
        return (m.arange(float(count)) % 7).reshape(sizes).to(device)

    last = {"memory_format": m.channels_last}
    y = on(2, 3, 4, 5).to(**last)
    return {
        "m": m, "x": on(3, 4, 5).permute(2, 0, 1), "y": y, "z": on(4, 5).t(),
        "gaps": on(2, 3, 4, 8).to(**last)[..., ::2], "thin": on(2, 1, 4, 5).as_strided((2, 1, 4, 5), (20, 1, 5, 1)),
        "single": on(2, 3, 1, 1).as_strided((2, 3, 1, 1), (3, 1, 3, 3)),
        "w": on(2, 2, 3, 2, 2).permute(0, 4, 1, 2, 3),
        "slab": y[:, :, 0], "one": on(1), "none": on(0, 3, 2, 2).to(**last), "a": on(4, 5, 7, 4), "b": on(3, 5, 4),
    }  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("call", JOINED)
def test_joined_tensors_lie_as_in_torch(call: str, device: str) -> None:
    got, want = (eval(f"m.{call}", operands(m, device)) for m in (ts, torch))
    assert (tuple(got.shape), got.stride()) == (tuple(want.shape), want.stride())
    if device == "cpu":
        assert got.tolist() == want.tolist()


@pytest.mark.parametrize("call", SUMMED)
def test_einsum_of_what_sums_nothing(call: str) -> None:
    got, want = (eval(f"m.{call}", operands(m, "cpu")) for m in (ts, torch))
    assert (got.shape, got.stride(), str(got.dtype)[-7:]) == (want.shape, want.stride(), str(want.dtype)[-7:])
    assert got.tolist() == want.tolist()

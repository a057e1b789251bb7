"""Random numbers that begin and end anywhere in a vector of counters are those of the cpu."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tesserack as ts
import tesserack.nn.functional as F

COUNTS = (1, 3, 63, 64, 65, 130, 4099)
EXACT: dict[str, Callable[[int, ts.dtype, str], ts.Tensor]] = {
    "rand": lambda n, dtype, device: ts.rand(n, dtype=dtype, device=device),
    "dropout": lambda n, dtype, device: F.dropout(ts.ones(n, dtype=dtype, device=device), 0.3),
    "bernoulli_": lambda n, dtype, device: ts.empty(n, dtype=dtype, device=device).bernoulli_(0.3),
}
RANGES = ((0, 10), (-5, 1000), (0, 1), (0, 64), (-(2**31), 2**31), (3, 2**32 + 3), (7, 2**40), (0, 2**31 + 1))


def _on_both(draw: Callable[[str], ts.Tensor], skipped: int) -> list[ts.Tensor]:
    """What is drawn on the cpu and the device after some words, and that both go on at the same place."""
    found, after = [], []
    for device in ("cpu", "opencl"):
        ts.manual_seed(3)
        if skipped:
            ts.rand(skipped, device=device)
        found.append(draw(device).cpu())
        after.append(ts.rand(3, device=device).cpu())
    assert ts.equal(*after)
    return found


@pytest.mark.parametrize("skipped", [0, 1, 2, 5])
@pytest.mark.parametrize("dtype", [ts.float32, ts.float64, ts.float16, ts.bfloat16], ids=str)
@pytest.mark.parametrize("name", [*EXACT])
def test_uniform(name: str, dtype: ts.dtype, skipped: int) -> None:
    for n in COUNTS:
        assert ts.equal(*_on_both(lambda device, n=n: EXACT[name](n, dtype, device), skipped)), n


@pytest.mark.parametrize("skipped", [0, 1, 2, 5])
@pytest.mark.parametrize("dtype", [ts.float32, ts.float64], ids=str)
def test_normal(dtype: ts.dtype, skipped: int) -> None:
    near = 1e-5 if dtype is ts.float32 else 1e-12
    for n in COUNTS:
        cpu, there = _on_both(lambda device, n=n: ts.randn(n, dtype=dtype, device=device), skipped)
        ts.testing.assert_close(there, cpu, rtol=near, atol=near)


@pytest.mark.parametrize("skipped", [0, 1, 3])
@pytest.mark.parametrize("span", RANGES, ids=str)
def test_integers(span: tuple[int, int], skipped: int) -> None:
    for dtype in (ts.int64, ts.int32, ts.uint8, ts.int16):
        if span[0] < ts.iinfo(dtype).min or span[1] - 1 > ts.iinfo(dtype).max:
            continue
        for n in COUNTS:
            draw = lambda device, n=n, dtype=dtype: ts.randint(*span, (n,), dtype=dtype, device=device)  # noqa: E731
            assert ts.equal(*_on_both(draw, skipped)), (dtype, n)


def test_categories_take_few_launches_and_no_wait() -> None:
    """Weights that are refused are told at the next wait."""
    weights = ts.rand(4, 100, device="opencl")
    for refused in (-1.0, float("inf"), float("nan"), 0.0):
        wrong = weights.clone()
        wrong[2] = refused
        with pytest.raises(RuntimeError, match="sum of prob" if refused == 0 else "element < 0"):
            ts.multinomial(wrong, 1).cpu()
    ts.multinomial(weights, 3)
    before = ts.opencl.kernel_statistics()["launches"]
    ts.multinomial(weights, 3)
    assert ts.opencl.kernel_statistics()["launches"] - before <= 5


@pytest.mark.parametrize("sizes", [(1000,), (1, 1000), (50, 7)], ids=str)
def test_one_category_of_each_row(sizes: tuple[int, ...]) -> None:
    """It is the first of several, written to where it belongs, by four launches."""
    weights, drawn = ts.rand(*sizes, device="opencl"), []
    out = ts.zeros(*sizes[:-1], 2, dtype=ts.int64, device="opencl")
    for draw in (
        lambda: ts.multinomial(weights, 3)[..., :1],
        lambda: ts.multinomial(weights, 1),
        lambda: ts.multinomial(weights, 1, out=out[..., :1]),
    ):
        ts.manual_seed(5)
        drawn.append(draw().cpu())
    assert ts.equal(drawn[0], drawn[1]) and ts.equal(drawn[0], drawn[2]) and not out[..., 1:].any()
    for refused in (-1.0, float("inf"), float("nan")):
        wrong = weights.clone()
        wrong[..., 2] = refused
        with pytest.raises(RuntimeError, match="element < 0"):
            ts.multinomial(wrong, 1).cpu()
    with pytest.raises(RuntimeError, match="sum of prob"):
        ts.multinomial(weights * 0, 1).cpu()
    before = ts.opencl.kernel_statistics()["launches"]
    ts.multinomial(weights, 1)
    assert ts.opencl.kernel_statistics()["launches"] - before <= 4

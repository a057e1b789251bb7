"""Random numbers: the documented stream, bit for bit, and the distributions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from scipy import stats


def philox_words(seed: int, first: int, count: int) -> np.ndarray:
    """Words first, first+1, ... of the Philox4x32-10 stream with key `seed` (Salmon et al., SC 2011)."""
    mask = 0xFFFFFFFF
    words = []
    for block in range(first // 4, (first + count + 3) // 4):
        c = [block & mask, block >> 32 & mask, 0, 0]
        k = [seed & mask, seed >> 32 & mask]
        for _ in range(10):
            a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [b >> 32 ^ c[1] ^ k[0], b & mask, a >> 32 ^ c[3] ^ k[1], a & mask]
            k = [k[0] + 0x9E3779B9 & mask, k[1] + 0xBB67AE85 & mask]
        words += c
    skip = first - first // 4 * 4
    return np.array(words[skip : skip + count], dtype=np.uint64)


@pytest.fixture
def seed() -> int:
    ts.manual_seed(1234567890123)
    return 1234567890123


def test_uniform_float32_is_the_documented_stream(device: str, seed: int) -> None:
    x = ts.rand(10, device=device).cpu().numpy()
    np.testing.assert_array_equal(
        x, (philox_words(seed, 0, 10) >> np.uint64(8)).astype(np.float32) * np.float32(2**-24)
    )
    # 10 words round up to 12: the next draw begins there.
    y = ts.rand(2, device=device).cpu().numpy()
    np.testing.assert_array_equal(
        y, (philox_words(seed, 12, 2) >> np.uint64(8)).astype(np.float32) * np.float32(2**-24)
    )


def test_uniform_of_other_dtypes(device: str, seed: int) -> None:
    words = philox_words(seed, 0, 8)
    half = ts.rand(4, dtype=ts.float16, device=device).float().cpu().numpy()
    np.testing.assert_array_equal(half, (words[:4] >> np.uint64(21)).astype(np.float64) * 2**-11)
    brain = ts.rand(4, dtype=ts.bfloat16, device=device).float().cpu().numpy()
    np.testing.assert_array_equal(brain, (words[4:] >> np.uint64(24)).astype(np.float64) * 2**-8)
    words = philox_words(seed, 8, 6)
    wide = ts.rand(3, dtype=ts.float64, device=device).cpu().numpy()
    np.testing.assert_array_equal(
        wide, ((words[0::2] | words[1::2] << np.uint64(32)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    )


def test_normal_is_box_muller_of_the_stream(device: str, seed: int) -> None:
    u = (philox_words(seed, 0, 20) >> np.uint64(8)).astype(np.float64) * 2**-24
    want = np.sqrt(-2 * np.log(1 - u[0::2])) * np.cos(2 * np.pi * u[1::2])
    np.testing.assert_allclose(ts.randn(10, device=device).cpu().numpy(), want, rtol=1e-4, atol=1e-5)


def test_strided_targets_take_the_same_numbers(device: str, seed: int) -> None:
    x = ts.rand(3, 4, device=device)
    ts.manual_seed(seed)
    y = ts.empty(4, 3, device=device).t()
    y.uniform_()
    np.testing.assert_array_equal(x.cpu().numpy(), y.cpu().numpy())
    ts.manual_seed(seed)
    n = ts.randn(3, 4, dtype=ts.float64, device=device)
    ts.manual_seed(seed)
    m = ts.empty(4, 3, dtype=ts.float64, device=device).t().normal_()
    np.testing.assert_allclose(n.cpu().numpy(), m.cpu().numpy(), rtol=1e-14)


def test_integers_are_the_documented_stream(device: str, seed: int) -> None:
    got = ts.randint(-5, 20, (6,), device=device).cpu().numpy()
    np.testing.assert_array_equal(got, (philox_words(seed, 0, 6) % np.uint64(25)).astype(np.int64) - 5)
    wide = ts.randint(-(2**62), 2**62 + 7, (3,), device=device).cpu().numpy()
    words = philox_words(seed, 8, 6)
    draws = [(int(words[2 * i]) | int(words[2 * i + 1]) << 32) % (2**63 + 7) - 2**62 for i in range(3)]
    assert wide.tolist() == draws


def test_seeds_and_generators(device: str) -> None:
    ts.manual_seed(5)
    a = ts.rand(7, device=device).cpu().numpy()
    ts.manual_seed(5)
    assert (ts.rand(7, device=device).cpu().numpy() == a).all()
    assert (ts.rand(7, device=device).cpu().numpy() != a).any()
    g = ts.Generator(device)
    g.manual_seed(5)
    assert (ts.rand(7, generator=g, device=device).cpu().numpy() == a).all()


@pytest.mark.parametrize("n", [0, 1, 2, 100])
def test_randperm(device: str, n: int) -> None:
    p = ts.randperm(n, device=device)
    assert p.dtype == ts.int64
    assert sorted(p.cpu().numpy().tolist()) == list(range(n))


@pytest.mark.parametrize(
    ("dtype", "most"), [(ts.float16, 2049), (ts.bfloat16, 257), (ts.uint8, 256), (ts.int8, 128), (ts.int16, 32768)]
)
def test_randperm_to_the_last_number_that_a_dtype_has(device: str, dtype: ts.dtype, most: int) -> None:
    p = ts.randperm(most, dtype=dtype, device=device)
    assert sorted(p.cpu().to(ts.int64).tolist()) == list(range(most))
    with pytest.raises(RuntimeError, match="too large"):
        ts.randperm(most + 1, dtype=dtype, device=device)


DRAWS: dict[str, tuple[Callable[[str], Any], Any]] = {
    "rand": (lambda d: ts.rand(20000, device=d), stats.uniform()),
    "uniform_": (lambda d: ts.empty(20000, device=d).uniform_(-1, 3), stats.uniform(-1, 4)),
    "randn": (lambda d: ts.randn(20000, device=d), stats.norm()),
    "normal_": (lambda d: ts.empty(20000, dtype=ts.float64, device=d).normal_(2, 3), stats.norm(2, 3)),
    "normal": (lambda d: ts.normal(1.0, 2.0, (20000,), device=d), stats.norm(1, 2)),
    "exponential_": (lambda d: ts.empty(20000, device=d).exponential_(0.5), stats.expon(scale=2)),
    "log_normal_": (lambda d: ts.empty(20000, device=d).log_normal_(1, 0.5), stats.lognorm(0.5, scale=np.e)),
    "cauchy_": (lambda d: ts.empty(20000, device=d).cauchy_(1, 2), stats.cauchy(1, 2)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_distributions(device: str, name: str) -> None:
    ts.manual_seed(11)
    draw, distribution = DRAWS[name]
    assert stats.kstest(draw(device).cpu().numpy(), distribution.cdf).pvalue > 1e-3


def test_bernoulli(device: str) -> None:
    ts.manual_seed(3)
    p = ts.tensor([0.0, 0.25, 1.0], device=device).unsqueeze(1).expand(3, 20000)
    x = ts.bernoulli(p).cpu().numpy()
    assert x[0].sum() == 0 and x[2].sum() == 20000
    assert abs(x[1].mean() - 0.25) < 0.02
    assert abs(ts.zeros(20000, device=device).bernoulli_(0.7).cpu().numpy().mean() - 0.7) < 0.02
    assert ts.zeros(3, 5, dtype=ts.int64, device=device).bernoulli_(1.0).cpu().numpy().sum() == 15


def test_geometric(device: str) -> None:
    ts.manual_seed(6)
    x = ts.empty(20000, dtype=ts.int64, device=device).geometric_(0.3).cpu().numpy()
    assert x.min() == 1 and abs(x.mean() - 1 / 0.3) < 0.1 and abs((x == 1).mean() - 0.3) < 0.02
    with pytest.raises(RuntimeError, match="p to be in"):
        ts.empty(1, device=device).geometric_(1.0)


def test_multinomial(device: str) -> None:
    ts.manual_seed(4)
    weights = ts.tensor([1.0, 0.0, 3.0], device=device)
    drawn = ts.multinomial(weights, 20000, replacement=True).cpu().numpy()
    counts = np.bincount(drawn, minlength=3) / 20000
    assert counts[1] == 0 and abs(counts[2] - 0.75) < 0.02
    rows = ts.multinomial(ts.tensor([[1.0, 2.0, 0.0, 1.0]] * 50, device=device), 3).cpu().numpy()
    assert all(sorted(row) == [0, 1, 3] for row in rows.tolist())
    assert not ts.multinomial(ts.tensor([[1.0, -0.0]] * 50, device=device), 1).any()
    few = ts.multinomial(ts.tensor([[0.0, 2.0, 0.0, 1.0]] * 50, device=device), 4).cpu().numpy()
    assert all(sorted(row) == [0, 1, 2, 3] and sorted(row[:2]) == [1, 3] for row in few.tolist())
    first = ts.multinomial(weights.expand(20000, 3), 1).cpu().numpy()
    assert abs((first == 2).mean() - 0.75) < 0.02


def test_dropout(device: str) -> None:
    ts.manual_seed(8)
    x = ts.ones(100, 200, device=device, requires_grad=True)
    y = ts.nn.functional.dropout(x, 0.25)
    kept = y.detach().cpu().numpy() != 0
    assert abs(kept.mean() - 0.75) < 0.02
    np.testing.assert_allclose(y.detach().cpu().numpy()[kept], 1 / 0.75, rtol=1e-6)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.cpu().numpy(), y.detach().cpu().numpy())
    assert ts.nn.functional.dropout(x, 0.5, training=False) is x
    assert ts.nn.functional.dropout(x, 1.0).detach().cpu().numpy().sum() == 0
    with pytest.raises(ValueError, match="between 0 and 1"):
        ts.nn.functional.dropout(x, 1.5)


def test_random_fills_integers(device: str) -> None:
    ts.manual_seed(9)
    x = ts.empty(2000, dtype=ts.int8, device=device).random_().cpu().numpy()
    assert x.min() >= 0 and x.max() > 100
    y = ts.empty(2000, device=device).random_(3, 6).cpu().numpy()
    assert set(y.tolist()) == {3.0, 4.0, 5.0}
    for dtype in (ts.complex64, ts.complex128):
        with pytest.raises(NotImplementedError, match="random_: not implemented for dtype complex"):
            ts.zeros(2, dtype=dtype, device=device).random_()


def test_like_forms_and_empty(device: str) -> None:
    x = ts.zeros(2, 3, dtype=ts.float64, device=device)
    assert ts.rand_like(x).dtype == ts.float64
    assert ts.randn_like(x, dtype=ts.float32).dtype == ts.float32
    assert ts.randint_like(x, 3).shape == (2, 3)
    assert ts.rand(0, 3, device=device).shape == (0, 3)
    assert ts.randn((), device=device).shape == ()


ERRORS: dict[str, tuple[Callable[[str], Any], type[Exception], str]] = {
    "integer_rand": (lambda d: ts.rand(3, dtype=ts.int64, device=d), NotImplementedError, "floating"),
    "randint_range": (lambda d: ts.randint(3, 3, (2,), device=d), RuntimeError, "less than"),
    "randint_dtype": (lambda d: ts.randint(0, 300, (2,), dtype=ts.uint8, device=d), RuntimeError, "out of bounds"),
    "randperm": (lambda d: ts.randperm(-1, device=d), RuntimeError, "non-negative"),
    "randperm_dtype": (lambda d: ts.randperm(300, dtype=ts.uint8, device=d), RuntimeError, "too large"),
    "uniform": (lambda d: ts.zeros(3, device=d).uniform_(2, 1), RuntimeError, "from=2"),
    "normal": (lambda d: ts.zeros(3, device=d).normal_(0, -1), RuntimeError, "std >= 0"),
    "bernoulli": (lambda d: ts.bernoulli(ts.tensor([1.5], device=d)), RuntimeError, "p_in"),
    "multinomial_none": (lambda d: ts.multinomial(ts.zeros(3, device=d), 1), RuntimeError, "sum of probabilities"),
    "multinomial_few": (lambda d: ts.multinomial(ts.tensor([1.0, 0.0], device=d), 3), RuntimeError, "n_sample >"),
    "multinomial_nan": (lambda d: ts.multinomial(ts.tensor([1.0, float("nan")], device=d), 1), RuntimeError, "nan"),
    "multinomial_inf": (lambda d: ts.multinomial(ts.tensor([1.0, float("inf")], device=d), 1), RuntimeError, "inf"),
    "multinomial_less": (
        lambda d: ts.multinomial(ts.tensor([[2.0], [-1.0]], device=d), 1),
        RuntimeError,
        "element < 0",
    ),
    "generator": (lambda d: ts.rand(2, generator=ts.Generator("meta"), device=d), RuntimeError, "generator"),
    "expanded": (lambda d: ts.zeros(1, device=d).expand(3).uniform_(), RuntimeError, "more than one element"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(device: str, name: str) -> None:
    call, kind, text = ERRORS[name]
    with pytest.raises(kind, match=text):
        call(device).cpu()  # where a kernel finds it, the next wait tells


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("n", [3, 1000])
def test_weights_that_cannot_be_drawn_from(device: str, n: int, replacement: bool) -> None:
    """Each row is looked at, at its ends and between, and what is right goes on afterwards."""
    good = ts.ones(5, n)
    for row, at, value in ((0, 0, -1.0), (4, n - 1, float("nan")), (2, n // 2, float("inf")), (1, 1, -float("inf"))):
        weights = good.clone()
        weights[row, at] = value
        with pytest.raises(RuntimeError, match="`inf`, `nan` or element < 0"):
            ts.multinomial(weights.to(device), 2, replacement).cpu()
    weights = good.clone()
    weights[3] = 0
    with pytest.raises(RuntimeError, match="sum of probabilities"):
        ts.multinomial(weights.to(device), 1, replacement).cpu()
    single = ts.zeros(5, n)
    single[:, n - 1] = 1e-30
    assert ts.multinomial(single.to(device), 1, replacement).tolist() == [[n - 1]] * 5


STREAMS = """
import tesserack as ts
ts.manual_seed(77)
for dtype in (ts.float32, ts.float64, ts.float16, ts.bfloat16):
    print(ts.rand(1001, dtype=dtype, device=DEVICE).double().cpu().numpy().tobytes().hex())
print(ts.randn(5, dtype=ts.float64, device=DEVICE).mul(2**20).round().long().tolist())
"""


def test_decomposition_draws_the_same_numbers(device: ts.device) -> None:
    """A backend without fused fills makes the same numbers from its random_bits."""
    script = STREAMS.replace("DEVICE", repr(str(device)))
    outputs = []
    for hidden in ("", "rand_fill,randn_fill"):
        environment = {**os.environ, "TESSERACK_DISABLE_KERNELS": hidden}
        run = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        outputs.append(run.stdout)
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_complex_tensors_are_drawn_part_by_part(name, device):
    t = ts.empty(1000, 2, dtype=getattr(ts, name), device=device)[:, 1]
    t.uniform_(1, 3)
    for part in (t.real, t.imag):
        assert part.min().item() >= 1 and part.max().item() < 3
        assert abs(part.mean().item() - 2) < 0.1
    assert t.real.ne(t.imag).all().item()
    t.normal_(5, 2)
    assert abs(t.real.mean().item() - 5) < 0.3 and abs(t.imag.mean().item()) < 0.3
    assert abs((t - 5).abs().square().mean().item() - 4) < 0.6  # the variance is that of both parts together
    assert ts.nn.Linear(2, 2, dtype=t.dtype, device=device).weight.dtype is t.dtype


@pytest.mark.parametrize(("dtype", "bits"), [(ts.bfloat16, 8), (ts.float16, 11), (ts.float32, 24), (ts.float64, 53)])
def test_ranges_beyond_the_whole_numbers_of_a_dtype_are_warned_of(dtype, bits):
    x = ts.empty(2, dtype=dtype)
    x.random_(-(2**bits), 2**bits)
    with pytest.warns(UserWarning, match=rf"to - 1 is out of bounds \[-\(2\^{bits}\), 2\^{bits}\]"):
        x.random_(0, 2**bits + 2)  # one more than the largest
    with pytest.warns(UserWarning, match="from is out of bounds"):
        x.random_(-(2**bits) - 1, 1)

"""Products by cuBLASLt: the simulated library multiplies what layouts, descriptors and addresses say."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from simulated import NAME, Simulated
from tesserack import _native

pytestmark = pytest.mark.usefixtures("no_fallback")

TOLERANCE = {"float16": 2e-2, "bfloat16": 8e-2, "float32": 1e-4, "float64": 1e-12, "complex64": 1e-4}
TOLERANCE["complex128"] = 1e-12


@pytest.fixture
def products(driver: Simulated) -> Iterator[list[Any]]:
    """What the library has multiplied during the test."""
    made = driver.libraries["cublasLt"].products
    made.clear()
    yield made


def both(function: Any, *tensors: Any) -> tuple[Any, Any]:
    """The results on the simulated device, and on the cpu in the precision of the dtype's sums."""
    wide = {"float16": ts.float32, "bfloat16": ts.float32}
    on_cpu = [x.to(wide.get(str(x.dtype).rpartition(".")[2], x.dtype)) for x in tensors]
    return function(*[x.to(NAME) for x in tensors]).cpu(), function(*on_cpu)


def check(function: Any, *tensors: Any) -> None:
    got, expected = both(function, *tensors)
    bound = TOLERANCE[str(got.dtype).rpartition(".")[2]]
    ts.testing.assert_close(got.to(expected.dtype), expected, rtol=bound, atol=bound)


@pytest.mark.parametrize("dtype", [*TOLERANCE])
def test_dtypes(products: list[Any], dtype: str) -> None:
    ts.manual_seed(0)
    a, b = (ts.randn(*sizes, dtype=ts.float64).to(getattr(ts, dtype)) for sizes in ((5, 7), (7, 3)))
    if dtype.startswith("complex"):
        a, b = a * (1 + 2j), b * (3 - 1j)
    check(lambda x, y: x @ y, a, b)
    assert products == [(70 if dtype in ("float64", "complex128") else 68, 1)]


def test_dtypes_that_the_library_has_not(products: list[Any]) -> None:
    a, b = ts.arange(12).reshape(3, 4), ts.arange(20).reshape(4, 5)
    assert ts.equal((a.to(NAME) @ b.to(NAME)).cpu(), a @ b)
    assert not products


LAYOUTS = {
    "rows": lambda x: x,
    "columns": lambda x: x.mT.contiguous().mT,
    "padded rows": lambda x: ts.nn.functional.pad(x, (0, 3))[..., : x.shape[-1]],
    "padded columns": lambda x: ts.nn.functional.pad(x.mT, (0, 5))[..., : x.shape[-2]].mT,
    "odd start": lambda x: ts.nn.functional.pad(x, (1, 0))[..., 1:],
}


@pytest.mark.parametrize(("left", "right"), [*itertools.product(LAYOUTS, LAYOUTS)])
def test_layouts_without_copies(products: list[Any], left: str, right: str) -> None:
    """Strides survive the way to the device, where no kernel but the product runs."""
    ts.manual_seed(1)
    a, b = ts.randn(4, 6).to(NAME), ts.randn(6, 5).to(NAME)
    x, y = LAYOUTS[left](a), LAYOUTS[right](b)
    ts.testing.assert_close((x @ y).cpu(), a.cpu() @ b.cpu(), rtol=1e-5, atol=1e-5)
    assert len(products) == 1


@pytest.mark.parametrize(("m", "k", "n"), [*itertools.product((1, 4), (1, 3), (1, 5))])
def test_sides_of_one(products: list[Any], m: int, k: int, n: int) -> None:
    ts.manual_seed(2)
    check(lambda x, y: x @ y, ts.randn(m, k), ts.randn(k, n))
    check(lambda x, y: x.mT @ y.mT, ts.randn(k, m), ts.randn(n, k))


def test_steps_that_no_library_takes(products: list[Any]) -> None:
    ts.manual_seed(2)
    a, b = ts.randn(4, 12).to(NAME), ts.randn(6, 5).to(NAME)
    ts.testing.assert_close((a[:, ::2] @ b).cpu(), a.cpu()[:, ::2] @ b.cpu(), rtol=1e-5, atol=1e-5)
    assert not products


def test_batches(products: list[Any]) -> None:
    ts.manual_seed(3)
    check(lambda x, y: x @ y, ts.randn(3, 4, 5), ts.randn(3, 5, 2))
    check(lambda x, y: x @ y.mT, ts.randn(3, 4, 5), ts.randn(3, 2, 5))
    check(lambda x, y: ts.bmm(x.mT, y), ts.randn(3, 5, 4), ts.randn(3, 5, 2))
    assert len(products) == 3


def test_one_matrix_for_a_batch(products: list[Any]) -> None:
    ts.manual_seed(3)
    check(lambda x, y: x @ y, ts.randn(4, 5), ts.randn(3, 5, 2))
    assert len(products) == 1


def test_heads_of_attention_take_one_call_each(products: list[Any]) -> None:
    """(batch, head) that no single stride spans: the shorter of the two is done in turn, by one launch of a plan."""
    ts.manual_seed(4)
    q, k = (ts.randn(2, 6, 3, 4).to(NAME) for _ in range(2))
    scores = q.transpose(1, 2) @ k.transpose(1, 2).mT
    expected = q.cpu().transpose(1, 2) @ k.cpu().transpose(1, 2).mT
    ts.testing.assert_close(scores.cpu(), expected, rtol=1e-5, atol=1e-5)
    assert len(products) == 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_bias_and_relu_are_epilogues(products: list[Any], dtype: str) -> None:
    ts.manual_seed(5)
    x, w, b = (ts.randn(*sizes).to(getattr(ts, dtype)) for sizes in ((6, 4), (5, 4), (5,)))
    check(ts.nn.functional.linear, x, w, b)
    check(lambda x, w, b: ts._addmm_activation(b, x, w.mT), x, w, b)
    assert [epilogue for _, epilogue in products] == [4, 6]


def test_gelu_by_erf_is_no_epilogue(products: list[Any]) -> None:
    """The library's is the approximation by tanh, and the contract asks for the other."""
    ts.manual_seed(5)
    x, w, b = ts.randn(6, 4), ts.randn(5, 4), ts.randn(5)
    check(lambda x, w, b: ts._addmm_activation(b, x, w.mT, use_gelu=True), x, w, b)
    assert [epilogue for _, epilogue in products] == [4]


def test_linear_with_leading_dims_and_one_row(products: list[Any]) -> None:
    ts.manual_seed(5)
    check(ts.nn.functional.linear, ts.randn(2, 3, 4), ts.randn(5, 4), ts.randn(5))
    check(ts.nn.functional.linear, ts.randn(3, 4), ts.randn(1, 4), ts.randn(1))
    check(ts.nn.functional.linear, ts.randn(1, 4), ts.randn(5, 4), ts.randn(5))
    check(ts.nn.functional.linear, ts.randn(4), ts.randn(5, 4))
    assert len(products) == 4


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_a_bias_without_an_epilogue_is_added_apart(products: list[Any], dtype: str) -> None:
    ts.manual_seed(6)
    x, w, b = (ts.randn(*sizes).to(getattr(ts, dtype)) for sizes in ((6, 4), (5, 4), (5,)))
    check(lambda b, x, w: ts.addmm(b, x, w.mT), b, x, w)
    assert [epilogue for _, epilogue in products] == [1]


def test_a_matrix_is_added_by_the_library(products: list[Any]) -> None:
    ts.manual_seed(6)
    check(ts.addmm, ts.randn(3, 5), ts.randn(3, 4), ts.randn(4, 5))
    check(ts.baddbmm, ts.randn(2, 3, 5), ts.randn(2, 3, 4), ts.randn(2, 4, 5))
    assert len(products) == 2


def test_a_sum_into_what_it_reads(products: list[Any]) -> None:
    ts.manual_seed(6)
    c, a, b = ts.randn(3, 5), ts.randn(3, 4), ts.randn(4, 5)
    got = c.to(NAME)
    got.addmm_(a.to(NAME), b.to(NAME))
    ts.testing.assert_close(got.cpu(), ts.addmm(c, a, b), rtol=1e-5, atol=1e-5)


def test_float32_is_rounded_where_it_may_be(products: list[Any]) -> None:
    a, b = ts.full((2, 2), 1 + 2.0**-12), ts.eye(2)
    before = ts.get_float32_matmul_precision()
    try:
        for precision, compute, value in (("highest", 68, 1 + 2.0**-12), ("high", 77, 1.0), ("medium", 77, 1.0)):
            ts.set_float32_matmul_precision(precision)
            products.clear()
            assert (a.to(NAME) @ b.to(NAME)).cpu()[0, 0].item() == value
            assert products == [(compute, 1)]
        products.clear()
        assert (a.double().to(NAME) @ b.double().to(NAME)).cpu()[0, 0].item() == 1 + 2.0**-12
    finally:
        ts.set_float32_matmul_precision(before)


def test_a_second_call_enters_no_python(products: list[Any]) -> None:
    a, b, c = ts.randn(9, 4).to(NAME), ts.randn(4, 6).to(NAME), ts.randn(2, 4, 6).to(NAME)
    (a @ b).cpu()
    before = _native._launch_counters(NAME)
    x = a @ b
    y = a @ c[1]  # another start, of the same remainder
    after = _native._launch_counters(NAME)
    assert after["kernels_in_python"] == before["kernels_in_python"] and after["by_plan"] == before["by_plan"] + 2
    ts.testing.assert_close(y.cpu(), a.cpu() @ c.cpu()[1], rtol=1e-5, atol=1e-5)
    ts.testing.assert_close(x.cpu(), a.cpu() @ b.cpu(), rtol=1e-5, atol=1e-5)


def test_streams_and_devices(products: list[Any]) -> None:
    a = ts.randn(5, 5)
    other = a.to(f"{NAME}:1")
    side = ts.Stream(f"{NAME}:1")
    side.wait_stream(ts.current_stream(f"{NAME}:1"))
    with ts.stream(side):
        result = other @ other
    side.synchronize()
    ts.testing.assert_close(result.cpu(), a @ a, rtol=1e-5, atol=1e-5)
    ts.testing.assert_close((a.to(NAME) @ a.to(NAME)).cpu(), a @ a, rtol=1e-5, atol=1e-5)


def test_gradients_of_a_layer(products: list[Any]) -> None:
    ts.manual_seed(7)
    results = []
    for device in ("cpu", NAME):
        ts.manual_seed(7)
        layer, x = ts.nn.Linear(4, 3).to(device), ts.randn(2, 5, 4).to(device).requires_grad_()
        layer(x).square().sum().backward()
        results.append([np.asarray(t.cpu()) for t in (x.grad, layer.weight.grad, layer.bias.grad)])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert len(products) == 3

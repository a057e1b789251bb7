"""What a backend makes of a weight may be kept only while the weight holds what it held."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts

SHAPE = (32, 32, 3, 3)  # whole blocks of channels, which libraries rearrange


def check(x: ts.Tensor, weight: ts.Tensor) -> None:
    """Several calls in a row: the first computes, later ones may use what was kept."""
    want = ts.nn.functional.conv2d(x.double(), weight.detach().clone().double(), padding=1)
    for _ in range(3):
        got = ts.nn.functional.conv2d(x, weight, padding=1)
        assert (got.double() - want).abs().max().item() < 1e-4


def write_in_place(w: ts.Tensor) -> None:
    w.mul_(2.0)


def write_by_view(w: ts.Tensor) -> None:
    w[3:5].fill_(0.5)


def write_by_data(w: ts.Tensor) -> None:
    w.data.mul_(-1.0)


def write_by_item(w: ts.Tensor) -> None:
    w[0, 0, 0, 0] = 7.0


def write_by_out(w: ts.Tensor) -> None:
    ts.add(w, 1.0, out=w)


def write_by_step(w: ts.Tensor) -> None:
    parameter = ts.nn.Parameter(w)
    parameter.grad = ts.ones_like(w)
    ts.optim.SGD([parameter], lr=0.5).step()


def write_by_copy(w: ts.Tensor) -> None:
    w.copy_(ts.ones_like(w))


@pytest.mark.parametrize(
    "write",
    [write_in_place, write_by_view, write_by_data, write_by_item, write_by_out, write_by_step, write_by_copy],
)
def test_writes_are_seen(device: Any, write: Callable[[ts.Tensor], None]) -> None:
    x, w = ts.randn(1, 32, 9, 9, device=device), ts.randn(*SHAPE, device=device)
    check(x, w)
    for _ in range(2):
        write(w)
        check(x, w)


@pytest.mark.parametrize(("rows", "n", "k"), [(49, 70, 130), (64, 33, 400), (250, 100, 64), (100, 200, 513)])
@pytest.mark.parametrize(
    "write", [write_in_place, write_by_view, write_by_data, write_by_out, write_by_step, write_by_copy]
)
def test_writes_to_a_weight_of_linear_are_seen(
    device: Any, write: Callable[[ts.Tensor], None], rows: int, n: int, k: int
) -> None:
    x, w, b = (ts.randn(*size, device=device) for size in ((rows, k), (n, k), (n,)))
    for _ in range(3):
        for bias in (None, b):
            want = ts.nn.functional.linear(x.double(), w.double(), None if bias is None else bias.double())
            for _ in range(3):
                got = ts.nn.functional.linear(x, w, bias)
                assert (got.double() - want).abs().max().item() < 1e-5 * max(1.0, want.abs().max().item())
        write(w)


@pytest.mark.parametrize("lend", [lambda w: w.numpy(), np.asarray, ts.from_dlpack, lambda w: np.asarray(memoryview(w))])
def test_writes_through_lent_memory_are_seen(device: Any, lend: Callable[[ts.Tensor], Any]) -> None:
    x, w = ts.randn(1, 32, 9, 9, device=device), ts.randn(*SHAPE, device=device)
    if ts.device(device).type != "cpu":
        pytest.skip("the host cannot address this device's memory")
    check(x, w)
    alias = lend(w)
    for _ in range(2):
        alias *= 2.0
        check(x, w)


def test_memory_from_outside(device: Any) -> None:
    array = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    x, w = ts.randn(1, 32, 9, 9, device=device), ts.from_numpy(array).to(device)
    check(x, w)
    array += 1.0
    check(x, w)


def test_memory_used_again(device: Any) -> None:
    x = ts.randn(1, 32, 9, 9, device=device)
    for _ in range(5):
        weight = ts.randn(*SHAPE, device=device)
        check(x, weight)
        del weight


def test_parts_of_one_storage_and_other_geometries(device: Any) -> None:
    x, both = ts.randn(1, 32, 9, 9, device=device), ts.randn(2, *SHAPE, device=device)
    check(x, both[0])
    check(x, both[1])
    check(ts.randn(2, 32, 9, 9, device=device), both[0])
    check(x, both[0].transpose(0, 1))


def test_gradients_follow_the_weight(device: Any) -> None:
    w = ts.randn(*SHAPE, device=device, requires_grad=True)
    x = ts.randn(1, 32, 9, 9, device=device, requires_grad=True)
    for _ in range(4):
        (grad,) = ts.autograd.grad(ts.nn.functional.conv2d(x, w, padding=1).sum(), x)
        wide, copy = x.detach().double().requires_grad_(), w.detach().double()
        (want,) = ts.autograd.grad(ts.nn.functional.conv2d(wide, copy, padding=1).sum(), wide)
        assert (grad.double() - want).abs().max().item() < 1e-3
    with ts.no_grad():
        w.mul_(3.0)
    (after,) = ts.autograd.grad(ts.nn.functional.conv2d(x, w, padding=1).sum(), x)
    assert (after.double() - 3.0 * want).abs().max().item() < 1e-2


GROWTH = """
from pathlib import Path
import tesserack as ts
def held():
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024
x = ts.randn(1, 256, 8, 8)
def use(w):
    for _ in range(3):
        ts.nn.functional.conv2d(x, w, padding=1)
"""
CHANGES = """
w = ts.randn(256, 256, 3, 3)
use(w)
before = held()
for _ in range(30):
    w.mul_(1.01)
    use(w)
print(held() - before)
"""
DEATHS = """
use(ts.randn(256, 256, 3, 3))
before = held()
weights = [ts.randn(256, 256, 3, 3) for _ in range(30)]
for w in weights:
    use(w)
del weights, w
ts.empty_cache()
print(held() - before)
"""


@pytest.mark.parametrize("program", [CHANGES, DEATHS], ids=["changed", "dead"])
def test_what_is_kept_of_a_weight_goes_with_it(program: str) -> None:
    """Each content's transform takes 4 MiB: 120 of 30."""
    sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"  # which holds what was freed
    environment = {**os.environ, "ASAN_OPTIONS": sanitizer}
    done = subprocess.run(
        [sys.executable, "-c", GROWTH + program], capture_output=True, text=True, check=True, env=environment
    )
    assert float(done.stdout) < 48

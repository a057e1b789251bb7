"""Sizes beyond memory, structures that contain themselves, results that alias arguments."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tesserack as ts


@pytest.fixture(autouse=True)
def _limited_memory() -> Iterator[None]:
    """What is not refused must not take the machine with it; sanitizers reserve more than there is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if "asan" not in os.environ.get("LD_PRELOAD", "") and soft == resource.RLIM_INFINITY:
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 30), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


HUGE: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda d: ts.zeros(2**62, device=d),
    "more than 64 bits": lambda d: ts.zeros(2**40, 2**40, device=d),
    "not an int64": lambda d: ts.zeros(2**63, device=d),
    "bytes overflow": lambda d: ts.zeros(2**61, dtype=ts.float64, device=d),
    "too much": lambda d: ts.empty(2**46, device=d),
    "expanded": lambda d: ts.ones(1, device=d).expand(2**50).contiguous(),
    "expanded sum": lambda d: ts.ones(1, device=d).expand(2**40, 2**40),
    "outer": lambda d: ts.ones(1, device=d).expand(2**30)[:, None] * ts.ones(1, device=d).expand(2**30),
    "repeat": lambda d: ts.ones(2, device=d).repeat(2**40, 2**30),
    "repeat_interleave": lambda d: ts.ones(2, device=d).repeat_interleave(2**60),
    "arange": lambda d: ts.arange(0, 1e18, device=d),
    "arange steps": lambda d: ts.arange(0, 1, 1e-300, device=d),
    "linspace": lambda d: ts.linspace(0, 1, 2**60, device=d),
    "eye": lambda d: ts.eye(2**40, device=d),
    "pad": lambda d: ts.nn.functional.pad(ts.ones(2, device=d), (2**62, 2**62)),
    "one_hot": lambda d: ts.nn.functional.one_hot(ts.tensor([0], device=d), 2**60),
    "bincount": lambda d: ts.bincount(ts.tensor([2**60], device=d)),
    "as_strided": lambda d: ts.ones(4, device=d).as_strided((2**62, 4), (2**62, 1)),
    "kron": lambda d: ts.kron(ts.ones(1, device=d).expand(2**40), ts.ones(1, device=d).expand(2**40)),
    "histc": lambda d: ts.histc(ts.ones(2, device=d), 2**60),
    "randperm": lambda d: ts.randperm(2**60, device=d),
    "multinomial": lambda d: ts.multinomial(ts.ones(2, device=d), 2**60, replacement=True),
    "conv padding": lambda d: ts.nn.functional.conv2d(
        ts.ones(1, 1, 2, 2, device=d), ts.ones(1, 1, 1, 1, device=d), padding=2**60
    ),
    "cdist": lambda d: ts.cdist(ts.ones(1, 2, device=d).expand(2**40, 2), ts.ones(1, 2, device=d).expand(2**40, 2)),
}


@pytest.mark.parametrize("name", HUGE)
def test_huge_sizes(name: str, device: ts.device) -> None:
    """An error that says so, at once, and the next call works."""
    with pytest.raises((RuntimeError, ValueError, OverflowError, TypeError, ts.OutOfMemoryError)) as error:
        HUGE[name](device)
    assert len(str(error.value)) > 10
    assert ts.ones(3, device=device).sum().item() == 3


def test_out_of_memory_says_how_much(device: ts.device) -> None:
    """The message names the request."""
    with pytest.raises(ts.OutOfMemoryError, match=r"(?i)(tried to allocate|GiB|TiB|bytes)"):
        ts.empty(2**46, device=device)


@pytest.mark.parametrize("write", ["add_", "mul_", "copy_", "exp_", "clamp_", "random_", "normal_"])
def test_writing_to_expanded_tensors(write: str, device: ts.device) -> None:
    """Several elements of one memory location: refused, and the memory left alone."""
    base = ts.ones(2, 1, device=device)
    args = {"add_": (1,), "mul_": (2,), "copy_": (ts.zeros(2, 3, device=device),), "clamp_": (0, 0.5)}
    with pytest.raises(RuntimeError, match="single memory location"):
        getattr(base.expand(2, 3), write)(*args.get(write, ()))
    assert base.tolist() == [[1.0], [1.0]]


def test_filling_expanded_tensors(device: ts.device) -> None:
    """One value everywhere may be written several times, to expanded and to overlapping tensors."""
    base = ts.ones(2, 1, device=device)
    assert base.expand(2, 3).fill_(2).tolist() == [[2.0] * 3] * 2
    assert base[0].expand(2**40, 1).zero_().shape == (2**40, 1)
    assert base.tolist() == [[0.0], [2.0]]
    row = ts.ones(6, device=device, requires_grad=True)
    written = row * 3
    written.as_strided((3, 2), (1, 1), 1).fill_(5)
    assert written.tolist() == [3.0, 5.0, 5.0, 5.0, 5.0, 3.0]
    written.sum().backward()
    assert row.grad.tolist() == [3.0, 0.0, 0.0, 0.0, 0.0, 3.0]


def test_writing_to_expanded_by_index_and_out(device: ts.device) -> None:
    """The same by index, by out= and by scatter."""
    base = ts.ones(1, device=device)
    wide = base.expand(3)
    index = ts.tensor([0, 1, 2], device=device)
    calls: list[Callable[[], Any]] = [
        lambda: wide.__setitem__(slice(None), ts.arange(3.0, device=device)),
        lambda: ts.add(ts.ones(3, device=device), 1, out=wide),
        lambda: wide.scatter_(0, index, 2.0),
        lambda: wide.index_add_(0, index, ts.ones(3, device=device)),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match="single memory location"):
            call()
    assert base.tolist() == [1.0]
    # One number in every place that the mask names: PyTorch warns, and writes.
    with pytest.warns(UserWarning, match="masked_fill_ on expanded tensors is deprecated"):
        wide.masked_fill_(ts.tensor([True, False, True], device=device), 2.0)
    assert base.tolist() == [2.0]


def test_arguments_that_overlap_the_result(device: ts.device) -> None:
    """In place with a shifted view of itself: refused or right, never half overwritten."""
    for forward in (True, False):
        x = ts.arange(1000.0, device=device)
        into, source = (x[1:], x[:-1]) if forward else (x[:-1], x[1:])
        expected = (into + source).tolist()
        try:
            into.add_(source)
        except RuntimeError as error:
            assert "single memory location" in str(error)
        else:
            assert into.tolist() == expected


def test_copies_within_one_tensor(device: ts.device) -> None:
    """copy_ between overlapping views: refused or as if the source had been read first."""
    x = ts.arange(100, device=device)
    expected = [0, *range(99)]
    try:
        x[1:].copy_(x[:-1])
    except RuntimeError as error:
        assert "memory" in str(error)
    else:
        assert x.tolist() == expected


@pytest.mark.parametrize("write", ["add_", "mul_", "copy_", "addcmul_"])
def test_views_that_cross_each_other(write: str, device: ts.device) -> None:
    """A row onto a column, every other element onto the first ones: as if the source had been read before."""
    for into, source in (
        (lambda m: m[:, 0], lambda m: m[0]),
        (lambda m: m[0], lambda m: m[:, 2]),
        (lambda m: m[:, ::2], lambda m: m[:, 1:3]),
        (lambda m: m[1:, :2], lambda m: m[:3, 1:3]),
        (lambda m: m[:2], lambda m: m[1:2, :1].expand(2, 4)),
    ):
        x = ts.arange(16.0, device=device).reshape(4, 4)
        expected = x.clone()
        operands = [source(x).clone()] * (2 if write == "addcmul_" else 1)
        getattr(into(expected), write)(*operands)
        getattr(into(x), write)(*[source(x)] * len(operands))
        assert x.tolist() == expected.tolist()


def test_transposed_onto_itself(device: ts.device) -> None:
    """x.add_(x.t()) and x.copy_(x.t()) read what was there before."""
    for write in ("add_", "copy_"):
        x = ts.arange(400.0, device=device).reshape(20, 20)
        expected = (x + x.t() if write == "add_" else x.t().clone()).tolist()
        try:
            getattr(x, write)(x.t())
        except RuntimeError as error:
            assert "memory" in str(error)
        else:
            assert x.tolist() == expected


@pytest.mark.filterwarnings("ignore:.*resized")
def test_out_that_is_resized_while_aliased(device: ts.device) -> None:
    """out= that shares memory with an argument, or is a view of something smaller."""
    x = ts.arange(4.0, device=device)
    ts.mul(x, 2, out=x)
    assert x.tolist() == [0.0, 2.0, 4.0, 6.0]
    view = x[:1]
    for call in (
        lambda: ts.add(x, ts.ones(3, 1, device=device), out=view),
        lambda: ts.cat([x, x], out=x),
        lambda: ts.stack([x, x], out=x),
        lambda: ts.matmul(x.reshape(-1, 1), x.reshape(1, -1), out=x),
        lambda: ts.add(x.expand(2, *x.shape), 1, out=x),
    ):
        before = x.clone()
        try:
            result = call()
        except RuntimeError:
            assert x.tolist() == before.tolist()
        else:
            assert len(result.flatten().tolist()) == result.numel()
    assert len(x.flatten().tolist()) == x.numel()


def nested_forever() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


def nested_deeply() -> list[Any]:
    items: list[Any] = [1.0]
    for _ in range(100_000):
        items = [items]
    return items


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
@pytest.mark.parametrize("make", [nested_forever, nested_deeply])
def test_recursive_lists(make: Callable[[], list[Any]], device: ts.device) -> None:
    """Lists within lists without end, wherever a list may stand."""
    value = make()
    x = ts.ones(2, 2, device=device)
    calls: list[Callable[[], Any]] = [
        lambda: ts.tensor(value),
        lambda: ts.as_tensor(value),
        lambda: ts.cat(value),
        lambda: ts.stack(value),
        lambda: ts.zeros(value),
        lambda: x[value],
        lambda: x.__setitem__(value, 1),
        lambda: x.__setitem__(0, value),
        lambda: x.sum(value),
        lambda: x.view(value),
        lambda: x + value,  # type: ignore[operator]
        lambda: ts.einsum("i", value),
        lambda: ts.autograd.grad(x, value),
        lambda: ts.autograd.backward(value),
    ]
    for number, call in enumerate(calls):
        with pytest.raises((RuntimeError, TypeError, ValueError, IndexError)):
            call()
            pytest.fail(f"call {number} was accepted")


class Awkward:
    """Answers every protocol with an exception or nonsense."""

    def __len__(self) -> int:
        return 2**62

    def __getitem__(self, index: Any) -> Any:
        raise RuntimeError("no")

    def __index__(self) -> int:
        raise RuntimeError("no")

    def __float__(self) -> float:
        raise RuntimeError("no")


def test_awkward_objects(device: ts.device) -> None:
    """Objects whose protocols fail: their error or a TypeError."""
    x = ts.ones(2, 2, device=device)
    odd: Any = Awkward()
    calls: list[Callable[[], Any]] = [
        lambda: ts.tensor(odd),
        lambda: ts.zeros(odd),
        lambda: x[odd],
        lambda: x + odd,
        lambda: x.sum(odd),
        lambda: x.__setitem__(0, odd),
        lambda: ts.full((2,), odd),
        lambda: x.view(odd, 2),
        lambda: ts.cat(odd),
        lambda: x.to(odd),
    ]
    for number, call in enumerate(calls):
        with pytest.raises((RuntimeError, TypeError, IndexError, ValueError, MemoryError, OverflowError)):
            call()
            pytest.fail(f"call {number} was accepted")


def test_list_that_shrinks_while_it_is_read(device: ts.device) -> None:
    """An element whose conversion empties the list it stands in."""

    sizes: list[Any] = []

    class Shrinks:
        def __index__(self) -> int:
            sizes.clear()
            return 2

        def __float__(self) -> float:
            sizes.clear()
            return 2.0

    uses: list[Callable[[list[Any]], Any]] = [
        lambda s: ts.zeros(s, device=device),
        lambda s: ts.tensor(s),
        lambda s: ts.ones(2, 2, 2, device=device).permute(s),
        lambda s: ts.ones(8, device=device).view(s),
        lambda s: ts.ones(4, 4, device=device)[s],
    ]
    for use in uses:
        sizes = [Shrinks(), 2, 2]
        with contextlib.suppress(RuntimeError, TypeError, ValueError, IndexError):
            use(sizes)
        assert sizes in ([], [sizes[0], 2, 2] if sizes else [])

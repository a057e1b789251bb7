"""What the device declares is there, and is true."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tesserack as ts
from tesserack.testing import cases, samples
from tesserack.testing.conformance.areas import REQUIRED
from tesserack.testing.conformance.card import REALS, Card, Record
from tesserack.testing.conformance.covering import QUICK_DTYPES, layouts_of
from tesserack.testing.conformance.exactly import expect, real
from tesserack.testing.conformance.values import MADE, TIED


def test_probe_is_truthful(card: Card) -> None:
    """A device that answers is available, however often it is asked."""
    for _ in range(100):
        assert ts.backends.why_unavailable(card.name) is None
    assert card.capabilities["device_count"] >= 1


def test_devices_out_of_range_are_refused(card: Card) -> None:
    """One more than there are."""
    count = int(card.capabilities["device_count"])
    with pytest.raises(RuntimeError, match=rf"{card.name}.*{count}"):
        ts.ones(1, device=f"{card.name}:{count}")


def test_names(card: Card) -> None:
    """A vendor string that no one else uses, and a version."""
    vendor = str(card.capabilities["vendor"])
    assert re.fullmatch(r"[\w-]+(\.[\w-]+)+", vendor), f"expected a vendor such as 'com.acme.npu', got {vendor!r}"
    assert card.capabilities["version"]
    mine = [b for b in ts._native._backends() if b["vendor"] == vendor]
    assert [b["name"] for b in mine] == [card.name]


def test_properties(card: Card) -> None:
    """A name, and memory that adds up."""
    for found in card.capabilities["devices"]:
        assert found["name"]
        total, free = found["total_memory"], found["free_memory"]
        assert total == 0 or free <= total


def test_needed_dtypes(card: Card) -> None:
    """Real numbers of some kind, int64 and bool: without them the core cannot index, compare or train."""
    assert {"int64", "bool"} <= card.dtypes
    assert card.supports(card.real), f"{card.name} has none of {', '.join(REALS)}"


# Cards that compile each kernel they meet would compile thousands here for all operators.
REPRESENTATIVE = {
    "copy_cast": ("contiguous", "copy_", "half", "float", "long"),
    "pointwise": ("neg", "add", "lt", "where.self"),
    "reduce": ("sum.dim", "argmax", "any.dims"),
    "scan": ("cumsum", "cummax"),
    "matmul": ("bmm",),
    "sort": ("sort",),
}


@pytest.mark.parametrize("entry", REQUIRED)
def test_required_kernel(entry: str, card: Card, record: Record, quick: bool) -> None:
    """The backend has the kernel, and takes every layout and declared dtype without the cpu. A few operators here, each
    dtype in two layouts, or in a quick run most dtypes once: the tests of values ask the same of the others."""
    record.case(op=entry, dtype="", direction="required")
    assert entry not in card.capabilities["missing"], f"{card.name} has no kernel {entry!r}, which is required"
    helped: dict[str, str] = {}
    for operator, dtype, layout in tried(entry, card, quick):
        call_all(operator, dtype, layout, card)
        for name in ts.backends.fallbacks():
            helped.setdefault(name, f"{operator} of {dtype}, {layout}")
        ts.backends.reset_fallbacks()
    assert entry not in helped, f"the required kernel {entry!r} ran on the cpu instead, first for {helped[entry]}"


def tried(entry: str, card: Card, quick: bool) -> Iterator[tuple[str, str, str]]:
    """Operators of a kernel, each with a dtype and a layout. A quick run has each dtype once, of the first operator,
    and of others those that its tests of values have."""
    for nth, operator in enumerate(REPRESENTATIVE.get(entry, REQUIRED[entry])):
        for dtype in cases.DTYPES:
            if card.supports(dtype) and card.supports(MADE.get(operator, dtype)):
                layouts = [one for one in layouts_of(operator, dtype, card.real) if one in cases.LAYOUTS]
                if quick:
                    layouts = layouts[: nth == 0 or dtype in (card.real, *QUICK_DTYPES)]
                yield from ((operator, dtype, layout) for layout in layouts)


_ROW = (3.0, -1.0, 2.0, 2.0)
#: What each kernel makes of a row of numbers, or of none: tests of one are made with the others.
FIRST: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "copy_cast": (lambda x: x[::2].contiguous(), [3, 2]),
    "fill": (lambda x: ts.full_like(x, 7), [7, 7, 7, 7]),
    "iota": (lambda x: ts.arange(2, 9, 3, device=x.device), [2, 5, 8]),
    "iota, downwards": (lambda x: ts.arange(5, -4, -3, device=x.device), [5, 2, -1]),
    "pointwise": (lambda x: x * 2 + 1, [7, -1, 5, 5]),
    "pointwise, a number first": (lambda x: 2 - x, [-1, 3, 0, 0]),
    "pointwise, a number last": (lambda x: x - 2, [1, -3, 0, 0]),
    "reduce": (lambda x: ts.stack((x.sum(), x.amax(), x.amin())), [6, 3, -1]),
    "scan": (lambda x: x.cumsum(0), [3, 2, 4, 6]),
    "matmul": (lambda x: x.reshape(2, 2) @ x.reshape(2, 2), [[7, -5], [10, 2]]),
    "gather": (lambda x: x.gather(0, ts.tensor([2, 0], device=x.device)), [2, 3]),
    "scatter": (lambda x: x.scatter(0, ts.tensor([1, 3], device=x.device), x[:2]), [3, 3, 2, -1]),
    "sort": (lambda x: x.sort(stable=True).indices, [1, 2, 3, 0]),
}


@pytest.mark.parametrize("name", FIRST)
def test_first_values(name: str, card: Card, record: Record) -> None:
    """A few plain numbers, before much is built upon them."""
    record.case(op=name.partition(",")[0], dtype=card.real, direction="required")
    call, wanted = FIRST[name]
    expect(call(real(np.array(_ROW), card)), np.array(wanted), name, f"of {list(_ROW)}", card)


@pytest.mark.parametrize("name", FIRST)
def test_first_values_for_another_thread(name: str, card: Card, record: Record) -> None:
    """A kernel answers whoever calls: gradients, loaders and servers compute in threads of their own."""
    record.case(op=name.partition(",")[0], dtype=card.real, direction="required")
    call, wanted = FIRST[name]
    call(real(np.array(_ROW), card))  # this one was the first
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(lambda: call(real(np.array(_ROW), card))).result()
    expect(found, np.array(wanted), name, f"of {list(_ROW)}, called by another thread than the first", card)


def test_every_kernel_has_a_use(card: Card) -> None:
    """No kernel stands under a name that nothing asks for. Seen of backends in Python only."""
    unused = [f"{name!r} is never called: {why}" for name, why in card.capabilities["unused"].items()]
    assert not unused, "\n".join(unused)


def call_all(operator: str, dtype: str, layout: str, card: Card) -> None:
    """Every sample, for what runs where; the values are compared elsewhere."""
    if operator == "random_":
        ts.empty(5, dtype=getattr(ts, dtype), device=card.device).random_()
        return
    for sample in samples.samples(operator):
        if cases.claims(operator, sample, dtype) and not (dtype == "bool" and operator in TIED):
            args, kwargs = cases.build(sample, getattr(ts, dtype), card.device, layout)
            cases.call(operator, args, kwargs)


@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_declared_dtype(dtype: str, card: Card) -> None:
    """Tensors of it are made, filled, computed with and copied."""
    card.needs(dtype)
    x: Any = ts.ones(5, dtype=getattr(ts, dtype), device=card.device)
    assert x.dtype is getattr(ts, dtype)
    assert (x + x).tolist() == [2 if dtype != "bool" else True] * 5
    assert ts.backends.fallbacks() == {}, f"{dtype} is declared but computed on the cpu"


def test_errors_come_from_kernels(card: Card) -> None:
    """What only the device can see: an index out of range, a division by zero."""
    x = ts.arange(4.0, device=card.device)
    refused = False
    try:
        x.gather(0, ts.tensor([7], device=card.device)).cpu()
    except IndexError:
        refused = True
    assert refused, f"gather on {card.name}: the index 7 of 4 elements is not refused, by the call or the next wait"
    with pytest.raises((RuntimeError, ZeroDivisionError), match="ZeroDivision"):
        (ts.ones(3, dtype=ts.int64, device=card.device) // 0).cpu()
    assert (x + 1).tolist() == [1.0, 2.0, 3.0, 4.0]


def test_errors_are_told_by_waiting(card: Card) -> None:
    """By the call, or by the next wait: nothing has to be copied for that."""
    x = ts.arange(4.0, device=card.device)
    try:
        x.gather(0, ts.tensor([7], device=card.device))
        ts.synchronize(card.device)
    except IndexError:
        return
    pytest.fail(f"gather on {card.name}: synchronize does not tell that an index was out of range", pytrace=False)


@pytest.mark.parametrize("index", (2**32 + 1, -(2**32) + 1, 2**31 + 1))
@pytest.mark.parametrize("kernel", ("gather", "scatter"))
def test_indices_have_64_bits(kernel: str, index: int, card: Card) -> None:
    """An index whose lower half would do is refused all the same."""
    x, at = ts.arange(4.0, device=card.device), ts.tensor([index], device=card.device)
    try:
        (x.gather(0, at) if kernel == "gather" else x.scatter(0, at, x[:1] + 7)).cpu()
    except IndexError:
        return
    pytest.fail(
        f"{kernel} on {card.name}: the index {index} of 4 elements is not refused: the kernel takes the lower 32 bits "
        "of it, or the nearest that there is",
        pytrace=False,
    )

"""Random state, dtype objects, test helpers, dispatch explanations."""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from tesserack import _native
from tesserack.ops import registry as _registry
from tesserack.testing import assert_close, make_tensor


def test_seeds() -> None:
    ts.manual_seed(5)
    first = ts.rand(4).tolist()
    ts.manual_seed(5)
    assert ts.rand(4).tolist() == first and ts.initial_seed() == 5
    assert ts.seed() == ts.initial_seed()


def test_generators() -> None:
    g = ts.Generator().manual_seed(7)
    first = ts.rand(3, generator=g).tolist()
    assert ts.rand(3, generator=g).tolist() != first
    assert ts.rand(3, generator=ts.Generator("cpu").manual_seed(7)).tolist() == first
    assert g.initial_seed() == 7 and g.device.type == "cpu"
    assert ts.Generator().manual_seed(-1).initial_seed() == 2**64 - 1
    state = g.get_state()
    again = ts.rand(2, generator=g).tolist()
    g.set_state(state)
    assert ts.rand(2, generator=g).tolist() == again
    with pytest.raises(TypeError):
        g.manual_seed("a")
    assert [g.manual_seed(s).initial_seed() for s in (2**64 - 1, -(2**63), 2**63)] == [2**64 - 1, 2**63, 2**63]
    for beyond in (2**64, -(2**63) - 1, 10**30):
        with pytest.raises(ValueError, match="expected a seed of 64 bits"):
            g.manual_seed(beyond)
    assert g.initial_seed() == 2**63
    with pytest.raises(ValueError, match="16 bytes"):
        g.set_state(ts.ones(3))


def test_rng_state() -> None:
    state = ts.get_rng_state()
    first = ts.rand(3).tolist()
    ts.set_rng_state(state)
    assert ts.rand(3).tolist() == first
    with pytest.raises(ValueError, match="16 bytes"):
        ts.set_rng_state(ts.zeros(2))
    with ts.random.fork_rng(), ts.random.fork_rng(devices=[]), ts.random.fork_rng(devices=[0], device_type="cpu"):
        ts.rand(5)
    ts.random.fork_rng()(lambda: ts.rand(5))()
    after = ts.rand(1).item()
    ts.set_rng_state(state)
    ts.rand(3)
    assert ts.rand(1).item() == after


def test_dtypes() -> None:
    assert ts.float is ts.float32 and ts.long is ts.int64 and ts.half is ts.float16
    assert (
        ts.float64.itemsize == 8 and ts.float64.is_floating_point and not ts.uint8.is_signed and ts.complex64.is_complex
    )
    assert ts.float32.to_complex() is ts.complex64 and ts.complex128.to_real() is ts.float64
    with pytest.raises(TypeError):
        ts.int64.to_complex()
    with pytest.raises(TypeError):
        type(ts.float32)()
    assert (
        ts.promote_types(ts.int32, ts.float16) is ts.float16
        and ts.result_type(ts.ones(1, dtype=ts.int32), 1.5) is ts.float32
    )
    assert ts.can_cast(ts.int64, ts.float32) and not ts.can_cast(ts.float32, ts.int64)
    assert (
        ts.ones(1, dtype=float).dtype is ts.float64
        and ts.ones(1, dtype=int).dtype is ts.int64
        and ts.ones(1, dtype=bool).dtype is ts.bool
    )
    assert (ts.finfo(ts.bfloat16).eps, ts.finfo(ts.float64).tiny) == (2.0**-7, 2.2250738585072014e-308)
    with pytest.raises(TypeError, match="iinfo"):
        ts.finfo(ts.int8)
    with pytest.raises(TypeError, match="finfo"):
        ts.iinfo(ts.float32)


def test_small_functions() -> None:
    x = ts.ones(2, 3)
    assert (
        ts.is_tensor(x)
        and not ts.is_tensor(3)
        and ts.numel(x) == 6
        and ts.is_floating_point(x)
        and not ts.is_complex(x)
    )
    assert ts.typename(x) == "tesserack.FloatTensor" and ts.typename(3) == "int"
    assert ts.broadcast_shapes((2, 1), (3,), 1) == (2, 3)
    with pytest.raises(RuntimeError, match="broadcast"):
        ts.broadcast_shapes((2,), (3,))
    with pytest.raises(ValueError, match="negative dimension"):
        ts.broadcast_shapes((2, -1))
    assert ts.pi > 3 and ts.inf > 1e308 and ts.newaxis is None
    with pytest.raises(AttributeError, match="nosuch"):
        ts.nosuch


def test_assert_close_messages() -> None:
    assert_close([ts.ones(2), {"a": 1.0}], [ts.ones(2), {"a": 1.0 + 1e-9}])
    assert_close(ts.tensor([1.0, ts.inf]), ts.tensor([1.0, ts.inf]))
    assert_close(ts.tensor([ts.nan]), ts.tensor([ts.nan]), equal_nan=True)
    for actual, expected, message in [
        (
            ts.ones(2),
            ts.tensor([1.0, 1.1]),
            r"Mismatched elements: 1 / 2 \(50.0%\)\nGreatest absolute difference: 0.1\d+ at index \(1,\)",
        ),
        (ts.ones(2), ts.ones(3), "'shape' do not match"),
        (ts.ones(2), ts.ones(2, dtype=ts.float64), "'dtype' do not match"),
        (1.0, 2.0, "Scalars are not close"),
        ([1], [1, 2], "length"),
        ({"a": 1}, {"b": 1}, "keys"),
        ([1, 2], [1, 3], r"item \[1\]"),
        (ts.tensor([ts.inf]), ts.tensor([1.0]), "not close"),
        (ts.tensor([1.0]), ts.tensor([ts.inf]), "not close"),
        (ts.tensor([ts.nan]), ts.tensor([ts.nan]), "not close"),
        (ts.tensor([True]), ts.tensor([False]), "not equal"),
    ]:
        with pytest.raises(AssertionError, match=message):
            assert_close(actual, expected)
    with pytest.raises(TypeError, match="No comparison pair"):
        assert_close("a", "a")
    with pytest.raises(ValueError, match="both"):
        assert_close(1, 1, rtol=0.1)


def test_assert_close_of_meta_and_of_specified_elements() -> None:
    meta = ts.empty(2, device="meta")
    ts.testing.assert_close(meta, ts.ones(2, device="meta"))
    with pytest.raises(AssertionError, match="shape"):
        ts.testing.assert_close(meta, ts.empty(3, device="meta"))
    twice = ts.sparse_coo_tensor([[0, 1, 1]], [1.0, 1.0, 1.0], (2,))
    once = ts.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (2,))
    with pytest.raises(AssertionError, match="number of specified values in sparse COO"):
        ts.testing.assert_close(once, twice)
    ts.testing.assert_close(once.coalesce(), twice)
    ts.testing.assert_close(once, ts.sparse_coo_tensor([[1, 0]], [2.0, 1.0], (2,)))  # in whatever order


def test_assert_close_of_integers_is_not_led_astray_by_their_width() -> None:
    def close(a: int, b: int, kind: ts.dtype, atol: float) -> bool:
        try:
            assert_close(ts.tensor([a], dtype=kind), ts.tensor([b], dtype=kind), rtol=0, atol=atol)
        except AssertionError:
            return False
        return True

    for kind in (ts.uint8, ts.int8, ts.uint16, ts.int32, ts.int64, ts.uint64):
        assert close(100, 101, kind, 1) and close(101, 100, kind, 1) and not close(100, 102, kind, 1)
    for kind in (ts.int8, ts.int64):
        limits = ts.iinfo(kind)
        assert not close(limits.max, limits.min, kind, 1) and not close(limits.min, limits.max, kind, 1)
    assert not close(2**64 - 1, 0, ts.uint64, 1) and not close(2**53, 2**53 + 1, ts.int64, 0.5)
    assert ts.isclose(ts.tensor([2**53, 7]), ts.tensor([2**53 + 1, 7]), rtol=0, atol=0).tolist() == [False, True]


def test_make_tensor(dtype: ts.dtype) -> None:
    x = make_tensor(3, 4, dtype=dtype, noncontiguous=True)
    assert x.shape == (3, 4) and x.dtype is dtype and not x.is_contiguous()
    assert not (make_tensor((50,), dtype=dtype, low=0, high=2, exclude_zero=True) == 0).any().item()
    with pytest.raises(ValueError, match="low < high"):
        make_tensor(2, dtype=ts.float32, low=2, high=1)


def test_make_tensor_keeps_within_its_bounds() -> None:
    assert set(make_tensor(2000, dtype=ts.int8).tolist()) == set(range(-9, 10))
    assert set(make_tensor(2000, dtype=ts.uint8, low=-5, high=3).tolist()) == {0, 1, 2}
    assert make_tensor(50, dtype=ts.bool, low=1).all().item()
    wide = make_tensor(50, dtype=ts.float16, low=-1e6, high=1e6)
    assert wide.isfinite().all().item() and wide.abs().max().item() > 40000
    with pytest.warns(FutureWarning, match="low equals high"):
        assert make_tensor(3, dtype=ts.float32, low=0.5, high=0.5).tolist() == [0.5] * 3
    with pytest.raises(ValueError, match="low < high"):
        make_tensor(3, dtype=ts.int32, low=1, high=1)
    with pytest.raises(ValueError, match="expected bounds within"):
        make_tensor(3, dtype=ts.uint8, low=300, high=400)
    with pytest.raises(ValueError, match="got both"):
        make_tensor(2, 2, dtype=ts.float32, noncontiguous=True, memory_format=ts.contiguous_format)


def test_dispatch_explains() -> None:
    text = ts.dispatch.explain(ts.relu, ts.ones(2, requires_grad=True))
    assert (
        text.splitlines()[0].startswith("relu(Tensor self)")
        and "Autograd: a node is recorded" in text
        and "cpu: " in text
    )
    assert "cpu: the kernel 'softmax'; if it declines" in ts.dispatch.explain("softmax", ts.ones(2))
    assert "none named 'conv2d'" in ts.dispatch.explain("conv2d", ts.ones(2))
    assert "sum.dim" in " ".join(ts.dispatch.schemas("sum"))
    with pytest.raises(RuntimeError, match="nosuch"):
        ts.dispatch.explain("nosuch")


def test_storage() -> None:
    x = ts.arange(4.0)
    assert x.untyped_storage() == x[1:].untyped_storage() and x.untyped_storage().nbytes() >= 16
    assert x.untyped_storage() != x.clone().untyped_storage()
    y = ts.zeros(1)
    assert y.set_(x).data_ptr() == x.data_ptr()
    assert x.apply_(lambda v: v + 1).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert x.is_set_to(x[:]) and not x.is_set_to(x[1:])


@pytest.mark.parametrize("make", [ts.Event, ts.current_stream], ids=["Event", "Stream"])
def test_events_and_streams_are_not_pickled(make: Callable[[], Any]) -> None:
    thing = make()
    attempts = [functools.partial(pickle.dumps, thing, protocol) for protocol in range(6)]
    for attempt in [*attempts, thing.__reduce__, lambda: copy.copy(thing)]:
        with pytest.raises(TypeError, match=r"cannot pickle '(Event|Stream)' object"):
            attempt()


def test_what_does_not_fit_into_memory_is_said_in_units_that_show_it() -> None:
    held = ts.ones(3 << 20, dtype=ts.uint8)
    with pytest.raises(ts.OutOfMemoryError, match=r"tried to allocate 64\.0 TiB; .* are in live tensors") as caught:
        ts.empty(1 << 44)
    assert "0.0 MiB" not in str(caught.value) and held.numel() == 3 << 20


MODULES = [
    ".nn.functional",
    ".linalg",
    ".special",
    ".fft",
    ".nn.init",
    ".nn.utils",
    ".autograd",
    ".func",
    ".sparse",
]


@pytest.mark.parametrize("path", MODULES)
def test_every_public_function_pickles(path: str) -> None:
    module = importlib.import_module(f"tesserack{path}")
    functions = [value for name in module.__all__ if callable(value := getattr(module, name))]
    assert functions
    for function in functions:
        for protocol in (2, 5):
            assert pickle.loads(pickle.dumps(function, protocol)) is function
        assert copy.deepcopy(function) is function


def test_every_operator_and_method_pickles() -> None:
    functions = [value for name in dir(ts) if inspect.isroutine(value := getattr(ts, name)) and name[0] != "_"]
    for operator in (*functions, *_registry.operators().values()):
        assert pickle.loads(pickle.dumps(operator)) is operator
        assert copy.deepcopy(operator) is operator
    methods = [getattr(ts.Tensor, name) for name in dir(ts.Tensor) if not name.startswith("_")]
    for method in methods:
        if inspect.isfunction(method) or inspect.isbuiltin(method) or type(method) is _native.OperatorMethod:
            assert pickle.loads(pickle.dumps(method)) == method


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda mode: pickle.loads(pickle.dumps(mode))])
def test_gradient_modes_that_are_copied(copied):
    """As with the module that holds one; a copy neither acts nor has been entered."""
    modes = {ts.no_grad(): False, ts.enable_grad(): True, ts.inference_mode(): False, ts.inference_mode(False): True}
    for value in (True, False):
        modes[ts.set_grad_enabled(value)] = value
    ts.set_grad_enabled(True)
    for mode, records in modes.items():
        made = copied(mode)
        assert type(made) is type(mode) and ts.is_grad_enabled()
        with made:
            assert ts.is_grad_enabled() is records
        assert ts.is_grad_enabled()
    layer = ts.nn.Linear(1, 1)
    layer.context = ts.no_grad()
    with copied(layer).context:
        assert not ts.is_grad_enabled()

"""What a backend written in Python may do, and what it is told when it does something else."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from bytes_backend import Bytes, bits, floats
from tesserack import _native
from tesserack.backends import Operand

native: Any = _native


@pytest.fixture(scope="module")
def registered() -> Bytes:
    """One backend for all tests: a process has room for 23."""
    made = Bytes("bytes")
    native._register_python_backend(made, "a test")
    return made


@pytest.fixture
def backend(registered: Bytes) -> Bytes:
    """The backend with the kernels `fill` and `copy_cast`, and no others."""
    for name in registered.kernels():
        del registered._kernels[name]
        native._kernel_changed(registered.name, name)

    @registered.kernel("fill")
    def fill(out: Operand, value: float) -> None:
        floats(out)[...] = value

    @registered.kernel("copy_cast")
    def copy_cast(out: Operand, x: Operand) -> None:
        bits(out)[...] = bits(x)

    return registered


def test_kernels_see_geometry(backend: Bytes) -> None:
    seen: list[Operand] = []

    @backend.kernel("copy_cast")
    def copy_cast(out: Operand, x: Operand) -> None:
        seen.append(x)
        floats(out)[...] = floats(x)

    t = ts.tensor([[1.0, 2.0], [3.0, 4.0]]).to(backend.name)
    assert ts.equal(t.t()[1].clone().cpu(), ts.tensor([2.0, 4.0]))
    x = seen[-1]
    assert (x.shape, x.strides, x.byte_strides, x.byte_offset) == ((2,), (2,), (8,), 4)
    assert (x.dtype, x.itemsize, x.numel, x.ndim, x.is_contiguous) == (ts.float32, 4, 2, 1, False)
    assert "float32" in repr(x)


def test_named_fields_of_the_call(backend: Bytes) -> None:
    seen: dict[str, Any] = {}

    @backend.kernel("pointwise")
    def pointwise(*, outputs: Any, inputs: Any, program: Any, compute_dtype: Any, op: str, device: int) -> None:
        seen.update(outputs=outputs, inputs=inputs, program=program, compute=compute_dtype, op=op, device=device)
        floats(outputs[0])[...] = floats(inputs[0]) + inputs[1]

    x = ts.ones(3, device=backend.name)
    assert (x + 2).tolist() == [3.0] * 3
    assert seen["op"] == "pointwise" and seen["device"] == 0 and seen["compute"] is ts.float32
    assert seen["program"].instructions[-1][0] in ("add", "fma") and seen["program"].n_inputs == len(seen["inputs"])
    assert any(isinstance(v, (int, float)) for v in seen["inputs"]), "numbers come as numbers"


def test_declining_and_predicates(backend: Bytes) -> None:
    calls: list[str] = []

    @backend.kernel("relu", when=lambda out, x: x.numel < 10)
    def relu(out: Operand, x: Operand) -> None:
        calls.append("relu")
        floats(out)[...] = np.maximum(floats(x), 0)

    @backend.kernel("pointwise")
    def pointwise(*, outputs: Any, inputs: Any) -> Any:
        calls.append("pointwise")
        return NotImplemented

    x = ts.full((3,), -1.0, device=backend.name)
    assert ts.relu(x).tolist() == [0.0] * 3
    assert calls == ["relu"]
    ts.backends.set_fallback("allow")
    ts.backends.reset_fallbacks()
    try:
        assert ts.relu(ts.full((20,), -1.0, device=backend.name)).tolist() == [0.0] * 20
        assert ts.backends.fallbacks() == {"pointwise": 1}
    finally:
        ts.backends.set_fallback("warn")
    assert calls[0] == "relu" and {*calls[1:]} == {"pointwise"}
    assert (backend.name, "a test") in ts.dispatch.table("relu")


def test_an_override_of_a_composite_leaves_its_gradient_alone(backend: Bytes) -> None:
    """Where gradients are recorded an operator without a gradient of its own is traced, not replaced."""
    taken: list[bool] = []

    @backend.kernel("hardswish", "softsign")
    def anything(out: Operand, x: Operand, *params: Any) -> None:
        taken.append(True)
        floats(out)[...] = 7

    x = ts.ones(3, device=backend.name)
    assert ts.nn.functional.hardswish(x).tolist() == [7.0] * 3
    assert taken == [True]


def test_an_override_of_a_composite_keeps_a_declared_gradient(backend: Bytes) -> None:
    """The kernel runs forward, also where gradients are recorded; backward is what the operator declares for that."""
    ran: list[str] = []

    @backend.kernel("layer_norm")
    def layer_norm(out: Operand, x: Operand, w: Operand, b: Operand, shape: Any, eps: float) -> None:
        ran.append("layer_norm")
        values = floats(x)
        spread = np.sqrt(values.var(-1, keepdims=True) + eps)
        floats(out)[...] = (values - values.mean(-1, keepdims=True)) / spread * floats(w) + floats(b)

    @backend.kernel("cross_entropy")
    def cross_entropy(out: Operand, x: Operand, target: Operand, weight: Operand | None, *params: Any) -> None:
        ran.append("cross_entropy")
        shifted = np.exp(floats(x) - floats(x).max(1, keepdims=True))
        chosen = (shifted / shifted.sum(1, keepdims=True))[np.arange(2), bits(target)]
        floats(out)[...] = -np.log(chosen).mean()

    def loss(device: str) -> list[ts.Tensor]:
        leaves = [[1.0, 2, 4], [3, 1, 1]], [1.0, 2, 3], [0.5, 0, 0]
        x, w, b = (ts.tensor(v, device=device, requires_grad=True) for v in leaves)
        y = ts.nn.functional.layer_norm(x, (3,), w, b)
        value = ts.nn.functional.cross_entropy(y, ts.tensor([2, 0], device=device))
        value.backward()
        assert x.grad is not None and w.grad is not None and b.grad is not None
        return [value.detach().cpu(), x.grad.cpu(), w.grad.cpu(), b.grad.cpu()]

    ts.backends.set_fallback("allow")
    try:
        results = loss(backend.name)
    finally:
        ts.backends.set_fallback("warn")
    for found, expected in zip(results, loss("cpu"), strict=True):
        assert ts.allclose(found, expected, atol=1e-5)
    assert ran == ["layer_norm", "cross_entropy"]


def test_a_kernel_registered_late_is_used(backend: Bytes) -> None:
    x = ts.ones(2, device=backend.name)
    with pytest.raises(NotImplementedError, match="sort"):
        before = ts.backends.get_fallback()
        ts.backends.set_fallback("error")
        try:
            ts.sort(x)
        finally:
            ts.backends.set_fallback(before)

    @backend.kernel("sort")
    def sort(values: Operand, positions: Operand, given: Operand, descending: bool) -> None:
        floats(values)[...] = np.sort(floats(given))
        np.ndarray(positions.shape, np.int64, positions.handle, positions.byte_offset)[...] = 0

    assert ts.sort(x)[0].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(ValueError("bad"), ValueError), (IndexError("far"), IndexError), (MemoryError("full"), ts.OutOfMemoryError),
     (KeyError("k"), RuntimeError)],
    ids=lambda e: getattr(e, "__name__", type(e).__name__),
)  # fmt: skip
def test_errors_keep_their_cause(backend: Bytes, raised: Exception, expected: type[Exception]) -> None:
    @backend.kernel("fill")
    def fill(out: Operand, value: float) -> None:
        raise raised

    with pytest.raises(expected, match=f"fill: {type(raised).__name__}") as caught:
        ts.ones(3, device=backend.name)
    assert caught.value.__cause__ is raised


def test_an_interrupt_stays_one(backend: Bytes) -> None:
    @backend.kernel("fill")
    def fill(out: Operand, value: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ts.ones(3, device=backend.name)
    assert ts.zeros(2).tolist() == [0.0, 0.0]


def test_returning_something_is_an_error(backend: Bytes) -> None:
    @backend.kernel("fill")
    def fill(out: Operand, value: float) -> float:
        return value

    with pytest.raises(RuntimeError, match="returned float; kernels fill their outputs"):
        ts.ones(3, device=backend.name)


def test_host_memory_is_lent() -> None:
    kept = []

    def keep(device: int, dst: Any, dst_offset: int, src: memoryview, stream: Any) -> None:
        kept.append(np.frombuffer(src, np.uint8))

    other = Bytes("bytes_keeps")
    other.copy_from_host = keep  # type: ignore[method-assign]
    native._register_python_backend(other, "a test")
    with pytest.raises(RuntimeError, match="kept a view of host memory"):
        ts.ones(3).to(other.name)
    kept.clear()


def test_handles_are_released() -> None:
    class Block:
        pass

    blocks: list[weakref.ref[Block]] = []
    other = Bytes("bytes_blocks")
    other.own_allocator = True

    def alloc(device: int, nbytes: int, stream: Any) -> Block:
        block = Block()
        blocks.append(weakref.ref(block))
        return block

    other.alloc = alloc  # type: ignore[method-assign]
    native._register_python_backend(other, "a test")
    x = ts.empty(3, device=other.name)
    assert blocks[0]() is not None
    del x
    gc.collect()
    assert blocks[0]() is None
    assert other.freed == 1


def test_out_of_memory_says_who_holds_what(backend: Bytes) -> None:
    with pytest.raises(ts.OutOfMemoryError, match="a gigabyte is all there is"):
        ts.empty(2**31, dtype=ts.uint8, device=backend.name)


def test_many_threads(backend: Bytes) -> None:
    """Callbacks take the interpreter lock while others allocate: nothing may wait for nothing."""
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for k in range(200):
                x = ts.full((k + 1,), float(k), device=backend.name)
                assert x.clone().tolist() == [float(k)] * (k + 1)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    assert not failures


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda b: b.kernel(), "expected the names"),
        (lambda b: b.kernel("fill", layout="odd"), "expected a layout"),
        (lambda b: b.kernel("fill", dtypes=["float33"]), "float33"),
    ],
    ids=["no name", "layout", "dtype"],
)
def test_wrong_registrations(backend: Bytes, make: Callable[[Bytes], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(backend)


def test_unknown_fields_are_refused(backend: Bytes) -> None:
    @backend.kernel("fill")
    def fill(out: Operand, value: float, *, colour: str) -> None:
        pass

    with pytest.raises(RuntimeError, match="no field of a call is named 'colour'"):
        ts.ones(3, device=backend.name)


def test_a_taken_name(backend: Bytes) -> None:
    with pytest.raises(RuntimeError, match="claimed by both"):
        native._register_python_backend(Bytes(backend.name), "another test")


def test_probe_that_fails_says_why() -> None:
    class Broken(Bytes):
        def probe(self) -> int:
            raise OSError("libacme.so: cannot open shared object file")

    native._register_python_backend(Broken("broken_probe"), "a test")
    reason = ts.backends.why_unavailable("broken_probe")
    assert reason is not None and "libacme.so" in reason


def test_null_refuses_by_name(null: ts.device) -> None:
    x = ts.empty(3, device=null)
    with pytest.raises(RuntimeError, match="backend 'null' has no kernel matmul"):
        ts.mm(ts.empty(2, 2, device=null), ts.empty(2, 2, device=null))
    with pytest.raises(RuntimeError, match="has no kernel pointwise"):
        x + 1
    assert ts.ones(3).to(null).cpu().tolist() == [1.0] * 3


def test_what_its_methods_do_is_no_part_of_compiled_programs(backend: Bytes) -> None:
    lock = threading.Lock()
    calls: list[int] = []

    @backend.kernel("softmax")
    def softmax(out: Operand, x: Operand, *rest: Any) -> None:
        with lock:  # which no graph could repeat
            calls.append(len(calls))
        raised = np.exp(floats(x))
        floats(out)[...] = raised / raised.sum(-1, keepdims=True)

    x = ts.tensor([[1.0, 2.0], [3.0, 4.0]]).to(backend.name)
    compiled: Any = ts.compile(lambda x: x.softmax(1).clone().softmax(1), fullgraph=True)
    for _ in range(6):
        got = compiled(x)
    assert compiled._compiled.reasons == [] and compiled._compiled.places and len(calls) == 12
    ts.testing.assert_close(got.cpu(), x.cpu().softmax(1).softmax(1))

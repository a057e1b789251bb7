"""What a card may say of itself and be asked: per device, beyond the least, and how exact it is to be."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
from late_backend import Late
from tesserack import _native

native: Any = _native
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "plugins" / "reference"))


def variant(name: str, **methods: Any) -> Any:
    """The reference backend under another name."""
    import tesserack_reference

    made = type("Variant", (tesserack_reference.Reference,), {"name": name, **methods})()
    made._kernels.update(tesserack_reference.backend._kernels)
    return made


@pytest.fixture(scope="module")
def unequal() -> Any:
    """Two devices: the second has a softmax, no sort, memory the host sees, and lacks tanh."""
    import numpy as np
    import tesserack_reference

    words = [name for name in native._instructions() if name not in ("tanh", "round_float16", "round_bfloat16")]

    def properties(self: Any, device: int) -> dict[str, Any]:
        known = {"name": f"unequal {device}"}
        return known if device == 0 else {**known, "instructions": words, "host_memory": True}

    def host_pointer(self: Any, device: int, handle: Any) -> int:
        assert device == 1
        return int(handle.ctypes.data)

    made = variant("unequal", probe=lambda self: 2, properties=properties, host_pointer=host_pointer)
    made.softmaxes = []
    sort = made._kernels.pop("sort")
    made._device_kernels[0, "sort"] = sort

    @made.kernel("softmax", devices=[1])
    def softmax(out: Any, x: Any, *params: Any) -> None:
        made.softmaxes.append(params)
        values = tesserack_reference.read(x)
        e = np.exp(values - values.max(-1, keepdims=True))
        tesserack_reference.write(out, e / e.sum(-1, keepdims=True))

    @made.kernel("pointwise", devices=[1])
    def pointwise(*, outputs: Any, inputs: Any, program: Any, compute_dtype: Any, device: int) -> None:
        assert device == 1 and "tanh" not in {step[0] for step in program.instructions}
        tesserack_reference.pointwise(outputs=outputs, inputs=inputs, program=program, compute_dtype=compute_dtype)

    native._register_python_backend(made, __file__)
    return made


def test_devices_of_a_backend_differ(unequal: Any) -> None:
    results = []
    for index in (0, 1):
        device = f"unequal:{index}"
        x = ts.tensor([[0.5, -1.0, 2.0]], device=device)
        results.append([x.tanh().cpu(), x.softmax(-1).cpu()])
        assert len(unequal.softmaxes) == index
    for a, b in zip(*results, strict=True):
        assert a.allclose(b, atol=1e-6)
    assert ts.ones(2, device="unequal:1").numpy().tolist() == [1, 1]
    with pytest.raises((RuntimeError, TypeError), match="unequal:0"):
        ts.ones(2, device="unequal:0").numpy()
    ts.backends.reset_fallbacks()
    x = ts.tensor([3.0, 1.0, 2.0])
    assert x.to("unequal:0").sort()[0].tolist() == [1, 2, 3]
    assert "sort" not in ts.backends.fallbacks()
    with pytest.warns(UserWarning, match="sort: backend 'unequal' has no kernel"):
        assert x.to("unequal:1").sort()[0].tolist() == [1, 2, 3]
    assert ts.backends.fallbacks()["sort"] == 1


@pytest.fixture(scope="module")
def fusing() -> Late:
    made = Late("latefuses", own=False)
    native._register_python_backend(made, __file__)
    return made


def test_programs_inside_reductions_and_products(fusing: Late) -> None:
    device = fusing.name
    x, w, b = ts.randn(5, 7), ts.randn(7, 3), ts.randn(3)
    for dim, keep in ((None, False), (0, True), (1, False)):
        fusing.fused.clear()
        got = ts.linalg.vector_norm(x.to(device), dim=dim, keepdim=keep)
        assert fusing.fused == ["reduce"]
        assert got.cpu().allclose(ts.linalg.vector_norm(x, dim=dim, keepdim=keep), atol=1e-6)
    for gelu in (False, True):
        fusing.fused.clear()
        got = ts._addmm_activation(*(t.to(device) for t in (b, x, w)), use_gelu=gelu)
        assert fusing.fused == ["matmul"]
        want = ts._addmm_activation(b, x, w, use_gelu=gelu)
        assert got.cpu().allclose(want, atol=1e-6)
        plain = ts.addmm(b, x, w)
        assert want.allclose(ts.nn.functional.gelu(plain) if gelu else plain.relu(), atol=1e-6)


def test_the_gradient_of_an_activated_product() -> None:
    arguments = [ts.randn(*s, dtype=ts.float64, requires_grad=True) for s in ((3,), (5, 7), (7, 3))]
    for gelu in (False, True):
        assert ts.autograd.gradcheck(
            lambda *a, g=gelu: ts._addmm_activation(*a, beta=0.5, alpha=2, use_gelu=g), arguments
        )


@pytest.fixture
def switches() -> Iterator[None]:
    yield
    ts.use_deterministic_algorithms(False)
    ts.set_float32_matmul_precision("highest")


@pytest.mark.usefixtures("switches")
def test_a_call_says_how_exact_it_is_to_be() -> None:
    made = variant("asked")
    seen: list[tuple[bool, str]] = []
    product = made._kernels["matmul"][0]

    @made.kernel("matmul")
    def matmul(out: Any, a: Any, b: Any, *, compute_dtype: Any, deterministic: bool, precision: str) -> Any:
        seen.append((deterministic, precision))
        if deterministic:
            return NotImplemented
        return product(out, a, b, compute_dtype=compute_dtype)

    native._register_python_backend(made, __file__)
    x = ts.eye(2, device="asked")
    x @ x
    ts.set_float32_matmul_precision("medium")
    x @ x
    ts.set_float32_matmul_precision("high")
    x @ x
    ts.backends.reset_fallbacks()
    ts.use_deterministic_algorithms(True)
    with pytest.warns(UserWarning, match="matmul: backend 'asked' has no kernel"):
        assert (x @ x).tolist() == [[1, 0], [0, 1]]
    assert seen == [(False, "highest"), (False, "medium"), (False, "high"), (True, "high")]
    assert ts.backends.fallbacks()["matmul"] == 1


def test_the_profiler_sees_kernels_of_all_threads() -> None:
    x = ts.ones(3)
    with ts.profiler.profile() as profile:
        other = threading.Thread(target=lambda: (x + 1).exp())
        other.start()
        ident = other.ident
        other.join()
        x * 2
    kernels = profile.kernels()
    assert [kernel.name for kernel in kernels] == ["pointwise"] * 3
    assert [kernel.thread == ident for kernel in kernels] == [True, True, False]
    assert all(kernel.end >= kernel.start and kernel.elements == 3 for kernel in kernels)
    first = next(event for event in profile.events() if event.name == "mul")
    assert first.start <= kernels[2].start <= kernels[2].end <= first.end  # of one clock
    x + 1
    assert len(profile.kernels()) == 3


def test_what_a_kernel_may_take_has_names() -> None:
    made = variant("picky")
    with pytest.raises(ValueError, match=r"expected takes among prologue, epilogue, device_random, got \['epilog'\]"):
        made.kernel("matmul", takes=["epilog"])

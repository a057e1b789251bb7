"""Kernels that declarations name receive what these say: operands prepared, parameters in order, by name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import tesserack as ts
from tesserack import _native
from tesserack.nn import functional as F

native: Any = _native
DECLARED = {r["kernel"]["name"]: r for r in native._operators() if r["kernel"] and r["variant"] == "functional"}
Calls = dict[str, list[tuple[Any, Any, Any]]]


@pytest.fixture
def calls(reference: ts.device) -> Iterator[Calls]:
    """What the reference card's kernels are given; they all decline, so that the decompositions run."""
    backend = sys.modules["tesserack_reference"].backend
    seen: Calls = {}
    added = sorted({*DECLARED} - {*backend.kernels()})
    for name in added:

        @backend.kernel(name)
        def look(*, outputs: Any, inputs: Any, params: Any, op: str) -> Any:
            seen.setdefault(op, []).append((outputs, [(x.shape, x.dtype, x.is_contiguous) if x is not None else None
                                                      for x in inputs], params))  # fmt: skip
            return NotImplemented

    yield seen
    for name in added:
        del backend._kernels[name]
        native._kernel_changed(backend.name, name)


def run_all(device: ts.device) -> None:
    x, w, table = ts.rand(4, 6, device=device), ts.rand(6, device=device), ts.rand(5, 3, device=device)
    image, taps = ts.rand(2, 2, 6, 6, device=device), ts.rand(3, 2, 2, 2, device=device)
    x.t().softmax(-1), x.double().log_softmax(0), F.layer_norm(x.t(), (4,), w[:4], w[:4])
    F.conv2d(image, taps, stride=2), F.conv1d(image[:, :, 0], taps[:, :, 0], padding=1)
    F.max_pool2d(image, 2), F.avg_pool2d(image, (2, 3), stride=1)
    F.embedding(ts.tensor([[1, 2], [0, 4]], device=device), table)
    F.batch_norm(image, w[:2].half().float(), w[2:4].clone(), training=True)
    F.nll_loss(x.log_softmax(1), ts.tensor([1, 2, 3, 4], device=device))
    ts.cat([x, x[:0], x.t()[:2, :4].repeat(1, 2)[:, :6]]), ts.tril(x.t(), -1)
    parameter = ts.rand(3, 2, device=device).t().requires_grad_()
    parameter.sum().backward()
    for optimizer in (ts.optim.Adam([parameter], lr=0.25, fused=True), ts.optim.SGD([parameter], lr=0.5, fused=True)):
        optimizer.step()


def test_kernels_receive_what_declarations_say(reference: ts.device, calls: Calls) -> None:
    run_all(reference)
    assert len(calls) >= 10
    for kernel, given in calls.items():
        spec = DECLARED[kernel]["kernel"]
        for outputs, inputs, params in given:
            assert len(outputs) == spec["results"], kernel
            lists = [p for p in params if isinstance(p, list | tuple) and p and not isinstance(p[0], int | float)]
            assert len(params) == len(native._kernel_signature(kernel)["parameters"]), kernel
            if not lists and not spec["changing"] and kernel != "cat":
                assert len(inputs) == len(spec["operands"]), kernel
                for (name, how), seen in zip(spec["operands"], inputs, strict=True):
                    assert seen is None or seen[2] or "contiguous" not in how, (kernel, name)


def test_parameters_are_the_arguments_named(reference: ts.device, calls: Calls) -> None:
    run_all(reference)
    assert calls["softmax"][0][2] == (1,)  # a dim from 0 on
    assert calls["log_softmax"][0][2] == (0,)
    assert [tuple(p) if isinstance(p, list | tuple) else p for p in calls["convolution"][0][2]] == [
        (2, 2), (0, 0), (1, 1), 1]  # fmt: skip
    assert [tuple(p) if isinstance(p, list | tuple) else p for p in calls["convolution"][1][2]] == [(1,), (1,), (1,), 1]
    assert tuple(map(tuple, calls["max_pool2d_with_indices"][0][2][:2])) == ((2, 2), (2, 2))  # the stride is the kernel
    assert calls["tril"][0][2] == (-1,)
    for kernel, values in {"adam_step_": {"step": 1, "lr": 0.25}, "sgd_step_": {"lr": 0.5}}.items():
        names = native._kernel_signature(kernel)["parameters"]
        for name, value in values.items():
            assert calls[kernel][0][2][names.index(name)] == value
            assert names.index(name) in native._kernel_signature(kernel)["changing"]


def test_changing_parameters_by_name(reference: ts.device, calls: Calls) -> None:
    backend = sys.modules["tesserack_reference"].backend
    changes = backend._kernels["adam_step_"][5]
    backend.kernel("adam_step_", changing=("step", "lr"))(lambda *, params: NotImplemented)
    by_name = backend._kernels["adam_step_"][5]
    backend.kernel("adam_step_", changing=True)(lambda *, params: NotImplemented)
    assert changes == 0 and by_name == backend._kernels["adam_step_"][5] == 0b1100000
    with pytest.raises(ValueError, match="changing parameters of 'adam_step_' among"):
        backend.kernel("adam_step_", changing=("steps",))

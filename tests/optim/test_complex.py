"""Complex parameters are stepped as pairs of real numbers."""

from __future__ import annotations

import pytest
import tesserack as ts
from tesserack import optim


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (optim.SGD, {"lr": 0.1}),
        (optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
        (optim.Adam, {"lr": 0.1, "amsgrad": True}),
        (optim.AdamW, {"lr": 0.1}),
    ],
)
def test_a_complex_parameter_steps_as_its_pairs_do(kind, options, device):
    start = ts.tensor([[1 + 2j, -0.5j], [3 + 0j, -1 - 1j]], device=device)
    whole = start.clone().requires_grad_()
    pairs = ts.view_as_real(start).clone().requires_grad_()
    steppers = kind([whole], **options), kind([pairs], **options)
    for _ in range(3):
        for stepper, param in zip(steppers, (whole, ts.view_as_complex(pairs)), strict=True):
            stepper.zero_grad()
            (param.abs() ** 3).sum().backward()
            stepper.step()
    assert ts.equal(ts.view_as_real(whole.detach()), pairs.detach())


def test_muon_refuses_complex_parameters(device):
    param = ts.ones(2, 2, dtype=ts.complex64, device=device).requires_grad_()
    param.grad = ts.ones_like(param)
    with pytest.raises(RuntimeError, match="Muon does not support complex parameters"):
        optim.Muon([param]).step()

"""Steps whose parameters are gathered at once, beside those that look at each; norms and products of whole lists."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from tesserack import Tensor, _native, nn, ops, optim
from tesserack.nn.utils import clip_grad_norm_

KINDS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "SGD": lambda params: optim.SGD(params, lr=0.1, weight_decay=0.1),
    "momentum": lambda params: optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda params: optim.Adam(params, lr=0.1, maximize=True),
    "AdamW": lambda params: optim.AdamW(params, lr=0.1),
    "amsgrad": lambda params: optim.AdamW(params, lr=0.1, amsgrad=True),
}


def some_grads(params: list[Tensor], k: int) -> None:
    """As backward passes leave them: one parameter has none at times."""
    made = ts.Generator().manual_seed(k)
    for j, p in enumerate(params):
        p.grad = None if k % 4 == 2 and j == 1 else ts.randn(p.shape, generator=made).to(p.dtype)


def steps(make: Callable[[Any], optim.Optimizer], dtypes: list[Any]) -> tuple[list[Tensor], list[Any]]:
    ts.manual_seed(0)
    shapes = [(3, 4), (7,), (), (2, 0), (70, 70)]
    params = [nn.Parameter(ts.randn(s).to(dtypes[k % len(dtypes)])) for k, s in enumerate(shapes)]
    late = nn.Parameter(ts.ones(2))
    optimizer = make(params)
    for k in range(10):
        some_grads([*params, late], k)
        if k == 4:
            optimizer.add_param_group({"params": [late], "lr": 0.5})
        if k == 5:
            optimizer.load_state_dict(optimizer.state_dict())
        if k == 6:
            optimizer.param_groups[0]["lr"] = 0.01
        if k == 7:
            params[0].data = ts.ones(4, 3, dtype=params[0].dtype).t()
            params[0].grad = ts.ones(4, 3, dtype=params[0].dtype).t()
        optimizer.step()
    optimizer.zero_grad()
    assert all(p.grad is None for p in [*params, late])
    states = [s for state in optimizer.state.values() for s in state.values()]
    return [*params, late], states


@pytest.mark.parametrize("dtypes", [["float32"], ["float64"], ["bfloat16", "float32"]], ids="-".join)
@pytest.mark.parametrize("name", KINDS)
def test_gathered_steps_are_those_of_each(name: str, dtypes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    kinds, gathered = [getattr(ts, dtype) for dtype in dtypes], _native._step_lists
    found: list[bool] = []

    def gather(*args: Any) -> Any:
        lists = gathered(*args)
        found.append(lists is not None)
        return lists

    monkeypatch.setattr(_native, "_step_lists", gather)
    quick = steps(KINDS[name], kinds)
    assert any(found)
    monkeypatch.setattr(_native, "_step_lists", lambda *args: None)
    each = steps(KINDS[name], kinds)
    for mine, theirs in zip(quick, each, strict=True):
        assert len(mine) == len(theirs) and all(a.equal(b) for a, b in zip(mine, theirs, strict=True))


def test_what_is_not_plain_is_looked_at_one_by_one() -> None:
    class Kind(Tensor):
        pass

    plain = [ts.ones(2), nn.Parameter(ts.ones(3))]
    assert _native._are_alike(plain)
    others: list[Any] = [
        ts.ones(2).as_subclass(Kind),
        ts.ones(2, dtype=ts.float64),
        ts.ones(2, dtype=ts.int64),
        ts.ones(2, dtype=ts.complex64),
        ts.ones(2, device="meta"),
        ts.ones(2).to_sparse(),
        1.0,
    ]
    assert not any(_native._are_alike([*plain, other]) for other in others)
    assert not _native._are_alike([]) and not _native._are_alike(tuple(plain))
    param = nn.Parameter(ts.ones(2))
    assert _native._step_lists([param], {}, ()) is None  # has no gradient
    param.grad = ts.ones(2)
    assert _native._step_lists([param], {}, ()) is not None
    for state in ({}, {param: None}, {param: {"step": 1.0}}, {param: {}}):
        assert _native._step_lists([param], state, ("step",)) is None
    counts = [ts.tensor(3.0), ts.tensor(3.0, dtype=ts.float64)]
    assert _native._count_together(counts) == 4.0 and counts[1].item() == 4.0
    counts[0].add_(1)
    assert _native._count_together(counts) is None and counts[0].item() == 5.0
    assert _native._count_together([ts.tensor(math.nan)]) is None


SIZES = [(3,), (64, 65), (5000,), (), (1, 4096)]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_norms_and_products_of_lists(device: Any, dtype: str) -> None:
    made = ts.Generator().manual_seed(1)
    list_ = [ts.randn(s, generator=made).to(device, getattr(ts, dtype)) for s in SIZES]
    list_.append(ts.randn(8, 6, generator=made).to(device, getattr(ts, dtype)).t())
    exact = [math.sqrt((x.double().cpu() ** 2).sum().item()) for x in list_]
    rough = {"float16": 2e-3, "bfloat16": 8e-3, "float32": 1e-6, "float64": 1e-13}[dtype]
    assert ops._list_norms(list_).double().tolist() == pytest.approx(exact, rel=rough)
    assert ops._list_norms([list_[0][:0], list_[0]]).tolist()[0] == 0
    for factor in (0.3, 1.0):
        by = ts.tensor(factor, dtype=getattr(ts, dtype), device=device)
        products = [x * by for x in list_]
        copies = [x.clone(memory_format=ts.preserve_format) for x in list_]
        ops._list_scale_(copies, by)
        assert all(a.equal(b) for a, b in zip(copies, products, strict=True))


def test_norms_neither_over_nor_underflow() -> None:
    for size in (1e-30, 1e-42, 1e30, 2e38):
        norms = ops._list_norms([ts.tensor([size]), ts.full((4,), size / 2)])
        assert norms.tolist() == pytest.approx([size, size], rel=2e-3 if size < 1e-38 else 1e-6)
    assert ops._list_norms([ts.tensor([math.inf, 1])]).item() == math.inf
    assert math.isnan(ops._list_norms([ts.tensor([math.nan, 1])]).item())


def test_lists_of_several_kinds_are_clipped_each_by_itself() -> None:
    params = [nn.Parameter(ts.zeros(2, dtype=kind)) for kind in (ts.float32, ts.bfloat16, ts.float32)]
    for p in params:
        p.grad = ts.full((2,), 3.0, dtype=p.dtype)
    assert clip_grad_norm_(params, 1.0).item() == pytest.approx(math.sqrt(54), rel=1e-2)
    assert params[0].grad is not None and params[0].grad.tolist() == pytest.approx([3 / math.sqrt(54)] * 2, rel=1e-2)
    with pytest.raises(RuntimeError, match="_list_norms: expected tensors of one dtype"):
        ops._list_norms([ts.ones(1), ts.ones(1, dtype=ts.float64)])
    with pytest.raises(RuntimeError, match="_list_scale_: expected a factor of no dims"):
        ops._list_scale_([ts.ones(1)], ts.ones(1))

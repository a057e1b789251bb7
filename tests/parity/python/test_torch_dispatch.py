"""What ``__torch_dispatch__`` of modes and of classes is shown, and what comes of it, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
import torch

# Shown apart by PyTorch where there is nothing to do.
SILENT = {"aten.lift_fresh.default", "aten.detach.default", "aten.alias.default", "aten.clone.default"}


def _utils(m: Any) -> tuple[Any, Any]:
    if m is ts:
        from tesserack.compat.shims.utils import _python_dispatch
        from tesserack.utils import _pytree
    else:
        from torch.utils import _python_dispatch, _pytree
    return _python_dispatch, _pytree


def _shown(m: Any, function: Callable[[], Any]) -> list[tuple[str, list[Any], list[str]]]:
    calls: list[tuple[str, list[Any], list[str]]] = []

    class Record(_utils(m)[0].TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if str(func) not in SILENT:
                calls.append((str(func), [_plain(a) for a in args], sorted(kwargs or {})))
            return func(*args, **(kwargs or {}))

    with Record():
        function()
    # PyTorch names the device and the like of what is made; here the defaults are left out.
    ignored = {"device", "pin_memory", "layout", "dtype"}
    return [(name, args, [k for k in kwargs if k not in ignored]) for name, args, kwargs in calls]


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else type(value).__name__


CALLS = """
x + 1; x * x; x - 1; 1 - x; 2 / x; x ** 2; x ** x; 2 ** x; x % 0.3; -x; x == x; x > 0.5; x.exp(); x.relu()
x.clamp(0, 1); x.sum(); x.sum(1); x.sum(-1, keepdim=True); x.mean((0, 1)); x.max(1); x.argmax(1); x.std(1)
x.norm(dim=1); x.cumsum(1); x.sort(); x.sort(0, descending=True); x.sort(stable=True); x.topk(2); x.median(1)
x.view(6, 4); x.transpose(0, 1); x.permute(2, 0, 1); x.swapaxes(0, 1); x.mT; x.unsqueeze(0); x.squeeze(0)
x.expand(5, 2, 3, 4); x.flatten(1); x.to(m.float64); x.half(); x[0]; x[:, 1]; x[..., 0]; x[0, 1, 2]; x[:, ::2]
x[None]; x[1:]; x[:, i]; x.index_select(1, i); m.where(b, x, x); x.masked_fill(b, 0); m.cat([x, x])
m.stack([x, x], 1); x.split(1); x.unbind(); x.flip(0); x.roll(1, 0); x.tril(); x.diagonal(); w.trace(); m.zeros(2)
m.ones(2, 3); m.arange(5); m.zeros_like(x); m.randn(2); x.new_zeros(2); w @ w.t(); v @ v; w @ v; m.bmm(x, x.mT)
F.linear(w, w, m.ones(3)); F.softmax(x, -1); F.log_softmax(x, 1); F.gelu(x); F.silu(x); F.relu6(x)
F.layer_norm(x, (4,)); F.conv2d(img, k, None, 2, 1); F.max_pool2d(img, 2); F.avg_pool2d(img, 2); F.embedding(i, w)
F.cross_entropy(w, m.tensor([0, 1, 2])); F.mse_loss(x, x); F.scaled_dot_product_attention(img, img, img)
x.lerp(x, 0.5); x.addcmul(x, x); m.maximum(x, x); x.logsumexp(1); x.square(); x.clone().add_(1); x.clone().mul_(2)
x.sum().item(); x.add(x, alpha=2); m.view_as_real(m.complex(x, x)); m.complex(x, x).abs(); m.fft.ifftshift(v)
"""


@pytest.mark.parametrize("call", [c.strip() for line in CALLS.split("\n") for c in line.split(";") if c.strip()])
def test_modes_are_shown_what_pytorch_shows(call):
    def names(m: Any) -> Any:
        m.manual_seed(0)
        values = {
            "m": m,
            "F": m.nn.functional,
            "x": m.rand(2, 3, 4) + 0.1,
            "w": m.rand(3, 4),
            "v": m.rand(4),
            "i": m.tensor([0, 1]),
            "img": m.rand(2, 3, 8, 8),
            "k": m.rand(4, 3, 3, 3),
        }
        values["b"] = values["x"] > 0.5
        return _shown(m, eval(f"lambda: {call}", values))

    assert names(ts) == names(torch)


def _wrapper(m: Any) -> Any:
    tree_map = _utils(m)[1].tree_map

    class Logged(m.Tensor):  # type: ignore[misc]
        calls: list[str] = []

        @staticmethod
        def __new__(cls: Any, inner: Any, requires_grad: bool = False) -> Any:
            made = m.Tensor._make_wrapper_subclass(
                cls, inner.size(), strides=inner.stride(), dtype=inner.dtype, device=inner.device,
                layout=inner.layout, requires_grad=requires_grad,
            )  # fmt: skip
            made.inner = inner
            return made

        def __repr__(self) -> str:
            return f"Logged({self.inner})"

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            args, kwargs = tree_map(lambda x: x.inner if isinstance(x, cls) else x, (args, kwargs or {}))
            cls.calls.append(str(func))
            return tree_map(lambda x: cls(x) if isinstance(x, m.Tensor) else x, func(*args, **kwargs))

    return Logged


def gradients_through_a_wrapper(m: Any) -> Any:
    Logged = _wrapper(m)
    x = Logged(m.tensor([[1.0, 2.0], [3.0, 4.0]]), requires_grad=True)
    w = Logged(m.tensor([[1.0, 0.0], [3.0, 1.0]]), requires_grad=True)
    loss = (m.relu(x @ w.t()).exp().clamp(max=50) / 2 - x * w + m.nn.functional.softmax(x, -1)).sum()
    loss.backward()
    return [type(loss).__name__, loss.item(), type(x.grad).__name__, x.grad.inner, w.grad.inner, x.is_leaf]


def views_and_writes_of_a_wrapper(m: Any) -> Any:
    a = _wrapper(m)(m.tensor([[1.0, 2.0], [3.0, 4.0]]))
    corner = a[0, 1:]
    a[0] = 5.0
    a += 1
    rows = [row.inner for row in a]
    numbers = [float(a.sum()), int(a.sum()), bool((a > 0).all()), a.numel(), len(a), a.stride(), tuple(a.shape)]
    joined = [m.cat([a, a]).inner, m.stack([a, a]).inner, a.to(m.float64).inner, m.zeros_like(a).inner]
    return [corner.inner, type(a).__name__, repr(a), rows, numbers, joined, str(a.dtype).rpartition(".")[2]]


def parameters_that_are_wrappers(m: Any) -> Any:
    layer = m.nn.Linear(2, 2, bias=False)
    layer.weight = m.nn.Parameter(_wrapper(m)(m.ones(2, 2)))
    out = layer(m.ones(3, 2)).sum()
    out.backward()
    m.optim.SGD(layer.parameters(), lr=0.5, foreach=False).step()
    weight = layer.weight
    kinds = [
        type(weight).__name__,
        isinstance(weight, m.nn.Parameter),
        weight.requires_grad,
        isinstance(out, m.nn.Parameter),
    ]
    return [kinds, len([*layer.parameters()]), out.item(), weight.grad.inner, weight.inner]


def modes_around_modes_and_wrappers(m: Any) -> Any:
    dispatch, seen = _utils(m)[0], []

    class Named(dispatch.TorchDispatchMode):  # type: ignore[misc]
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append((self.name, str(func), [t.__name__ for t in types], dispatch.is_in_torch_dispatch_mode()))
            return func(*args, **(kwargs or {}))

    x = _wrapper(m)(m.ones(2))
    with Named("outer"), Named("inner"):
        x * 3
        with dispatch._disable_current_modes():
            x * 4
    seen.append((type(x).calls, dispatch.is_in_torch_dispatch_mode()))
    return seen


def classes_over_memory(m: Any) -> Any:
    seen = []

    class Sub(m.Tensor):  # type: ignore[misc]
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return super().__torch_dispatch__(func, types, args, kwargs)

    x = m.Tensor._make_subclass(Sub, m.ones(3))
    return [type(x + 1).__name__, x + 1, x.sum().item(), type(x).__name__, seen]


def refusals(m: Any) -> Any:
    class Never(m.Tensor):  # type: ignore[misc]
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return NotImplemented

    x = m.Tensor._make_wrapper_subclass(Never, (2,), dtype=m.float32)
    errors = []
    for call in (lambda: m.add(x, 1), lambda: m.Tensor._make_wrapper_subclass(m.Tensor, (2,))):
        with pytest.raises(TypeError) as error:
            call()
        errors.append(str(error.value).partition(";")[0].replace("torch._ops.", ""))
    return errors


def schemas_of_operators(m: Any) -> Any:
    packet = (m.ops if m is torch else __import__("tesserack.compat.shims.ops", fromlist=["aten"])).aten
    schema = packet.native_layer_norm.default._schema
    written = packet.copy_.default._schema
    return [
        [(a.name, a.kwarg_only, a.alias_info is not None) for a in schema.arguments],
        [
            len(schema.returns),
            schema.name,
            schema.is_mutable,
            written.is_mutable,
            written.arguments[0].alias_info.is_write,
        ],
    ]


def comparisons_of_wrappers(m: Any) -> Any:
    """What assert_close tells of tensors whose elements are their class's to tell."""
    tree_map = _utils(m)[1].tree_map

    class Wraps(m.Tensor):  # type: ignore[misc,name-defined]
        @staticmethod
        def __new__(cls: Any, held: Any) -> Any:
            made = m.Tensor._make_wrapper_subclass(cls, held.size(), dtype=held.dtype, device=held.device)
            made.held = held
            return made

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            args, kwargs = tree_map(lambda x: x.held if isinstance(x, cls) else x, (args, kwargs or {}))
            return tree_map(lambda x: cls(x) if isinstance(x, m.Tensor) else x, func(*args, **kwargs))

    a, b = Wraps(m.tensor([1.0, 2.0, 4.0])), Wraps(m.tensor([1.0, 3.0, 4.0]))
    m.testing.assert_close(a, Wraps(m.tensor([1.0, 2.0, 4.0])))
    with pytest.raises(AssertionError) as told:
        m.testing.assert_close(a, b)
    return ["1 / 3" in str(told.value), "1.0 at index (1,)" in str(told.value)]


PROGRAMS = [
    gradients_through_a_wrapper, comparisons_of_wrappers, views_and_writes_of_a_wrapper, parameters_that_are_wrappers,
    modes_around_modes_and_wrappers, classes_over_memory, refusals, schemas_of_operators,
]  # fmt: skip


def _same(ours: Any, theirs: Any) -> None:
    if isinstance(ours, (list, tuple)):
        assert len(ours) == len(theirs), (ours, theirs)
        for a, b in zip(ours, theirs, strict=True):
            _same(a, b)
    elif isinstance(ours, ts.Tensor):
        assert ours.shape == theirs.shape and ours.flatten().tolist() == pytest.approx(
            theirs.flatten().tolist(), rel=1e-5
        )
    else:
        assert ours == (pytest.approx(theirs, rel=1e-5) if isinstance(theirs, float) else theirs)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_programs_agree(program):
    _same(program(ts), program(torch))

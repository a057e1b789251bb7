"""How writes are counted and refused, what layout results have, and what is warned of, as one program for both."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest


def _error(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return type(error).__name__


def _warned(m: Any, call: Callable[[], Any]) -> list[str]:
    m.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
    finally:
        m.set_warn_always(False)
    return sorted({w.category.__name__ for w in caught if w.category is not DeprecationWarning})


def writes_are_counted_once(m: Any) -> Any:
    x, y = m.tensor([0.5, 1.5, 2.5]), m.tensor([1.0, 2.0, 3.0])
    at = m.tensor([0])
    writes: list[Callable[[], Any]] = [
        lambda: x.clamp_(0),
        lambda: x.clamp_(0, 9),
        lambda: x.clip_(y, None),
        lambda: x.pow_(2),
        lambda: x.div_(2, rounding_mode="floor"),
        lambda: x.lerp_(y, 0.3),
        lambda: x.nan_to_num_(),
        lambda: x.logit_(0.1),
        lambda: x.put_(at, y[:1]),
        lambda: x.scatter_reduce_(0, at, y[:1], "prod"),
        lambda: m.pow(y, 2, out=x),
        lambda: m.clamp(y, 0, 2, out=x),
        lambda: x[:2].clamp_(0),
    ]
    counts = []
    for write in writes:
        before = x._version
        write()
        counts.append(x._version - before)
    base = m.ones(3, requires_grad=True).clone()
    view = base[:2]
    view.clamp_(0, 0.5)
    base.pow_(2)
    (view * 3 + base.sum()).sum().backward()
    return [counts, base._version, view._version]


def forms_that_overlap(m: Any) -> Any:
    def refused(write: Callable[[Any], Any]) -> Any:
        x = m.arange(6.0)
        return [_error(lambda: write(x)), x]

    at = m.tensor([0, 1])
    return [
        refused(lambda x: x[1:].copy_(x[:-1])),
        refused(lambda x: x.view(2, 3).copy_(x.view(3, 2).t())),
        refused(lambda x: x[::2].copy_(x[1::2])),
        refused(lambda x: x.copy_(x)),
        refused(lambda x: x.index_add_(0, at, x[1:3])),
        refused(lambda x: x.index_copy_(0, at, x[1:3])),
        refused(lambda x: x.scatter_(0, at, x)),
        refused(lambda x: x.scatter_add_(0, at, x[:2])),
        refused(lambda x: x.put_(at, x[1:3])),
        refused(lambda x: x.__setitem__(at, x[1:3])),
        refused(lambda x: x.__setitem__(x > 2, x[:3])),
        refused(lambda x: x.__setitem__(x > 2, x[0])),
        refused(lambda x: x.expand(2, 6).index_add_(0, at, m.ones(2, 6))),
    ]


def channels_stay_last(m: Any) -> Any:
    f = m.nn.functional
    x = m.arange(240.0).reshape(2, 4, 5, 6).contiguous(memory_format=m.channels_last)
    made = [
        f.interpolate(x, scale_factor=2),
        f.interpolate(x, scale_factor=2, mode="bilinear"),
        f.interpolate(x, size=(3, 3), mode="bilinear", antialias=True),
        f.pad(x, (1, 1, 1, 1), mode="reflect"),
        f.pad(x, (1, 1, 1, 1), mode="replicate"),
        f.adaptive_avg_pool2d(x, 4),
        f.adaptive_max_pool2d(x, 4),
        f.group_norm(x, 2),
    ]
    return [(t, t.stride()) for t in made]


def norms_and_integrals_of_nothing(m: Any) -> Any:
    norm, inf = m.linalg.norm, float("inf")
    made = [norm(m.ones(0, 3), inf), norm(m.ones(0, 3), 2), m.linalg.matrix_norm(m.ones(2, 3, 0), 1)]
    made += [m.cumulative_trapezoid(m.ones(3, 0)), m.cumulative_trapezoid(m.ones(0), m.ones(0))]
    return [*made, _error(lambda: norm(m.ones(0, 3), -inf)), _error(lambda: norm(m.ones(0, 3), -2))]


def selections_of_bool(m: Any) -> Any:
    b = m.tensor([True, False])
    calls = [b.argmax, b.argmin, lambda: b.median(0), b.nanmedian, lambda: b.topk(1), lambda: b.kthvalue(1)]
    return [*(_error(call) for call in calls), *b.sort(), b.max(), b.max(0).indices, b.msort()]


def functions_that_write_their_primals(m: Any) -> Any:
    x, tangent = m.arange(3.0), m.ones(3)

    def write(t: Any) -> Any:
        t[0] = 3.0
        return t.mul_(2).sin()

    return [*m.func.jvp(write, (x,), (tangent,)), x]


def views_made_under_inference_mode(m: Any) -> Any:
    x = m.ones(3)
    with m.inference_mode():
        view, other = x.view(3), m.ones(2)
        within = other[:1]
    view.add_(1)
    flags = [t.is_inference() for t in (view, other, within, x.detach())]
    return [flags, x, x._version, _error(lambda: within.add_(1))]


def warnings_of_what_is_old(m: Any) -> Any:
    def last_operator() -> None:
        layer = m.nn.Sequential(m.nn.Linear(2, 2), m.nn.ReLU())
        layer.register_backward_hook(lambda *given: None)
        layer(m.ones(1, 2)).sum().backward()

    a, square = m.arange(3.0), m.eye(3)
    calls: list[Callable[[], Any]] = [
        lambda: m.meshgrid(a, a),
        lambda: m.meshgrid(a, a, indexing="ij"),
        lambda: a.T,
        lambda: square.T,
        lambda: m.range(0, 3),
        lambda: m.stft(m.ones(40), 8, return_complex=True),
        lambda: m.stft(m.ones(40), 8, return_complex=False, window=m.ones(8)),
        lambda: m.cholesky(square),
        lambda: m.linalg.cholesky(square),
        lambda: m.qr(square),
        lambda: m.lu(square),
        lambda: m.lu_solve(square, *m.linalg.lu_factor(square)),
        lambda: m.triangular_solve(square, square),
        lambda: m.chain_matmul(square, square),
        lambda: m.cross(square, square),
        lambda: m.cross(square, square, dim=0),
        lambda: m.nn.functional.kl_div(square, square),
        lambda: m.nn.functional.upsample(m.ones(1, 1, 2, 2), scale_factor=2),
        lambda: m.nn.utils.clip_grad_norm_((p for p in ()), 1.0),
        lambda: m.autograd.grad(m.ones(1, requires_grad=True).sum(), [], only_inputs=True),
        last_operator,
    ]
    return [_warned(m, lambda call=call: _error(call)) for call in calls]


def state_dicts(m: Any) -> Any:
    nn, seen = m.nn, []
    layer = nn.BatchNorm1d(2)
    layer.register_load_state_dict_pre_hook(lambda module, state, prefix, meta, *rest: seen.append(dict(meta)))
    state = layer.state_dict()
    state["num_batches_tracked"] = m.tensor([7])
    layer.load_state_dict(state)
    given = nn.Parameter(m.ones(2), requires_grad=False)
    layer.load_state_dict({**layer.state_dict(), "weight": given}, assign=True)
    layer.register_load_state_dict_post_hook(lambda module, keys: 1)
    failed = _error(lambda: layer.load_state_dict(layer.state_dict()))
    kept = [layer.num_batches_tracked, layer.weight is given, given.requires_grad]
    return [
        seen,
        failed,
        *kept,
        _error(lambda: nn.ParameterDict()(1)),
        layer.type("torch.DoubleTensor").weight.dtype.itemsize,
    ]


def functions_called_by_keyword(m: Any) -> Any:
    class Scaled(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, by: float = 2.0) -> Any:
            ctx.by = by
            return x * by

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * ctx.by, None

    x = m.ones(2, requires_grad=True)
    Scaled.apply(x=x, by=3.0).sum().backward()
    return [x.grad, Scaled.apply(x)]


PROGRAMS = [
    writes_are_counted_once, forms_that_overlap, channels_stay_last, norms_and_integrals_of_nothing, selections_of_bool,
    functions_that_write_their_primals, views_made_under_inference_mode, warnings_of_what_is_old, state_dicts,
    functions_called_by_keyword,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_alike(program: Callable[[Any], Any], compare_program: Any) -> None:
    compare_program(program)

"""What a function under vmap may write to, and gradients of all entries at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from tesserack.func import grad, grad_and_value, vjp, vmap

WRITES: dict[str, Callable[[ts.Tensor, Any], Any]] = {
    "add_": lambda base, v: base.add_(v),
    "iadd": lambda base, v: base.__iadd__(v),
    "copy_": lambda base, v: base.copy_(v),
    "item": lambda base, v: base.__setitem__(slice(None), v),
    "mask": lambda base, v: base.__setitem__(base > -1, v),
    "view": lambda base, v: base.view(-1).mul_(v),
    "data": lambda base, v: base.data.add_(v),
    "index_add_": lambda base, v: base.index_add_(0, ts.tensor([0, 1, 2]), v),
    "index_fill_": lambda base, v: base.index_fill_(0, ts.tensor([0]), v.sum()),
    "scatter_": lambda base, v: base.scatter_(0, ts.tensor([0, 1, 2]), v),
    "index_put_": lambda base, v: base.index_put_((ts.tensor([0]),), v[:1]),
    "masked_fill_": lambda base, v: base.masked_fill_(v > 0, 1.0),
    "out": lambda base, v: ts.add(v, 1, out=base),
    "foreach": lambda base, v: ts._foreach_add_([base], [v]),
    "addcmul_": lambda base, v: base.addcmul_(v, v),
    "where_out": lambda base, v: ts.mul(v, v, out=base),
}


@pytest.mark.parametrize("name", WRITES)
def test_what_all_entries_share_is_not_written_to(name: str) -> None:
    base, values = ts.zeros(3), ts.rand(4, 3) + 1

    def function(v: Any) -> Any:
        WRITES[name](base, v)
        return v * 2

    with pytest.raises(RuntimeError, match="vmap"):
        vmap(function)(values)
    assert not base.any()


@pytest.mark.parametrize("name", ["add_", "copy_", "item", "view", "index_add_", "scatter_", "out", "foreach"])
def test_own_tensors_are_written_to(name: str) -> None:
    values = ts.rand(4, 3) + 1

    def function(v: Any) -> Any:
        base = v * 0
        WRITES[name](base, v)
        return base

    got = vmap(function)(values)
    assert ts.allclose(got, ts.stack([function(v) for v in values]))


def test_entry_by_entry_nothing_shared_is_written_to_either() -> None:
    base = ts.zeros(3)

    def function(v: Any) -> Any:
        if v.sum() > 0:  # differs from entry to entry
            base.add_(v)
        return v * 2

    with pytest.raises(RuntimeError, match="vmap"):
        vmap(function)(ts.rand(4, 3) + 1)
    assert not base.any()


def loss(w: Any, x: Any, y: Any) -> Any:
    return ((ts.tanh(x @ w["a"]) @ w["b"] - y) ** 2).mean()


def data() -> tuple[dict[str, ts.Tensor], ts.Tensor, ts.Tensor]:
    weights = {"a": ts.rand(5, 4, dtype=ts.float64), "b": ts.rand(4, 2, dtype=ts.float64)}
    return weights, ts.rand(6, 3, 5, dtype=ts.float64), ts.rand(6, 3, 2, dtype=ts.float64)


def test_gradients_per_sample_call_the_function_once() -> None:
    weights, xs, ys = data()
    calls: list[int] = []

    def counted(w: Any, x: Any, y: Any) -> Any:
        calls.append(1)
        return loss(w, x, y)

    got, values = vmap(grad_and_value(counted), in_dims=(None, 0, 0))(weights, xs, ys)
    assert len(calls) == 1
    for k in range(6):
        one, value = grad_and_value(loss)(weights, xs[k], ys[k])
        assert ts.allclose(values[k], value)
        for name in weights:
            assert ts.allclose(got[name][k], one[name])


def test_gradients_within_vmap_of_captured_entries_and_twice() -> None:
    xs = ts.rand(5, 3, dtype=ts.float64)
    w = ts.rand(3, dtype=ts.float64)
    got = vmap(lambda x: grad(lambda v: (v * x).exp().sum())(w))(xs)
    assert ts.allclose(got, xs * (w * xs).exp())
    second = vmap(lambda x: grad(lambda t: grad(lambda s: (s**3).sum())(t).sum())(x))(xs)
    assert ts.allclose(second, 6 * xs)
    nested = vmap(lambda a: vmap(lambda b: grad(lambda t: (t * a * b).sin())(a))(xs[:, 0]))(w)
    expected = ts.stack([ts.stack([a * b0 * (a * a * b0).cos() for b0 in xs[:, 0]]) for a in w])
    assert ts.allclose(nested, expected)


def test_pullbacks_within_vmap() -> None:
    xs, cotangents = ts.rand(5, 3, dtype=ts.float64), ts.rand(5, 3, dtype=ts.float64)
    got = vmap(lambda x, c: vjp(ts.sin, x)[1](c)[0])(xs, cotangents)
    assert ts.allclose(got, cotangents * xs.cos())
    shared = vmap(lambda x: vjp(ts.sin, x)[1](ts.ones(3, dtype=ts.float64))[0])(xs)
    assert ts.allclose(shared, xs.cos())


def test_results_without_a_dim() -> None:
    shared = ts.ones(2)
    _, got = vmap(lambda x: (x * 2, shared * 3), out_dims=(0, None))(ts.rand(3, 2))
    assert got.tolist() == [3, 3]
    with pytest.raises(ValueError, match="out_dim is None"):
        vmap(lambda x: x, out_dims=None)(ts.rand(3))


def test_entries_do_not_outlive_their_call() -> None:
    kept: list[Any] = []
    vmap(lambda x: kept.append(x) or x * 2)(ts.rand(3))  # type: ignore[func-returns-value]
    with pytest.raises(RuntimeError, match="over"):
        kept[0] + 1


@pytest.mark.parametrize("norm", [ts.nn.BatchNorm1d, ts.nn.InstanceNorm1d])
def test_kept_statistics_are_read_under_transforms(norm: Any) -> None:
    layer = norm(3, affine=True, track_running_stats=True).eval()
    layer.running_mean.fill_(0.5)
    layer.running_var.fill_(4.0)
    x, versions = ts.randn(2, 3, 4), [b._version for b in layer.buffers()]
    slope = layer.weight.detach() / (4.0 + layer.eps) ** 0.5
    ts.testing.assert_close(grad(lambda x: layer(x).sum())(x), slope[:, None].expand(2, 3, 4))
    ts.testing.assert_close(vmap(grad(lambda x: layer(x[None]).sum()))(x), slope[:, None].expand(2, 3, 4))
    assert [b._version for b in layer.buffers()] == versions  # nor are they told to have been written


@pytest.mark.parametrize("norm", [ts.nn.BatchNorm1d, ts.nn.InstanceNorm1d])
def test_statistics_that_are_captured_are_not_written_under_transforms(norm: Any) -> None:
    layer = norm(3, track_running_stats=True)
    layer.num_batches_tracked = None
    with pytest.raises(RuntimeError, match="captured"):
        grad(lambda x: layer(x).sum())(ts.randn(2, 3, 4))
    assert layer.running_mean.eq(0).all()


def normalised(kind: str, x: ts.Tensor, mean: Any, var: Any, weight: Any, bias: Any, training: bool) -> ts.Tensor:
    if kind == "group":
        return ts.nn.functional.group_norm(x, 2, weight, bias)
    if kind == "instance":
        return ts.nn.functional.instance_norm(x, mean, var, weight, bias, training)
    return ts.nn.functional.batch_norm(x, mean, var, weight, bias, training)


@pytest.mark.parametrize("kind", ["batch", "instance", "group"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("batched", ["x", "xmv", "xw", "w", "xmvwb", "mv"])
def test_normalisations_of_entries(kind: str, training: bool, batched: str) -> None:
    shared = {"x": ts.randn(3, 4, 5), "m": ts.randn(4), "v": ts.rand(4) + 0.5, "w": ts.randn(4), "b": ts.randn(4)}
    if kind == "group" or (training and "m" not in batched):
        shared["m"] = shared["v"] = None  # type: ignore[assignment]
    names = [name for name in shared if name in batched and shared[name] is not None]
    if not names:
        pytest.skip(f"{kind} norm has none of {batched!r} here")
    given = {name: ts.stack([shared[name] * k for k in (1.0, 0.5, 2.0)]) for name in names}
    kept = {name: given[name].clone() for name in names}

    def of(*values: ts.Tensor) -> ts.Tensor:
        own = {**shared, **dict(zip(names, values, strict=True))}
        return normalised(kind, own["x"], own["m"], own["v"], own["w"], own["b"], training)

    expected = ts.stack([of(*(kept[name][k] for name in names)) for k in range(3)])
    ts.testing.assert_close(vmap(of)(*(given[name] for name in names)), expected)
    for name in names:
        ts.testing.assert_close(given[name], kept[name])  # statistics of every entry are written alike


def test_layers_whose_parameters_alone_differ_count_one_batch() -> None:
    norm = ts.nn.BatchNorm1d(3)
    weights, x = ts.randn(4, 3), ts.randn(5, 3)
    made = vmap(lambda w: ts.func.functional_call(norm, {"weight": w}, (x,)))(weights)
    assert norm.num_batches_tracked.item() == 1
    once = ts.nn.BatchNorm1d(3)
    ts.testing.assert_close(made, once(x) * weights[:, None])
    ts.testing.assert_close(norm.running_mean, once.running_mean)


@pytest.mark.parametrize("kind", ["batch", "instance", "group"])
@pytest.mark.parametrize("training", [True, False])
def test_entries_without_channels_are_refused_as_one_is(kind: str, training: bool) -> None:
    mean, var = (None, None) if training else (ts.zeros(4), ts.ones(4))
    with pytest.raises((RuntimeError, ValueError)):
        normalised(kind, ts.randn(4), mean, var, None, None, training)
    with pytest.raises((RuntimeError, ValueError)):
        vmap(lambda x: normalised(kind, x, mean, var, None, None, training))(ts.randn(3, 4))


def _sets_data(base: Any, v: Any) -> None:
    base.data = base + v


def _sets_memory(base: Any, v: Any) -> None:
    base.set_(ts.ones(3) * v.detach())


@pytest.mark.parametrize("write", [_sets_data, _sets_memory])
@pytest.mark.parametrize("transform", [vmap, ts.func.grad])
def test_other_memory_is_not_given_to_what_is_shared(write: Any, transform: Any) -> None:
    base = ts.zeros(3)

    def function(v: Any) -> Any:
        write(base, v)
        return (base * v).sum()

    with pytest.raises(RuntimeError, match=r"in-place|data"):
        transform(function)(ts.tensor([0.5, 1.5]) if transform is vmap else ts.tensor(1.0))
    assert not base.any()

"""vmap by batching rules: one call for all entries gives what calls one by one give, values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
import tesserack.nn.functional as F
from tesserack.func._batched import Batched, entries

W = ts.linspace(-1, 1, 12, dtype=ts.float64).reshape(3, 4)
K = ts.linspace(-1, 1, 2 * 3 * 3 * 3, dtype=ts.float64).reshape(2, 3, 3, 3)

# name: function of an entry of x (5, 4) and of y (5, 3, 4)
ONCE: dict[str, Callable[[Any, Any], Any]] = {
    "elementwise": lambda x, y: ts.tanh(x) * y + 1 / (2 + y.exp()) - (-x).abs() ** 2,
    "numbers": lambda x, y: (2 - x) / 3 + 2**x,
    "comparison": lambda x, y: ts.where(y > x, y, 0.5 * y),
    "unbatched": lambda x, y: W * x + y * W[0],
    "0-d": lambda x, y: x.sum() * y + y.mean(),
    "gelu": lambda x, y: F.gelu(y) + F.relu(x) + F.silu(x).clamp(-0.5, 0.5),
    "matrix by vector": lambda x, y: y @ x,
    "vector by matrix": lambda x, y: x @ y.mT,
    "vectors": lambda x, y: ts.dot(x, x) + x @ W[0],
    "matrices": lambda x, y: y @ y.T + W @ y.mT,
    "unbatched first": lambda x, y: W @ x,
    "mv, mm": lambda x, y: ts.mv(y, x).sum() + ts.mm(y, W.T),
    "linear": lambda x, y: F.linear(x, W, ts.ones(3, dtype=ts.float64)) + F.linear(y, W).sum(0),
    "linear by entries": lambda x, y: F.linear(x, y),
    "sums": lambda x, y: y.sum(0) + y.mean(-1, keepdim=True).sum() + y.sum((0, 1)) + x.sum(),
    "spread": lambda x, y: y.var(0) + y.std(dim=1).sum() + y.logsumexp(0),
    "extremes": lambda x, y: y.max() + y.amin(0) + y.max(1).values.sum() + y.max(0)[0],
    "order": lambda x, y: y.argmax(-1) + y.argmin(),
    "product": lambda x, y: y.prod(0) * x.prod(),
    "softmax": lambda x, y: ts.softmax(y, -1) * F.log_softmax(x, dim=0),
    "along a dim": lambda x, y: F.glu(y, -1).sum() + y.median(0).values + x.logcumsumexp(0) + F.softmin(x, dim=0),
    "ranks": lambda x, y: y.mode(1).values.sum() + y.nanmedian(-1).values.sum() + ts.count_nonzero(y, 0) * x,
    "running": lambda x, y: y.cumsum(0) + x.cumsum(-1),
    "sort": lambda x, y: ts.sort(y, -1).values + x.sort(0)[0],
    "views": lambda x, y: y.reshape(4, 3) + y.transpose(0, 1) + y.T + y.permute(1, 0) + y.flatten().view(-1, 3),
    "new dims": lambda x, y: x.unsqueeze(0) + x.unsqueeze(-1).squeeze(1) + x.expand(3, 4) + x[None, :],
    "indices": lambda x, y: y[1] + y[-1, :] + y[..., 2].sum() + y[::2, 1:].sum() + y.select(1, 0).sum(),
    "parts": lambda x, y: ts.stack([x, y[0]], 1).sum(1) + ts.cat([x.unsqueeze(0), y], 0).sum(0) + sum(y.unbind(0)),
    "unbatched part": lambda x, y: ts.stack([x, W[0]]),
    "chunks": lambda x, y: x.chunk(2)[0] + y.split(2, 1)[1].sum(),
    "layer norm": lambda x, y: F.layer_norm(y, (4,), W[0], W[1]),
    "shapes": lambda x, y: x * y.shape[0] + y.ndim + len(y) + y.numel(),
    "rows": lambda x, y: sum(row * k for k, row in enumerate(y)),
    "like": lambda x, y: ts.ones_like(x) + y.to(ts.float32).double(),
    "constant": lambda x, y: W,
    "no rule": lambda x, y: ts.linalg.inv(y @ y.T + 9 * ts.eye(3, dtype=ts.float64)),
    "no rule, several results": lambda x, y: tuple(ts.linalg.eigh(y @ y.T)) + (ts.linalg.slogdet(y @ y.T).logabsdet,),
    "indices that are tensors": lambda x, y: y[y[:, 0].argmax()] + y[ts.tensor([2, 0, 1])].sum(0),
    "in place": lambda x, y: x.clone().add_(1).mul_(y[0]).clamp_(min=0.2),
    "written by a view": lambda x, y: _added(y.clone(), x),
    "items": lambda x, y: _items(x.clone(), y),
    "kinds": lambda x, y: x if isinstance(x, ts.Tensor) and ts.is_tensor(y) else W,
    "shown": lambda x, y: x.real + x.stride(0) + x.new_zeros(4) + y.H[:, 0] + (x.to(ts.int64) << 1),
    "functions in Python": lambda x, y: F.normalize(y, dim=0)[0] + F.cosine_similarity(y, W).sum(),
    "nested": lambda x, y: ts.vmap(lambda row, z: (row * x + z * y[0]).sum())(y, W) + ts.vmap(ts.dot, (0, None))(y, x),
    "nested, none of ours": lambda x, y: ts.vmap(lambda row: row * x)(W) + y,
    "several": lambda x, y: (x + 1, {"a": y.sum(0), "b": W[0]}),
    "gradients": lambda x, y: ts.func.grad(lambda z: (z**3).sum())(x),
}
EACH: dict[str, Callable[[Any, Any], Any]] = {
    "branches": lambda x, y: x if x.sum() > 0 else -x,
}


def _added(y: Any, x: Any) -> Any:
    row = y[0]
    row += x
    y[1:] *= 2
    return y


def _items(x: Any, y: Any) -> Any:
    x[1] = 7.0
    x[2:] = y[0, 2:]
    x[ts.tensor([0])] = y[1, 1]
    return x


def inputs() -> tuple[ts.Tensor, ts.Tensor]:
    rng = np.random.default_rng(3)
    return ts.tensor(rng.standard_normal((5, 4))), ts.tensor(rng.standard_normal((5, 3, 4)))


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, ts.Tensor):
        return [tree]
    return [leaf for part in (tree.values() if isinstance(tree, dict) else tree) for leaf in leaves(part)]


def one_by_one(function: Callable[..., Any], *args: ts.Tensor) -> list[ts.Tensor]:
    rows = [leaves(function(*(x[k] for x in args))) for k in range(len(args[0]))]
    return [ts.stack(list(column)) for column in zip(*rows, strict=True)]


def gradients(results: list[ts.Tensor], of: list[ts.Tensor]) -> list[ts.Tensor]:
    tracked = [y for y in results if y.requires_grad]
    total = sum(((y.sin() * ts.arange(y.numel(), dtype=y.dtype).reshape(y.shape)).sum() for y in tracked), ts.zeros(()))
    found = ts.autograd.grad(total, of, allow_unused=True) if tracked else [None] * len(of)
    return [ts.zeros_like(x) if g is None else g for g, x in zip(found, of, strict=True)]


@pytest.mark.parametrize("name", [*ONCE, *EACH])
def test_as_one_by_one(name: str) -> None:
    calls = 0

    def function(x: Any, y: Any) -> Any:
        nonlocal calls
        calls += 1
        return (ONCE | EACH)[name](x, y)

    args = [x.requires_grad_() for x in inputs()]
    expected = one_by_one(function, *args)
    calls = 0
    found = leaves(ts.vmap(function)(*args))
    assert calls == 1 if name in ONCE else calls >= 5
    for got, wanted in zip(found, expected, strict=True):
        assert got.dtype is wanted.dtype and got.shape == wanted.shape
        np.testing.assert_allclose(got.detach().numpy(), wanted.detach().numpy(), 1e-12, 1e-12)
    for got, wanted in zip(gradients(found, args), gradients(expected, args), strict=True):
        np.testing.assert_allclose(got.numpy(), wanted.numpy(), 1e-10, 1e-10)


@pytest.mark.parametrize("shape", [(5, 3, 6, 6), (5, 2, 3, 6, 6)])
def test_images(shape: tuple[int, ...]) -> None:
    x = ts.tensor(np.random.default_rng(0).standard_normal(shape))

    def net(image: Any) -> Any:
        return F.adaptive_avg_pool2d(F.max_pool2d(F.relu(F.conv2d(image, K, padding=1)), 2), 1)

    (expected,) = one_by_one(net, x)
    np.testing.assert_allclose(ts.vmap(net)(x).numpy(), expected.numpy(), 1e-12, 1e-12)


def test_dims_of_arguments_and_results() -> None:
    x, y = inputs()
    found = ts.vmap(lambda a, b, c: (a * b, c + a), (1, None, 0), (1, 0))(x.T, W[0], x)
    assert found[0].shape == (4, 5) and ts.equal(found[0], (x * W[0]).T) and ts.equal(found[1], x + x)
    assert ts.equal(ts.vmap(ts.vmap(ts.dot))(y, y), (y * y).sum(-1)) or ts.allclose(
        ts.vmap(ts.vmap(ts.dot))(y, y), (y * y).sum(-1)
    )


def test_0d_operands_keep_their_weight_in_promotion() -> None:
    small, wide = ts.ones(3, 2), ts.ones(3, dtype=ts.float64)
    assert ts.vmap(lambda a, b: a * b)(small, wide).dtype is ts.float32


def test_draws_differ() -> None:
    found = ts.vmap(lambda x: x + ts.rand(4), randomness="different")(ts.zeros(3, 4))
    assert len({tuple(row.tolist()) for row in found}) == 3


def test_errors_are_those_of_single_calls() -> None:
    with pytest.raises(RuntimeError, match=r"multiplied|shapes|size"):
        ts.vmap(lambda x: x @ W)(ts.ones(2, 5, dtype=ts.float64))


def test_arguments_are_written_once() -> None:
    x, shared = ts.zeros(3, 4), ts.zeros(2)

    def function(row: Any) -> Any:
        shared.add_(1)
        row[1:] += 1
        return ts.linalg.vector_norm(row, 3)

    assert ts.allclose(ts.vmap(function)(x), ts.full((3,), 3 ** (1 / 3)))
    assert x.tolist() == [[0, 1, 1, 1]] * 3 and shared.tolist() == [1, 1]

    def branches(row: Any) -> Any:
        row.add_(1)
        return row if row.sum() > 0 else -row

    with pytest.raises(RuntimeError, match="copy the argument"):
        ts.vmap(branches)(x)
    with pytest.raises(RuntimeError, match=r"shape|broadcast|size"):
        ts.vmap(lambda row: row.add_(1) @ ts.ones(5))(x)


def test_a_view_that_was_copied_is_not_written() -> None:
    def diagonal(y: Any) -> Any:
        y = y.clone()
        y.diagonal().fill_(5)
        return y

    def turned(y: Any) -> Any:
        y = y.clone()
        y.view(9)[::2] = 0
        return y

    y = ts.arange(36.0).reshape(3, 3, 4)
    for function in (diagonal, turned):
        assert ts.equal(ts.vmap(function, in_dims=2)(y), ts.stack([function(y[..., k]) for k in range(4)]))


def test_shared_statistics_are_not_written() -> None:
    norm = ts.nn.BatchNorm1d(4)
    with pytest.raises(RuntimeError, match="running_mean"):
        ts.vmap(norm)(ts.randn(3, 5, 4))
    assert norm.running_mean.tolist() == [0, 0, 0, 0]
    own = ts.nn.BatchNorm1d(4, track_running_stats=False)
    x = ts.randn(3, 5, 4)
    assert ts.allclose(ts.vmap(own)(x), ts.stack([own(row) for row in x]), atol=1e-6)


class Named:
    """A container of tensors that share their first dims, which hides one of them itself."""

    def __init__(self, tensors: dict[str, Any], shape: tuple[int, ...]) -> None:
        self.tensors, self.shape = tensors, shape

    def dim(self) -> int:
        return len(self.shape)

    def clone(self, recurse: bool = True) -> Named:
        return Named(dict(self.tensors), self.shape)

    def __getitem__(self, index: Any) -> Named:
        return Named({k: v[index] for k, v in self.tensors.items()}, self.shape[1:])

    def _add_batch_dim(self, *, in_dim: int, vmap_level: int) -> Named:
        hidden = {k: Batched(v.movedim(in_dim, 0), vmap_level) for k, v in self.tensors.items()}
        return Named(hidden, self.shape[:in_dim] + self.shape[in_dim + 1 :])

    def _maybe_remove_batch_dim(self, funcname: str, vmap_level: int, batch_size: int, out_dim: int) -> Named:
        shown = {k: entries(v, vmap_level, batch_size).movedim(0, out_dim) for k, v in self.tensors.items()}
        return Named(shown, (batch_size, *self.shape))


def test_a_container_hides_its_dim_itself() -> None:
    given = Named({"x": ts.arange(6.0).reshape(3, 2)}, (3,))
    seen: list[tuple[int, ...]] = []

    def doubled(row: Named, shared: Named) -> Named:
        seen.append(row.shape)
        shared.tensors["new"] = row.tensors["x"]
        return Named({"y": row.tensors["x"] * 2 + shared.tensors["x"][0]}, row.shape)

    found = ts.vmap(doubled, in_dims=(0, None))(given, given)
    assert found.shape == (3,) and seen == [()]
    assert ts.equal(found.tensors["y"], given.tensors["x"] * 2 + given.tensors["x"][0])
    assert set(given.tensors) == {"x"}  # what the function puts into a shared container stays its own

"""Nested tensors: what they are made of, what they refuse, and that they agree with their rows."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys

import pytest
import tesserack as ts
from tesserack.nested import nested_tensor, nested_tensor_from_jagged

F = ts.nn.functional


@pytest.fixture
def nt(device):
    values = ((ts.arange(24.0) * 7) % 11).reshape(6, 4).to(device)
    return nested_tensor_from_jagged(values, ts.tensor([0, 2, 3, 6], device=device))


def same(a, b):
    assert [tuple(r.shape) for r in a] == [tuple(r.shape) for r in b]
    for x, y in zip(a, b, strict=True):
        ts.testing.assert_close(x, y)


def test_parts(nt):
    assert nt.is_nested and nt.layout is ts.jagged and nt.dim() == 3 and len(nt) == 3 and nt.numel() == 24
    assert isinstance(nt, ts.Tensor) and not nt.values().is_nested and nt.lengths() is None
    assert nt.offsets().tolist() == [0, 2, 3, 6] and nt.values().shape == (6, 4)
    assert [tuple(r.shape) for r in nt.unbind()] == [(2, 4), (1, 4), (3, 4)]
    assert nt.values().data_ptr() == nt.data_ptr()


def test_ragged_size(nt):
    j = nt.size(1)
    other = nested_tensor([ts.ones(2), ts.ones(1), ts.ones(3)], layout=ts.jagged).size(1)
    assert (
        j == (nt * 2).size(1) == nt.transpose(1, 2).size(2) and j != other and j != 6 and hash(j) == hash(nt.shape[1])
    )
    assert nt.shape == (3, j, 4) and repr(nt.shape).endswith(f"Size([3, {j}, 4])") and repr(j).startswith("j")
    assert 2 * j == j * 2 != j and repr(2 * j) == f"2*{j}" and j >= 2 and not j < 2 and j * 3 > j
    for wrong in (lambda: j > 2, lambda: j < 9, lambda: j >= other):
        with pytest.raises(ValueError, match="indeterminate"):
            wrong()
    for wrong in (int, range, ts.zeros):
        with pytest.raises(TypeError):
            wrong(j)


def test_text(nt):
    j = nt.size(1)
    assert str(nt) == f"NestedTensor(size=(3, {j}, 4), offsets={nt.offsets()}, contiguous=True)"
    assert "requires_grad=True" in repr(nt.detach().requires_grad_())


@pytest.mark.parametrize("f", [
    lambda x: x + 1, lambda x: 1 - x, lambda x: -x, lambda x: x * x, lambda x: x / 3, lambda x: x**2, lambda x: x > 3,
    lambda x: x.exp(), F.gelu, F.silu, lambda x: x.clamp(1, 5), lambda x: x.double(), lambda x: x.softmax(-1),
    lambda x: F.log_softmax(x, -1), lambda x: x[..., 1:3], lambda x: x[..., 0], lambda x: x.unsqueeze(-1),
    lambda x: x.sum(-1), lambda x: x.amax(-1, keepdim=True), lambda x: x.argmin(-1), lambda x: F.layer_norm(x, (4,)),
    lambda x: F.rms_norm(x, (4,)), lambda x: F.dropout(x, 0.3, training=False), lambda x: x.unflatten(-1, (2, 2)),
    lambda x: ts.where(x > 3, x, 0.0), lambda x: ts.cat([x, x * 2], -1), lambda x: ts.stack([x, x], -1),
    lambda x: x.chunk(2, -1)[1], lambda x: x.split([1, 3], -1)[1], lambda x: x.transpose(-2, -1), lambda x: x.mT,
    lambda x: x.clone().mul_(2), lambda x: ts.zeros_like(x), lambda x: ts.frexp(x)[0], lambda x: x.flatten(-1, -1),
])  # fmt: skip
def test_as_its_rows(nt, f):
    same(f(nt).unbind(), [f(row) for row in nt.unbind()])


def test_over_the_ragged_dimension(nt):
    rows = nt.unbind()
    for f in (lambda x, d: x.sum(d), lambda x, d: x.mean(d), lambda x, d: x.amax(d), lambda x, d: x.prod(d),
              lambda x, d: x.min(d).values, lambda x, d: x.max(d).indices, lambda x, d: (x > 3).any(d)):  # fmt: skip
        ts.testing.assert_close(f(nt, 1), ts.stack([f(row, 0) for row in rows]))
    same(nt.softmax(1).unbind(), [row.softmax(0) for row in rows])
    assert nt.sum(1, keepdim=True).shape == (3, 1, 4)
    ts.testing.assert_close(nt.sum((0, 1)), nt.values().sum(0))


def test_dense_operands(nt, device):
    wide, one = ts.arange(12.0, device=device).view(3, 1, 4), ts.arange(4.0, device=device)
    same((nt + one).unbind(), [r + one for r in nt.unbind()])
    same((wide - nt).unbind(), [w - r for w, r in zip(wide, nt.unbind(), strict=True)])
    same((nt * wide.view(3, 4)[:, :1].view(3, 1, 1)).unbind(), [r * 4.0 * k for k, r in enumerate(nt.unbind())])
    with pytest.raises(RuntimeError, match="binary pointwise"):
        nt + nested_tensor(list(nt.unbind()), layout=ts.jagged)
    with pytest.raises(RuntimeError, match="binary pointwise"):
        nt + ts.ones(3, 2, 4, device=device)
    with pytest.raises(NotImplementedError, match="more dims"):
        nt + ts.ones(2, 3, 1, 4, device=device)


def test_empty_rows_and_gaps(device):
    values = ts.arange(6.0, device=device)
    nt = nested_tensor_from_jagged(values, ts.tensor([0, 2, 2, 6], device=device))
    assert nt.sum(1).tolist() == [1.0, 0.0, 14.0] and nt.unbind()[1].numel() == 0
    assert nt.softmax(1).sum(1).tolist() == pytest.approx([1.0, 0.0, 1.0])
    gaps = nested_tensor_from_jagged(values, ts.tensor([0, 2, 3, 6], device=device),
                                     lengths=ts.tensor([1, 1, 2], device=device))  # fmt: skip
    assert not gaps.is_contiguous() and gaps.numel() == 4 and gaps.sum().item() == 9.0
    assert [r.tolist() for r in (gaps * 2).unbind()] == [[0.0], [4.0], [6.0, 8.0]]
    assert gaps.contiguous().values().tolist() == [0.0, 2.0, 3.0, 4.0]
    for wrong in (lambda: gaps.to_padded_tensor(0.0), lambda: gaps.sum(1)):
        with pytest.raises(RuntimeError, match="holes"):
            wrong()


def test_gaps_in_the_last_dimension(device):
    values = ts.arange(12.0, device=device).view(2, 6)
    made = nested_tensor_from_jagged(values, ts.tensor([0, 3, 6], device=device), ts.tensor([2, 2], device=device), 2)
    closed = made.contiguous()
    assert closed.size(1) == 2 and closed.offsets().tolist() == [0, 2, 4]
    same(closed.unbind(), [values[:, :2], values[:, 3:5]])


def test_padding(nt):
    dense = ts.nested.to_padded_tensor(nt, -1.0, (3, 4, 4))
    assert dense.shape == (3, 4, 4) and (dense[1, 1:] == -1).all() and (dense[2, 3] == -1).all()
    same([dense[k, :n] for k, n in enumerate((2, 1, 3))], nt.unbind())
    rows = nested_tensor(list(nt.unbind()), layout=ts.jagged)
    assert rows.to_padded_tensor(0).shape == (3, 3, 4)


def test_gradients(nt):
    x = nt.detach().clone().requires_grad_()
    (x * x).sum(1).sum().backward()
    assert x.is_leaf and x.grad.is_nested and x.grad.shape == x.shape
    ts.testing.assert_close(x.grad.values(), 2 * nt.values())
    (got,) = ts.autograd.grad(x * 3, x, ts.ones_like(x))
    assert got.is_nested and (got.values() == 3).all()
    x.grad = None
    seen = []
    x.register_hook(lambda g: seen.append(g.is_nested) or g * 2)
    (x * 1).backward(ts.ones_like(x))
    assert seen == [True] and (x.grad.values() == 2).all()
    with pytest.raises(RuntimeError, match="nested gradient"):
        (x * 1).backward(ts.ones(3))


def test_gradients_reach_the_list(device):
    a, b = (ts.ones(n, 2, device=device, requires_grad=True) for n in (1, 3))
    (
        ts.nested.as_nested_tensor([a, b], layout=ts.jagged).sum(1) * ts.tensor([[2.0], [3.0]], device=device)
    ).sum().backward()
    assert a.grad.tolist() == [[2.0, 2.0]] and b.grad.tolist() == [[3.0, 3.0]] * 3


def test_second_gradients(nt):
    values = (nt.values() / 10).double().requires_grad_()

    def f(v):
        x = nested_tensor_from_jagged(v, nt.offsets())
        return (x.softmax(1) * x).mean(1), F.layer_norm(x, (4,)).amax(-1).values(), x.to_padded_tensor(0.0, (3, 3, 4))

    assert ts.autograd.gradcheck(f, values) and ts.autograd.gradgradcheck(f, values)


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention(device, is_causal):
    ts.manual_seed(0)
    offsets = ts.tensor([0, 3, 4, 4, 9], device=device)
    q, k, v = (ts.randn(9, 2, 4, device=device, requires_grad=True) for _ in range(3))
    nested = [nested_tensor_from_jagged(x, offsets).transpose(1, 2) for x in (q, k, v)]
    out = F.scaled_dot_product_attention(*nested, is_causal=is_causal)
    assert out.shape == nested[0].shape
    rows = [F.scaled_dot_product_attention(*(r.unsqueeze(0) for r in part), is_causal=is_causal)[0]
            for part in zip(*(x.unbind() for x in nested), strict=True) if part[0].numel()]  # fmt: skip
    got = out.transpose(1, 2).flatten(-2).values()
    want = ts.cat([r.transpose(0, 1).flatten(-2) for r in rows])
    ts.testing.assert_close(got, want)
    ours, theirs = (ts.autograd.grad((x * x).sum(), (q, k, v), retain_graph=True) for x in (got, want))
    for a, b in zip(ours, theirs, strict=True):
        ts.testing.assert_close(a, b)


def test_attention_of_other_keys(device):
    q = nested_tensor_from_jagged(ts.randn(3, 1, 4, device=device), ts.tensor([0, 1, 3], device=device)).transpose(1, 2)
    k = nested_tensor_from_jagged(ts.randn(5, 1, 4, device=device), ts.tensor([0, 3, 5], device=device)).transpose(1, 2)
    out = F.scaled_dot_product_attention(q, k, k)
    same(out.unbind(), [F.scaled_dot_product_attention(a[None], b[None], b[None])[0]
                        for a, b in zip(q.unbind(), k.unbind(), strict=True)])  # fmt: skip
    with pytest.raises(ValueError, match="Masks"):
        F.scaled_dot_product_attention(q, k, k, attn_mask=ts.ones(1, device=device))
    with pytest.raises(ValueError, match="nested tensors"):
        F.scaled_dot_product_attention(q, k.values(), k)
    with pytest.raises(ValueError, match="ragged on dim 2"):
        F.scaled_dot_product_attention(*[q.transpose(1, 2)] * 3)


class Block(ts.nn.Module):
    """Attention over rows of different lengths, as the tutorials on nested tensors have it."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.qkv = ts.nn.Embedding(10, 8), ts.nn.LayerNorm(8), ts.nn.Linear(8, 24)
        self.out = ts.nn.Sequential(ts.nn.Linear(8, 16), ts.nn.GELU(), ts.nn.Dropout(0.0), ts.nn.Linear(16, 8))

    def forward(self, tokens):
        x = self.embed(tokens)
        q, k, v = (p.unflatten(-1, (2, 4)).transpose(1, 2) for p in self.qkv(self.norm(x)).chunk(3, dim=-1))
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)
        return (x + self.out(x)).mean(1)


def test_a_network(device):
    ts.manual_seed(3)
    model = Block().to(device)
    rows = [ts.tensor([1, 2, 3], device=device), ts.tensor([4], device=device), ts.tensor([5, 6], device=device)]
    found = []
    for batches in ([rows], [[row] for row in rows]):
        model.zero_grad()
        made = ts.cat([model(nested_tensor(batch, layout=ts.jagged)) for batch in batches])
        (made * made).sum().backward()
        found.append([made.detach(), *(p.grad.clone() for p in model.parameters())])
    for a, b in zip(*found, strict=True):
        ts.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_copies(nt):
    for made in (copy.copy(nt), copy.deepcopy(nt), pickle.loads(pickle.dumps(nt)), pickle.loads(pickle.dumps(nt, 5))):
        assert made.is_nested and type(made) is type(nt)
        same(made.unbind(), nt.unbind())
    assert copy.deepcopy(nt).shape == nt.shape and copy.deepcopy(nt).data_ptr() != nt.data_ptr()
    leaf = nt.detach().requires_grad_()
    assert pickle.loads(pickle.dumps(leaf)).requires_grad and copy.deepcopy(leaf).requires_grad
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(leaf * 2)


def cut(x, starts, lengths):
    starts, lengths = (ts.tensor(n, device=x.device) for n in (starts, lengths))
    return ts.nested.narrow(x, 1, starts, lengths, layout=ts.jagged)


def test_made_of(device):
    x = ts.arange(15.0, device=device).view(3, 5)
    narrow = ts.nested.narrow(
        x, 1, ts.tensor([1, 0, 3], device=device), ts.tensor([2, 1, 2], device=device), layout=ts.jagged
    )
    assert [r.tolist() for r in narrow.unbind()] == [
        [1.0, 2.0],
        [5.0],
        [13.0, 14.0],
    ] and narrow.data_ptr() == x.data_ptr()
    whole = ts.nested.narrow(
        x, 1, ts.tensor([3, 0, 0], device=device), ts.tensor([2, 5, 1], device=device), layout=ts.jagged
    )
    assert whole.lengths() is None and whole.values().tolist() == list(map(float, range(3, 11)))
    apart = ts.nested.narrow(x[:2], 1, ts.tensor([3, 2], device=device), 2, layout=ts.jagged)
    assert [r.tolist() for r in apart.unbind()] == [[3.0, 4.0], [7.0, 8.0]]
    picked = ts.nested.masked_select(x, x % 2 == 0)
    assert [r.numel() for r in picked.unbind()] == [3, 2, 3]
    whole = ts.nested.as_nested_tensor(x, layout=ts.jagged)
    assert whole.values().data_ptr() == x.data_ptr() and whole.to_padded_tensor(0).equal(x)
    assert ts.nested.as_nested_tensor(whole, layout=ts.jagged) is whole
    assert nested_tensor([[1.0], [2.0, 3.0]], layout=ts.jagged, dtype=ts.float64, requires_grad=True).is_leaf


OFFSETS = [0, 2, 5]


@pytest.mark.parametrize(("make", "error", "text"), [
    (lambda m, t: m.nested_tensor([t], layout=ts.sparse_coo), RuntimeError, "unsupported"),
    (lambda m, t: m.nested_tensor([], layout=ts.jagged), RuntimeError, "empty"),
    (lambda m, t: m.nested_tensor([t, t.double()], layout=ts.jagged), RuntimeError, "same dtype"),
    (lambda m, t: m.nested_tensor([t, t[0]], layout=ts.jagged), RuntimeError, "same dim"),
    (lambda m, t: m.nested_tensor([t[0, 0]], layout=ts.jagged), RuntimeError, "zero-dim"),
    (lambda m, t: m.nested_tensor([t, t[:1, :1]], layout=ts.jagged), RuntimeError, "single ragged"),
    (lambda m, t: m.as_nested_tensor(3, layout=ts.jagged), TypeError, "list / tuple"),
    (lambda m, t: m.as_nested_tensor(t[0], layout=ts.jagged), RuntimeError, "dim"),
    (lambda m, t: m.nested_tensor_from_jagged(t), RuntimeError, "At least one"),
    (lambda m, t: m.nested_tensor_from_jagged(t, ts.tensor([0, 9])), RuntimeError, "do not match"),
    (lambda m, t: m.nested_tensor_from_jagged(t, ts.tensor([3, 1])), RuntimeError, "do not match"),
    (lambda m, t: m.nested_tensor_from_jagged(t, ts.tensor([-1, 1])), RuntimeError, "do not match"),
    (lambda m, t: m.nested_tensor_from_jagged(t, ts.tensor([0.0, 1.0])), RuntimeError, "int64"),
    (lambda m, t: m.nested_tensor_from_jagged(t, ts.tensor(OFFSETS), ts.tensor([1])), RuntimeError, "one more"),
    (lambda m, t: m.nested_tensor_from_jagged(t, ts.tensor(OFFSETS), jagged_dim=0), ValueError, "jagged_dim"),
    (lambda m, t: m.nested_tensor_from_jagged(t, ts.tensor(OFFSETS), jagged_dim=3), IndexError, "jagged_dim"),
    (lambda m, t: m.narrow(t, 0, 0, 1, layout=ts.jagged), RuntimeError, "dim=1"),
    (lambda m, t: m.narrow(t, 1, "a", 1, layout=ts.jagged), RuntimeError, "start"),
    (lambda m, t: m.narrow(t, 1, 3, 9, layout=ts.jagged), RuntimeError, "within"),
    (lambda m, t: m.narrow(t, 1, 0, ts.tensor([1, 1]), layout=ts.jagged), RuntimeError, "broadcast"),
    (lambda m, t: m.to_padded_tensor(t, 0.0), TypeError, "nested"),
])  # fmt: skip
def test_refused_parts(make, error, text):
    with pytest.raises(error, match=text):
        make(ts.nested, ts.ones(5, 4))


@pytest.mark.parametrize(("f", "error"), [
    (lambda x: x.sort(), NotImplementedError), (lambda x: x.cumsum(1), NotImplementedError),
    (lambda x: x.numpy(), NotImplementedError), (lambda x: x.tolist(), NotImplementedError),
    (lambda x: ts.equal(x, x), NotImplementedError), (lambda x: ts.exp(x, out=x), NotImplementedError),
    (lambda x: x[x > 0], NotImplementedError), (lambda x: x.transpose(0, 1), ValueError),
    (lambda x: x.permute(1, 0, 2), ValueError), (lambda x: x.T, ValueError), (lambda x: x.sum(0), RuntimeError),
    (lambda x: x.sum((1, 2)), RuntimeError), (lambda x: x.softmax(0), RuntimeError),
    (lambda x: x.log_softmax(1), RuntimeError), (lambda x: x.unbind(1), RuntimeError),
    (lambda x: x.view(-1, 4), RuntimeError), (lambda x: x.reshape(24), RuntimeError),
    (lambda x: x.split(1), RuntimeError), (lambda x: x.squeeze(1), RuntimeError), (lambda x: x.sum(5), IndexError),
    (lambda x: x @ x, RuntimeError), (lambda x: x + x.size(1), RuntimeError), (lambda x: x[7], IndexError),
    (lambda x: F.layer_norm(x, (3, 4)), RuntimeError), (lambda x: F.rms_norm(x, (3, 4)), ValueError),
    (lambda x: F.linear(x.transpose(1, 2), ts.ones(2, 3)), ValueError), (lambda x: ts.cat([x, x]), RuntimeError),
])  # fmt: skip
def test_refused(nt, f, error):
    with pytest.raises(error):
        f(nt)


def test_refusals_say_what_to_try(nt):
    with pytest.raises(NotImplementedError, match=r"^sort: not supported.*to_padded_tensor.*unbind"):
        nt.sort()


def test_products(nt, device):
    w, each = ts.arange(8.0, device=device).view(4, 2), ts.arange(24.0, device=device).view(3, 4, 2)
    same((nt @ w).unbind(), [r @ w for r in nt.unbind()])
    same((nt @ each).unbind(), [r @ e for r, e in zip(nt.unbind(), each, strict=True)])
    same((w.t() @ nt.transpose(1, 2)).unbind(), [w.t() @ r.t() for r in nt.unbind()])
    ts.testing.assert_close(nt.transpose(1, 2) @ nt, ts.stack([r.t() @ r for r in nt.unbind()]))
    same(F.linear(nt, w.t(), w[:1].flatten()).unbind(), [r @ w + w[0] for r in nt.unbind()])


def test_not_imported_before_it_is_used():
    code = (
        "import sys, tesserack as ts; ts.ones(2).is_nested; assert 'tesserack.nested' not in sys.modules\n"
        "ts.nested.narrow"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_under_the_name_of_torch():
    code = (
        "import torch, torch.nested\n"
        "x = torch.nested.nested_tensor([torch.ones(2), torch.ones(1)], layout=torch.jagged)\n"
        "assert x.is_nested and isinstance(x, torch.Tensor) and x.layout == torch.jagged and 'torch' in str(x.shape)\n"
        "from torch.nested import nested_tensor_from_jagged"
    )
    subprocess.run([sys.executable, "-c", f"from tesserack import compat; compat.enable()\n{code}"], check=True)


def test_extremes_of_rows_without_finite_elements() -> None:
    rows = ts.nested.nested_tensor([ts.tensor([-math.inf, -math.inf]), ts.tensor([1.0, 2.0, 3.0])], layout=ts.jagged)
    assert rows.amax(dim=1).tolist() == [-math.inf, 3.0]
    assert rows.argmax(dim=1).tolist() == [0, 2]
    assert (-rows).amin(dim=1).tolist() == [math.inf, -3.0]


@pytest.mark.parametrize("layout", [ts.jagged, ts.strided])
def test_compiled_functions_may_make_and_take_them(layout: ts.layout) -> None:
    layer = ts.nn.Linear(3, 3)

    def made(rows: list[ts.Tensor]) -> ts.Tensor:
        return layer(nested_tensor(rows, layout=layout)).to_padded_tensor(0.0)

    rows, taken = [ts.ones(2, 3), ts.ones(4, 3)], ts.compile(lambda n: (n * 2).to_padded_tensor(0.0))
    compiled = ts.compile(made)
    for turn in range(4):
        rows = [row + turn for row in rows]
        assert ts.equal(compiled(rows), made(rows))
        assert ts.equal(taken(nested_tensor(rows, layout=layout)), nested_tensor(rows).to_padded_tensor(0.0) * 2)

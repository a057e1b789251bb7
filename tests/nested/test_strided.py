"""Nested tensors of the strided layout, PyTorch's default: rows of any sizes in one buffer."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import tesserack as ts

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


def some(m: Any, seed: int, *shape: int) -> Any:
    count = 1
    for n in shape:
        count *= n
    return (m.arange(count, dtype=m.float32).reshape(shape) * 7 % 5 - seed) / 4


def rows_of(m: Any) -> list[Any]:
    return [some(m, 1, 2, 4), some(m, 2, 3, 4), some(m, 0, 1, 4)]


def make(m: Any, requires_grad: bool = False) -> Any:
    return m.nested.nested_tensor(rows_of(m), requires_grad=requires_grad)


def irregular(m: Any) -> Any:
    return m.nested.nested_tensor([some(m, 1, 2, 3), some(m, 2, 4, 2)])


def heads(m: Any) -> Any:
    return m.nested.nested_tensor([some(m, k, 2, n, 4) for k, n in enumerate((3, 1, 2))])


# One expression each, of what PyTorch has; x is regular in its last dim, y in none, h is (B, heads, L*, E).
AS_PYTORCH = """
x.dim() | x.numel() | x.size(0) | x.size(2) | x.size(-1) | x.is_nested | x.is_contiguous() | x.unbind() | x.values()
x[0] | x[-1] | x[1, 1:] | x[2, 0, 1] | x[..., 0] | x.select(0, 1) | x.select(2, 1) | y.select(1, 0) | x.narrow(0, 1, 2)
x + 1 | x + x | x - x | x * 2 | x / x | -x | x.relu() | x.tanh() | x.abs() | x.cos() | x > 0 | x.isnan() | y.sqrt()
m.nn.functional.gelu(y) | m.nn.functional.silu(x) | x.masked_fill(x > 0, 5.0) | x.sgn() | x.logical_not()
x.sum(-1, keepdim=True) | x.softmax(-1) | y.softmax(1) | m.nn.functional.softmax(y, -1) | x.mT | y.transpose(1, 2)
y.transpose(1, 2) @ y | m.bmm(x, x.transpose(1, 2)) | h @ h.transpose(2, 3) | y.transpose(1, 2).contiguous()
x.reshape(3, -1, 2, 2) | x.view(3, -1, 2, 2).transpose(1, 2) | y.reshape(2, -1, -1) | x.unsqueeze(1) | x.unsqueeze(-1)
x.to_padded_tensor(-1.0) | y.to_padded_tensor(0.0) | m.nested.to_padded_tensor(y, 2.0, (2, 5, 6)) | m.cat([x, x])
x.clone() | x.double() | x.to(m.float64) | x.half() | x.detach() | x.chunk(2, -1) | x.transpose(1, 2).is_contiguous()
m.ones_like(x) | m.zeros_like(y) | x.fill_(2) | x.mul_(3) | x.add_(x) | x.copy_(x + 1) | x.zero_() | x.is_same_size(x)
m.nn.functional.linear(x, some(m, 1, 5, 4), some(m, 2, 5)) | m.nn.Linear(4, 2)(x).size(2)
m.nn.functional.layer_norm(x, (4,), some(m, 1, 4), some(m, 2, 4)) | m.nn.functional.dropout(x, 0.5, False)
m.nn.functional.scaled_dot_product_attention(h, h, h)
m.nn.functional.embedding(m.nested.nested_tensor([m.tensor([1, 2]), m.tensor([0])]), some(m, 1, 3, 2))
m.nested.nested_tensor([[1, 2], [3]]) | m.nested.nested_tensor([m.tensor(1.0), m.tensor(2.0)])
m.nested.nested_tensor([m.ones(2), m.ones(3)], dtype=m.int32) | m.nested.as_nested_tensor(some(m, 1, 2, 3, 4))
m.nested.nested_tensor([m.ones(2), m.ones(1, dtype=m.int64)]) | x._nested_tensor_size() | y._nested_tensor_strides()
m.nested.nested_tensor([]).numel() | m.nested.nested_tensor([]).size(0) | x.transpose(1, 2)._nested_tensor_strides()
"""
EXPRESSIONS = [e.strip() for line in AS_PYTORCH.strip().splitlines() for e in line.split(" | ")]


def near(value: Any) -> Any:
    """What is near a number."""
    return pytest.approx(value, rel=1e-5, abs=1e-6, nan_ok=True) if isinstance(value, float) else value


def exact(value: Any) -> Any:
    """The number itself."""
    return value


def plain(value: Any, number: Any = near) -> Any:
    """Numbers and lists, with the dtypes and sizes of tensors."""
    if isinstance(value, (tuple, list)):
        return [plain(v, number) for v in value]
    if getattr(value, "is_nested", False):
        return ["nested", str(value.dtype).rpartition(".")[2], [plain(row, number) for row in value.unbind()]]
    if hasattr(value, "detach"):
        flat = [number(n) for n in value.detach().reshape(-1).tolist()]
        return [str(value.dtype).rpartition(".")[2], list(value.shape), flat]
    return value


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_as_pytorch(text: str) -> None:
    torch = pytest.importorskip("torch", reason="compares with torch, which is not installed: make test PARITY=1")
    ours, theirs = (
        eval(text, {"m": m, "x": make(m), "y": irregular(m), "h": heads(m), "some": some}) for m in (ts, torch)
    )
    assert plain(theirs) == plain(ours, exact)


REFUSED = [
    "x.size(1)", "x.shape", "x.size()", "x.stride()", "x.transpose(0, 1)", "x.softmax(0)", "x @ x", "y.view(2, 5, -1)",
    "x.reshape(4, -1)", "x.unsqueeze(0)", "x.squeeze()", "x.unbind(1)", "x.backward()",
    "m.nn.functional.linear(y, m.ones(2, 3))",
    "m.nested.to_padded_tensor(x, 0.0, (3, 1, 4))", "m.nested.nested_tensor([m.ones(2), m.ones(2, 2)])", "x[7]",
    "m.nested.as_nested_tensor(x, layout=m.jagged)", "x.copy_(y)", "x + y", "x.sum(0)", "x.numpy()", "x.T",
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_refusals(text: str) -> None:
    """What has no meaning for rows of different sizes is an error, here and in PyTorch."""
    for m in (ts, pytest.importorskip("torch")):
        with pytest.raises((RuntimeError, IndexError, NotImplementedError)):
            eval(text, {"m": m, "x": make(m), "y": irregular(m)})


def test_text_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    assert repr(make(ts)) == repr(make(torch))
    assert repr(make(ts, True)) == repr(make(torch, True))
    assert repr(ts.nested.nested_tensor([])) == repr(torch.nested.nested_tensor([]))


def test_gradients_of_leaves_and_of_lists() -> None:
    leaf = make(ts, requires_grad=True)
    assert leaf.is_leaf
    (leaf * leaf).transpose(1, 2).to_padded_tensor(0.0).sum().backward()
    for grad, row in zip(leaf.grad.unbind(), leaf.unbind(), strict=True):
        assert grad.tolist() == (2 * row).tolist()
    parts = [row.requires_grad_() for row in rows_of(ts)]
    nt = ts.nested.as_nested_tensor(parts)
    weight = some(ts, 1, 3, 4).requires_grad_()
    out = ts.nn.functional.linear(nt, weight)
    out.backward(ts.ones_like(out))
    assert parts[0].grad.tolist() == weight.sum(0).expand(2, 4).tolist()
    assert weight.grad.tolist() == ts.cat(parts).sum(0).expand(3, 4).tolist()
    nt.unbind()[1].sum().backward()
    assert (parts[1].grad - weight.sum(0) == 1).all() and (parts[2].grad == weight.sum(0)).all()


def test_views_share_memory() -> None:
    nt = irregular(ts)
    nt[0].fill_(7)
    nt.transpose(1, 2)[1][0] = 9
    nt[:, 0].mul_(2)
    assert nt[0].tolist() == [[14.0] * 3, [7.0] * 3]
    assert nt[1, 0].tolist() == [18.0, 2 * some(ts, 2, 4, 2)[0, 1].item()]
    assert nt[1, 1:, 0].tolist() == [9.0] * 3
    with pytest.raises(RuntimeError, match="leaf"):
        irregular(ts).requires_grad_()[0].fill_(1)


@pytest.mark.parametrize("format", ["tesserack", "torch"])
@pytest.mark.parametrize("layout", ["strided", "jagged"])
def test_files(format: str, layout: str) -> None:
    nt = ts.nested.nested_tensor(rows_of(ts), layout=getattr(ts, layout))
    file = io.BytesIO()
    options = {"format": "torch"} if format == "torch" else {}
    ts.save({"a": nt, "turned": nt.transpose(1, 2), "dense": ts.ones(2)}, file, **options)
    file.seek(0)
    found = ts.load(file)
    assert found["a"].layout is nt.layout and plain(found["a"]) == plain(nt, exact)
    assert plain(found["turned"]) == plain(nt.transpose(1, 2), exact) and found["dense"].tolist() == [1, 1]
    torch = pytest.importorskip("torch")
    if format == "torch":
        file.seek(0)
        theirs = torch.load(file, weights_only=True)
        assert plain(theirs["a"]) == plain(nt, exact)
        assert plain(theirs["turned"]) == plain(nt.transpose(1, 2), exact)


@pytest.mark.parametrize("layout", ["strided", "jagged"])
def test_files_of_pytorch(layout: str) -> None:
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    nt = torch.nested.nested_tensor(rows_of(torch), layout=getattr(torch, layout))
    torch.save([nt, nt.transpose(1, 2)], file)
    file.seek(0)
    for ours, theirs in zip(ts.load(file), (nt, nt.transpose(1, 2)), strict=True):
        assert plain(ours) == plain(theirs, exact)


@pytest.mark.parametrize(
    "change",
    [lambda b, n, s, o: (b[:5], n, s, o), lambda b, n, s, o: (b, n, s * 9, o), lambda b, n, s, o: (b, -n, s, o),
     lambda b, n, s, o: (b, n, s, o + 3), lambda b, n, s, o: (b, n[:1], s, o), lambda b, n, s, o: (b, n.float(), s, o),
     lambda b, n, s, o: (b.view(-1, 2), n, s, o), lambda b, n, s, o: (b, n, s[:, :1], o),
     lambda b, n, s, o: (b, n, s, -o)],
)  # fmt: skip
def test_damaged_files_are_refused(change: Any) -> None:
    """Places of rows outside the buffer are no rows."""
    from tesserack.nested._saving import rebuild_strided, strided_parts

    with pytest.raises(ValueError, match="a nested tensor"):
        rebuild_strided(*change(*strided_parts(make(ts))))


def test_copies() -> None:
    nt = make(ts, requires_grad=True)
    for other in (copy.deepcopy(nt), pickle.loads(pickle.dumps(nt)), copy.copy(nt)):
        assert plain(other) == plain(nt, exact) and other.requires_grad and other.is_leaf
    assert copy.deepcopy(nt)._plain().data_ptr() != nt._plain().data_ptr()


def encoders(activation: str) -> tuple[Any, Any]:
    torch = pytest.importorskip("torch")
    found = []
    for m in (ts, torch):
        layer = m.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation=activation)
        found.append(m.nn.TransformerEncoder(layer, 2, norm=m.nn.LayerNorm(8)).eval())
    found[0].load_state_dict({k: ts.from_numpy(v.numpy()) for k, v in found[1].state_dict().items()})
    return found[0], found[1]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoders_take_rows_of_different_lengths(activation: str) -> None:
    """Padding comes out as PyTorch has it while it infers, zeros before the last norm; nested tensors stay nested."""
    torch = pytest.importorskip("torch")
    ours, theirs = encoders(activation)
    x = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(1))
    hidden = torch.arange(5) >= torch.tensor([[5], [2], [3]])
    rows = [x[k, :n] for k, n in enumerate((5, 2, 3))]
    mine = [ts.from_numpy(row.numpy()) for row in rows]
    with torch.no_grad(), ts.no_grad():
        expected = theirs(x, src_key_padding_mask=hidden)
        found = ours(ts.from_numpy(x.numpy()), src_key_padding_mask=ts.from_numpy(hidden.numpy()))
        nested = theirs(torch.nested.nested_tensor(rows)).unbind()
        results = [ours(ts.nested.nested_tensor(mine, layout=layout)) for layout in (ts.strided, ts.jagged)]
    assert found.numpy() == pytest.approx(expected.numpy(), abs=2e-6)
    for result in results:
        assert result.is_nested
        for a, b in zip(result.unbind(), nested, strict=True):
            assert a.numpy() == pytest.approx(b.numpy(), abs=2e-6)


def test_attention_of_nested_tensors_has_gradients() -> None:
    layer = ts.nn.MultiheadAttention(4, 2, batch_first=True)
    nt = make(ts, requires_grad=True)
    out, _ = layer(nt, nt, nt, need_weights=False)
    out.to_padded_tensor(0.0).sum().backward()
    for k, row in enumerate(rows_of(ts)):
        alone = row.clone().requires_grad_()
        layer(alone, alone, alone, need_weights=False)[0].sum().backward()
        assert nt.grad[k].numpy() == pytest.approx(alone.grad.numpy(), abs=1e-5)


def test_images_of_different_sizes() -> None:
    images = [some(ts, 1, 3, 8, 6), some(ts, 2, 3, 5, 7)]
    weight = some(ts, 1, 2, 3, 3, 3)
    made = ts.nn.functional.conv2d(ts.nested.nested_tensor(images), weight, padding=1)
    for found, image in zip(made.unbind(), images, strict=True):
        assert (found == ts.nn.functional.conv2d(image[None], weight, padding=1)[0]).all()


def test_refusals_as_pytorch_has_them(device: Any) -> None:
    nt = ts.nested.nested_tensor([ts.ones(2, 20), ts.ones(3, 20)], device=device).view(2, -1, 5, 4)
    for call in (nt.view, nt.reshape):
        with pytest.raises(RuntimeError, match="one dimension"):
            call(2, -1, -1, 2, 2)
    with pytest.raises(RuntimeError, match="contiguous_format"):
        nt.clone(memory_format=ts.channels_last)
    vectors = ts.nested.nested_tensor([ts.ones(2), ts.ones(3)], device=device)
    for call in (ts.matmul, ts.bmm):
        with pytest.raises(RuntimeError, match="three dims"):
            call(vectors, vectors)
    with pytest.raises(RuntimeError, match="three dims"):
        ts.bmm(nt, nt.transpose(-1, -2))
    assert ts.matmul(nt, nt.transpose(-1, -2)).dim() == 4


def test_softmax_of_no_rows(device: Any) -> None:
    empty = ts.nested.nested_tensor([], device=device)
    assert len(ts.nn.functional.softmax(empty, 1)) == 0

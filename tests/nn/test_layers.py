"""Every layer: its values against NumPy in float64, its gradient with respect to input and parameters, its repr."""

import math

import numpy as np
import pytest
import tesserack as ts
from tesserack import nn
from tesserack.nn import functional as F

RNG = np.random.default_rng(0)


def tensor(array, device, **options):
    return ts.tensor(np.asarray(array).tolist(), dtype=ts.float64, device=device, **options)


def array(t):
    return np.array(t.detach().cpu().tolist())


def erf(x):
    return np.vectorize(math.erf)(x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946

ACTIVATIONS = [
    (nn.ReLU(), lambda x: np.maximum(x, 0)),
    (nn.ReLU6(), lambda x: np.clip(x, 0, 6)),
    (nn.ELU(0.7), lambda x: np.where(x > 0, x, 0.7 * np.expm1(x))),
    (nn.CELU(0.7), lambda x: np.maximum(x, 0) + np.minimum(0, 0.7 * np.expm1(x / 0.7))),
    (nn.SELU(), lambda x: SELU_SCALE * np.where(x > 0, x, SELU_ALPHA * np.expm1(x))),
    (nn.LeakyReLU(0.2), lambda x: np.where(x > 0, x, 0.2 * x)),
    (nn.PReLU(), lambda x: np.where(x > 0, x, 0.25 * x)),
    (nn.GELU(), lambda x: x * (1 + erf(x / math.sqrt(2))) / 2),
    (nn.GELU("tanh"), lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    (nn.SiLU(), lambda x: x * sigmoid(x)),
    (nn.Mish(), lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    (nn.Sigmoid(), sigmoid),
    (nn.Tanh(), np.tanh),
    (nn.Hardtanh(-0.5, 2), lambda x: np.clip(x, -0.5, 2)),
    (nn.Hardsigmoid(), lambda x: np.clip(x + 3, 0, 6) / 6),
    (nn.Hardswish(), lambda x: x * np.clip(x + 3, 0, 6) / 6),
    (nn.Softplus(2.0), lambda x: np.log1p(np.exp(2 * x)) / 2),
    (nn.Softsign(), lambda x: x / (1 + np.abs(x))),
    (nn.LogSigmoid(), lambda x: -np.log1p(np.exp(-x))),
    (nn.Threshold(0.3, -2.0), lambda x: np.where(x > 0.3, x, -2.0)),
    (nn.GLU(1), lambda x: x[:, : x.shape[1] // 2] * sigmoid(x[:, x.shape[1] // 2 :])),
    (nn.Softmax(1), lambda x: softmax(x, 1)),
    (nn.LogSoftmax(1), lambda x: np.log(softmax(x, 1))),
    (nn.Softmin(0), lambda x: softmax(-x, 0)),
    (nn.Identity(), lambda x: x),
]


@pytest.mark.parametrize(("layer", "expected"), ACTIVATIONS, ids=lambda v: repr(v) if isinstance(v, nn.Module) else "")
def test_activation_values(layer, expected, device):
    x = RNG.normal(0, 3, (3, 6))
    layer = layer.double().to(device)
    np.testing.assert_allclose(array(layer(tensor(x, device))), expected(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("layer", "expected"), ACTIVATIONS, ids=lambda v: repr(v) if isinstance(v, nn.Module) else "")
def test_activation_gradients(layer, expected, device):
    x = RNG.normal(0, 2, (2, 4))
    weights = RNG.normal(0, 1, expected(x).shape)
    t = tensor(x, device, requires_grad=True)
    (layer.double().to(device)(t) * tensor(weights, device)).sum().backward()
    step = 1e-6
    numeric = np.zeros_like(x)
    for i in np.ndindex(*x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        numeric[i] = ((expected(up) - expected(down)) * weights).sum() / (2 * step)
    np.testing.assert_allclose(array(t.grad), numeric, rtol=1e-5, atol=1e-7)


INPLACE = [
    nn.ReLU, nn.ReLU6, nn.ELU, nn.CELU, nn.SELU, nn.LeakyReLU, nn.SiLU, nn.Mish, nn.Hardtanh, nn.Hardsigmoid,
    nn.Hardswish,
]  # fmt: skip


@pytest.mark.parametrize("kind", INPLACE)
def test_inplace_activations_overwrite_their_input(kind, device):
    x = tensor(RNG.normal(0, 3, (4, 3)), device)
    expected = array(kind()(x))
    out = kind(inplace=True)(x)
    assert out is x
    np.testing.assert_array_equal(array(x), expected)


def test_threshold_and_dropout_in_place(device):
    x = tensor([1.0, -1.0], device)
    assert nn.Threshold(0, 5, inplace=True)(x) is x and x.tolist() == [1.0, 5.0]
    assert F.dropout(x, 1.0, True, True) is x and x.tolist() == [0.0, 0.0]


def test_prelu_learns_one_slope_per_channel(device):
    layer = nn.PReLU(3, init=0.5).to(device)
    x = ts.full((2, 3, 2), -2.0, device=device)
    layer(x).sum().backward()
    assert layer.weight.grad.tolist() == [-8.0] * 3
    assert layer(x).tolist() == [[[-1.0, -1.0]] * 3] * 2


def test_softmax_dim_and_dtype(device):
    x = ts.zeros(2, 4, device=device)
    with pytest.warns(UserWarning, match="dim"):
        assert nn.Softmax()(x).tolist() == [[0.25] * 4] * 2
    assert F.softmax(x, 1, dtype=ts.float64).dtype == ts.float64
    assert F.log_softmax(x, 1, dtype=ts.float64).dtype == ts.float64
    assert nn.Softmax2d()(ts.zeros(1, 2, 1, 1, device=device)).flatten().tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match="3 or 4"):
        nn.Softmax2d()(x)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5,), (2, 5), (2, 3, 5), (0, 5)])
def test_linear(shape, bias, device):
    layer = nn.Linear(5, 4, bias=bias, dtype=ts.float64).to(device)
    x = RNG.normal(size=shape)
    w = array(layer.weight)
    b = array(layer.bias) if bias else 0
    t = tensor(x, device, requires_grad=True) if 0 not in shape else ts.empty(shape, dtype=ts.float64, device=device)
    out = layer(t)
    assert tuple(out.shape) == (*shape[:-1], 4)
    if 0 in shape:
        return
    np.testing.assert_allclose(array(out), x @ w.T + b, rtol=1e-12)
    out.sum().backward()
    np.testing.assert_allclose(array(t.grad), np.broadcast_to(w.sum(0), shape), rtol=1e-12)
    np.testing.assert_allclose(array(layer.weight.grad), np.tile(x.reshape(-1, 5).sum(0), (4, 1)), rtol=1e-12)


def conv_reference(x, w, b, stride, padding, dilation, groups):
    """Direct convolution over any number of spatial dimensions."""
    n, _, *size = x.shape
    out_channels, per_group, *kernel = w.shape
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    out_size = [
        (s + 2 * p - d * (k - 1) - 1) // t + 1
        for s, p, d, k, t in zip(size, padding, dilation, kernel, stride, strict=True)
    ]
    out = np.zeros((n, out_channels, *out_size))
    for at in np.ndindex(*out_size):
        window = tuple(
            slice(a * t, a * t + d * (k - 1) + 1, d) for a, t, d, k in zip(at, stride, dilation, kernel, strict=True)
        )
        for o in range(out_channels):
            first = o // (out_channels // groups) * per_group
            part = x[(slice(None), slice(first, first + per_group), *window)]
            out[(slice(None), o, *at)] = (part * w[o]).reshape(n, -1).sum(1) + b[o]
    return out


@pytest.mark.parametrize(
    ("kind", "spatial", "options"),
    [
        (nn.Conv1d, (9,), {"kernel_size": 3}),
        (nn.Conv1d, (9,), {"kernel_size": 2, "stride": 2, "padding": 1, "dilation": 2, "groups": 2}),
        (nn.Conv2d, (6, 7), {"kernel_size": 3, "padding": 1}),
        (nn.Conv2d, (6, 7), {"kernel_size": (2, 3), "stride": (2, 1), "padding": (0, 2), "groups": 4}),
        (nn.Conv2d, (8, 8), {"kernel_size": 1, "bias": False}),
        (nn.Conv3d, (4, 3, 5), {"kernel_size": (2, 2, 3), "padding": 1}),
    ],
)
def test_convolutions(kind, spatial, options, device):
    layer = kind(4, 8, **options, dtype=ts.float64).to(device)
    x = RNG.normal(size=(2, 4, *spatial))
    b = array(layer.bias) if layer.bias is not None else np.zeros(8)
    expected = conv_reference(x, array(layer.weight), b, layer.stride, layer.padding, layer.dilation, layer.groups)
    out = layer(tensor(x, device))
    np.testing.assert_allclose(array(out), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(array(layer(tensor(x[0], device))), expected[0], rtol=1e-9, atol=1e-12)
    out.sum().backward()
    assert layer.weight.grad.shape == layer.weight.shape


@pytest.mark.parametrize(("mode", "numpy_mode"), [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")])
def test_padding_modes(mode, numpy_mode, device):
    layer = nn.Conv2d(1, 1, 3, padding=1, padding_mode=mode, dtype=ts.float64).to(device)
    x = RNG.normal(size=(1, 1, 4, 5))
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], mode=numpy_mode)
    expected = conv_reference(padded, array(layer.weight), array(layer.bias), (1, 1), (0, 0), (1, 1), 1)
    np.testing.assert_allclose(array(layer(tensor(x, device))), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kernel", [2, 3, 4])
def test_padding_same_and_valid(kernel, device):
    x = ts.ones(1, 1, 6, 6, device=device)
    assert tuple(nn.Conv2d(1, 1, kernel, padding="same").to(device)(x).shape) == (1, 1, 6, 6)
    assert tuple(nn.Conv2d(1, 1, kernel, padding="valid").to(device)(x).shape) == (1, 1, 7 - kernel, 7 - kernel)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"groups": 3}, "divisible"),
        ({"groups": 0}, "groups > 0"),
        ({"padding": "half"}, "padding"),
        ({"padding": "same", "stride": 2}, "stride 1"),
        ({"padding_mode": "mirror"}, "padding_mode"),
    ],
)
def test_bad_convolutions_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        nn.Conv2d(4, 4, 3, **options)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        (nn.BatchNorm1d, (5, 3)),
        (nn.BatchNorm1d, (4, 3, 6)),
        (nn.BatchNorm2d, (4, 3, 2, 5)),
        (nn.BatchNorm3d, (2, 3, 2, 3, 4)),
    ],
)
def test_batch_norm(kind, shape, device):
    layer = kind(3, momentum=0.3, dtype=ts.float64).to(device)
    with ts.no_grad():
        layer.weight.copy_(tensor([1.0, 2.0, 3.0], device))
        layer.bias.copy_(tensor([0.5, 0.0, -1.0], device))
    w, b = array(layer.weight), array(layer.bias)
    x = RNG.normal(2, 3, shape)
    axes = (0, *range(2, len(shape)))
    wide = (1, 3, *[1] * (len(shape) - 2))
    mean, var = x.mean(axes), x.var(axes)
    normal = (x - mean.reshape(wide)) / np.sqrt(var.reshape(wide) + 1e-5)
    out = layer(tensor(x, device))
    np.testing.assert_allclose(array(out), normal * w.reshape(wide) + b.reshape(wide), rtol=1e-9, atol=1e-12)
    count = x.size // 3
    np.testing.assert_allclose(array(layer.running_mean), 0.3 * mean, rtol=1e-9)
    np.testing.assert_allclose(array(layer.running_var), 0.7 + 0.3 * var * count / (count - 1), rtol=1e-9)
    assert layer.num_batches_tracked.item() == 1
    layer.eval()
    m, v = array(layer.running_mean).reshape(wide), array(layer.running_var).reshape(wide)
    expected = (x - m) / np.sqrt(v + 1e-5) * w.reshape(wide) + b.reshape(wide)
    np.testing.assert_allclose(array(layer(tensor(x, device))), expected, rtol=1e-9, atol=1e-12)
    assert layer.num_batches_tracked.item() == 1
    layer.reset_running_stats()
    assert layer.running_mean.tolist() == [0.0] * 3 and layer.num_batches_tracked.item() == 0


def test_batch_norm_options(device):
    x = tensor(RNG.normal(size=(6, 2)), device)
    average = nn.BatchNorm1d(2, momentum=None, dtype=ts.float64).to(device)
    average(x), average(x * 3)
    mean = array(x).mean(0)
    np.testing.assert_allclose(array(average.running_mean), (mean + 3 * mean) / 2, rtol=1e-9)
    stateless = nn.BatchNorm1d(2, track_running_stats=False, affine=False).double().to(device)
    assert stateless.state_dict() == {} and stateless.weight is None
    np.testing.assert_allclose(array(stateless.eval()(x)).mean(0), 0, atol=1e-12)
    assert nn.BatchNorm1d(2, bias=False).bias is None
    with pytest.raises(ValueError, match="expected 4D input"):
        nn.BatchNorm2d(2)(x)


@pytest.mark.parametrize("normalized", [(5,), (4, 5)])
def test_layer_norm(normalized, device):
    layer = nn.LayerNorm(normalized, dtype=ts.float64).to(device)
    x = RNG.normal(1, 2, (3, 4, 5))
    axes = tuple(range(3 - len(normalized), 3))
    expected = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)
    np.testing.assert_allclose(array(layer(tensor(x, device))), expected, rtol=1e-9, atol=1e-12)
    with ts.no_grad():
        layer.weight.fill_(2)
        layer.bias.fill_(-1)
    np.testing.assert_allclose(array(layer(tensor(x, device))), expected * 2 - 1, rtol=1e-9, atol=1e-12)
    assert nn.LayerNorm(3, bias=False).bias is None and nn.LayerNorm(3, elementwise_affine=False).weight is None


def test_group_norm(device):
    layer = nn.GroupNorm(2, 6, dtype=ts.float64).to(device)
    x = RNG.normal(1, 2, (3, 6, 4))
    groups = x.reshape(3, 2, -1)
    expected = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-5)
    np.testing.assert_allclose(array(layer(tensor(x, device))), expected.reshape(x.shape), rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="divisible"):
        nn.GroupNorm(4, 6)
    with pytest.raises(RuntimeError, match="at least 2 dim"):  # asked first, as in PyTorch
        nn.functional.group_norm(ts.ones(1, device=device), 1)
    with pytest.raises(ValueError, match="more than 1 value"):
        nn.functional.group_norm(ts.ones(1, 1, device=device), 1)


def windows(x, kernel, stride, padding, fill, ceil_mode):
    """Yields (output position, window) of a plane (H, W), windows cut at the edge in ceil mode."""
    h, w = x.shape
    padded = np.pad(x, [(padding, padding)] * 2, constant_values=fill)
    counts = []
    for size in (h, w):
        steps = (size + 2 * padding - kernel) / stride
        n = (math.ceil(steps) if ceil_mode else math.floor(steps)) + 1
        if ceil_mode and (n - 1) * stride >= size + padding:
            n -= 1
        counts.append(n)
    for i, j in np.ndindex(*counts):
        yield (i, j), counts, padded[i * stride : i * stride + kernel, j * stride : j * stride + kernel]


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, 2, 0), (3, 2, 1), (3, 1, 0)])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_pooling(kernel, stride, padding, ceil_mode, device):
    x = RNG.normal(size=(2, 3, 7, 6))
    largest = nn.MaxPool2d(kernel, stride, padding, ceil_mode=ceil_mode)(tensor(x, device))
    mean = nn.AvgPool2d(kernel, stride, padding, ceil_mode=ceil_mode)(tensor(x, device))
    for n, c in np.ndindex(2, 3):
        for (i, j), counts, window in windows(x[n, c], kernel, stride, padding, -np.inf, ceil_mode):
            assert tuple(largest.shape[2:]) == tuple(counts)
            assert largest[n, c, i, j].item() == window.max()
        for (i, j), _, window in windows(x[n, c], kernel, stride, padding, 0.0, ceil_mode):
            assert mean[n, c, i, j].item() == pytest.approx(window.mean(), rel=1e-9, abs=1e-12)


def test_pooling_options(device):
    x = ts.arange(16.0, device=device).reshape(1, 1, 4, 4)
    values, indices = nn.MaxPool2d(2, return_indices=True)(x)
    assert values.flatten().tolist() == indices.flatten().tolist() == [5, 7, 13, 15]
    values, indices = nn.MaxPool2d(2, return_indices=True)(x[0])
    assert tuple(values.shape) == tuple(indices.shape) == (1, 2, 2)
    assert nn.AvgPool2d(2, divisor_override=1)(x).flatten().tolist() == [10, 18, 42, 50]
    edge = nn.AvgPool2d(2, padding=1, count_include_pad=False)(x)
    assert edge[0, 0, 0, 0].item() == 0 and edge[0, 0, 0, 1].item() == 1.5


def test_gumbel_softmax(device):
    ts.manual_seed(2)
    logits = ts.tensor([1.0, 3.0, 2.0], device=device).log().expand(6000, 3).clone().requires_grad_()
    hard = F.gumbel_softmax(logits, hard=True)
    assert set(hard.unique().tolist()) == {0.0, 1.0} and (hard.sum(1) == 1).all()
    assert hard.mean(0).tolist() == pytest.approx([1 / 6, 1 / 2, 1 / 3], abs=0.03)
    (hard * ts.tensor([1.0, 2.0, 3.0], device=device)).sum().backward()
    assert logits.grad.sum(1).abs().max() < 1e-4 and logits.grad.abs().max() > 0
    soft = F.gumbel_softmax(logits.detach().t(), tau=0.1, dim=0)
    assert soft.shape == (3, 6000) and (soft.sum(0) - 1).abs().max() < 1e-5


def test_dropout(device):
    layer = nn.Dropout(0.25)
    x = ts.ones(200, 200, device=device)
    ts.manual_seed(0)
    out = layer(x)
    kept = (out != 0).double().mean().item()
    assert abs(kept - 0.75) < 0.01
    assert sorted(set(out.flatten().tolist())) == pytest.approx([0, 1 / 0.75])
    ts.manual_seed(0)
    assert ts.equal(layer(x), out)
    assert ts.equal(layer.eval()(x), x)
    assert nn.Dropout(1.0)(x).sum().item() == 0 and ts.equal(nn.Dropout(0.0)(x), x)
    for bad in (-0.1, 1.5):
        with pytest.raises(ValueError, match="between 0 and 1"):
            nn.Dropout(bad)


def test_flatten_and_unflatten(device):
    x = ts.zeros(2, 3, 4, 5, device=device)
    assert tuple(nn.Flatten()(x).shape) == (2, 60)
    assert tuple(nn.Flatten(0, 1)(x).shape) == (6, 4, 5)
    assert tuple(nn.Unflatten(-1, (5, -1))(x).shape) == (2, 3, 4, 5, 1)
    with pytest.raises(TypeError, match="tuple of ints"):
        nn.Unflatten(1, 3)
    with pytest.raises(TypeError, match="dim"):
        nn.Unflatten("a", (1,))


def test_embedding(device):
    table = nn.Embedding(5, 3, padding_idx=-5, dtype=ts.float64).to(device)
    assert table.padding_idx == 0 and table.weight[0].tolist() == [0.0] * 3
    index = ts.tensor([[1, 1], [0, 4]], device=device)
    out = table(index)
    np.testing.assert_array_equal(array(out), array(table.weight)[[[1, 1], [0, 4]]])
    out.sum().backward()
    assert table.weight.grad[:, 0].tolist() == [0.0, 2.0, 0.0, 0.0, 1.0]
    with pytest.raises(IndexError):
        table(ts.tensor([5], device=device))
    for options, match in (({"padding_idx": 5}, "padding_idx"),):
        with pytest.raises(AssertionError, match=match):
            nn.Embedding(5, 3, **options)


def test_bags_of_given_vectors(device):
    rows = ts.arange(6.0, device=device).view(3, 2)
    bags = nn.EmbeddingBag.from_pretrained(rows, mode="sum", padding_idx=0)
    assert bags(ts.tensor([[0, 1], [1, 2]], device=device)).tolist() == [[2.0, 3.0], [6.0, 8.0]]
    assert not bags.weight.requires_grad and nn.EmbeddingBag.from_pretrained(rows, False).weight.requires_grad
    with pytest.raises(ValueError, match="2 dimensions"):
        nn.EmbeddingBag.from_pretrained(rows[0])


def test_embedding_from_pretrained_and_max_norm(device):
    rows = ts.tensor([[3.0, 4.0], [0.3, 0.4]], device=device)
    table = nn.Embedding.from_pretrained(rows)
    assert not table.weight.requires_grad and table.weight.tolist() == rows.tolist()
    limited = nn.Embedding.from_pretrained(rows.clone(), max_norm=1.0)
    out = limited(ts.tensor([0, 0, 1], device=device))
    np.testing.assert_allclose(array(out), [[0.6, 0.8], [0.6, 0.8], [0.3, 0.4]], rtol=1e-5)
    np.testing.assert_allclose(array(limited.weight), [[0.6, 0.8], [0.3, 0.4]], rtol=1e-5)
    with pytest.raises(AssertionError, match="2 dimensions"):
        nn.Embedding.from_pretrained(rows[0])
    with pytest.raises(AssertionError, match="shape"):
        nn.Embedding(3, 2, _weight=rows)


REPRS = [
    (
        lambda: nn.Conv2d(1, 2, 3, padding=1, bias=False),
        "Conv2d(1, 2, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), bias=False)",
    ),
    (lambda: nn.Conv1d(2, 2, 3, groups=2), "Conv1d(2, 2, kernel_size=(3,), stride=(1,), groups=2)"),
    (lambda: nn.ReLU(inplace=True), "ReLU(inplace=True)"),
    (lambda: nn.GELU(), "GELU(approximate='none')"),
    (lambda: nn.Hardtanh(), "Hardtanh(min_val=-1.0, max_val=1.0)"),
    (lambda: nn.MaxPool2d(2), "MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)"),
    (lambda: nn.AvgPool2d(2), "AvgPool2d(kernel_size=2, stride=2, padding=0)"),
    (lambda: nn.Dropout(0.1), "Dropout(p=0.1, inplace=False)"),
    (lambda: nn.Embedding(3, 4, padding_idx=0), "Embedding(3, 4, padding_idx=0)"),
    (lambda: nn.Flatten(), "Flatten(start_dim=1, end_dim=-1)"),
    (lambda: nn.Softmax(dim=1), "Softmax(dim=1)"),
    (lambda: nn.CrossEntropyLoss(), "CrossEntropyLoss()"),
]


@pytest.mark.parametrize(("make", "text"), REPRS, ids=[text for _, text in REPRS])
def test_reprs(make, text):
    assert repr(make()) == text


def test_instance_norm_tells_of_other_channels():
    with pytest.warns(UserWarning, match="dim=1 does not match num_features"):
        assert nn.InstanceNorm1d(3)(ts.rand(2, 4, 5)).shape == (2, 4, 5)
    with pytest.warns(UserWarning, match="dim=0 does not match num_features"):
        nn.InstanceNorm1d(3)(ts.rand(4, 5))
    with pytest.raises(ValueError, match="expected 3 channels"):
        nn.InstanceNorm1d(3, affine=True)(ts.rand(2, 4, 5))


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda n: nn.Conv1d(2, 2, n(3), stride=n(2), padding=n(1), dilation=n(1), groups=n(2)), (1, 2, 16)),
        (lambda n: nn.Conv2d(2, 2, n(3), stride=n(2), padding=n(1)), (1, 2, 8, 8)),
        (lambda n: nn.ConvTranspose1d(2, 2, n(3), stride=n(2), padding=n(1), output_padding=n(1)), (1, 2, 8)),
        (lambda n: nn.AvgPool1d(n(4), stride=n(2), padding=n(1)), (1, 2, 16)),
        (lambda n: nn.MaxPool3d(n(2), stride=n(2)), (1, 2, 4, 4, 4)),
        (lambda n: nn.LPPool2d(2, n(2)), (1, 2, 8, 8)),
        (lambda n: nn.ReflectionPad1d(n(2)), (1, 2, 8)),
        (lambda n: nn.AdaptiveAvgPool2d(n(2)), (1, 2, 8, 8)),
        (lambda n: nn.LayerNorm(n(8)), (1, 2, 8)),
    ],
)
def test_sizes_may_be_numbers_of_numpy(make, shape, device):
    """As those are that come out of what a model's sizes are computed with."""
    plain, counted = make(int).to(device), make(np.int64).to(device)
    counted.load_state_dict(plain.state_dict())
    x = ts.randn(*shape, device=device)
    assert ts.equal(plain(x), counted(x))


@pytest.mark.parametrize("layer", [nn.ChannelShuffle(2), nn.PixelShuffle(2), nn.PixelUnshuffle(2)], ids=str)
def test_shuffles_keep_the_memory_format(layer: nn.Module, device: ts.device) -> None:
    x = ts.randn(2, 8, 4, 6, device=device)
    for format in (ts.contiguous_format, ts.channels_last):
        y = layer(x.contiguous(memory_format=format))
        assert y.is_contiguous(memory_format=format) and y.equal(layer(x))


@pytest.mark.parametrize("dtype", [ts.float32, ts.float64])
def test_equal_values_are_normalised_to_zero_without_eps(dtype):
    x = ts.stack([ts.ones(4, 3), ts.rand(4, 3)]).to(dtype).requires_grad_()
    y = ts.nn.functional.instance_norm(x, eps=0.0)
    (g,) = ts.autograd.grad(y.pow(2).sum() + y.sum(), x)
    assert not y[0].any() and y[1].isfinite().all() and g.isfinite().all() and not g[0].any()
    ts.testing.assert_close(y[1].mean(-1), ts.zeros(4, dtype=dtype), atol=1e-5, rtol=0)
    mean, var = ts.zeros(4, dtype=dtype), ts.ones(4, dtype=dtype)
    ts.nn.functional.instance_norm(x.detach(), mean, var, eps=0.0, momentum=1.0)
    ts.testing.assert_close(mean, x.detach().mean(-1).mean(0))
    ts.testing.assert_close(var, x.detach().var(-1).mean(0))

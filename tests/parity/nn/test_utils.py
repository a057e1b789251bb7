"""nn.utils beside torch's: parametrizations, norms, pruning, fusion, stateless calls, and modules that use them."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import tesserack as ts
import torch
import torch.nn.utils.prune
from tesserack import nn

tnn = torch.nn


def draw(*shape: int) -> Any:
    return torch.randn(*shape, dtype=torch.double)


def trained(beside: Any, ours: Any, theirs: Any, *shape: int) -> None:
    """Outputs and gradients of both, in both modes."""
    for mode in (True, False):
        ours.train(mode), theirs.train(mode)
        x = draw(*shape).requires_grad_()
        ours.zero_grad(), theirs.zero_grad()
        got, expected = ours(beside.ours(x)), theirs(x)
        beside.close(got, expected)
        got.square().sum().backward(), expected.square().sum().backward()
        beside.gradients(ours, theirs)
        beside.close(list(ours.buffers()), list(theirs.buffers()))


LAYERS = [("Linear", (4, 3), (2, 4)), ("Conv2d", (4, 3, 2), (2, 4, 3, 3)), ("ConvTranspose1d", (4, 3, 2), (2, 4, 3))]


@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize(("name", "args", "shape"), LAYERS)
def test_weight_norm(name: str, args: Any, shape: Any, dim: int | None, beside: Any) -> None:
    torch.manual_seed(1)
    for form in ("parametrizations", "old"):
        made = []
        for lib in (nn, tnn):
            space = lib.utils.parametrizations if form == "parametrizations" else lib.utils
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made.append(space.weight_norm(getattr(lib, name)(*args).double(), dim=dim))
        ours, theirs = beside.pair(*made)
        trained(beside, ours, theirs, *shape)
        if form == "old":
            nn.utils.remove_weight_norm(ours), tnn.utils.remove_weight_norm(theirs)
        else:
            nn.utils.parametrize.remove_parametrizations(ours, "weight")
            tnn.utils.parametrize.remove_parametrizations(theirs, "weight")
        assert sorted(ours.state_dict()) == sorted(theirs.state_dict())
        assert repr(ours) == repr(theirs)
        beside.close(ours.weight, theirs.weight)


@pytest.mark.parametrize(("name", "args", "shape"), LAYERS)
def test_spectral_norm(name: str, args: Any, shape: Any, beside: Any) -> None:
    torch.manual_seed(2)
    for form in ("parametrizations", "old"):
        made = []
        for lib in (nn, tnn):
            space = lib.utils.parametrizations if form == "parametrizations" else lib.utils
            made.append(space.spectral_norm(getattr(lib, name)(*args).double(), n_power_iterations=2))
        ours, theirs = beside.pair(*made)
        trained(beside, ours, theirs, *shape)
    nn.utils.remove_spectral_norm(ours), tnn.utils.remove_spectral_norm(theirs)
    assert sorted(ours.state_dict()) == sorted(theirs.state_dict())
    beside.close(ours.weight, theirs.weight)


def test_old_weight_norm_states_load_into_the_new_form(beside: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        old = nn.utils.weight_norm(nn.Linear(4, 3))
    new = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    new.load_state_dict(old.state_dict())
    x = ts.ones(2, 4)
    assert new(x).allclose(old(x))


class _Doubled:
    """``forward`` and ``right_inverse`` of a parametrization, for both libraries."""

    def forward(self, x: Any) -> Any:
        return x * 2

    def right_inverse(self, x: Any) -> Any:
        return x / 2


def doubled(lib: Any) -> Any:
    return type("Doubled", (_Doubled, lib.Module), {})()


def positive(lib: Any) -> Any:
    return type("Positive", (lib.Module,), {"forward": lambda self, x: x.exp()})()


def test_parametrizations(beside: Any) -> None:
    torch.manual_seed(3)
    pair = []
    for lib in (nn, tnn):
        layer = lib.Linear(4, 3)
        p = lib.utils.parametrize
        p.register_parametrization(layer, "weight", doubled(lib))
        p.register_parametrization(layer, "weight", positive(lib))
        p.register_parametrization(layer, "bias", doubled(lib))
        assert p.is_parametrized(layer) and p.is_parametrized(layer, "bias") and not p.is_parametrized(layer, "x")
        assert p.type_before_parametrizations(layer) is lib.Linear
        pair.append(layer)
    ours, theirs = beside.pair(*pair)
    trained(beside, ours, theirs, 2, 4)
    bias = draw(3)
    ours.bias, theirs.bias = beside.ours(bias), bias
    trained(beside, ours, theirs, 2, 4)
    twin = copy.deepcopy(ours)
    twin.bias = ts.zeros(3, dtype=ts.float64, device=beside.device)
    beside.close(ours.bias, bias)
    with nn.utils.parametrize.cached():
        assert ours.weight is ours.weight
    assert ours.weight is not ours.weight
    for lib, layer in ((nn, ours), (tnn, theirs)):
        with pytest.raises(RuntimeError):
            layer.weight = layer.weight.detach()  # exp has no inverse
        lib.utils.parametrize.remove_parametrizations(layer, "weight")
        lib.utils.parametrize.remove_parametrizations(layer, "bias", leave_parametrized=False)
    assert repr(ours) == repr(theirs)
    beside.close([ours.weight, ours.bias], [theirs.weight, theirs.bias])
    other = nn.utils.parametrize.transfer_parametrizations_and_params(twin, nn.Linear(4, 3))
    assert other.bias.tolist() == [0, 0, 0]


BAD = [
    lambda n: n.utils.parametrize.register_parametrization(n.Linear(2, 3), "nope", doubled(n)),
    lambda n: n.utils.parametrize.register_parametrization(n.Linear(2, 3), "weight", n.Flatten(0)),
    lambda n: n.utils.parametrize.remove_parametrizations(n.Linear(2, 3), "weight"),
    lambda n: n.utils.parametrizations.spectral_norm(n.Linear(2, 3), "nope"),
    lambda n: n.utils.parametrizations.spectral_norm(n.Linear(2, 3), n_power_iterations=0),
    lambda n: n.utils.remove_weight_norm(n.Linear(2, 3)),
    lambda n: n.utils.remove_spectral_norm(n.Linear(2, 3)),
    lambda n: n.utils.prune.remove(n.Linear(2, 3), "weight"),
    lambda n: n.utils.prune.l1_unstructured(n.Linear(2, 3), "weight", 7),
    lambda n: n.utils.prune.l1_unstructured(n.Linear(2, 3), "weight", 1.5),
    lambda n: n.utils.prune.l1_unstructured(n.Linear(2, 3), "weight", "x"),
    lambda n: n.utils.prune.ln_structured(n.Linear(2, 3), "bias", 1, 2, 0),
    lambda n: n.utils.fuse_conv_bn_eval(n.Conv1d(1, 1, 1), n.BatchNorm1d(1)),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_refusals(case: int) -> None:
    with pytest.raises(Exception) as expected:
        BAD[case](tnn)
    with pytest.raises(expected.type):
        BAD[case](nn)


PRUNINGS = [
    lambda p, m: p.l1_unstructured(m, "weight", 0.3),
    lambda p, m: p.l1_unstructured(m, "weight", 5),
    lambda p, m: p.ln_structured(m, "weight", 1, n=2, dim=0),
    lambda p, m: p.ln_structured(m, "weight", 0.5, n=1, dim=1),
    lambda p, m: p.ln_structured(m, "weight", 1, n=float("inf"), dim=-1),
    lambda p, m: p.identity(m, "bias"),
    lambda p, m: p.l1_unstructured(p.ln_structured(m, "weight", 1, n=2, dim=0), "weight", 0.4),
    lambda p, m: p.ln_structured(p.l1_unstructured(m, "weight", 0.4), "weight", 1, n=2, dim=1),
    lambda p, m: p.custom_from_mask(p.l1_unstructured(m, "weight", 0.4), "weight", m.weight.detach() > 0),
]


@pytest.mark.parametrize("case", range(len(PRUNINGS)))
def test_pruning(case: int, beside: Any) -> None:
    torch.manual_seed(4)
    ours, theirs = beside.pair(nn.Linear(4, 6), tnn.Linear(4, 6))
    PRUNINGS[case](nn.utils.prune, ours), PRUNINGS[case](tnn.utils.prune, theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    beside.close(list(ours.state_dict().values()), list(theirs.state_dict().values()))
    trained(beside, ours, theirs, 2, 4)
    name = "bias" if case == 5 else "weight"
    nn.utils.prune.remove(ours, name), tnn.utils.prune.remove(theirs, name)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    beside.close(list(ours.state_dict().values()), list(theirs.state_dict().values()))


def test_global_and_random_pruning(beside: Any) -> None:
    torch.manual_seed(5)
    ours, theirs = beside.pair(*(n.Sequential(n.Linear(4, 6), n.Linear(6, 3)) for n in (nn, tnn)))
    for model, prune in ((ours, nn.utils.prune), (theirs, tnn.utils.prune)):
        prune.global_unstructured([(m, "weight") for m in model], prune.L1Unstructured, amount=0.4)
        prune.global_unstructured([(m, "weight") for m in model], pruning_method=prune.L1Unstructured, amount=4)
        assert prune.is_pruned(model)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    beside.close(list(ours.state_dict().values()), list(theirs.state_dict().values()))
    layer = nn.utils.prune.random_unstructured(nn.Linear(10, 10), "weight", 0.25)
    assert layer.weight_mask.sum().item() == 75
    layer = nn.utils.prune.random_structured(nn.Linear(10, 10), "weight", 3, dim=1)
    assert sorted(layer.weight_mask.sum(0).tolist()) == [0.0] * 3 + [10.0] * 7


def test_fusion(beside: Any) -> None:
    torch.manual_seed(6)
    for name, args, norm, shape in (
        ("Conv2d", (3, 4, 2), "BatchNorm2d", (2, 3, 4, 4)),
        ("ConvTranspose1d", (3, 4, 2), "BatchNorm1d", (2, 3, 4)),
        ("Linear", (3, 4), "BatchNorm1d", (2, 3)),
    ):
        ours, theirs = beside.pair(*(n.Sequential(getattr(n, name)(*args), getattr(n, norm)(4)) for n in (nn, tnn)))
        for _ in range(3):
            x = draw(*shape)
            ours(beside.ours(x)), theirs(x)
        fused = []
        for n, model in ((nn, ours), (tnn, theirs)):
            model.eval()
            if name == "Linear":
                fused.append(n.utils.fuse_linear_bn_eval(*model))
            else:
                fused.append(n.utils.fuse_conv_bn_eval(*model, transpose="Transpose" in name))
        beside.close([fused[0].weight, fused[0].bias], [fused[1].weight, fused[1].bias])
        beside.close(fused[0](beside.ours(x)), theirs(x))


def test_functional_call(beside: Any) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(3, 3, bias=False)
            self.b = nn.Linear(3, 3, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x: Any) -> Any:
            return self.b(self.a(x))

    model, eye = Tied(), ts.eye(3)
    x = ts.ones(2, 3)
    call = nn.utils.stateless.functional_call
    before = model(x)
    assert call(model, {"a.weight": eye * 2}, x).tolist() == (x * 4).tolist()
    assert call(model, {"a.weight": eye * 2, "b.weight": eye}, x, tie_weights=False).tolist() == (x * 2).tolist()
    assert model(x).equal(before)
    with pytest.raises(ValueError):
        call(model, {"a.weight": eye * 2, "b.weight": eye}, x)
    with pytest.raises(RuntimeError):
        call(model, {"a.weight": eye, "c": eye}, x, strict=True)
    assert call(model, {"c": eye}, x).equal(before)
    assert not hasattr(model, "c")
    with pytest.raises(TypeError):
        call(model, {"a": eye}, x)


LAZY = [
    ("LazyLinear", (3,), {}, (2, 5)),
    ("LazyLinear", (3,), {"bias": False}, (5,)),
    ("LazyConv1d", (4, 2), {}, (2, 3, 5)),
    ("LazyConv2d", (4, 2), {"groups": 2, "bias": False}, (2, 6, 5, 5)),
    ("LazyConv3d", (4, 2), {"stride": 2}, (2, 3, 5, 5, 5)),
    ("LazyConvTranspose1d", (4, 2), {}, (3, 5)),
    ("LazyConvTranspose2d", (4, 2), {"groups": 2}, (2, 6, 5, 5)),
    ("LazyConvTranspose3d", (4, 2), {}, (2, 3, 2, 2, 2)),
    ("LazyBatchNorm1d", (), {}, (4, 3)),
    ("LazyBatchNorm2d", (), {"affine": False}, (4, 3, 2, 2)),
    ("LazyBatchNorm3d", (), {"track_running_stats": False}, (4, 3, 2, 2, 2)),
    ("LazyInstanceNorm1d", (), {}, (4, 3, 5)),
    ("LazyInstanceNorm2d", (), {"affine": False}, (4, 3, 2, 2)),
    ("LazyInstanceNorm3d", (), {"track_running_stats": False}, (4, 3, 2, 2, 2)),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "args", "options", "shape"), LAZY)
def test_lazy_modules(name: str, args: Any, options: Any, shape: Any, beside: Any) -> None:
    ours = getattr(nn, name)(*args, **options, device=beside.device)
    theirs = getattr(tnn, name)(*args, **options)
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert ours.has_uninitialized_params() == theirs.has_uninitialized_params()
    unused = copy.deepcopy(ours)
    if ours.has_uninitialized_params() and list(ours.parameters()):
        with pytest.raises(RuntimeError):
            _ = next(ours.parameters()).shape
    x = torch.randn(*shape)
    ours(beside.ours(x)), theirs(x)
    assert type(ours).__name__ == type(theirs).__name__
    trained(beside, *beside.pair(ours, theirs), *shape)
    unused.load_state_dict(ours.float().state_dict())  # a state with values initialises
    assert [tuple(t.shape) for t in unused.state_dict().values()] == [
        tuple(t.shape) for t in ours.state_dict().values()
    ]


def test_data_parallel(beside: Any) -> None:
    ours, theirs = beside.pair(nn.DataParallel(nn.Linear(3, 2)), tnn.DataParallel(tnn.Linear(3, 2)))
    x = draw(5, 3)
    beside.close(ours(beside.ours(x)), theirs(x))
    place = beside.device
    both = nn.DataParallel(ours.module, device_ids=[place, place])
    got = both(beside.ours(x))
    beside.close(got, theirs(x))
    got.square().sum().backward()
    theirs(x).square().sum().backward()
    beside.gradients(both, theirs)
    with pytest.raises(ZeroDivisionError):
        nn.parallel.parallel_apply([lambda x: 1 // x, lambda x: x], [0, 1])


def test_sync_batch_norm(beside: Any) -> None:
    ours, theirs = (n.SyncBatchNorm.convert_sync_batchnorm(n.Sequential(n.BatchNorm2d(3), n.ReLU())) for n in (nn, tnn))
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    plain = tnn.BatchNorm2d(3)
    x = torch.randn(2, 3, 4, 4)
    beside.close(ours.to(beside.device)(beside.ours(x)), plain(x).relu(), tolerance=1e-4)


def test_sdpa_kernel() -> None:
    from tesserack.nn.attention import SDPBackend, sdpa_kernel
    from tesserack.nn.attention.bias import causal_lower_right

    assert {b.name for b in SDPBackend} <= set(torch.nn.attention.SDPBackend.__members__)
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], set_priority=True):
        q = ts.ones(1, 2, 3, 4)
        assert nn.functional.scaled_dot_product_attention(q, q, q).shape == q.shape
    with pytest.raises(AssertionError), sdpa_kernel("flash"):
        pass
    assert causal_lower_right(2, 3).tolist() == [[True, True, False], [True, True, True]]


def test_conversions_and_skipped_initial_values() -> None:
    conv = nn.utils.convert_conv2d_weight_memory_format(nn.Sequential(nn.Conv2d(2, 3, 2)), ts.channels_last)
    assert conv[0].weight.is_contiguous(memory_format=ts.channels_last)
    assert tuple(nn.utils.skip_init(nn.Linear, 3, 2).weight.shape) == (2, 3)
    with pytest.raises(RuntimeError):
        nn.utils.skip_init(nn.ReLU)

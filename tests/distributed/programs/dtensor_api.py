"""What a program does with DTensors beside operators: placing, gradients, random numbers, optimizers, files, errors."""

import copy
import io
import itertools
import os
import pickle
import tempfile
import warnings
from pathlib import Path
from typing import Any

import tesserack as ts
from tesserack import distributed as dist
from tesserack import nn
from tesserack.distributed.tensor import (
    DeviceMesh,
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
    empty,
    full,
    init_device_mesh,
    ones,
    rand,
    randn,
    zeros,
)
from tesserack.distributed.tensor.debug import CommDebugMode, fallbacks
from tesserack.distributed.tensor.experimental import implicit_replication, local_map, register_sharding
from tesserack.distributed.tensor.placement_types import _StridedShard
from tesserack.nn import functional as F

R, S0, S1, P = Replicate(), Shard(0), Shard(1), Partial()


def raises(kind: Any, text: str, function: Any) -> None:
    try:
        function()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"expected {kind}: {text}")


def close(a: Any, b: Any, tolerance: float = 1e-6) -> bool:
    a, b = (x.full_tensor() if isinstance(x, DTensor) else x for x in (a, b))
    return a.shape == b.shape and bool((a - b).abs().max() <= tolerance if a.numel() else True)


def placing(mesh: Any) -> None:
    """From every placement to every other, over one dim or two, even and uneven, strided too."""
    for shape in [(8, 4), (5, 3), (0, 2)] if mesh.ndim == 2 else [(8, 4), (5, 3), (1, 7), (0, 2), (3, 2, 5)]:
        whole = ts.arange(int(ts.tensor(shape).prod()), dtype=ts.float32).reshape(shape)
        kinds: list[Any] = [R, P, *map(Shard, range(len(shape))), _StridedShard(0, split_factor=2)]
        for first in itertools.product(kinds, repeat=mesh.ndim):
            start = distribute_tensor(whole, mesh, [R if p.is_partial() else p for p in first])
            local = start.to_local()
            for dim, p in enumerate(first):
                if p.is_partial() and mesh.get_local_rank(dim):
                    local = local * 0
            given = DTensor.from_local(local, mesh, first, shape=whole.shape, stride=whole.stride())
            assert close(given, whole), first
            for target in itertools.product([k for k in kinds if not k.is_partial()], repeat=mesh.ndim):
                moved = given.redistribute(placements=target)
                assert moved.placements == target and close(moved, whole), (first, target)
                assert moved.to_local().shape == moved._spec.local_shape()


def gradients(mesh: Any, n: int) -> None:
    x = ts.ones(4, 2, requires_grad=True)
    given = DTensor.from_local(x, mesh, [S0])
    assert given.shape == (4 * n, 2) and given.requires_grad
    given.redistribute(placements=[R]).to_local().mul(dist.get_rank() + 1.0).sum().backward()
    # Each rank's gradient of the whole tensor is taken to be the same one: this rank's part of its own comes back.
    assert x.grad is not None and (x.grad == dist.get_rank() + 1.0).all()
    x.grad = None
    part = DTensor.from_local(x, mesh, [P])
    (part * 2).full_tensor().sum().backward()
    assert x.grad is not None and (x.grad == 2).all()
    local = DTensor.from_local(ts.ones(2, 2, requires_grad=True), mesh, [R])
    out = local.to_local(grad_placements=[P])
    (grad,) = ts.autograd.grad(out.sum(), local)
    assert grad.placements == (P,)
    # Twice differentiated through a redistribution.
    y = distribute_tensor(ts.arange(6.0).reshape(3, 2), mesh, [S0]).requires_grad_()
    (first,) = ts.autograd.grad((y.redistribute(placements=[S1]) ** 3).sum(), y, create_graph=True)
    (second,) = ts.autograd.grad(first.sum(), y)
    assert close(second, 6 * ts.arange(6.0).reshape(3, 2))


def random_numbers(mesh: Any) -> None:
    """As one process draws them, wherever the parts lie; each rank's own stream goes on from where it was."""
    for shape, placement in [((6, 4), S0), ((5, 3), S1), ((7,), R)]:
        for made, plain in [(randn, ts.randn), (rand, ts.rand)]:
            ts.manual_seed(3)
            expected, after = plain(*shape), ts.rand(2)
            ts.manual_seed(3)
            assert close(made(*shape, device_mesh=mesh, placements=[placement]), expected, 0)
            assert (ts.rand(2) == after).all()
    ts.manual_seed(5)
    x = ts.ones(6, 8)
    expected = F.dropout(x, 0.4), ts.empty(6, 8).normal_(), ts.empty(6, 8).uniform_(2, 3), ts.bernoulli(x * 0.5)
    for placement in (S0, S1, R):
        ts.manual_seed(5 + dist.get_rank() * (placement == S1))  # ranks that differ follow the first
        d = distribute_tensor(x, mesh, [placement])
        found = F.dropout(d, 0.4), empty_like(d).normal_(), empty_like(d).uniform_(2, 3), ts.bernoulli(d * 0.5)
        for one, other in zip(found, expected, strict=True):
            assert close(one, other, 0), placement
    ts.manual_seed(0)


def empty_like(d: Any) -> Any:
    return ts.empty_like(d)


def factories(mesh: Any) -> None:
    for made, value in [(zeros, 0), (ones, 1)]:
        d = made(5, 3, device_mesh=mesh, placements=[S0])
        assert d.shape == (5, 3) and (d.full_tensor() == value).all() and d.to_local().shape == d._spec.local_shape()
    with mesh:
        assert full((4, 2), 7, placements=[S1]).full_tensor().tolist() == [[7, 7]] * 4
    assert empty(4, dtype=ts.int64, device_mesh=mesh).dtype is ts.int64


def optimizers(mesh: Any) -> None:
    """Every optimizer on parameters that are cut as on whole ones."""
    kinds: list[Any] = [
        (ts.optim.SGD, {"momentum": 0.9, "nesterov": True}), (ts.optim.Adam, {"amsgrad": True}), (ts.optim.AdamW, {}),
        (ts.optim.RMSprop, {"momentum": 0.5}), (ts.optim.Adagrad, {}), (ts.optim.Adadelta, {}), (ts.optim.Adamax, {}),
        (ts.optim.NAdam, {}), (ts.optim.RAdam, {}),
    ]  # fmt: skip
    for kind, options in kinds:
        ts.manual_seed(1)
        whole = [nn.Parameter(ts.randn(6, 4)), nn.Parameter(ts.randn(5))]
        placed = [[S0], [R]]
        cut = [nn.Parameter(distribute_tensor(p.detach(), mesh, s)) for p, s in zip(whole, placed, strict=True)]
        one, other = kind(whole, lr=0.1, **options), kind(cut, lr=0.1, **options)
        for _ in range(4):
            for p, d in zip(whole, cut, strict=True):
                p.grad = ts.randn(p.shape)
                d.grad = distribute_tensor(p.grad, mesh, [S1 if p.ndim == 2 else S0])  # brought to where d lies
            norms = [nn.utils.clip_grad_norm_(ps, 1.0) for ps in (whole, cut)]
            assert close(norms[1], norms[0], 1e-5)
            one.step()
            other.step()
        for p, d in zip(whole, cut, strict=True):
            assert close(d, p, 1e-5), kind
            assert d.placements == (S0 if p.ndim == 2 else R,)


def files(mesh: Any) -> None:
    given = {
        "cut": distribute_tensor(ts.arange(10.0).reshape(5, 2), mesh, [S0]),
        "param": nn.Parameter(distribute_tensor(ts.ones(3), mesh, [R])),
    }
    written = io.BytesIO()
    ts.save(given, written)
    written.seek(0)
    for back in (ts.load(written), pickle.loads(pickle.dumps(given)), copy.deepcopy(given)):
        for name, x in given.items():
            assert back[name].device_mesh is mesh and back[name].placements == x.placements
            assert (back[name].to_local() == x.to_local()).all() and back[name].requires_grad == x.requires_grad
        assert isinstance(back["param"], nn.Parameter)


def in_place(mesh: Any) -> None:
    d = distribute_tensor(ts.arange(12.0).reshape(4, 3), mesh, [S0])
    d.add_(1).mul_(distribute_tensor(ts.tensor([1.0, 2.0, 3.0]), mesh, [R]))
    assert close(d, (ts.arange(12.0).reshape(4, 3) + 1) * ts.tensor([1.0, 2.0, 3.0]))
    d[:, 1] = 0.0  # a view that lies where d does
    assert (d.full_tensor()[:, 1] == 0).all()
    raises(RuntimeError, "had to be redistributed", lambda: d[1].zero_())
    raises(RuntimeError, "cannot be changed in place", lambda: d.t_())
    raises(RuntimeError, "got mixed torch.Tensor and DTensor", lambda: d + ts.ones(4, 3))
    raises(RuntimeError, "got mixed torch.Tensor and DTensor", lambda: F.layer_norm(d, (3,), ts.ones(3)))
    with implicit_replication():
        assert close(d + ts.ones(4, 3), d.full_tensor() + 1)
    assert close(d + 1, d.full_tensor() + 1) and close(d * ts.tensor(2.0), d.full_tensor() * 2)
    raises(RuntimeError, "for internal use only", lambda: d.redistribute(placements=[P]))
    raises(ValueError, "same length", lambda: d.redistribute(placements=[R] * (mesh.ndim + 1)))
    raises(IndexError, "expected a dim", lambda: distribute_tensor(ts.ones(2), mesh, [Shard(1)]))


def without_rules(mesh: Any) -> None:
    """An operator without a rule is done on whole tensors, and told of once."""
    d = distribute_tensor(ts.arange(6.0).reshape(3, 2) + 1, mesh, [S0])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            pinv = ts.linalg.pinv(d)
    assert close(pinv, ts.linalg.pinv(d.full_tensor()), 1e-4)
    names = [str(w.message) for w in told if "no sharding rule" in str(w.message)]
    assert len(names) == len(set(names)) >= 1 and max(fallbacks().values()) >= 2
    # One that writes: each rank keeps its part of the result.
    where = distribute_tensor(ts.tensor([[True, False], [False, False], [True, True]]), mesh, [R])
    d.masked_scatter_(where, distribute_tensor(ts.tensor([7.0, 8.0, 9.0]), mesh, [R]))
    assert d.full_tensor().tolist() == [[7, 2], [3, 4], [8, 9]] and d.placements == (S0,)


def rules_of_ones_own(mesh: Any) -> None:
    from tesserack.aten.operators import namespace

    aten = namespace("aten")

    @register_sharding(aten.linalg_matrix_exp.default)
    def matrix_exp(x: Any) -> Any:
        return [([Shard(d)], [Shard(d)]) for d in range(x.ndim - 2)]

    d = distribute_tensor(ts.randn(4, 3, 3), mesh, [S0])
    with CommDebugMode() as comms:
        out = ts.linalg.matrix_exp(d)
    assert out.placements == (S0,) and comms.get_total_counts() == 0
    assert close(out, ts.linalg.matrix_exp(d.full_tensor()), 1e-5)
    total = local_map(lambda x: x.sum(0), out_placements=[P], in_placements=([S0],))
    assert close(total(d), d.full_tensor().sum(0), 1e-5)
    raises(ValueError, "mismatched placements", lambda: total(d.redistribute(placements=[R])))


def communication(mesh: Any) -> None:
    """No more is sent than must be."""
    x = distribute_tensor(ts.randn(8, 6), mesh, [R])
    columns, rows = (distribute_tensor(ts.randn(*s), mesh, [p]) for s, p in (((6, 4), S1), ((4, 6), S0)))
    with CommDebugMode() as comms:
        out = F.gelu(x @ columns) @ rows
    assert out.placements == (P,) and comms.get_total_counts() == 0
    with CommDebugMode() as comms:
        out.full_tensor()
    assert comms.get_comm_counts() == {"all_reduce": 1}
    with CommDebugMode() as comms:
        out.redistribute(placements=[S0])
    assert comms.get_comm_counts() == {"reduce_scatter_tensor": 1}
    heads = [distribute_tensor(ts.randn(2, 4, 6, 8), mesh, [S1]).requires_grad_() for _ in range(3)]
    with CommDebugMode() as comms:
        q, k, v = heads
        ((q @ k.transpose(-2, -1)).softmax(-1) @ v).sum().backward()
        F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
    assert comms.get_total_counts() == 0, comms.get_comm_counts()
    # A table that is cut by rows has a gradient that is.
    table = nn.Parameter(distribute_tensor(ts.randn(8, 4), mesh, [S0]))
    index = distribute_tensor(ts.tensor([[1, 7, 3], [3, 0, 5]]), mesh, [R])
    F.embedding(index, table).redistribute(placements=[R]).pow(2).sum().backward()
    whole = table.full_tensor().detach().requires_grad_()
    F.embedding(index.to_local(), whole).pow(2).sum().backward()
    assert table.grad.placements == (S0,) and close(table.grad, whole.grad, 1e-5)


def modules(mesh: Any) -> None:
    model = distribute_module(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), mesh)
    assert all(isinstance(t, DTensor) for t in model.state_dict().values())
    raises(RuntimeError, "only be called once", lambda: distribute_module(model, mesh))
    model.load_state_dict(model.state_dict())
    assert isinstance(model.to(ts.float64)[0].weight, DTensor)


def outside(mesh: Any) -> None:
    """A mesh of one rank of two: the other holds nothing, and calls the same operators."""
    one = DeviceMesh("cpu", [1])
    d = distribute_tensor(ts.arange(4.0), one, [S0]).requires_grad_()
    out = (d * 2 + 1).sum()
    assert out.shape == () and d.shape == (4,)
    if dist.get_rank() == 1:
        assert out.to_local().item() == 16 and d.to_local().numel() == 4
    else:
        assert d.to_local().numel() == 0 and out.to_local().numel() == 0


def on_a_card(mesh: Any) -> None:
    """A device whose memory communicators of the host cannot read."""
    if ts.backends.why_unavailable("reference") is not None:
        return
    cards = init_device_mesh("reference", (2,))
    x = ts.arange(6.0).reshape(3, 2)
    d = distribute_tensor(x.to("reference"), cards, [S0]).requires_grad_()
    assert d.device.type == "reference"
    (d * d).sum().backward()
    assert (d.grad.full_tensor().cpu() == 2 * x).all()
    assert (randn(3, 2, device_mesh=cards, placements=[S1]).full_tensor().device.type) == "reference"


def main() -> None:
    dist.init_process_group()
    n = dist.get_world_size()
    mesh = init_device_mesh("cpu", (n,), mesh_dim_names=("x",))
    if n == 4:
        placing(init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b")))
    else:
        placing(mesh)
        gradients(mesh, n)
        for each in (random_numbers, factories, optimizers, files, in_place, without_rules, rules_of_ones_own):
            each(mesh)
        for each in (communication, modules, outside, on_a_card):
            each(mesh)
        kept = pickle.dumps(distribute_tensor(ts.ones(4, 2), mesh, [S0]))
        before = ts.linalg.vector_norm(pickle.loads(kept))
        # Another world with the same mesh: nothing is left of the groups of the first.
        dist.destroy_process_group()
        met = Path(tempfile.gettempdir()) / f"dtensor-{os.getppid()}-{os.environ['MASTER_PORT']}"
        dist.init_process_group(init_method=met.as_uri(), rank=int(os.environ["RANK"]), world_size=n)
        mesh = init_device_mesh("cpu", (n,), mesh_dim_names=("x",))
        d = pickle.loads(kept)
        assert d.device_mesh is mesh and close(ts.linalg.vector_norm(d), before)
        assert ts.linalg.vector_norm(d).device_mesh is mesh and close(d * 2, 2 * d.full_tensor())
    dist.destroy_process_group()


main()

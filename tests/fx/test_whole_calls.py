"""``compile`` with calls that stand whole in a graph: functions with gradients of their own, checkpoints, operators of
the program, in forward and backward, by the core and by a compiler.
"""

from __future__ import annotations

import copy
import threading

import numpy as np
import pytest
import tesserack as ts
from tesserack import compiler, nn
from tesserack.jit._compile.compiled import config
from tesserack.library import definitions
from tesserack.utils.checkpoint import checkpoint

GEARS = {"default": lambda: "inductor", "backend": lambda: lambda gm, given: gm.forward}


@pytest.fixture(autouse=True)
def _small_programs_too(monkeypatch):
    monkeypatch.setitem(config, "smallest", 0)


@pytest.fixture(params=GEARS)
def gear(request):
    return GEARS[request.param]()


class Scaled(ts.autograd.Function):
    """Keeps values and tensors, and has a number that programs change."""

    power = 2

    @staticmethod
    def forward(ctx, x, k):
        ctx.k, ctx.shape = k, x.shape
        ctx.save_for_backward(x)
        return x.round() * k**Scaled.power

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return (grad * ctx.k + x).reshape(ctx.shape), None


class Separate(ts.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, y):
        return x * y, x.sign(), x > 0

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, grad, *others):
        x, y = ctx.saved_tensors
        assert others == (None, None)
        return (grad * y if ctx.needs_input_grad[0] else None), (grad * x if ctx.needs_input_grad[1] else None)


class InPlace(ts.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    @ts.autograd.function.once_differentiable
    def backward(ctx, grad):
        return grad * 2


class OfNumPy(ts.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return ts.from_numpy(np.tanh(x.detach().numpy()))

    @staticmethod
    def backward(ctx, grad):
        return ts.from_numpy(grad.numpy() * 3)


class Mapped(ts.autograd.Function):
    @staticmethod
    def forward(x):
        return x * 3

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return grad * 5

    @staticmethod
    def vmap(info, in_dims, x):
        return Mapped.apply(x) + info.batch_size, in_dims[0]


def between(x, w):
    return (x @ w).tanh() + 1


def of_inputs_made(x, w):
    """A function closes over what is computed, and is given lists."""
    y = x @ w
    return checkpoint(lambda t, others: (t * y + others[0]).sin(), x @ w, [y], use_reentrant=False)


FUNCTIONS = {
    "ctx": lambda x, w: Scaled.apply(between(x, w), 3) * 2,
    "separate": lambda x, w: Separate.apply(between(x, w), w)[0] + Separate.apply(x.detach(), w)[1],
    "dirty": lambda x, w: InPlace.apply(between(x, w).clone()) * w,
    "numpy": lambda x, w: OfNumPy.apply(between(x, w)) * w,
    "vmap": lambda x, w: ts.vmap(Mapped.apply)(between(x, w)) * w,
    "passed through": lambda x, w: Passed.apply(between(x, w), w)[1] * 2,
    "no gradient": lambda x, w: Scaled.apply(x.detach(), 2) + x @ w,
    "reentrant": lambda x, w: checkpoint(between, x * 2, w, use_reentrant=True) * w,
    "hooks": lambda x, w: checkpoint(between, x * 2, w, use_reentrant=False) * w,
    "closure": of_inputs_made,
    "random": lambda x, w: checkpoint(lambda t: nn.functional.dropout(t, 0.5) * t, x @ w, use_reentrant=False),
    "autocast": lambda x, w: in_autocast(x, w),
    "grad": lambda x, w: ts.autograd.grad(between(x, w).square().sum(), x, create_graph=True)[0] * w,
}


class Passed(ts.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x + 1, y

    @staticmethod
    def backward(ctx, grad, other):
        return grad, other


def in_autocast(x, w):
    with ts.autocast("cpu", ts.bfloat16):
        return checkpoint(between, x, w, use_reentrant=False)


def alike(function, compiled, steps=4, size=3):
    """Results, random state and gradients of a function of two tensors, both ways."""
    found = []
    for run in (function, compiled):
        ts.manual_seed(7)
        found.append([])
        for _ in range(steps):
            x, w = (ts.randn(size, size).requires_grad_() for _ in range(2))
            out = run(x, w)
            out.float().sum().backward()
            found[-1] += [out.detach(), x.grad, w.grad, ts.get_rng_state()]
    return all((a is None and b is None) or ts.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_part_of_one_graph(name, gear):
    function = FUNCTIONS[name]
    compiled = ts.compile(function, fullgraph=gear == "inductor", backend=gear)
    assert alike(function, compiled)
    assert compiled._compiled._count == 1


def test_gradients_of_gradients():
    compiled = ts.compile(lambda x: Scaled.apply(x.sin(), 3) * x.cos(), fullgraph=True)
    plain = compiled._torchdynamo_orig_callable
    for _ in range(3):
        x, found = ts.randn(4).requires_grad_(), []
        for run in (plain, compiled):
            (first,) = ts.autograd.grad(run(x).sum(), x, create_graph=True)
            found.append(ts.autograd.grad(first.sum(), x)[0])
        assert ts.equal(*found)


def test_what_a_function_reads_and_does_is_that_of_now():
    seen = []

    class Counted(Scaled):
        @staticmethod
        def forward(ctx, x, k):
            seen.append(k)
            return Scaled.forward(ctx, x, k)

    factor = 2

    def f(x, w):
        return Counted.apply(between(x, w), factor)

    compiled = ts.compile(f, fullgraph=True)
    assert alike(f, compiled)
    assert len(seen) == 8
    Scaled.power = 3
    try:
        assert alike(f, compiled)
        factor = 5
        assert alike(f, compiled)
        Counted.backward = staticmethod(lambda ctx, grad: (grad * 11, None))
        assert alike(f, compiled)
    finally:
        Scaled.power = 2
    assert not compiled._compiled.reasons


def test_a_number_that_a_function_writes_is_read_as_plain_python_reads_it():
    state = {"n": 1}

    class Writes(ts.autograd.Function):
        scale = 1.0

        @staticmethod
        def forward(ctx, x):
            Writes.scale = Writes.scale * 2 if state["n"] % 3 == 0 else Writes.scale
            state["n"] += 1
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return grad

    compiled = ts.compile(lambda x: Writes.apply(x) * Writes.scale)
    x, found = ts.ones(2).requires_grad_(), []
    for run in (compiled, compiled._torchdynamo_orig_callable):
        Writes.scale, state["n"] = 1.0, 1
        found.append([run(x)[0].item() for _ in range(8)])
    assert found[0] == found[1]
    assert "writes 'scale'" in compiled._compiled.reasons[0]


def test_what_cannot_stand_in_a_graph_is_told_with_its_line():
    held = [None]

    class Hidden(ts.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * held[0]

        @staticmethod
        def backward(ctx, grad):
            return grad

    class Numbers(ts.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x.sum().item()

        @staticmethod
        def backward(ctx, grad, other):
            return grad * 2

    def hides(x):
        held.append(x.sin())
        held.pop(0)
        y = Hidden.apply(x)
        held[0] = None
        return y

    def counts(x):
        y, n = Numbers.apply(x)
        return y * n

    for function in (hides, counts):
        for k in range(3):
            x = ts.full((2,), 1.0 + k).requires_grad_()
            assert ts.equal(ts.compile(function)(x), function(x))
    told = compiler.explain(counts)(ts.ones(2).requires_grad_())
    assert "test_whole_calls.py:" in told.break_reasons[0].reason
    assert "returns more than tensors: float" in told.break_reasons[0].reason
    with pytest.raises(compiler.compiled.Unsupported, match="test_whole_calls"):
        ts.compile(counts, fullgraph=True)(ts.ones(2).requires_grad_())


def test_explain_shows_the_call():
    told = compiler.explain(FUNCTIONS["ctx"])(ts.ones(2, 2).requires_grad_(), ts.ones(2, 2))
    assert told.graph_count == 1
    assert told.graph_break_count == 0
    assert "Scaled" in str(told)


# --- modules that checkpoint -----------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm, self.drop = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.3)

    def forward(self, x):
        return self.drop(self.norm(self.linear(x)).relu()) + x


class Stack(nn.Module):
    """As transformers and timm do it."""

    def __init__(self, reentrant):
        super().__init__()
        self.blocks, self.reentrant, self.checkpointing = nn.ModuleList([Block() for _ in range(3)]), reentrant, True
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        for block in self.blocks:
            if self.checkpointing and self.training:
                x = checkpoint(block.__call__, x, use_reentrant=self.reentrant)
            else:
                x = block(x)
        return self.head(x)


@pytest.mark.parametrize("reentrant", [True, False])
def test_models_that_checkpoint_train_as_in_plain_python(reentrant, gear):
    ts.manual_seed(0)
    net = Stack(reentrant)
    twin = copy.deepcopy(net)
    compiled, results = ts.compile(twin, fullgraph=gear == "inductor", backend=gear), []
    for model, run in ((net, net), (twin, compiled)):
        ts.manual_seed(1)
        opt, found = ts.optim.SGD(model.parameters(), 0.1, momentum=0.9), []
        for k in range(8):
            model.checkpointing = k != 5
            model.train(k != 6)
            x = ts.randn(5, 4).requires_grad_()
            loss = run(x).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            found += [loss.detach(), x.grad]
        results.append([*found, *model.state_dict().values(), ts.get_rng_state()])
    assert all(ts.equal(a, b) for a, b in zip(*results, strict=True))
    assert compiled._compiled._count >= 2
    assert not compiled._compiled.reasons


# --- operators of the program ----------------------------------------------------------------------------------------


@ts.library.custom_op("whole_calls::doubled", mutates_args=())
def doubled(x: ts.Tensor, times: int) -> ts.Tensor:
    return ts.from_numpy(x.detach().numpy() * 2**times)


doubled.register_fake(lambda x, times: ts.empty_like(x))
doubled.register_autograd(
    lambda ctx, grad: (grad * 2**ctx.times, None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "times", inputs[1]),
)

_library = definitions.Library("whole_calls_too", "DEF")
_library.define("scaled(Tensor x, float by) -> Tensor")
_library.impl("scaled", lambda x, by: x * by, "CPU")
definitions.register_fake("whole_calls_too::scaled", lambda x, by: ts.empty_like(x))
definitions.register_autograd(
    "whole_calls_too::scaled",
    lambda ctx, grad: (grad * ctx.saved_tensors[0], None),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)

OPERATORS = {
    "custom_op": lambda x, w: doubled(between(x, w), 2) * w,
    "by name": lambda x, w: ts.ops.whole_calls.doubled(between(x, w), 1) + ts.ops.whole_calls.doubled.default(x, 1),
    "library": lambda x, w: ts.ops.whole_calls_too.scaled(between(x, w), 3.0) * w,
    "library's overload": lambda x, w: ts.ops.whole_calls_too.scaled.default(between(x, w), 3.0) * w,
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_of_the_program_are_steps(name, gear):
    compiled = ts.compile(OPERATORS[name], fullgraph=gear == "inductor", backend=gear)
    assert alike(OPERATORS[name], compiled)
    with ts.no_grad():
        x, w = ts.randn(3, 3), ts.randn(3, 3)
        for _ in range(3):
            assert ts.equal(compiled(x, w), OPERATORS[name](x, w))
    assert not compiled._compiled.reasons


class Positive(ts.autograd.Function):
    """Gives as many elements as are above zero; by NumPy, which no step of a graph tells."""

    by_numpy = False

    @staticmethod
    def forward(ctx, x):
        mask = ts.from_numpy(x.detach().numpy() > 0) if Positive.by_numpy else x > 0
        ctx.save_for_backward(mask)
        return ts.from_numpy(x.detach().numpy()[mask.numpy()]) if Positive.by_numpy else x[mask]

    @staticmethod
    def backward(ctx, grad):
        (mask,) = ctx.saved_tensors
        return ts.zeros(mask.shape).masked_scatter(mask, grad)


@pytest.mark.parametrize("by_numpy", [False, True])
def test_results_whose_sizes_follow_from_values_are_those_of_plain_python(by_numpy, monkeypatch):
    monkeypatch.setattr(Positive, "by_numpy", by_numpy)
    drop = nn.Identity() if by_numpy else nn.Dropout(0.5)  # what draws numbers cannot be run anew
    weight = nn.Parameter(ts.randn(8, 8))

    def f(x):
        return Positive.apply(drop(x @ weight).tanh()).sin().sum()

    results = []
    for run in (f, compiled := ts.compile(f)):
        ts.manual_seed(1)
        for _ in range(6):
            run(ts.randn(5, 8)).backward()
        results.append((weight.grad, ts.get_rng_state()))
        weight.grad = None
    assert all(ts.equal(a, b) for a, b in zip(*results, strict=True))
    assert compiled._compiled.plain


class Filtered(nn.Module):
    """A layer of the spectrum."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(ts.randn(3, dtype=ts.complex64))

    def forward(self, x):
        spectrum = ts.fft.rfft(x)
        spectrum = ts.cat([spectrum[..., :3] * self.weight, spectrum[..., 3:]], -1)
        return ts.fft.irfft(spectrum, n=x.shape[-1]) + ts.fft.fft(x.sin()).abs().mean()


@pytest.fixture(params=[False, True], ids=["alone", "beside-a-thread"])
def beside(request):
    """Another thread of the process, which makes a compiled function look again at what a run has read."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait if request.param else str)
    thread.start()
    yield
    end.set()
    thread.join()


def test_fourier_transforms_are_parts_of_graphs(gear, beside):
    layer = Filtered()
    compiled = ts.compile(layer, backend=gear, fullgraph=True)
    for n in (8, 8, 6, 8):
        x = ts.randn(2, n)
        with ts.no_grad():
            assert ts.equal(compiled(x), layer(x))
        grads = []
        for run in (layer, compiled):
            run(x).square().sum().backward()
            grads.append(layer.weight.grad)
            layer.weight.grad = None
        assert ts.equal(*grads)

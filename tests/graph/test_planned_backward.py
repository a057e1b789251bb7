"""Runs that autograd records, by plans of the forward and of the backward pass: in bits what plain autograd gives."""

from __future__ import annotations

import random
from typing import Any

import pytest
import tesserack as ts
from programs import Program, inputs, record, same_bits
from tesserack import _native, nn
from tesserack.testing import seeds

F = ts.nn.functional
COUNT = 200 if seeds.full() else 12


class Differentiated:
    """A random program on two inputs and a parameter, of which some tensors come back; and passes through it."""

    def __init__(self, seed: int, writes: bool, draws: bool) -> None:
        self.seed, self.program = seed, Program(seed, writes=writes, draws=draws)
        self.chance = random.Random(seed)
        self.weight = inputs(seed + 1)[0].requires_grad_()
        self.needs = [self.chance.random() < 0.8, self.chance.random() < 0.5]
        self.deep = [self.chance.random() < 0.5 for _ in range(2)]  # inputs that were computed
        self.kept = self.chance.sample(range(15), self.chance.randrange(1, 4))
        self.used = self.chance.random() < 0.7  # the parameter outside of the program, too

    def __call__(self, *given: ts.Tensor) -> list[ts.Tensor]:
        made = self.program(*given, self.weight.sin() if self.weight.ndim == 1 else self.weight * self.weight)
        out, memory = [], {t.untyped_storage().data_ptr() for t in (*given, self.weight)}
        for k in self.kept:
            place = made[k].untyped_storage().data_ptr()
            if place not in memory:
                memory.add(place)
                out.append(made[k])
        return out or [made[0] * 2]

    def step(self, run: Any, turn: int) -> list[Any]:
        """Results and gradients of a run and a pass back, or the error's class."""
        self.weight.grad = None
        leaves = [(t + 0.25 * turn).requires_grad_(need) for t, need in zip(inputs(self.seed), self.needs, strict=True)]
        given = [leaf * 1.25 if deep else leaf for leaf, deep in zip(leaves, self.deep, strict=True)]
        ts.manual_seed(self.seed + turn)
        order = random.Random(self.seed)
        try:
            before = (self.weight * 3).sum() if self.used else 0
            outs = run(*given)
            loss = sum(((t * t.detach().cos()).sum() for t in outs if t.requires_grad), start=ts.zeros(()))
            if order.random() < 0.3:
                loss = loss + sum((t.sum() for t in outs if t.requires_grad), start=ts.zeros(()))
            loss = loss + before + ((self.weight * 0.5).sum() if self.used else 0)
            if loss.requires_grad:
                loss.backward()
        except RuntimeError as error:
            return [type(error)]
        grads = [t.grad for t in (*leaves, self.weight)]
        return [*(t.detach() for t in outs), *grads, ts.rand(2), *(t.detach() for t in given)]


def equal(got: list[Any], expected: list[Any]) -> bool:
    return len(got) == len(expected) and all(
        same_bits(a, b) and a.stride() == b.stride()
        if isinstance(a, ts.Tensor) and isinstance(b, ts.Tensor)
        else a is b
        for a, b in zip(got, expected, strict=True)
    )


@pytest.mark.parametrize(("writes", "draws"), [(False, False), (True, False), (False, True), (True, True)])
def test_random_programs_have_the_gradients_of_eager(writes: bool, draws: bool) -> None:
    chance = seeds.generator(f"planned backward {writes} {draws}")
    planned = 0
    for _ in range(COUNT):
        program = Differentiated(chance.randrange(2**31), writes, draws)
        given = [t.requires_grad_(need) * 1 for t, need in zip(inputs(program.seed), program.needs, strict=True)]
        try:
            recorded, _ = record(program, *given)
        except RuntimeError:  # eager refuses to write so
            continue
        runner = _native._GraphRunner(recorded.outer_level())
        for turn in range(5):
            expected = program.step(program, turn)
            got = program.step(lambda *given, runner=runner: runner.run(list(given)), turn)
            said = f"Differentiated({program.seed}, {writes}, {draws}), run {turn}\n{got}\n{expected}\n{recorded}"
            assert equal(got, expected), said
        planned += any(plan["half"] == "backward" for plan in runner.plans())
    assert planned


def test_a_row_turned_into_a_column_keeps_the_strides_of_eager() -> None:
    def program(x: ts.Tensor) -> list[ts.Tensor]:
        y = x * 1.5
        return [y.reshape(-1, 5).transpose(0, -1).detach(), (y * y).sum()]

    given = ts.ones(5).requires_grad_() * 2
    recorded, _ = record(program, given)
    runner = _native._GraphRunner(recorded.outer_level())
    for _ in range(5):
        column, loss = runner.run([ts.ones(5).requires_grad_() * 2])
        assert (column.stride(), loss.stride()) == ((1, 5), ())
        loss.backward()
    assert {plan["half"] for plan in runner.plans()} == {"forward", "backward"}


DRAWING: dict[str, Any] = {
    "dropout": lambda x: F.dropout(x, 0.4),
    "dropout1d": lambda x: F.dropout1d(x.flatten(2), 0.4),
    "dropout2d": lambda x: F.dropout2d(x, 0.4),
    "dropout3d": lambda x: F.dropout3d(x.unsqueeze(-1), 0.4),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.4, True),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x, 0.4, True),
    "feature_dropout": lambda x: ts.feature_dropout(x, 0.4, True),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x),
    "fractional pooling": lambda x: F.fractional_max_pool2d(x, 2, output_size=2),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.4),
    "bernoulli": lambda x: x * ts.bernoulli(ts.full_like(x, 0.5)),
    "normal": lambda x: x * ts.normal(x.detach(), 1.0),
    "lstm": lambda x: ts.nn.LSTM(4, 4, 2, dropout=0.4, device=x.device)(x[0])[0],
}


@pytest.mark.parametrize("name", DRAWING)
def test_each_run_draws_numbers_of_its_own(name: str) -> None:
    """Also what is composed: a number that was drawn outside of its parts would be every run's."""

    def steps(run: Any) -> list[ts.Tensor]:
        seen = []
        for turn in range(6):
            ts.manual_seed(turn)
            x = ts.ones(2, 6, 4, 4).requires_grad_()
            (y,) = run(x * 1.5)
            y.sum().backward()
            assert x.grad is not None
            seen += [y.detach(), x.grad, ts.rand(1)]
        return seen

    ts.manual_seed(7)
    recorded, _ = record(lambda x: [DRAWING[name](x)], ts.ones(2, 6, 4, 4).requires_grad_() * 1.5)
    runner = _native._GraphRunner(recorded.outer_level())
    if name == "lstm":  # whose weights are the graph's
        assert len({float(t.sum()) for t in steps(lambda x: runner.run([x]))[::3]}) == 6
        return
    assert equal(steps(lambda x: runner.run([x])), steps(lambda x: [DRAWING[name](x)]))


def counted(x: ts.Tensor, norm: nn.BatchNorm1d, count: ts.Tensor, scale: ts.Tensor) -> ts.Tensor:
    """Statistics and a counter, which only they read, and a scale that the result follows from."""
    y = norm(x).tanh() * (scale * 1) + norm(x * 2).sigmoid()
    count.add_(1)
    scale.mul_(1.5)
    return (y * y).sum()


def test_a_pass_of_another_kind_runs_on_what_was_there() -> None:
    """Buffers that a run writes are kept for such a pass, but for those that nothing else follows from."""

    def run(compiled: bool) -> list[object]:
        ts.manual_seed(0)
        norm = nn.BatchNorm1d(3)
        count, scale = ts.tensor(0), ts.tensor(1.0)

        def call(x: ts.Tensor) -> ts.Tensor:
            return counted(x, norm, count, scale)

        function = ts.compile(call) if compiled else call
        found: list[object] = []
        for k in range(8):
            x = ts.randn(5, 3, requires_grad=True)
            loss = function(x)
            if k in (5, 7):  # its gradient is differentiated in turn
                (first,) = ts.autograd.grad(loss, x, create_graph=True)
                found += ts.autograd.grad(first.square().sum(), (x, norm.weight))[0].tolist()
            else:
                loss.backward()
                found += x.grad.tolist()
            found += [*norm.running_mean.tolist(), *norm.running_var.tolist(), int(count), float(scale)]
            found.append(int(norm.num_batches_tracked))
        return found

    assert run(True) == run(False)

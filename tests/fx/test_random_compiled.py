"""Random functions, written as Python, and random changes of what they read: compiled and plain, in bits.

What fails in one must fail in the other.
"""

from __future__ import annotations

import random
import textwrap
from typing import Any

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.jit._compile.compiled import config
from tesserack.testing import seeds

COUNT = 1500 if seeds.full() else 24

# Statements: {a} and {b} are tensors that were made before, {v} is a new one.
STATEMENTS = r"""
{v} = {a} + {b} * scale
{v} = {a}.relu() - {b}.sigmoid()
{v} = F.gelu({a}) @ {b}.T
{v} = {a}.T.contiguous() * table["k"][0]
{v} = {a}.reshape(2, 8).flip(0).reshape(4, 4)
{v} = ts.cat([{a}[:2], {b}[2:]])
{v} = {a}.softmax(-1).sum(0, keepdim=True) + {b}
{v} = ts.where({a} > 0, {a}, {b}.detach())
{v} = linear({a})
{v} = norm({a})
{v} = helper({a}, {b})
{v} = {a} if flag else {b}
{v} = F.dropout({a}, rate, linear.training)
{v} = {a} + ts.rand(4, 4)
{v} = {a} * ts.tensor([1.0, 2.0, 0.5, scale])
{v} = {a}.max(1).values[:, None] + {b}.mean(0)
{v} = {a}.to(ts.float64).sin().float()
{v} = {a}.unbind(1)[1] + {b}
{v} = ts.einsum("ij,kj->ik", {a}, {b})
{v} = {a} * {a}.shape[0] + len(functions)
{v} = {a}.clone()
{v} = {a} * 1; {v}.add_({b})
{v} = {a} * 1; {v}[0] = {b}[1]
{v} = {a} * 1; {v}.T.mul_(0.5); {v} = {v} + 1
{v} = {a}; {v} = {v} + count(3)
{v} = {a} + state.offset
total = sum(t.sum() for t in {a}.chunk(2)); {v} = {b} * total.tanh()
{v} = F.layer_norm({a}, (4,), eps=eps)
{v} = {a}
for function in functions: {v} = function({v})
with ts.no_grad(): {v} = {a} * 3
try: {v} = {a}.view(16).view(4, 4)\nexcept RuntimeError: {v} = {a} * 0
x.mul_(0.9)
buffer.lerp_({a}.detach().mean(0), 0.5)
{v} = {a} - buffer
"""
PRELUDE = """
class State:
    offset = 0.5

state, table, flag, scale, rate, eps = State(), {"k": [2.0]}, True, 1.5, 0.25, 1e-5
functions = [ts.tanh, lambda t: t * 2]

def count(n):
    return sum(range(n))

def helper(a, b, power=2):
    return a.abs() ** power + b
"""
CHANGES = """
globals().update(scale=scale + 1)
globals().update(flag=not flag)
globals().update(rate=0.5)
table["k"][0] += 1
table.update(k=[5.0])
functions.append(ts.sin)
functions.reverse()
State.offset = 2.0
state.offset = 3.0
helper.__defaults__ = (3,)
globals().update(helper=lambda a, b: a - b)
linear.train(not linear.training)
norm.eval()
norm.train()
linear.weight.data.mul_(0.5)
linear.weight.requires_grad_(not linear.weight.requires_grad)
setattr(linear, "bias", None)
setattr(linear, "weight", nn.Parameter(linear.weight.detach() + 1))
globals().update(eps=0.1)
globals().update(buffer=buffer + 1)
linear.register_forward_hook(lambda m, i, o: o * 2)
pass
pass
"""


def program(chance: random.Random) -> str:
    """The source of a function."""
    lines, made = [], ["x", "y"]
    statements = STATEMENTS.strip().split("\n")
    for k in range(chance.randrange(2, 9)):
        statement = chance.choice(statements)
        names = {"a": chance.choice(made), "b": chance.choice(made), "v": f"v{k}"}
        text = statement.format(**names).replace("\\n", "\n")
        if text.startswith("for "):
            text = f"v{k} = {names['a']}\n{text}"
        lines.append(text)
        if "{v}" in statement:
            made.append(f"v{k}")
    shown = chance.choice(["[{}]", "({},)", "{{'all': [{}]}}"]).format(", ".join(made[2:] or ["x + y"]))
    return "def f(x, y):\n" + textwrap.indent("\n".join([*lines, f"return {shown}"]), "    ")


class World:
    """A function, and all that it reads, apart from any other's."""

    def __init__(self, source: str, compiled: bool) -> None:
        ts.manual_seed(0)
        self.space: dict[str, Any] = {"ts": ts, "nn": nn, "F": nn.functional, "__name__": "random_program"}
        self.space.update(linear=nn.Linear(4, 4), norm=nn.BatchNorm1d(4), buffer=ts.zeros(4))
        exec(PRELUDE + source, self.space)
        self.run = ts.compile(self.space["f"]) if compiled else self.space["f"]

    def call(self, seed: int, grads: tuple[bool, bool], recorded: bool) -> list[Any]:
        """What a call gives and leaves: results, gradients, inputs, state, random state."""
        ts.manual_seed(seed)
        given = [ts.randn(4, 4).requires_grad_(grad) for grad in grads]
        x, y = (t * 1 for t in given)
        results: list[Any] = []
        try:
            with ts.set_grad_enabled(recorded):
                results = ts.utils._pytree.tree_leaves(self.run(x, y))
            flowing = [r for r in results if r.requires_grad]
            if flowing:
                sum((r.float() ** 2).mean() for r in flowing).backward()
        except Exception as error:
            results.append(type(error))
        held = [*self.space["linear"].parameters(), *self.space["norm"].parameters(), *given]
        found = [*results, x, y, *(t.grad for t in held), *self.space["norm"].buffers(), self.space["buffer"]]
        for t in held:
            t.grad = None
        return [*found, *(r.requires_grad for r in results if isinstance(r, ts.Tensor)), ts.get_rng_state()]


def alike(a: Any, b: Any) -> bool:
    if not isinstance(a, ts.Tensor):
        return a is b or a == b
    return a.dtype == b.dtype and a.stride() == b.stride() and a.shape == b.shape and same_values(a, b)


def same_values(a: ts.Tensor, b: ts.Tensor) -> bool:
    one, other = (t.detach().contiguous().reshape(-1).view(ts.uint8) for t in (a, b))
    return one.equal(other)


@pytest.mark.parametrize("part", range(4))
def test_random_functions_and_changes(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(config, "smallest", 0)
    monkeypatch.setitem(config, "misses", 10**9)
    chance = seeds.generator(f"compiled functions {part}")
    captured = 0
    for _ in range(COUNT // 4):
        seed = chance.randrange(2**31)
        own = random.Random(seed)
        source = program(own)
        worlds = [World(source, compiled) for compiled in (False, True)]
        grads, recorded, changes = (True, False), True, []
        for k in range(10):
            found = [world.call(seed + k, grads, recorded) for world in worlds]
            said = f"seed {seed}, call {k}, after {changes}, gradients {grads} {recorded}\n{source}"
            wrong = [i for i, (a, b) in enumerate(zip(*found, strict=True)) if not alike(a, b)]
            assert not wrong, f"{wrong} of {len(found[0])}: {said}"
            if k % 2:
                changes.append(own.choice(CHANGES.strip().split("\n")))
                for world in worlds:
                    ts.manual_seed(1)
                    exec(changes[-1], world.space)
                grads = own.choice([grads, (False, False), (True, True)])
                recorded = own.choice([True, True, False])
        captured += worlds[1].run._compiled._count > 0
    assert captured

"""What Python reads of the values of tensors that were there before the run."""

from __future__ import annotations

import tesserack as ts

from tests.fx.stale.cases import CASES, Case


def reads_value(how):
    """A case of a function that goes by the value of a tensor that nothing else uses."""

    def make():
        held = ts.tensor(1.0)
        return Case(lambda x: x.sin() * 2 if how(held) else x.cos() - 1, held.zero_, only_default=True)

    return make


def writes_through_numpy():
    held = ts.tensor([1.0])
    seen = held.numpy()
    return Case(lambda x: x.sin() * float(held), lambda: seen.fill(3.0), only_default=True)


def is_given_as_a_number():
    held = ts.tensor(2)
    return Case(lambda x: ts.add(x, x, alpha=held), lambda: held.fill_(3), only_default=True)


def is_given_as_a_size():
    held = ts.tensor(2)
    return Case(lambda x: x.sum() + ts.ones(held, 2), lambda: held.fill_(3), only_default=True)


HOW = {
    "bool": bool,
    "float": float,
    "int": int,
    "item": lambda t: t.item(),
    "complex": lambda t: complex(t).real,
    "is_nonzero": lambda t: t.is_nonzero(),
    "range": lambda t: range(int(t)),
    "text": lambda t: f"{t}" == "1.0",
    "computed": lambda t: t > 0,
}
CASES.update({f"reads_a_held_tensor_as_{name}": reads_value(how) for name, how in HOW.items()})
CASES.update((make.__name__, make) for make in (writes_through_numpy, is_given_as_a_number, is_given_as_a_size))

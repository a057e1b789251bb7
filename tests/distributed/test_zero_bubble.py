"""Backward passes in two, and the orders that make use of them; ``test_dtensor.py`` runs them on several ranks."""

import itertools
from typing import Any

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.distributed.pipelining import _zero_bubble as zero_bubble
from tesserack.distributed.pipelining import schedules
from tesserack.distributed.pipelining._split_backward import SplitBackward
from tesserack.utils.flop_counter import FlopCounterMode


class Tied(nn.Module):
    """A weight on two ways, one that is normalised first, one beside the input's way, and one that has none."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.unused = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(2, 2)
        self.bias, self.scale = nn.Parameter(ts.rand(6)), nn.Parameter(ts.rand(6))

    def forward(self, x: ts.Tensor) -> ts.Tensor:
        h = self.one(x).tanh()
        normed = self.two.weight / self.two.weight.norm()
        return self.one(h) + nn.functional.linear(x * h, normed, self.two.bias) + self.bias.exp() * self.scale


@pytest.mark.parametrize("make", [Tied, lambda: nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 6))])
@pytest.mark.parametrize("loss", [False, True])
def test_both_parts_make_the_whole(make: Any, loss: bool) -> None:
    ts.manual_seed(0)
    model, x, grad = make(), ts.randn(3, 6, requires_grad=True), ts.randn(3, 6)
    y = model(x)
    parameters = list(model.parameters())
    ends, grads = ([(y * grad).sum()], None) if loss else ([y], [grad])
    expected = ts.autograd.grad(ends, [x, *parameters], grads, retain_graph=True, allow_unused=True)
    for times in (1, 2):
        split = SplitBackward(ends, grads)
        (of_x,) = split.of_inputs([x], parameters)
        assert all(
            (p.grad is None) == (times == 1) for p, g in zip(parameters, expected[1:], strict=True) if g is not None
        )
        split.of_parameters()
        assert ts.allclose(of_x, expected[0])
        for p, g in zip(parameters, expected[1:], strict=True):
            assert (p.grad is None and g is None) or ts.allclose(p.grad, times * g, atol=1e-5)


def test_nothing_is_done_twice() -> None:
    model, x = nn.Sequential(*[nn.Linear(16, 16) for _ in range(4)]), ts.randn(8, 16, requires_grad=True)
    counts = []
    with FlopCounterMode(display=False) as counter:
        y = model(x)
        counts.append(counter.get_total_flops())
        split = SplitBackward([y], [ts.ones_like(y)])
        split.of_inputs([x], list(model.parameters()))
        counts.append(counter.get_total_flops())
        split.of_parameters()
        counts.append(counter.get_total_flops())
    assert counts == [counts[0], 2 * counts[0], 3 * counts[0]]  # each part as much as the forward


def _order(kind: Any, ranks: int, local: int, count: int) -> dict[int, list[Any]]:
    schedule = kind.__new__(kind)
    schedule.pp_group_size, schedule.n_local_stages, schedule._n_microbatches = ranks, local, count
    schedule._num_stages = ranks * local
    return {rank: schedule._order(rank) for rank in range(ranks)}


def _ends(order: dict[int, list[Any]], stages: int) -> bool:
    """Whether every action finds what it waits for, each rank going on as soon as it can."""
    done: set[tuple[int, str, int]] = set()
    places = dict.fromkeys(order, 0)
    while True:
        moved = False
        for rank, actions in order.items():
            while places[rank] < len(actions):
                stage, kind, chunk = actions[places[rank]]
                needs = {
                    "F": [(stage - 1, "F", chunk)] if stage else [],
                    "I": [(stage, "F", chunk), *([(stage + 1, "I", chunk)] if stage + 1 < stages else [])],
                    "W": [(stage, "I", chunk)],
                    "B": [(stage, "F", chunk), *([(stage + 1, "I", chunk)] if stage + 1 < stages else [])],
                }[kind]
                if not all(need in done for need in needs):
                    break
                done.add((stage, "I" if kind == "B" else kind, chunk))
                places[rank] += 1
                moved = True
        if not moved:
            return all(places[rank] == len(actions) for rank, actions in order.items())


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_no_order_waits_for_ever(ranks: int) -> None:
    cases = [
        (zero_bubble.ScheduleInterleavedZeroBubble, local, n) for local in (1, 2, 3) for n in (1, ranks, 4 * ranks)
    ]
    cases += [(zero_bubble.ScheduleZBVZeroBubble, 2, count) for count in (1, 2, ranks, 2 * ranks + 1, 4 * ranks)]
    for kind, local, count in cases:
        order = _order(kind, ranks, local, count)
        every = [(s, k, c) for s, k, c in itertools.product(range(ranks * local), "FIW", range(count))]
        assert sorted(itertools.chain(*order.values())) == sorted(every), (kind, ranks, local, count)
        assert _ends(order, ranks * local), (kind, ranks, local, count)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_both_ends_meet(ranks: int) -> None:
    for count in (2 * ranks, 2 * ranks + 1, 5 * ranks):
        order = _order(schedules.ScheduleDualPipeV, ranks, 2, count)
        parts = {"F": "F", "I": "I", "W": "W", "B": "IW"}
        done = [(s, part, c) for s, kind, c in itertools.chain(*order.values()) for part in parts[kind]]
        assert sorted(done) == sorted(itertools.product(range(2 * ranks), "FIW", range(count))), (ranks, count)
        assert _ends(order, 2 * ranks), (ranks, count)
    with pytest.raises(ValueError, match="at least as many microbatches as stages"):
        _order(schedules.ScheduleDualPipeV, ranks, 2, 2 * ranks - 1)


def test_schedules_are_found_by_name_and_say_what_they_need() -> None:
    assert schedules.get_schedule_class("zbvzerobubble") is zero_bubble.ScheduleZBVZeroBubble
    with pytest.raises(ValueError, match="exactly 2 stages per rank"):
        zero_bubble.ScheduleZBVZeroBubble.__new__(zero_bubble.ScheduleZBVZeroBubble)._stages_of(0, 2, 6)
    with pytest.raises(ValueError, match="multiple of the number of rounds"):
        _order(zero_bubble.ScheduleInterleavedZeroBubble, 2, 2, 5)

"""Schedules, and optimizers that are derived, hooked and pickled.

Each is one program for both libraries.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from outcomes import builtin_error_of, warned


def warm_restarts(m: Any) -> Any:
    rates = []
    for options in ({"T_0": 3}, {"T_0": 1, "T_mult": 2, "eta_min": 0.1}, {"T_0": 2, "T_mult": 3}):
        optimizer = m.optim.SGD([m.ones(1, requires_grad=True)], lr=1.5)
        schedule = m.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, **options)
        for epoch in [None] * 9 + [0.5, 2.25, 7, None, None]:
            optimizer.step()
            schedule.step() if epoch is None else schedule.step(epoch)
            rates += [round(optimizer.param_groups[0]["lr"], 9), schedule.last_epoch, schedule.T_i]
    return rates


def schedules(m: Any) -> Any:
    optimizer = m.optim.SGD([m.ones(1, requires_grad=True)], lr=1.0)
    kinds = m.optim.lr_scheduler
    chained = builtin_error_of(lambda: kinds.ChainedScheduler([kinds.ReduceLROnPlateau(optimizer)]))
    step = kinds.StepLR(optimizer, 1)
    optimizer.step()
    within = kinds.CosineAnnealingWarmRestarts(m.optim.SGD([m.ones(1, requires_grad=True)], lr=1.0), 3)
    return [chained, warned(lambda: step.step(3)), warned(lambda: within.step(1.5)), within.get_last_lr()]


def an_optimizer_without_defaults(m: Any) -> Any:
    class Nothing(m.optim.Optimizer):
        def __init__(self) -> None:
            super().__init__([m.zeros(1)], [])

        def add_param_group(self, param_group: Any) -> None:
            self.given = param_group

    made = Nothing()
    return [made.defaults, made.param_groups, len(made.given["params"])]


def optimizers_with_hooks_are_pickled(m: Any) -> Any:

    optimizer = m.optim.Adam([m.ones(2, requires_grad=True)], lr=0.5)
    optimizer.register_step_pre_hook(lambda *given: None)
    optimizer.param_groups[0]["params"][0].grad = m.ones(2)
    optimizer.step()
    again = pickle.loads(pickle.dumps(optimizer))
    again.step()
    return [again.param_groups[0]["lr"], again.param_groups[0]["params"][0].detach()]


PROGRAMS = [warm_restarts, schedules, an_optimizer_without_defaults, optimizers_with_hooks_are_pickled]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program(compare_program: Callable[..., None], program: Callable[[Any], Any]) -> None:
    compare_program(program)

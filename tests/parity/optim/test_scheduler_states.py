"""State dicts of schedules and optimizers hold what PyTorch's do, so that files of one open in the other."""

from __future__ import annotations

import warnings

import pytest
import tesserack as ts
import torch

MAKERS = {
    "StepLR": lambda L, o: L.StepLR(o, 3),
    "MultiStepLR": lambda L, o: L.MultiStepLR(o, [2, 4]),
    "ConstantLR": lambda L, o: L.ConstantLR(o),
    "LinearLR": lambda L, o: L.LinearLR(o),
    "ExponentialLR": lambda L, o: L.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda L, o: L.PolynomialLR(o),
    "CosineAnnealingLR": lambda L, o: L.CosineAnnealingLR(o, 5),
    "CosineAnnealingWarmRestarts": lambda L, o: L.CosineAnnealingWarmRestarts(o, 5),
    "CyclicLR": lambda L, o: L.CyclicLR(o, 0.1, 0.2),
    "OneCycleLR": lambda L, o: L.OneCycleLR(o, 0.1, 10),
    "LambdaLR": lambda L, o: L.LambdaLR(o, lambda epoch: 0.5),
    "MultiplicativeLR": lambda L, o: L.MultiplicativeLR(o, lambda epoch: 0.5),
    "ReduceLROnPlateau": lambda L, o: L.ReduceLROnPlateau(o),
    "SequentialLR": lambda L, o: L.SequentialLR(o, [L.ConstantLR(o), L.ExponentialLR(o, 0.9)], [2]),
    "ChainedScheduler": lambda L, o: L.ChainedScheduler([L.ConstantLR(o), L.ExponentialLR(o, 0.9)]),
}
OPTIMIZERS = [
    "Adam",
    "AdamW",
    "Adamax",
    "NAdam",
    "RAdam",
    "Adagrad",
    "Adadelta",
    "RMSprop",
    "Rprop",
    "ASGD",
    "Adafactor",
]


def schedule(library, name, steps):
    opt = library.optim.SGD([library.nn.Parameter(library.ones(2))], lr=0.1, momentum=0.9)
    made = MAKERS[name](library.optim.lr_scheduler, opt)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(steps):
            opt.step()
            made.step(*([1.0] if name == "ReduceLROnPlateau" else []))
    return made


@pytest.mark.parametrize("name", MAKERS)
def test_states_of_schedules(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = schedule(ts, name, 3), schedule(torch, name, 3)
        assert ours.state_dict() == theirs.state_dict()
        again = schedule(ts, name, 0)
    again.load_state_dict(theirs.state_dict())
    assert again.state_dict() == theirs.state_dict()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_states_of_optimizers(name):
    found = []
    for library in (torch, ts):
        param = library.nn.Parameter(library.ones(2, 2))
        opt = getattr(library.optim, name)([param])
        (param * param).sum().backward()
        opt.step()
        found.append(opt.state_dict())
    theirs, ours = found
    assert ours["param_groups"] == theirs["param_groups"] and ours["state"][0].keys() == theirs["state"][0].keys()
    for key, value in theirs["state"][0].items():
        mine = ours["state"][0][key]
        assert str(mine.dtype)[10:] == str(value.dtype)[6:] and mine.shape == value.shape, key
        assert mine.tolist() == pytest.approx(value.tolist(), rel=1e-5) if value.ndim == 0 else True, key

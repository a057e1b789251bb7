"""Learning-rate schedules: their rates, chaining, resuming."""

import math
import warnings

import pytest
import tesserack as ts
from tesserack import nn, optim
from tesserack.optim import lr_scheduler as lrs

BASE = 0.4


def optimizer(lr=BASE, **options):
    return optim.SGD([nn.Parameter(ts.zeros(1))], lr=lr, **options)


def rates(make, steps=12):
    """The rate before each of ``steps`` steps."""
    opt = optimizer()
    schedule, seen = make(opt), []
    for _ in range(steps):
        seen.append(opt.param_groups[0]["lr"])
        assert schedule.get_last_lr() == [seen[-1]]
        opt.step()
        schedule.step()
    return seen


def ramp(t, start, end, total):
    return start + (end - start) * min(t, total) / total


CASES = {
    "lambda": (lambda o: lrs.LambdaLR(o, lambda t: 1 / (t + 1)), lambda t: 1 / (t + 1)),
    "multiplicative": (lambda o: lrs.MultiplicativeLR(o, lambda t: 0.9), lambda t: 0.9**t),
    "step": (lambda o: lrs.StepLR(o, 3, 0.5), lambda t: 0.5 ** (t // 3)),
    "multistep": (lambda o: lrs.MultiStepLR(o, [2, 5, 5], 0.1), lambda t: 0.1 ** ((t >= 2) + 2 * (t >= 5))),
    "exponential": (lambda o: lrs.ExponentialLR(o, 0.9), lambda t: 0.9**t),
    "constant": (lambda o: lrs.ConstantLR(o, 0.25, 4), lambda t: 0.25 if t < 4 else 1),
    "linear": (lambda o: lrs.LinearLR(o, 0.2, 0.8, 6), lambda t: ramp(t, 0.2, 0.8, 6)),
    "polynomial": (lambda o: lrs.PolynomialLR(o, 8, 2.0), lambda t: (1 - min(t, 8) / 8) ** 2),
    "cosine": (lambda o: lrs.CosineAnnealingLR(o, 5), lambda t: (1 + math.cos(math.pi * t / 5)) / 2),
    "sequential": (
        lambda o: lrs.SequentialLR(o, [lrs.LinearLR(o, 0.5, 1.0, 4), lrs.ExponentialLR(o, 0.9)], [4]),
        lambda t: ramp(t, 0.5, 1, 4) if t < 4 else 0.9 ** (t - 4),
    ),
    "chained": (
        lambda o: lrs.ChainedScheduler([lrs.ConstantLR(o, 0.5, 3), lrs.ExponentialLR(o, 0.9)]),
        lambda t: (0.5 if t < 3 else 1) * 0.9**t,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rates(name):
    make, factor = CASES[name]
    assert rates(make) == pytest.approx([BASE * factor(t) for t in range(12)], rel=1e-9, abs=1e-12)


def test_cosine_with_a_floor_rises_again_after_the_bottom():
    expected = [0.1 + 0.3 * (1 + math.cos(math.pi * t / 5)) / 2 for t in range(12)]
    assert rates(lambda o: lrs.CosineAnnealingLR(o, 5, eta_min=0.1)) == pytest.approx(expected)


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("lambda", "multiplicative")])
def test_resuming_from_state_dicts(name):
    make, _ = CASES[name]
    opt = optimizer()
    schedule = make(opt)
    for _ in range(5):
        opt.step()
        schedule.step()
    opt2 = optimizer()
    schedule2 = make(opt2)
    schedule2.load_state_dict(schedule.state_dict())
    opt2.load_state_dict(opt.state_dict())
    for _ in range(4):
        for o, s in ((opt, schedule), (opt2, schedule2)):
            o.step()
            s.step()
        assert opt2.param_groups[0]["lr"] == opt.param_groups[0]["lr"]


def test_last_epoch_resumes_and_needs_the_initial_rate():
    opt = optimizer()
    with pytest.raises(KeyError, match="initial_lr"):
        lrs.StepLR(opt, 2, last_epoch=3)


@pytest.mark.parametrize(
    "make",
    [
        lambda o, **resumed: lrs.ExponentialLR(o, 0.5, **resumed),
        lambda o, **resumed: lrs.LinearLR(o, 0.5, total_iters=6, **resumed),
        lambda o, **resumed: lrs.PolynomialLR(o, 7, 2.0, **resumed),
        lambda o, **resumed: lrs.CosineAnnealingLR(o, 6, 0.01, **resumed),
        lambda o, **resumed: lrs.MultiplicativeLR(o, lambda epoch: 0.5, **resumed),
        lambda o, **resumed: lrs.StepLR(o, 3, 0.5, **resumed),
        lambda o, **resumed: lrs.MultiStepLR(o, [2, 5, 7], 0.5, **resumed),
        lambda o, **resumed: lrs.ConstantLR(o, 0.5, 4, **resumed),
        lambda o, **resumed: lrs.CosineAnnealingWarmRestarts(o, 2, 2, 0.01, **resumed),
        lambda o, **resumed: lrs.SequentialLR(
            o, [lrs.ConstantLR(o, 0.1, 2), lrs.ExponentialLR(o, 0.9)], [3], **resumed
        ),
    ],
)
@pytest.mark.parametrize("taken", range(1, 9))
def test_a_schedule_resumed_goes_on_from_the_rates_that_are_there(make, taken):
    """Not a step further: the optimizer's state has the rate of the epoch resumed."""
    opt = optimizer()
    schedule = make(opt)
    for _ in range(taken):
        opt.step()
        schedule.step()
    again = optimizer()
    again.load_state_dict(opt.state_dict())
    resumed = make(again, last_epoch=schedule.last_epoch - 1)
    for _ in range(4):
        assert resumed.get_last_lr() == pytest.approx(schedule.get_last_lr())
        for o, s in ((opt, schedule), (again, resumed)):
            o.step()
            s.step()


def test_a_multiplicative_schedule_that_begins_later_multiplies_at_once():
    opt = optimizer()
    parts = [lrs.ConstantLR(opt, 1.0, 1), lrs.MultiplicativeLR(opt, lambda epoch: 0.5)]
    both = lrs.SequentialLR(opt, parts, [1])
    rates = []
    for _ in range(3):
        rates += both.get_last_lr()
        opt.step()
        both.step()
    assert rates == pytest.approx([BASE, BASE / 2, BASE / 4])


def test_lambda_per_group_and_saved_callables():
    class Scale:
        def __init__(self, by):
            self.by = by

        def __call__(self, epoch):
            return self.by

    a, b = (nn.Parameter(ts.zeros(1)) for _ in range(2))
    opt = optim.SGD([{"params": a}, {"params": b}], lr=1.0)
    schedule = lrs.LambdaLR(opt, [lambda t: 2.0, Scale(3.0)])
    assert schedule.get_last_lr() == [2.0, 3.0]
    saved = schedule.state_dict()
    assert saved["lr_lambdas"] == [None, {"by": 3.0}]
    other = lrs.LambdaLR(opt, [lambda t: 2.0, Scale(9.0)])
    other.load_state_dict(saved)
    assert other.lr_lambdas[1].by == 3.0
    with pytest.raises(ValueError, match="2 functions"):
        lrs.LambdaLR(opt, [lambda t: 1.0])


@pytest.mark.filterwarnings("ignore:The epoch parameter")
def test_stepping_to_an_epoch_uses_the_closed_form():
    opt = optimizer()
    schedule = lrs.StepLR(opt, 3, 0.5)
    opt.step()
    schedule.step(7)
    assert schedule.get_last_lr() == pytest.approx([BASE / 4]) and schedule.last_epoch == 7


def test_schedule_before_optimizer_warns():
    opt = optimizer()
    schedule = lrs.StepLR(opt, 3)
    with pytest.warns(UserWarning, match="before"):
        schedule.step()


def test_a_schedule_of_ones_own():
    class Half(lrs.LRScheduler):
        def get_lr(self):
            return [base / 2**self.last_epoch for base in self.base_lrs]

    assert rates(Half, 3) == [BASE, BASE / 2, BASE / 4]
    with pytest.raises(NotImplementedError, match="get_lr"):
        lrs.LRScheduler(optimizer())


def test_plateau():
    opt = optimizer(lr=1.0)
    schedule = lrs.ReduceLROnPlateau(opt, factor=0.5, patience=1, cooldown=1, threshold=0.1, min_lr=0.2)
    seen = []
    for loss in (1.0, 0.95, 0.95, 0.95, 0.95, 0.95, 0.95, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5):
        schedule.step(loss)
        seen.append(opt.param_groups[0]["lr"])
    assert seen == [1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.2, 0.2, 0.2, 0.2]


def test_plateau_upwards_and_absolute():
    opt = optimizer(lr=1.0)
    schedule = lrs.ReduceLROnPlateau(opt, mode="max", factor=0.5, patience=0, threshold=0.5, threshold_mode="abs")
    for metric in (ts.tensor(1.0), 2.0, 2.4):
        schedule.step(metric)
    assert opt.param_groups[0]["lr"] == 0.5
    other = lrs.ReduceLROnPlateau(optimizer(), mode="max")
    other.load_state_dict(schedule.state_dict())
    assert other.best == 2.0
    for options, match in (({"factor": 1.0}, "factor"), ({"mode": "up"}, "mode"), ({"threshold_mode": "x"}, "rel")):
        with pytest.raises(ValueError, match=match):
            lrs.ReduceLROnPlateau(opt, **options)


def test_one_cycle():
    opt = optimizer(momentum=0.9)
    schedule = lrs.OneCycleLR(opt, max_lr=1.0, total_steps=10, pct_start=0.3, anneal_strategy="linear")
    seen, momenta = [], []
    for _ in range(10):
        seen.append(opt.param_groups[0]["lr"])
        momenta.append(opt.param_groups[0]["momentum"])
        opt.step()
        schedule.step()
    up = [0.04 + 0.96 * t / 2 for t in range(3)]
    down = [1 - (1 - 4e-6) * t / 7 for t in range(1, 8)]
    assert seen == pytest.approx(up + down, rel=1e-9)
    assert momenta[0] == 0.95 and momenta[2] == pytest.approx(0.85) and momenta[9] == pytest.approx(0.95)
    with pytest.raises(ValueError, match="past the 10 steps"):
        schedule.step()


def test_one_cycle_moves_beta1_and_checks_its_arguments():
    opt = optim.Adam([nn.Parameter(ts.zeros(1))])
    lrs.OneCycleLR(opt, max_lr=0.1, epochs=2, steps_per_epoch=5, three_phase=True)
    assert opt.param_groups[0]["betas"] == (0.95, 0.999)
    for options, match in (
        ({}, "total_steps"),
        ({"total_steps": 0}, "positive"),
        ({"total_steps": 5, "pct_start": 2.0}, "pct_start"),
        ({"total_steps": 5, "anneal_strategy": "step"}, "anneal_strategy"),
        ({"total_steps": 5, "max_lr": [1, 2]}, "1 values of max_lr"),
    ):
        with pytest.raises(ValueError, match=match):
            lrs.OneCycleLR(opt, **{"max_lr": 0.1, **options})


def test_mistakes():
    a, b = optimizer(), optimizer()
    with pytest.raises(TypeError, match="Optimizer"):
        lrs.StepLR(3, 1)
    with pytest.raises(ValueError, match="milestones"):
        lrs.SequentialLR(a, [lrs.StepLR(a, 1), lrs.StepLR(a, 1)], [])
    with pytest.raises(ValueError, match="number 1 has another"):
        lrs.SequentialLR(a, [lrs.StepLR(a, 1), lrs.StepLR(b, 1)], [2])
    with pytest.raises(ValueError, match="at least one"):
        lrs.ChainedScheduler([])
    with pytest.raises(ValueError, match="factor"):
        lrs.ConstantLR(a, 2.0)
    with pytest.raises(ValueError, match="start_factor"):
        lrs.LinearLR(a, 0.0)


def test_milestones_survive_a_file():
    import io

    def schedule():
        opt = optim.SGD([nn.Parameter(ts.zeros(1))], lr=8.0)
        return opt, optim.lr_scheduler.MultiStepLR(opt, [1, 3, 3], gamma=0.5)

    def walk(opt, schedule, steps):
        rates = []
        for _ in range(steps):
            opt.step()
            schedule.step()
            rates += schedule.get_last_lr()
        return rates

    whole = walk(*schedule(), 5)
    opt, first = schedule()
    walk(opt, first, 2)
    file = io.BytesIO()
    ts.save([opt.state_dict(), first.state_dict()], file)
    file.seek(0)
    states = ts.load(file)
    opt, again = schedule()
    opt.load_state_dict(states[0])
    again.load_state_dict(states[1])
    assert walk(opt, again, 3) == whole[2:]


def test_rates_that_are_tensors_are_written_in_place():
    """As a recorded graph expects, which reads the tensor; what schedules keep and tell are copies."""
    weight = nn.Parameter(ts.zeros(1))
    makers = [
        lambda o: lrs.StepLR(o, 1, 0.5),
        lambda o: lrs.LambdaLR(o, lambda epoch: 0.5**epoch),
        lambda o: lrs.CyclicLR(o, 0.5, 1.0, 1, cycle_momentum=False),
        lambda o: lrs.SequentialLR(o, [lrs.ConstantLR(o, 0.5, 2), lrs.StepLR(o, 1, 0.5)], [1]),
        lambda o: lrs.ChainedScheduler([lrs.StepLR(o, 1, 0.5)]),
    ]
    for make in makers:
        rate = ts.tensor(1.0)
        opt = optim.SGD([weight], lr=rate)
        schedule = make(opt)
        told, seen = [*schedule.get_last_lr()], rate.item()
        opt.step()
        schedule.step()
        assert opt.param_groups[0]["lr"] is rate and [t.item() for t in told] == [seen] != [rate.item()]
        assert [t.item() for t in schedule.get_last_lr()] == [rate.item()]
    rate = ts.tensor(1.0)
    opt = optim.SGD([weight], lr=rate)
    plateau = lrs.ReduceLROnPlateau(opt, factor=0.5, patience=0)
    for _ in range(2):
        plateau.step(1.0)
    assert opt.param_groups[0]["lr"] is rate and rate.item() == 0.5


def test_a_plateau_knows_the_bound_of_groups_added_since():
    opt = optim.SGD([nn.Parameter(ts.zeros(1))], lr=1.0)
    shared = lrs.ReduceLROnPlateau(opt, factor=0.5, patience=0, min_lr=0.75)
    listed = lrs.ReduceLROnPlateau(opt, factor=0.5, patience=0, min_lr=[0.75])
    opt.add_param_group({"params": [nn.Parameter(ts.zeros(1))]})
    for _ in range(2):
        shared.step(1.0)
    assert [group["lr"] for group in opt.param_groups] == [0.75, 0.75]
    listed.step(1.0)
    with pytest.raises(RuntimeError, match="min_lrs for 2 parameter groups, got 1"):
        listed.step(1.0)


@pytest.mark.parametrize(
    ("make", "rate"),
    [
        (lambda o: lrs.ConstantLR(o, 0.5, 0), 0.5),
        (lambda o: lrs.LinearLR(o, 0.25, total_iters=0), 0.25),
        (lambda o: lrs.PolynomialLR(o, 0), 1.0),
    ],
)
def test_schedules_of_no_epochs_keep_their_first_rate(make, rate):
    opt = optim.SGD([nn.Parameter(ts.zeros(1))], lr=1.0)
    schedule = make(opt)
    for _ in range(3):
        assert schedule.get_last_lr() == [rate]
        opt.step()
        schedule.step()


def test_a_step_put_in_place_of_the_optimizers_after_the_schedule_is_told():
    opt = optim.SGD([nn.Parameter(ts.ones(1))], lr=1.0)
    schedule = optim.lr_scheduler.StepLR(opt, 2)
    plain = opt.step
    opt.step = lambda *args: plain(*args)
    opt.step()
    with pytest.warns(UserWarning, match="overridden"):
        schedule.step()
    later = optim.lr_scheduler.StepLR(opt, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opt.step()
        later.step()


def test_a_step_to_an_epoch_warns_in_the_words_of_its_constant():
    schedule = optim.lr_scheduler.StepLR(optim.SGD([nn.Parameter(ts.ones(1))], lr=1.0), 2)
    schedule.optimizer.step()
    with pytest.warns(UserWarning) as told:
        schedule.step(3)
    assert [str(warning.message) for warning in told] == [optim.lr_scheduler.EPOCH_DEPRECATION_WARNING]


def test_schedules_keep_what_they_were_given():
    # Tensors that a program writes to afterwards.
    lr, high, momentum = ts.tensor(0.1), ts.tensor(0.2), ts.tensor(0.8)
    for make in (
        lambda opt: lrs.CyclicLR(opt, lr, high, base_momentum=momentum, max_momentum=momentum),
        lambda opt: lrs.OneCycleLR(opt, high, total_steps=4, base_momentum=momentum, max_momentum=momentum),
        lambda opt: optim.swa_utils.SWALR(opt, high),
    ):
        opt = optim.SGD([nn.Parameter(ts.ones(1))], lr=lr.clone(), momentum=0.5)
        schedule = make(opt)
        before = {k: float(v) for k, v in opt.param_groups[0].items() if isinstance(v, ts.Tensor) and k != "lr"}
        ends = [float(x) for x in getattr(schedule, "max_lrs", [])]
        assert before
        for value in (lr, high, momentum):
            value.mul_(0.5)
        after = {k: float(v) for k, v in opt.param_groups[0].items() if isinstance(v, ts.Tensor) and k != "lr"}
        assert after == before and [float(x) for x in getattr(schedule, "max_lrs", [])] == ends


def test_schedules_at_once_as_one_after_another() -> None:
    """What a combination consists of has not begun either until its turn comes."""
    optimizer = ts.optim.SGD([ts.nn.Parameter(ts.zeros(1))], lr=8.0)
    both = lrs.ChainedScheduler([lrs.ConstantLR(optimizer, 0.5, 2), lrs.StepLR(optimizer, 1, 0.5)], optimizer)
    schedule = lrs.SequentialLR(optimizer, [both, lrs.ExponentialLR(optimizer, 0.5)], [3])
    rates = []
    for _ in range(5):
        rates += [optimizer.param_groups[0]["lr"]]
        optimizer.step()
        schedule.step()
    assert rates == [4.0, 2.0, 2.0, 8.0, 4.0]

"""What all optimizers share: groups, state dicts, hooks, closures, user subclasses."""

import inspect

import numpy as np
import pytest
import tesserack as ts
from tesserack import nn, optim


def weights(n=1):
    return [nn.Parameter(ts.ones(2)) for _ in range(n)]


def give_grads(params, value=1.0):
    for p in params:
        p.grad = ts.full_like(p, value)


def test_groups_take_defaults_and_keep_their_own_options():
    a, b = weights(2)
    opt = optim.SGD([{"params": [a]}, {"params": b, "lr": 0.5}], lr=0.1, momentum=0.9)
    assert [g["lr"] for g in opt.param_groups] == [0.1, 0.5] and opt.param_groups[1]["momentum"] == 0.9
    (c,) = weights()
    opt.add_param_group({"params": [c], "momentum": 0})
    give_grads([a, b, c])
    opt.step()
    assert [p.tolist()[0] for p in (a, b, c)] == pytest.approx([0.9, 0.5, 0.9])


@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        (lambda: ts.ones(1), TypeError, "iterable"),
        (list, ValueError, "empty"),
        (lambda: [3], TypeError, "int"),
        (lambda: [nn.Parameter(ts.ones(1)) * 2], ValueError, "non-leaf"),
        (lambda: [{"params": set(weights(2))}], TypeError, "set"),
        (lambda: [{"lr": 1}], ValueError, "'params'"),
        (lambda: [{"params": p} for p in weights() * 2], ValueError, "more than one"),
    ],
)
def test_bad_parameters_are_refused(params, error, match):
    with pytest.raises(error, match=match):
        optim.SGD(params(), lr=0.1)


def test_a_parameter_twice_in_a_group_warns():
    with pytest.warns(UserWarning, match="duplicate parameters"):
        optim.SGD(weights() * 2, lr=0.1)


def test_named_parameters():
    model = nn.Linear(2, 1)
    opt = optim.SGD(model.named_parameters(), lr=0.1)
    assert opt.param_groups[0]["param_names"] == ["weight", "bias"]
    assert opt.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]
    with pytest.raises(ValueError, match="names"):
        opt.add_param_group({"params": weights()})


def test_zero_grad():
    params = weights(2)
    opt = optim.SGD(params, lr=0.1)
    give_grads(params[:1])
    opt.zero_grad(set_to_none=False)
    assert params[0].grad.tolist() == [0.0, 0.0] and params[1].grad is None
    opt.zero_grad()
    assert params[0].grad is None


def test_step_changes_only_parameters_with_gradients_and_records_nothing():
    a, b = weights(2)
    opt = optim.Adam([a, b])
    give_grads([a])
    opt.step()
    assert a.tolist() != [1.0, 1.0] and b.tolist() == [1.0, 1.0]
    assert b not in opt.state and a.is_leaf and a.grad_fn is None


def test_closure_is_called_with_gradients_on():
    (w,) = weights()
    opt = optim.SGD([w], lr=0.5)

    def closure():
        opt.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    with ts.no_grad():
        assert opt.step(closure).item() == 2
    assert w.tolist() == [0.0, 0.0] and opt.step() is None


def test_state_dict_numbers_parameters():
    params = weights(3)
    opt = optim.Adam([{"params": params[:1]}, {"params": params[1:]}], lr=0.1)
    give_grads(params[1:])
    opt.step()
    state = opt.state_dict()
    assert [g["params"] for g in state["param_groups"]] == [[0], [1, 2]]
    assert sorted(state["state"]) == [1, 2] and state["state"][1]["step"] == 1
    assert set(state["state"][1]) == {"step", "exp_avg", "exp_avg_sq"}


def test_loading_copies_and_converts_state():
    (a,) = weights()
    opt = optim.Adam([a], lr=0.1)
    give_grads([a])
    opt.step()
    b = nn.Parameter(ts.ones(2, dtype=ts.float64))
    other = optim.Adam([b], lr=0.3)
    saved = opt.state_dict()
    other.load_state_dict(saved)
    state = other.state[b]
    assert state["step"].item() == 1 and state["step"].dtype == ts.float32 and state["step"].shape == ()
    assert state["exp_avg"].dtype == ts.float64 and other.param_groups[0]["lr"] == 0.1
    state["exp_avg"].zero_()
    assert opt.state[a]["exp_avg"].tolist() != [0.0, 0.0]
    with pytest.raises(ValueError, match="sizes"):
        optim.Adam(weights(2)).load_state_dict(saved)


@pytest.mark.parametrize("step", [3, 3.0, ts.tensor(3), ts.tensor([3.0])[0], ts.tensor(3.0, dtype=ts.float64)])
@pytest.mark.parametrize("name", ["Adam", "NAdam", "ASGD", "RMSprop"])
def test_counts_of_steps_are_tensors_and_taken_as_they_come(name, step):
    (a,) = weights()
    opt = getattr(optim, name)([a], lr=0.1)
    give_grads([a])
    opt.step()
    counted = opt.state[a]["step"]
    opt.step()
    assert counted.item() == 2 and opt.state[a]["step"] is counted and counted._version == 2
    opt.state[a]["step"] = step.clone() if isinstance(step, ts.Tensor) else step
    opt.step()
    assert opt.state[a]["step"].item() == 4 and opt.state[a]["step"].is_floating_point()


def test_counting_steps_calls_no_operator():
    params = weights(5)
    opt = optim.AdamW(params, lr=0.1)
    give_grads(params)
    opt.step()
    with ts.profiler.profile() as prof:
        opt.step()
    assert [event.name for event in prof.events() if not event.user] == ["adam_step_"]


def test_state_may_be_edited_between_steps():
    """As programs do that replace parameters: the step reads groups and state anew each time."""
    (a,) = weights()
    opt = optim.SGD([a], lr=1.0, momentum=0.5)
    give_grads([a])
    opt.step()
    b = nn.Parameter(ts.zeros(2))
    opt.state[b] = {"momentum_buffer": opt.state.pop(a)["momentum_buffer"] * 0}
    opt.param_groups[0]["params"] = [b]
    give_grads([b])
    opt.step()
    assert b.tolist() == [-1.0, -1.0]
    opt.state.clear()
    opt.step()
    assert b.tolist() == [-2.0, -2.0]


def test_step_hooks():
    calls = []
    opt = optim.SGD(weights(), lr=0.1)
    opt.register_step_pre_hook(lambda o, args, kwargs: calls.append("pre"))
    handle = opt.register_step_post_hook(lambda o, args, kwargs: calls.append("post"))
    opt.step(lambda: calls.append("closure"))
    handle.remove()
    opt.step()
    assert calls == ["pre", "closure", "post", "pre"]


def test_pre_hooks_may_replace_the_arguments():
    opt = optim.SGD(weights(), lr=0.1)
    opt.register_step_pre_hook(lambda o, args, kwargs: ((o, lambda: 5), {}))
    assert opt.step() == 5
    opt.register_step_pre_hook(lambda o, args, kwargs: 3)
    with pytest.raises(RuntimeError, match="args, kwargs"):
        opt.step()


def test_state_dict_hooks():
    opt = optim.SGD(weights(), lr=0.1)
    calls = []
    opt.register_state_dict_pre_hook(lambda o: calls.append("pre"))
    opt.register_state_dict_post_hook(lambda o, state: {**state, "extra": 1})
    opt.register_load_state_dict_pre_hook(lambda o, state: calls.append(state["extra"]))
    opt.register_load_state_dict_post_hook(lambda o: calls.append("loaded"))
    opt.load_state_dict(opt.state_dict())
    assert calls == ["pre", 1, "loaded"]


class SignDescent(optim.Optimizer):
    """A user's optimizer that overrides step, as in PyTorch."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @ts.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(p.grad.sign(), alpha=-group["lr"])


def test_an_optimizer_that_overrides_step_has_hooks_and_works_with_schedules():
    (w,) = weights()
    opt = SignDescent([w], lr=0.5)
    calls = []
    opt.register_step_post_hook(lambda *_: calls.append(1))
    schedule = optim.lr_scheduler.StepLR(opt, 1, 0.5)
    give_grads([w], 3.0)
    opt.step()
    schedule.step()
    assert w.tolist() == [0.5, 0.5] and calls == [1] and opt.param_groups[0]["lr"] == 0.25


def test_hooks_run_once_when_a_subclass_calls_step_of_its_base():
    class Counting(optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    calls = []
    opt = Counting(weights(), lr=0.1)
    opt.register_step_pre_hook(lambda *_: calls.append(1))
    opt.step()
    assert calls == [1]


def test_an_optimizer_may_define_only_the_update():
    class Shrink(optim.Optimizer):
        def _update(self, group):
            for p in group["params"]:
                p.mul_(group["by"])

    (w,) = weights()
    Shrink([w], {"by": 0.5}).step()
    assert w.tolist() == [0.5, 0.5]
    with pytest.raises(NotImplementedError, match="_update"):
        optim.Optimizer(weights(), {}).step()


def test_repr():
    text = repr(optim.SGD(weights(), lr=0.1))
    assert text.startswith("SGD (\nParameter Group 0\n    dampening: 0\n    differentiable: False\n") and text.endswith(
        "\n)"
    )


def test_state_that_belongs_to_no_parameter():
    param = ts.ones(2, requires_grad=True)
    optimizer = optim.SGD([param], lr=0.1)
    optimizer.state["k"] = ts.tensor([3])
    optimizer.state[param]["mean"] = ts.zeros(2)
    kept = optimizer.state_dict()["state"]
    assert kept["k"].item() == 3 and kept[0]["mean"].tolist() == [0, 0]
    other = optim.SGD([param], lr=0.1)
    other.load_state_dict(optimizer.state_dict())
    assert other.state["k"].item() == 3


def test_a_parameter_listed_again_keeps_its_first_number():
    (a, b) = weights(2)
    opt = optim.SGD([a, b], lr=0.1)
    opt.param_groups.extend(opt.param_groups)
    assert [group["params"] for group in opt.state_dict()["param_groups"]] == [[0, 1], [0, 1]]


DIFFERENTIABLE = [
    ("SGD", {"maximize": True}),
    ("Adam", {"amsgrad": True}),
    ("AdamW", {}),
    ("RMSprop", {"centered": True, "momentum": 0.5}),
    ("Adadelta", {}),
    ("Adagrad", {}),
    ("Adamax", {}),
    ("NAdam", {"decoupled_weight_decay": True}),
    ("RAdam", {}),
]


@pytest.mark.parametrize(("name", "options"), DIFFERENTIABLE)
def test_gradients_reach_rates_decays_and_betas_through_steps(name, options):
    """Against central differences, through two steps."""
    cls = getattr(optim, name)
    numbers = {"lr": 0.1, "weight_decay": 0.05}
    if "betas" in cls([ts.zeros(1)], **options).defaults:
        numbers |= {"beta1": 0.8, "beta2": 0.7}

    def end_of(**given):
        betas = {"betas": (given.pop("beta1"), given.pop("beta2"))} if "beta1" in given else {}
        start = ts.tensor([0.5, 2.0], dtype=ts.float64)
        opt = cls([start], **given, **betas, **options, differentiable=True)
        for scale in (1.0, 3.0):
            start.grad = scale * ts.tensor([0.3, -0.4], dtype=ts.float64)
            opt.step()
        return start.sum()

    tensors = {key: ts.tensor(value, dtype=ts.float64, requires_grad=True) for key, value in numbers.items()}
    found = ts.autograd.grad(end_of(**tensors), list(tensors.values()), allow_unused=True)
    for key, gradient in zip(numbers, found, strict=True):
        above, below = (float(end_of(**numbers | {key: numbers[key] + h})) for h in (1e-4, -1e-4))
        assert float(0 if gradient is None else gradient) == pytest.approx(
            (above - below) / 2e-4, rel=1e-3, abs=1e-6
        ), key


@pytest.mark.parametrize("tolerance", [float("inf"), -float("inf")])
def test_lbfgs_of_a_loss_that_knows_no_parameters_moves_nothing(tolerance):
    params = [ts.ones(2, 3), ts.ones(2)]
    opt = optim.LBFGS(params, 0.1, tolerance_grad=tolerance)
    assert opt.step(lambda: ts.tensor([10.0])).tolist() == [10.0] and params[0].sum() == 6


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam, optim.LBFGS])
def test_hooks_of_every_optimizer_surround_its_own(kind):
    from tesserack.optim import optimizer as base

    told = []
    opt = kind(weights())
    handles = [
        base.register_optimizer_step_pre_hook(lambda *_: told.append("all before")),
        base.register_optimizer_step_post_hook(lambda *_: told.append("all after")),
    ]
    opt.register_step_pre_hook(lambda *_: told.append("own before"))
    opt.register_step_post_hook(lambda *_: told.append("own after"))
    opt.step(lambda: ts.tensor(1.0))
    for handle in handles:
        handle.remove()
    assert told == ["all before", "own before", "own after", "all after"]


@pytest.mark.parametrize(
    "name", ["Adam", "AdamW", "SGD", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta", "Adamax", "Rprop"]
)
def test_flags_may_be_numbers(name):
    kind = getattr(optim, name)
    flags = [
        flag
        for flag in ("amsgrad", "maximize", "nesterov", "centered", "decoupled_weight_decay")
        if flag in inspect.signature(kind).parameters
    ]
    moved = []
    for one in (True, 1, np.bool_(True)):
        (param,) = weights()
        give_grads([param], 0.5)
        options = dict.fromkeys(flags, one) | ({"momentum": 0.9} if name == "SGD" else {})
        opt = kind([param], lr=0.1, **options)
        opt.step()
        opt.step()
        moved.append(param.tolist())
    assert moved[0] == moved[1] == moved[2] and moved[0] != [1.0, 1.0]

"""Parts of schedulers, scalers and layers that subclasses of PyTorch's replace, and names that their steps call."""

from typing import Any

import pytest
import tesserack as ts
from tesserack import nn, optim
from tesserack.compat.shims.optim.lbfgs import _cubic_interpolate, _strong_wolfe
from tesserack.optim import lr_scheduler


def sgd(groups: int = 1, **options: Any) -> optim.SGD:
    return optim.SGD([{"params": [nn.Parameter(ts.ones(2))]} for _ in range(groups)], lr=1.0, **options)


def test_a_plateau_lowers_rates_by_what_is_put_in_its_place() -> None:
    opt = sgd(2)
    schedule = lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=0)
    asked: list[int] = []

    def first_alone(epoch: int) -> None:
        asked.append(epoch)
        opt.param_groups[0]["lr"] *= schedule.factor

    schedule._reduce_lr = first_alone  # type: ignore[method-assign]
    for loss in (1.0, 2.0, 3.0):
        schedule.step(loss)
    assert [group["lr"] for group in opt.param_groups] == [0.25, 1.0] and asked == [2, 3]


@pytest.mark.parametrize("name", ["is_better", "_is_better"])
def test_a_plateau_compares_as_a_subclass_says(name: str) -> None:
    kind = type("Never", (lr_scheduler.ReduceLROnPlateau,), {name: lambda self, a, best: False})
    opt = sgd()
    schedule = kind(opt, factor=0.5, patience=1)
    for loss in (3.0, 2.0, 1.0):
        schedule.step(loss)
    assert opt.param_groups[0]["lr"] == 0.5


def test_a_schedule_begins_with_the_step_of_its_subclass() -> None:
    class Restarting(lr_scheduler.LRScheduler):
        """Counts for itself, as schedules of packages do; ``get_lr`` alone does not give the first rates."""

        def __init__(self, optimizer: optim.Optimizer) -> None:
            self.place = -1
            super().__init__(optimizer)

        def step(self, epoch: int | None = None) -> None:
            self.place += 1
            rate = 0.5**self.place
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self._last_lr = [rate]

    opt = sgd()
    schedule = Restarting(opt)
    assert (schedule.place, schedule.get_last_lr()) == (0, [1.0])
    opt.step()
    schedule.step()
    assert opt.param_groups[0]["lr"] == 0.5

    class Updated(lr_scheduler.StepLR):
        """Leaves to the base what it does between its own work."""

        def _update_lr(self, epoch: int | None = None) -> None:
            super()._update_lr(epoch)
            updates.append(self.last_epoch)

    updates: list[int] = []
    plain = Updated(sgd(), 1)
    with pytest.warns(UserWarning, match="before optimizer.step"):
        plain.step()
    assert updates == [0, 1]


def test_one_cycle_anneals_as_a_subclass_says() -> None:
    class Jump(lr_scheduler.OneCycleLR):
        def _anneal_func(self, start: float, end: float, pct: float) -> float:
            return end if pct > 0 else start

    opt = sgd(momentum=0.9)
    schedule = Jump(opt, max_lr=2.0, total_steps=10)
    opt.step()
    schedule.step()
    assert opt.param_groups[0]["lr"] == 2.0
    assert lr_scheduler.OneCycleLR._annealing_cos(1.0, 0.0, 0.5) == pytest.approx(0.5)
    assert lr_scheduler.OneCycleLR._annealing_linear(1.0, 0.0, 0.25) == 0.75


def test_a_scaler_skips_where_a_subclass_found_infinity() -> None:
    class Elsewhere(ts.amp.GradScaler):
        def _unscale_grads_(self, optimizer: Any, inv_scale: Any, found_inf: Any, allow_fp16: bool) -> Any:
            here = super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)
            return {device: flag + 1 for device, flag in here.items()}

    for kind, expected in ((ts.amp.GradScaler, [0.0, 0.0]), (Elsewhere, [1.0, 1.0])):
        opt = sgd()
        scaler = kind("cpu", init_scale=4.0)
        (param,) = opt.param_groups[0]["params"]
        scaler.scale(param.sum()).backward()
        scaler.step(opt)
        assert param.tolist() == expected and param.grad.tolist() == [1.0, 1.0]


def test_rows_for_padding_are_emptied_by_subclasses_that_draw_otherwise() -> None:
    class Uniform(nn.Embedding):
        def reset_parameters(self) -> None:
            nn.init.uniform_(self.weight, 1, 2)
            self._fill_padding_idx_with_zero()

    table = Uniform(4, 3, padding_idx=1)
    assert table.weight[1].tolist() == [0.0] * 3 and table.weight.min(1).values.tolist()[0] >= 1
    layers = nn.Sequential(nn.ReLU(), nn.Tanh())
    assert layers._get_item_by_idx(layers._modules.values(), -1) is layers[1]
    assert nn.ModuleList([nn.ReLU(), nn.Tanh()])._get_abs_string_index(-1) == "1"


def test_masks_are_merged_for_each_head() -> None:
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    query, seen, padding = ts.zeros(3, 5, 4), ts.randn(5, 5), ts.randn(3, 5)
    merged, kind = attention.merge_masks(seen, padding, query)
    assert kind == 2 and ts.equal(merged, (seen + padding[:, None, None, :]).expand(3, 2, 5, 5))
    alone, kind = attention.merge_masks(None, padding, query)
    assert alone is padding and kind == 1
    assert attention.merge_masks(None, None, query) == (None, None)
    for mask, given in ((seen[:4], query), (seen, query[0])):
        with pytest.raises(ValueError, match=r"expected query \(N, L, embed_dim\) and attn_mask"):
            attention.merge_masks(mask, padding, given)


def test_what_schedulers_noted_goes_when_options_are_loaded() -> None:
    opt = sgd(momentum=0.5)
    before = opt.state_dict()
    lr_scheduler.ExponentialLR(opt, 0.9)
    assert "initial_lr" in opt.param_groups[0]
    opt.load_state_dict(before)
    assert opt.state_dict() == before and "initial_lr" not in opt.param_groups[0]
    older = sgd().state_dict()
    del older["param_groups"][0]["momentum"]
    opt.load_state_dict(older)
    assert opt.param_groups[0]["momentum"] == 0.5


def test_loaded_options_are_copies() -> None:
    opt = optim.Adam([nn.Parameter(ts.ones(1))], lr=ts.tensor(0.1))
    saved = {**opt.state_dict(), "param_groups": [{**opt.state_dict()["param_groups"][0], "lr": ts.tensor(0.2)}]}
    opt.load_state_dict(saved)
    opt.param_groups[0]["lr"].mul_(2)
    assert saved["param_groups"][0]["lr"].item() == pytest.approx(0.2)


def test_names_that_copied_steps_call() -> None:
    opt = sgd()
    opt._cuda_graph_capture_health_check()
    lists = [[ts.ones(1), ts.ones(1, dtype=ts.float64)], [ts.zeros(1), ts.zeros(1)]]
    groups = opt._group_tensors_by_device_and_dtype(lists, with_indices=True)
    assert [(key[1], places) for key, (_, places) in groups.items()] == [(ts.float32, [0]), (ts.float64, [1])]
    value = opt._process_value_according_to_param_policy(ts.ones(1), ts.ones(1).double(), 0, [{"params": [0]}], "m")
    assert value.dtype is ts.float32
    count = opt._process_value_according_to_param_policy(ts.ones(1), ts.ones(1).double(), 0, [{"params": [0]}], "step")
    assert count.dtype is ts.float64


@pytest.mark.parametrize("first", [0.01, 0.3, 1.0, 40.0])
def test_the_line_search_that_other_minimisers_take(first: float) -> None:
    curve = ts.tensor([[3.0, 1.0], [1.0, 2.0]], dtype=ts.float64)

    def loss(x: ts.Tensor, t: float, d: ts.Tensor) -> tuple[ts.Tensor, ts.Tensor]:
        y = x + t * d
        return 0.5 * (y @ curve @ y), curve @ y

    x = ts.tensor([1.0, -2.0], dtype=ts.float64)
    before, grad = loss(x, 0.0, ts.zeros(2, dtype=ts.float64))
    slope = grad.dot(-grad)
    after, then, step, calls = _strong_wolfe(loss, x, first, -grad, before, grad, slope)
    assert after <= before + 1e-4 * step * slope and abs(then.dot(-grad)) <= -0.9 * slope and calls >= 1
    assert after.item() == pytest.approx(loss(x, step, -grad)[0].item())


def test_the_least_place_of_a_cubic() -> None:
    # x^3 - x: values 0 and 6 at 0 and 2, slopes -1 and 11
    assert _cubic_interpolate(0, 0, -1, 2, 6, 11) == pytest.approx(3**-0.5)
    assert _cubic_interpolate(ts.tensor(0.0), 0, -1, 2, ts.tensor(6.0), 11, bounds=(0, 0.25)) == 0.25

"""``compile`` of a whole training step: parameters, states, random numbers and results are those of plain Python, bit
by bit, whatever Python changes between two steps.
"""

from __future__ import annotations

import pytest
import tesserack as ts
import tesserack.nn.functional as F
from tesserack import compiler, nn, optim
from tesserack.autograd import _whole
from tesserack.jit._compile.compiled import config
from tesserack.optim import lr_scheduler


@pytest.fixture(autouse=True)
def _small_programs_too(monkeypatch):
    monkeypatch.setitem(config, "smallest", 0)


def classifier():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 3))


class Trained:
    """A model, what trains it, and a step of that."""

    def __init__(self, optimizer, schedule=None, clip=None, autocast=False, scaler=False, every=1):
        ts.manual_seed(0)
        self.net, self.loss, self.log = classifier(), F.cross_entropy, []
        self.opt = optimizer(self.net.parameters())
        self.schedule = schedule(self.opt) if schedule else None
        self.scaler = ts.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3) if scaler else None
        self.clip, self.autocast, self.every = clip, autocast, every

    def made_step(self):
        net, opt, schedule, scaler = self.net, self.opt, self.schedule, self.scaler
        clip, autocast, every, to_none = self.clip, self.autocast, self.every, True

        def step(x, y, last=True):
            with ts.autocast("cpu", dtype=ts.bfloat16, enabled=autocast):
                loss = self.loss(net(x), y) / every
            if scaler is not None:
                scaler.scale(loss).backward()
            else:
                loss.backward()
            if not last:
                return loss.detach(), None
            if scaler is not None:
                scaler.unscale_(opt)
            norm = nn.utils.clip_grad_norm_(net.parameters(), clip) if clip else None
            if scaler is not None:
                scaler.step(opt)
                scaler.update()
            else:
                opt.step()
            if schedule is not None:
                schedule.step()
            opt.zero_grad(set_to_none=to_none)
            return loss.detach(), norm

        return step

    def run(self, step, change=None, steps=10):
        found = []
        for k in range(steps):
            ts.manual_seed(100 + k)
            x, y = ts.randn(4 + k // 7, 6), ts.randint(0, 3, (4 + k // 7,))
            found.append(step(x, y, (k + 1) % self.every == 0))
            if change is not None and k == 4:
                change(self)
        grads = [p.grad for p in self.net.parameters()]
        state = [v for s in self.opt.state_dict()["state"].values() for v in s.values()]
        rates = [group["lr"] for group in self.opt.param_groups]
        found += [*self.net.state_dict().values(), grads, state, rates, self.log, ts.get_rng_state()]
        if self.scaler is not None:
            found.append(self.scaler.state_dict())
        return ts.utils._pytree.tree_leaves(found)


def alike(a, b):
    return len(a) == len(b) and all(
        ts.equal(x, y) and x.dtype == y.dtype if isinstance(x, ts.Tensor) else x == y for x, y in zip(a, b, strict=True)
    )


def momentum(p):
    return optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.01)


def adamw(p):
    return optim.AdamW(p, 0.01)


TRAININGS = {
    "sgd": {"optimizer": momentum},
    "adam": {"optimizer": lambda p: optim.Adam(p, 0.01), "schedule": lambda o: lr_scheduler.StepLR(o, 2), "clip": 0.5},
    "adamw": {
        "optimizer": lambda p: optim.AdamW(p, 0.01),
        "schedule": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
        "clip": 0.5,
        "autocast": True,
    },
    "warm-up": {
        "optimizer": momentum,
        "schedule": lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.LinearLR(o), lr_scheduler.ExponentialLR(o, 0.9)], milestones=[3]
        ),
    },
    "one cycle": {
        "optimizer": lambda p: optim.AdamW(p, 0.01),
        "schedule": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
        "scaler": True,
        "autocast": True,
        "clip": 1.0,
    },
    "scaled": {"optimizer": momentum, "scaler": True},
    "accumulated": {"optimizer": lambda p: optim.Adam(p, 0.01), "every": 2, "clip": 1.0},
}


@pytest.mark.parametrize("name", TRAININGS)
def test_steps_are_captured_whole(name):
    plain, compiled = Trained(**TRAININGS[name]), Trained(**TRAININGS[name])
    step = ts.compile(compiled.made_step(), fullgraph=True)
    assert alike(plain.run(plain.made_step()), compiled.run(step))
    assert step._compiled._count <= 4  # shapes, and the last of several batches or not
    assert not step._compiled.reasons


def set_rate(t):
    t.opt.param_groups[0]["lr"] = 0.5


def new_group(t):
    extra = nn.Parameter(ts.ones(3))
    t.net.register_parameter("extra", extra)
    t.opt.add_param_group({"params": [extra], "lr": 0.3})
    loss = t.loss
    t.loss = lambda out, y: loss(out * extra, y)


def keep_gradients(t):
    for p in t.net.parameters():
        p.grad = ts.ones_like(p)


def other_loss(t):
    t.loss = lambda out, y: out.square().mean()


def hook_on_gradient(t):
    t.net[0].weight.register_hook(lambda grad: grad * 2)
    t.net[4].bias.register_post_accumulate_grad_hook(lambda p: t.log.append(p.grad.sum().item()))


def hook_on_layer(t):
    t.net[0].register_forward_hook(lambda module, args, out: out * 2)


def backward_hook_on_layer(t):
    t.net[2].register_full_backward_hook(lambda module, grads, outs: (grads[0] * 3,))


def hook_on_step(t):
    t.opt.register_step_pre_hook(lambda o, args, kwargs: t.log.append("before"))
    t.opt.register_step_post_hook(lambda o, args, kwargs: t.log.append("after"))


def other_step(t):
    plain = type(t.opt).step
    t.opt.step = lambda: [plain(t.opt), t.log.append("mine")]


def count_apart(t):
    """What one parameter has of its state is another's now."""
    states = [*t.opt.state.values()]
    for name, value in states[0].items():
        states[0][name] = value + 1 if value.ndim == 0 else value * 2


def own_state(t):
    t.opt.state = {p: {name: value.clone() for name, value in s.items()} for p, s in t.opt.state.items()}


CHANGES = {
    "rate": set_rate,
    "decay": lambda t: t.opt.param_groups[0].update(weight_decay=0.5, maximize=True),
    "group gone": lambda t: t.opt.param_groups.pop(),
    "order": lambda t: t.opt.param_groups[0]["params"].reverse(),
    "counts": count_apart,
    "kept state": own_state,
    "no gradient": lambda t: t.net[0].weight.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None)),
    "group": new_group,
    "gradients": keep_gradients,
    "loss": other_loss,
    "hook on gradient": hook_on_gradient,
    "hook on layer": hook_on_layer,
    "backward hook on layer": backward_hook_on_layer,
    "hook on step": hook_on_step,
    "frozen": lambda t: t.net[0].weight.requires_grad_(False),
    "eval": lambda t: t.net.eval(),
    "state": lambda t: t.opt.load_state_dict(t.opt.state_dict()),
    "forgotten": lambda t: t.opt.state.clear(),
    "data": lambda t: t.net[0].weight.data.mul_(2),
    "layer": lambda t: t.net.__setitem__(2, nn.ReLU()),
    "step": other_step,
}


@pytest.mark.parametrize("optimizer", [momentum, adamw], ids=["momentum", "AdamW"])
@pytest.mark.parametrize("name", CHANGES)
def test_changes_between_steps_count(name, optimizer):
    plain, compiled = Trained(optimizer, clip=1.0), Trained(optimizer, clip=1.0)
    step = ts.compile(compiled.made_step())
    assert alike(plain.run(plain.made_step(), CHANGES[name]), compiled.run(step, CHANGES[name]))
    assert step._compiled._count > 0


class Method:
    """A training loop as classes have it."""

    def __init__(self):
        ts.manual_seed(0)
        self.model = classifier()
        self.optimizer = optim.AdamW([{"params": self.model[0].parameters(), "lr": 0.1}, *self.others()], lr=0.01)
        self.scheduler = lr_scheduler.ReduceLROnPlateau(self.optimizer, patience=0)

    def others(self):
        return [{"params": layer.parameters()} for layer in self.model[1:] if [*layer.parameters()]]

    def training_step(self, batch):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(batch["x"]), batch["y"])
        loss.backward()
        self.optimizer.step()
        self.scheduler.step(loss.detach())
        return {"loss": loss.detach()}


def test_methods_and_schedules_of_losses():
    results = []
    for compiles in (False, True):
        made = Method()
        step = ts.compile(made.training_step, fullgraph=True) if compiles else made.training_step
        ts.manual_seed(3)
        losses = [step({"x": ts.randn(4, 6), "y": ts.randint(0, 3, (4,))})["loss"] for _ in range(8)]
        results.append([*losses, *made.model.state_dict().values(), *[g["lr"] for g in made.optimizer.param_groups]])
    assert alike(*results)


def test_closures_are_called_again():
    results = []
    for compiles in (False, True):
        ts.manual_seed(0)
        net = nn.Linear(3, 1)
        opt = optim.LBFGS(net.parameters(), max_iter=3)

        def step(x, y, net=net, opt=opt):
            target = y.tanh() * 2

            def closure():
                opt.zero_grad()
                loss = (net(x) - target).square().mean()
                loss.backward()
                return loss

            return opt.step(closure)

        run = ts.compile(step, fullgraph=True) if compiles else step
        losses = [run(ts.randn(5, 3), ts.randn(5, 1)).detach() for _ in range(4)]
        results.append([*losses, *net.state_dict().values()])
    assert alike(*results)


def test_what_changes_with_every_step_is_no_constant():
    net = nn.Linear(3, 1)
    opt = optim.SGD(net.parameters(), 0.1)
    schedule = lr_scheduler.ExponentialLR(opt, 0.5)

    def reads(x):
        net(x).sum().backward()
        opt.step()
        schedule.step()
        return x * opt.param_groups[0]["lr"]

    def asks(x):
        net(x).sum().backward()
        opt.step()
        return x * schedule.get_last_lr()[0]

    for function, reason in ((reads, "'param_groups'"), (asks, "get_last_lr")):
        compiled = ts.compile(function)
        x = ts.ones(1, 3)
        assert [compiled(x)[0, 0].item() != 0 for _ in range(4)] == [True] * 4
        told = compiler.explain(function)(x)
        assert told.graph_count == 0
        assert reason in told.break_reasons[0].reason
        with pytest.raises(compiler.compiled.Unsupported, match=reason):
            ts.compile(function, fullgraph=True)(x)


def test_a_compiler_gets_the_step_as_one_graph():
    graphs = []
    plain, compiled = Trained(momentum, clip=1.0), Trained(momentum, clip=1.0)
    step = ts.compile(compiled.made_step(), backend=lambda gm, given: graphs.append(gm) or gm.forward)
    assert alike(plain.run(plain.made_step()), compiled.run(step))
    names = [node.name for node in graphs[0].graph.nodes]
    assert [n for n in names if n in ("backward", "clip_grad_norm", "step", "zero_grad")] == [
        "backward", "clip_grad_norm", "step", "zero_grad",
    ]  # fmt: skip
    graphs[0].graph.eliminate_dead_code()
    assert len([n for n in graphs[0].graph.nodes if n.name in ("backward", "step", "zero_grad")]) == 3


def test_a_number_that_is_returned_is_read_in_each_step():
    results = []
    for compiles in (False, True):
        made = Trained(momentum)
        plain = made.made_step()

        def step(x, y, net=made.net, plain=plain):
            loss, _ = plain(x, y)
            right = (net(x).argmax(1) == y).float().mean()
            return {"loss": loss.item(), "right": right.item()}

        run = ts.compile(step, fullgraph=True) if compiles else step
        ts.manual_seed(5)
        results.append([run(ts.randn(4, 6), ts.randint(0, 3, (4,))) for _ in range(6)])
    assert results[0] == results[1]
    assert len({r["loss"] for r in results[0]}) == 6


def test_a_number_that_is_used_is_no_constant():
    def clipped(x):
        y = x.sin().sum().item()
        return x * min(y, 0.5)

    def in_a_list(x):
        return [x.cos().sum().item() + 1]

    for function in (clipped, in_a_list):
        compiled = ts.compile(function)
        for k in range(5):
            a, b = compiled(ts.full((3,), 0.1 * k)), function(ts.full((3,), 0.1 * k))
            assert ts.equal(a, b) if isinstance(a, ts.Tensor) else a == b
        assert not compiled._compiled.reasons  # a graph of each number, or few operators


def test_averages_of_weights_are_kept():
    results = []
    for compiles in (False, True):
        made = Trained(momentum)
        mean, plain = optim.swa_utils.AveragedModel(made.net), made.made_step()

        def step(x, y, last=True, mean=mean, plain=plain, net=made.net):
            found = plain(x, y)
            mean.update_parameters(net)
            return found

        results.append([*made.run(ts.compile(step) if compiles else step), *mean.state_dict().values()])
    assert alike(*results)


def test_each_thread_that_captures_takes_its_own_calls(monkeypatch):
    made, plain = Trained(momentum), Trained(momentum)
    step = ts.compile(made.made_step())

    class Takers(list):
        def append(self, taker):
            super().append(taker)
            super().append(lambda *call: NotImplemented)  # that of another thread, which came later

    monkeypatch.setattr(_whole, "takers", Takers())
    assert alike(plain.run(plain.made_step()), made.run(step))
    assert step._compiled._count > 0


@pytest.mark.parametrize("whole", [True, False])
def test_passes_one_after_another_that_meet_nowhere(whole: bool) -> None:
    """A GAN's step: the critic's pass lets go of nothing that the generator's needs."""

    def steps(compiled: bool) -> list[ts.Tensor]:
        ts.manual_seed(0)
        maker, critic = (
            ts.nn.Sequential(ts.nn.Linear(n, 8), ts.nn.ReLU(), ts.nn.Linear(8, m)) for n, m in ((4, 6), (6, 1))
        )
        rates = [ts.optim.SGD(module.parameters(), lr=0.1) for module in (critic, maker)]

        def step(x: ts.Tensor, z: ts.Tensor) -> ts.Tensor:
            rates[0].zero_grad()
            fake = maker(z)
            (critic(fake.detach()).sigmoid().mean() - critic(x).sigmoid().mean()).backward()
            rates[0].step()
            rates[1].zero_grad()
            loss = -critic(fake).sigmoid().mean()
            loss.backward()
            rates[1].step()
            return loss.detach()

        def both(x: ts.Tensor, z: ts.Tensor) -> tuple[ts.Tensor, ts.Tensor]:
            fake = maker(z).tanh() * 2
            return fake, critic(fake.detach()).sigmoid().square() + critic(x).sigmoid().mean()

        call = ts.compile(step if whole else both) if compiled else step if whole else both
        losses = []
        for _ in range(10):
            given = ts.randn(5, 6), ts.randn(5, 4)
            if whole:
                losses.append(call(*given))
                continue
            fake, judged = call(*given)
            judged.sum().backward()
            fake.square().sum().backward()
            losses += [fake.detach(), judged.detach()]
            for rate in rates:
                rate.step()
                rate.zero_grad()
        return [*losses, *maker.parameters(), *critic.parameters()]

    assert all(map(ts.equal, steps(True), steps(False)))

"""Modules that programs import around training: profiler, event files, hub, scripting, benchmark and their like."""

from __future__ import annotations

import gzip
import json
import sys
import threading
import types
from collections import OrderedDict, namedtuple

import pytest
import tesserack as ts
from tesserack import autograd, futures, hub, jit, nn, profiler
from tesserack.aten.operators import namespace
from tesserack.utils import _pytree as pytree
from tesserack.utils import benchmark, dlpack
from tesserack.utils.flop_counter import FlopCounterMode, flop_registry, register_flop_formula

# --- profiler -------------------------------------------------------------------------------------------------------


def test_profiles_count_operators_and_add_up(tmp_path):
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    with profiler.profile(record_shapes=True, profile_memory=True) as prof:
        for _ in range(3):
            with profiler.record_function("train"):
                net(ts.ones(2, 8)).sum().backward()
            prof.step()
    rows = {row.key: row for row in prof.key_averages()}
    assert rows["linear"].count == 3 and rows["train"].count == 3 and rows["ProfilerStep#0"].count == 1
    events = prof.events()
    tops = [e for e in events if not any(e in other.children for other in events)]
    assert events.key_averages().self_cpu_time_total == pytest.approx(sum(e.cpu_time_total for e in tops), rel=1e-6)
    table = prof.key_averages(group_by_input_shape=True).table(sort_by="cpu_time_total", row_limit=5)
    assert "train" in table and "[2, 8]" in str([row.input_shapes for row in prof.key_averages(True)])
    with pytest.raises(AttributeError, match="sort_by"):
        prof.key_averages().table(sort_by="colour")
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {"train", "linear"} <= {event["name"] for event in trace}
    assert all(event["dur"] >= 0 for event in trace if event["ph"] == "X")
    before = len(events)
    ts.ones(1) + 1
    assert len(prof.events()) == before


def test_every_moment_counts_once_however_ranges_cross(tmp_path):
    first, second = profiler.record_function("first"), profiler.record_function("second")
    with profiler.profile() as prof:
        first.__enter__()
        ts.ones(3).exp()
        second.__enter__()
        prof.step()
        first.__exit__()
        ts.ones(3).log()
    second.__exit__()  # too late to matter
    events = prof.events()
    whole = max(e.end for e in events) - min(e.start for e in events)
    assert sum(e.self_cpu_time_total for e in events) == pytest.approx(whole, rel=1e-6)
    assert all(e.self_cpu_time_total >= 0 and e.end >= e.start for e in events)
    assert "of which between operators" in prof.key_averages().table()
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    records = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    sides = {side: [r["name"] for r in records if r["ph"] == side] for side in "be"}
    assert {*sides["b"]} == {*sides["e"]} >= {"first", "second"}


def test_other_threads_ranges_end_with_the_profile():
    began, go_on = threading.Event(), threading.Event()

    def work():
        with profiler.record_function("elsewhere"):
            began.set()
            go_on.wait(60)

    thread = threading.Thread(target=work)
    with profiler.profile() as prof:
        thread.start()
        assert began.wait(60)
        ts.ones(2).exp()
    (event,) = [e for e in prof.events() if e.name == "elsewhere"]
    ended = event.end
    go_on.set()
    thread.join()
    assert 0 < event.cpu_time_total == pytest.approx(event.self_cpu_time_total) and event.end == ended


def test_profiles_follow_a_schedule(tmp_path):
    plan = profiler.schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
    seen = []
    with profiler.profile(schedule=plan, on_trace_ready=lambda p: seen.append((p.step_num, len(p.events())))) as prof:
        for _ in range(12):
            ts.ones(2) + 1
            prof.step()
    assert [step for step, _ in seen] == [5, 9] and all(count == 6 for _, count in seen)
    with profiler.profile(on_trace_ready=profiler.tensorboard_trace_handler(str(tmp_path), use_gzip=True)):
        ts.ones(1) + 1
    (file,) = tmp_path.iterdir()
    assert json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    with pytest.raises(ValueError, match="active"):
        profiler.schedule(wait=1, warmup=1, active=0)


def test_the_older_profiler():
    with autograd.profiler.profile() as prof, autograd.profiler.record_function("range"):
        ts.ones(2).exp()
    assert "exp" in prof.table() and prof.self_cpu_time_total > 0
    with autograd.profiler.profile(enabled=False) as prof:
        ts.ones(2).exp()
    assert len(prof.function_events) == 0


# --- hub ------------------------------------------------------------------------------------------------------------


def test_hub_loads_local_and_cached_repositories(tmp_path, monkeypatch):
    body = '    "A layer."\n    from parts import make\n    return make(width)\n'
    source = f'dependencies = ["numpy"]\ndef small(width=2):\n{body}'
    for folder in (tmp_path / "repo", tmp_path / "hub" / "owner_name_main"):
        folder.mkdir(parents=True)
        (folder / "hubconf.py").write_text(source)
        (folder / "parts.py").write_text("import tesserack as ts\ndef make(w): return ts.nn.Linear(w, w)\n")
    monkeypatch.setattr(hub, "_dir", str(tmp_path / "hub"))
    assert hub.load(str(tmp_path / "repo"), "small", width=3, source="local").in_features == 3
    assert hub.load("owner/name", "small").in_features == 2 and hub.list("owner/name") == ["small"]
    assert hub.help("owner/name:main", "small") == "A layer."
    with pytest.raises(RuntimeError, match="not in"):
        hub.load("owner/other", "small")
    with pytest.raises(RuntimeError, match="Cannot find callable"):
        hub.load("owner/name", "large")
    (tmp_path / "repo" / "hubconf.py").write_text('dependencies = ["no_such_package"]')
    with pytest.raises(RuntimeError, match="no_such_package"):
        hub.load(str(tmp_path / "repo"), "small", source="local")


def test_hub_downloads_and_keeps(tmp_path):
    weights = {"w": ts.ones(2)}
    ts.save(weights, tmp_path / "model.safetensors")
    url = (tmp_path / "model.safetensors").as_uri()
    found = hub.load_state_dict_from_url(url, model_dir=str(tmp_path / "cache"), progress=False)
    assert found["w"].tolist() == [1, 1] and (tmp_path / "cache" / "model.safetensors").exists()
    with pytest.raises(RuntimeError, match="invalid hash"):
        hub.download_url_to_file(url, str(tmp_path / "copy"), hash_prefix="0000000000")
    assert not (tmp_path / "copy").exists()


def test_model_zoo_has_the_bar_that_programs_take_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from tesserack.utils import model_zoo

    assert model_zoo.load_url is hub.load_state_dict_from_url
    bar = type("tqdm", (), {})
    monkeypatch.setitem(sys.modules, "tqdm", types.SimpleNamespace(tqdm=bar, __spec__=object()))
    assert model_zoo.tqdm is bar
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises((AttributeError, ImportError)):
        _ = model_zoo.tqdm


# --- scripting, futures, trees, timing ------------------------------------------------------------------------------


def test_scripts_run_as_python():
    class Net(nn.Module):
        constant: jit.Final[int] = 2

        @jit.export
        def twice(self, x):
            return x * self.constant

        @jit.ignore
        def other(self):
            return 1

        @jit.unused
        def third(self):
            return 2

        def forward(self, x):
            return self.twice(x) if not jit.is_scripting() else x

    net = Net()
    with pytest.warns(DeprecationWarning, match="`torch.jit.script` is deprecated"):
        assert type(jit.script(net)) is type(net)
    with pytest.warns(DeprecationWarning, match="`torch.jit.trace` is deprecated"):
        assert jit.trace(net, ts.ones(1))(ts.ones(2)).tolist() == [2, 2]
    with pytest.warns(DeprecationWarning), pytest.raises(RuntimeError, match="expected a class, got Net"):
        jit.interface(net)
    assert issubclass(jit.TracerWarning, Warning) and issubclass(jit.ScriptWarning, Warning)
    assert jit.script_if_tracing(len) is len and jit.annotate(int, 3) == 3 and not jit.is_tracing()
    assert jit.wait(jit.fork(lambda x: x + 1, 1)) == 2
    assert jit.freeze(net.eval()) is net
    with pytest.raises(RuntimeError, match="eval"):
        jit.freeze(net.train())
    with pytest.raises(RuntimeError, match="state_dict"):
        jit.save(net, "x")


def test_futures():
    first, second = futures.Future(), futures.Future()
    both = futures.collect_all([first, second])
    threading.Thread(target=lambda: (first.set_result(1), second.set_result(2))).start()
    assert [f.value() for f in both.wait()] == [1, 2] and futures.wait_all([first, second]) == [1, 2]
    with pytest.raises(RuntimeError, match="already"):
        first.set_result(3)
    failing = futures.Future()
    after = failing.then(lambda f: f.value())
    failing.set_exception(KeyError("x"))
    with pytest.raises(RuntimeError, match="KeyError"):
        after.wait()
    with pytest.raises(RuntimeError, match="not there yet"):
        futures.Future().value()


def test_trees():
    Point = namedtuple("Point", "x y")
    tree = OrderedDict(a=[1, (2, 3)], b=Point(4, None), c={"d": 5})
    leaves, spec = pytree.tree_flatten(tree)
    assert leaves == [1, 2, 3, 4, None, 5] and pytree.tree_unflatten(leaves, spec) == tree
    assert pytree.tree_map(lambda a, b: (a, b), [1, 2], [3, 4]) == [(1, 3), (2, 4)]
    assert pytree.tree_map_only(int, lambda v: v + 1, {"a": 1, "b": "c"}) == {"a": 2, "b": "c"}
    assert pytree.tree_leaves([[1], 2], is_leaf=lambda v: v == [1]) == [[1], 2]
    with pytest.raises(ValueError, match="leaves"):
        pytree.tree_unflatten([1], spec)
    kind = pytree._get_node_type([1, 2])
    children, context = pytree.SUPPORTED_NODES[kind].flatten_fn([1, 2])
    by_hand = pytree.TreeSpec(kind, context, [pytree.LeafSpec() for _ in children])
    assert by_hand == pytree.tree_structure([1, 2]) and pytree.tree_unflatten([3, 4], by_hand) == [3, 4]
    assert pytree._get_node_type(3) not in pytree.SUPPORTED_NODES and pytree.LeafSpec().is_leaf()


def test_timers_and_tables(capsys):
    names = [{"globals": {"x": ts.ones(n)}, "label": "add", "sub_label": f"{n}"} for n in (1, 100)]
    found = [benchmark.Timer("x + x", description="ts", **name).timeit(5) for name in names]
    assert found[0].number_per_run == 5 and found[0].median > 0 and "Median" in repr(found[0])
    benchmark.Compare(found).print()
    assert "[add]" in capsys.readouterr().out
    many = benchmark.Timer("pass").blocked_autorange(min_run_time=0.01)
    assert len(many.times) >= 1 and many.iqr >= 0
    with pytest.raises(ValueError, match="C\\+\\+"):
        benchmark.Timer("1;", language="c++")


def test_flops():
    net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    with FlopCounterMode(display=False) as counter:
        net(ts.ones(3, 4)).sum().backward()
    # Each product once forward; backward once for each weight and once for the input of the second layer.
    assert counter.get_flop_counts()["Sequential.1"][namespace("aten").addmm] == 2 * 3 * 8 * 2
    assert counter.get_total_flops() >= 2 * (2 * 3 * 4 * 8) + 3 * (2 * 3 * 8 * 2)
    assert "aten.addmm" in counter.get_table()
    with FlopCounterMode(display=False) as counter:  # modules are found as they are called
        net(ts.ones(3, 4))
        with pytest.raises(RuntimeError):
            net(ts.ones(3, 5))
        net[1](ts.ones(3, 8))
    assert sum(counter.get_flop_counts()["Sequential.1"].values()) == 2 * (2 * 3 * 8 * 2)
    assert sum(counter.get_flop_counts()["Sequential"].values()) == 2 * 3 * 4 * 8 + 2 * 3 * 8 * 2
    with counter:  # anew
        net(ts.ones(3, 4))
    assert counter.get_total_flops() == 2 * 3 * 4 * 8 + 2 * 3 * 8 * 2
    with FlopCounterMode(display=False) as counter:
        nn.functional.conv2d(ts.ones(1, 2, 5, 5), ts.ones(3, 2, 3, 3))
    assert counter.get_total_flops() == 2 * 3 * 9 * 2 * 9


CONV = nn.functional.conv2d
BACKWARD = [  # what is called, and the operations forward and backward
    (lambda x: CONV(x, ts.ones(6, 4, 3, 3, requires_grad=True)), 2 * 31104),
    (lambda x: CONV(x.requires_grad_(), ts.ones(6, 4, 3, 3, requires_grad=True)), 3 * 31104),
    (lambda x: CONV(x.requires_grad_(), ts.ones(6, 2, 3, 3, requires_grad=True), groups=2), 3 * 15552),
    (lambda x: nn.ConvTranspose2d(4, 5, 3, stride=2)(x.requires_grad_()), 3 * 46080),
    (lambda x: nn.GRU(8, 5)(x[0].requires_grad_())[0], 3 * 2 * 32 * 15 * (8 + 5)),
    (lambda x: nn.LSTM(8, 5)(x[0].requires_grad_())[0], 3 * 2 * 32 * 20 * (8 + 5)),
    (lambda x: nn.functional.scaled_dot_product_attention(*[x.requires_grad_()] * 3), 7 * 2 * 8 * 8 * 8 * 8),
]


@pytest.mark.parametrize(("call", "expected"), BACKWARD)
def test_flops_of_what_goes_backward(call, expected):
    with FlopCounterMode(display=False) as counter:
        call(ts.ones(2, 4, 8, 8)).sum().backward()
    assert counter.get_total_flops() == expected
    told = counter.get_flop_counts()["Global"]
    assert sum(n for op, n in told.items() if "backward" not in str(op) and "mm" not in str(op)) < expected / 2 + 1


def test_hooks_of_any_gradient_take_leaves_whose_gradients_are_asked_for():
    x, seen = ts.ones(2, requires_grad=True), []
    with autograd.graph.register_multi_grad_hook([x], seen.append, mode="any"):
        autograd.grad((x * 3).sum(), x)
    assert [g.tolist() for g in seen] == [[3, 3]]


def test_flops_of_modules_backward():
    """Also of one that is given nothing with a gradient, and of what comes after it."""
    net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    with FlopCounterMode(display=False) as counter:
        net(ts.ones(3, 4)).sum().backward()
        assert counter.mod_tracker.parents == {"Global"}
        ts.ones(2, 2) @ ts.ones(2, 2)
    counts = counter.get_flop_counts()
    assert sum(counts["Sequential.0"].values()) == 2 * (2 * 3 * 4 * 8)
    assert sum(counts["Sequential.1"].values()) == 3 * (2 * 3 * 8 * 2)
    assert sum(counts["Sequential"].values()) == counter.get_total_flops() - 2 * 2 * 2 * 2


def test_flops_by_own_formulas():
    aten = namespace("aten")
    x = ts.ones(4, 5)
    with FlopCounterMode(display=False, custom_mapping={aten.add: lambda *args, out_shape: 5}) as counter:
        x + x
    assert counter.flop_counts["Global"][aten.add] == counter.get_total_flops() == 5

    def count(a, b, *rest, out_val):
        return out_val.numel()

    count._get_raw = True
    with FlopCounterMode(display=False, custom_mapping={aten.add: count}) as counter:
        x + x
    assert counter.get_total_flops() == 20

    twice = ts.library.custom_op("flops::twice", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor")
    packet = namespace("flops").twice
    register_flop_formula(packet)(lambda shape, out_shape=None: shape.numel() + out_shape.numel())
    try:
        with FlopCounterMode(display=False) as counter:
            twice(x)
        assert counter.get_total_flops() == 40
        with pytest.raises(RuntimeError, match="duplicate"):
            register_flop_formula("flops::twice")(len)
    finally:
        del flop_registry[packet]
    with pytest.raises(ValueError, match="OpOverloadPacket"):
        register_flop_formula(aten.add.Tensor)(len)


def test_small_things():
    assert ts.equal(dlpack.from_dlpack(dlpack.to_dlpack(ts.arange(3))), ts.arange(3))
    x = ts.ones(2, requires_grad=True)
    assert isinstance(x, autograd.Variable) and autograd.Variable(ts.ones(1), requires_grad=True).requires_grad
    tensors = [ts.ones(2), ts.zeros(3)]
    assert ts._foreach_add_(tensors, 1) is tensors and isinstance(ts._foreach_neg(tensors), tuple)
    ts._foreach_mul_(tensors, [2, 3])
    assert [t.tolist() for t in tensors] == [[4, 4], [3, 3, 3]]
    assert [t.item() for t in ts._foreach_norm([ts.ones(4), ts.zeros(1)])] == [2, 0]
    ts._foreach_addcmul_(tensors, tensors, tensors, 0.5)
    assert tensors[0].tolist() == [12, 12]
    assert ts._foreach_addcdiv(tensors, tensor1=tensors, tensor2=tensors, scalars=[1.0, 2.0])[1][0] == tensors[1][0] + 2
    with pytest.raises(RuntimeError, match="one length"):
        ts._foreach_add(tensors, [1])
    for call in (lambda: ts._foreach_add([], []), lambda: ts._foreach_zero_([]), lambda: ts._foreach_norm([])):
        with pytest.raises(RuntimeError, match="at least one tensor"):
            call()
    ts.testing.assert_allclose(ts.ones(1), ts.ones(1, dtype=ts.float64))
    parallel = nn.DataParallel(nn.Linear(2, 1))
    assert parallel(ts.ones(3, 2)).shape == (3, 1) and [*parallel.state_dict()] == ["module.weight", "module.bias"]
    two = nn.DataParallel(nn.Linear(2, 1), device_ids=[ts.device("cpu"), ts.device("cpu")])
    two(ts.ones(3, 2)).sum().backward()
    assert two.module.weight.grad.tolist() == [[3, 3]]
    assert ts.ones(2).new(3).shape == (3,) and ts.ones(2).new([1, 2]).tolist() == [1, 2] and ts.ones(1).name is None
    assert ts.ones(2).new(ts.Size([])).shape == () and ts.ones(2).new().shape == (0,)
    assert ts.ones(1).type(ts.DoubleTensor).dtype == ts.float64


def test_limits_of_the_eight_bit_floats(program):
    lines = program.run("""
        import torch
        info = torch.finfo(torch.float8_e4m3fn)
        print(info.max, info.min, info.tiny, info.eps, info.bits, torch.finfo(torch.float16).max, torch.finfo().bits)
    """)
    assert lines == ["448.0 -448.0 0.015625 0.125 8 65504.0 32"]


def test_collate_functions_are_found_where_programs_take_them(program):
    source = """
        from torch.utils.data._utils.collate import default_collate, default_convert
        import torch.utils.data as data
        print(default_collate is data.default_collate, default_convert is data.default_convert)
    """
    assert program.run(source) == ["True True"]


def test_stacks_for_flame_graphs(tmp_path):
    def inner(x):
        return x.exp()

    with profiler.profile(with_stack=True) as prof:
        for _ in range(50):
            inner(ts.rand(1000))
    prof.export_stacks(str(tmp_path / "stacks.txt"))
    lines = (tmp_path / "stacks.txt").read_text().splitlines()
    found = [line for line in lines if line.rpartition(" ")[0].endswith("inner")]
    assert found and all(int(line.rpartition(" ")[2]) >= 0 for line in lines)
    assert (
        found[0].index("test_stacks_for_flame_graphs") < found[0].index("inner")
        and "tesserack/profiler" not in found[0]
    )
    with pytest.raises(ValueError, match="metric"):
        prof.export_stacks(str(tmp_path / "stacks.txt"), "colour")
    with profiler.profile() as prof:
        inner(ts.rand(2))
    with pytest.raises(RuntimeError, match="with_stack"):
        prof.export_stacks(str(tmp_path / "stacks.txt"))

"""Plans: what a graph runs by from the second time on. Equal in bits to calling its operators, whatever is given."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import pytest
import tesserack as ts
from programs import Program, inputs, record, same_bits
from tesserack import _native, library
from tesserack.testing import seeds

COUNT = 1000 if seeds.full() else 24


def planned(
    function: Callable[..., list[ts.Tensor]], *examples: ts.Tensor, plans: str = "at once"
) -> _native._GraphRunner:
    """What runs the function's graph."""
    recorded, _ = record(function, *examples)
    return _native._GraphRunner(recorded.outer_level(), plans)


def run(runner: _native._GraphRunner, *given: ts.Tensor) -> list[ts.Tensor]:
    with ts.no_grad():
        return runner.run(list(given))


@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize(("writes", "draws"), [(False, False), (True, False), (False, True), (True, True)])
def test_random_programs_give_the_bits_of_eager(part: int, writes: bool, draws: bool) -> None:
    chance = seeds.generator(f"graph plans {part}")
    kernels = 0
    for _ in range(COUNT // 8):
        seed = chance.randrange(2**31)
        program = Program(seed, writes=writes, draws=draws)
        recorded, _ = record(program, *inputs(seed))
        leaf = recorded.leaf_level()
        for name, graph in (("outer", recorded.outer_level()), ("leaf", leaf), ("all", leaf.specialised().optimised())):
            runner = _native._GraphRunner(graph, "at once")
            for turn in range(3):
                given = [t + 0.25 * turn for t in inputs(seed)]
                ts.manual_seed(seed + turn)
                expected = program(*(t.clone() for t in given))
                ts.manual_seed(seed + turn)
                got = run(runner, *given)
                said = f"Program({seed}, writes={writes}, draws={draws}), {name}, run {turn}\n{graph}"
                wrong = [k for k, (a, b) in enumerate(zip(got, expected, strict=True)) if not same_bits(a, b)]
                assert not wrong, f"results {wrong} of {said}"
                assert [t.stride() for t in got] == [t.stride() for t in expected], said
                assert [t._version for t in got] == [t._version for t in expected] or name == "all", said
            kernels += sum(plan["kernels"] for plan in runner.plans())
    assert kernels


CHAINS: dict[str, Callable[[ts.Tensor, ts.Tensor], ts.Tensor]] = {
    "arithmetic": lambda x, y: ((x * 2 + y) * x - 0.5).relu() * y + 1,
    "activations": lambda x, y: (x.sigmoid() * x).tanh() + ts.nn.functional.gelu(y) * ts.nn.functional.silu(x),
    "choices": lambda x, y: ts.where(x > y, x.exp(), y.neg()) * (x < 0).to(x.dtype),
    "rows": lambda x, y: (x - y[:1]).abs().sqrt() / (y[:, :1] + 3),
    "in place": lambda x, y: (x + y).mul_(0.5).add_(x).clamp_(-1, 1),
    "uniform": lambda x, y: x * y.sum() + x.new_full((), 2.0).expand(x.shape),
    "transposed": lambda x, y: (x.t() * 2).contiguous().t() + y,
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("dtype", [ts.float32, ts.float64, ts.bfloat16, ts.float16])
@pytest.mark.parametrize("shape", [(3, 5), (70, 129)])
def test_chains_are_one_kernel_with_the_same_bits(
    name: str, dtype: ts.dtype, shape: tuple[int, int], device: ts.device
) -> None:
    chain = CHAINS[name]
    x, y = (ts.randn(shape, device=device).to(dtype) for _ in range(2))
    runner = planned(lambda a, b: [chain(a, b)], x, y)
    expected = chain(x, y)
    for _ in range(3):
        assert same_bits(run(runner, x, y)[0], expected)
    (plan,) = runner.plans()
    assert plan["called"] == 0
    if name in ("arithmetic", "in place") and device.type == "cpu":
        assert plan["kernels"] == 1 and plan["fused"] >= 2 and plan["arena"] == 0


UNARY = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "deg2rad", "digamma", "erf",
    "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "frac", "lgamma", "log", "log10", "log1p", "log2", "neg",
    "rad2deg", "reciprocal", "relu", "round", "rsqrt", "sigmoid", "sign", "sin", "sinc", "sinh", "sqrt", "square",
    "tan", "tanh", "trunc", "i0", "logit", "sgn", "hardtanh",
]  # fmt: skip


@pytest.mark.parametrize("n", [64, 5000])
def test_each_function_within_a_chain_gives_its_bits(n: int) -> None:
    x, y = ts.randn(n) * 3, ts.randn(n)
    for name in UNARY:
        f = getattr(ts, name, None) or getattr(ts.nn.functional, name)
        runner = planned(lambda a, b, f=f: [f(a * 0.5) * b + a], x, y)
        for _ in range(2):
            (got,) = run(runner, x, y)
            expected = f(x * 0.5) * y + x
            assert got.equal(expected) or same_bits(got.nan_to_num(7.0), expected.nan_to_num(7.0)), name


def test_a_plan_is_made_when_such_tensors_come_again_and_one_for_each_kind() -> None:
    runner = planned(lambda x: [(x + 1) * x], ts.ones(4), plans="again")
    for size in (4, 4, 4, 9, 9, 9, 4):
        x = ts.randn(size)
        assert same_bits(run(runner, x)[0], (x + 1) * x)
    assert len(runner.plans()) == 2
    for size in range(10, 40):
        for _ in range(2):
            run(runner, ts.randn(size))
    assert len(runner.plans()) == 8  # the last ones
    never = planned(lambda x: [x + 1], ts.ones(4), plans="never")
    for _ in range(3):
        run(never, ts.ones(4))
    assert never.plans() == []
    with pytest.raises(ValueError, match="'again', 'at once' or 'never', got 'soon'"):
        planned(lambda x: [x + 1], ts.ones(4), plans="soon")


def test_layouts_dtypes_and_storage_places_are_told_apart() -> None:
    base = ts.randn(12, 12)
    runner = planned(lambda x: [(x * 2).sum(0), x.t().softmax(-1), x[1:] * 3], base[:4, :4])
    given = [
        base[:4, :4],
        base[4:8, 2:6],
        base[::3, ::3],
        base.t()[:4, :4],
        base.double()[:4, :4],
        base[:4, :4].clone(),
    ]
    for _ in range(2):
        for x in given:
            got, expected = run(runner, x), [(x * 2).sum(0), x.t().softmax(-1), x[1:] * 3]
            assert all(map(same_bits, got, expected))
            assert [t.stride() for t in got] == [t.stride() for t in expected]


def test_results_are_new_in_each_run_and_inputs_may_go() -> None:
    runner = planned(lambda x: [x.exp() + 1, (x * 2).t()], ts.ones(3, 4))
    first = run(runner, ts.zeros(3, 4))
    kept = [t.clone() for t in first]
    second = run(runner, ts.ones(3, 4))
    assert all(map(same_bits, first, kept))
    assert len({t.data_ptr() for t in (*first, *second)}) == 4
    first[0].add_(5)
    del first, kept
    gc.collect()
    for k in range(3):
        (a, b) = run(runner, ts.full((3, 4), float(k)))
        assert same_bits(a, ts.full((3, 4), float(k)).exp() + 1) and same_bits(b, ts.full((4, 3), 2.0 * k))
        assert b._is_view() and b._base is not None


def test_results_that_are_inputs_or_views_of_them_stay_such() -> None:
    def program(x, y):
        return [x, x[1:], y.detach(), x * 2, x.view(-1)]

    x, y = ts.randn(3, 4), ts.randn(2)
    runner = planned(program, x, y)
    for _ in range(3):
        x, y = ts.randn(3, 4), ts.randn(2)
        same, part, detached, twice, flat = run(runner, x, y)
        assert same is x and part.data_ptr() == x[1:].data_ptr() and part._base is x and flat._base is x
        assert detached.data_ptr() == y.data_ptr()
        x.add_(1)
        assert same_bits(part, x[1:]) and same_bits(flat, x.view(-1)) and not same_bits(twice, x * 2)


def test_writes_reach_inputs_and_count() -> None:
    def program(x, y):
        x.mul_(2).add_(y)
        y[:2] = 0.0
        return [x + y]

    runner = planned(program, ts.randn(5), ts.randn(5))
    for _ in range(3):
        x, y = ts.randn(5), ts.randn(5)
        a, b = x.clone(), y.clone()
        before = x._version, y._version
        (got,) = run(runner, x, y)
        counted = x._version - before[0], y._version - before[1]
        versions = a._version, b._version
        (expected,) = program(a, b)
        assert same_bits(got, expected) and same_bits(x, a) and same_bits(y, b)
        assert counted == (a._version - versions[0], b._version - versions[1])


def test_what_is_written_before_an_error_has_another_version() -> None:
    def program(x, places):
        x.mul_(2)
        return [ts.index_select(x, 0, places) + 1, ts.nonzero(x), x[places]]

    runner = planned(program, ts.randn(5), ts.tensor([0, 1]))
    for _ in range(2):
        run(runner, ts.randn(5), ts.tensor([0, 1]))
    x = ts.ones(5)
    before = x._version
    with pytest.raises(IndexError):
        run(runner, x, ts.tensor([0, 9]))
    assert x.tolist() == [2.0] * 5 and x._version > before


def test_inputs_that_share_memory_are_no_others() -> None:
    def program(x, y):
        x.add_(1)
        return [x * y]

    runner = planned(program, ts.ones(4), ts.ones(4))
    for _ in range(3):
        x, y = ts.randn(4), ts.randn(4)
        expected = (x + 1) * y
        assert same_bits(run(runner, x, y)[0], expected)
        z = ts.randn(4)
        expected = (z + 1) * (z + 1)
        assert same_bits(run(runner, z, z)[0], expected)  # both see the write
        w = ts.randn(6)
        a, b = w[:4], w[2:]
        twin = w.clone()
        (expected,) = program(twin[:4], twin[2:])
        assert same_bits(run(runner, a, b)[0], expected) and same_bits(w, twin)


def test_views_beyond_their_tensor_are_for_the_rules_to_judge() -> None:
    runner = planned(lambda x: [x.as_strided((6,), (1,)) * 2], ts.randn(8)[:4])
    whole = ts.randn(8)
    for _ in range(3):
        assert same_bits(run(runner, whole[:4])[0], whole[:6] * 2)
    with pytest.raises(RuntimeError, match="storage"):
        run(runner, ts.randn(4))


def test_modes_are_seen() -> None:
    x = ts.randn(4, 4)
    runner = planned(lambda t: [(t @ t).relu() * 2], x)
    plain = run(runner, x)[0]
    for _ in range(2):
        assert same_bits(run(runner, x)[0], plain)
    with ts.inference_mode():
        (got,) = runner.run([x])
        assert got.is_inference() and same_bits(got.clone(), plain)
    with ts.autocast("cpu", dtype=ts.bfloat16), ts.no_grad():
        assert runner.run([x])[0].dtype == ts.bfloat16
    (got,) = runner.run([x])
    assert not got.requires_grad
    leaf = x.clone().requires_grad_()
    (got,) = runner.run([leaf])
    got.sum().backward()
    expected = x.clone().requires_grad_()
    ((expected @ expected).relu() * 2).sum().backward()
    assert same_bits(leaf.grad, expected.grad)
    with ts.profiler.profile() as seen:
        run(runner, x)
    assert any("relu" in event.key for event in seen.key_averages())
    with ts.device("meta"):
        assert run(runner, x.to("meta"))[0].device.type == "meta"
    assert same_bits(run(runner, x)[0], plain)


def test_default_dtype_and_parameters_are_those_of_the_run() -> None:
    layer = ts.nn.Linear(3, 2)
    recorded, _ = record(lambda x: [layer(x) + ts.full((2,), 0.5)], ts.randn(4, 3))
    runner = _native._GraphRunner(recorded.outer_level(), "at once")
    x = ts.randn(4, 3)
    with ts.no_grad():
        for _ in range(3):
            layer.weight.mul_(1.5)
            assert same_bits(runner.run([x], recorded.captured)[0], layer(x) + 0.5)
        weight = ts.nn.Parameter(ts.randn(2, 3))
        others = [weight if t is layer.weight else t for t in recorded.captured]
        assert same_bits(runner.run([x], others)[0], ts.nn.functional.linear(x, weight, layer.bias) + 0.5)


def test_an_error_in_the_middle_leaves_nothing_behind() -> None:
    def program(x, index):
        return [(x * 2 + 1).index_select(0, index).sum(0)]

    runner = planned(program, ts.randn(1000, 64), ts.tensor([1, 2]))
    x = ts.randn(1000, 64)
    run(runner, x, ts.tensor([3, 4]))
    gc.collect()
    before = ts.memory_stats("cpu")["allocated"]
    for _ in range(5):
        with pytest.raises(IndexError, match="written down at"):
            run(runner, x, ts.tensor([3, 4000]))
    gc.collect()
    assert ts.memory_stats("cpu")["allocated"] <= before
    assert same_bits(run(runner, x, ts.tensor([3, 4]))[0], program(x, ts.tensor([3, 4]))[0])


def test_what_cannot_be_foreseen_is_called_within_the_plan() -> None:
    seen = []

    @library.custom_op("plans::noted", mutates_args=())
    def noted(x: ts.Tensor) -> ts.Tensor:
        seen.append(x.shape)
        return ts.from_numpy(x.numpy() * 3)

    noted.register_fake(lambda x: ts.empty_like(x))

    def program(x):
        a = (x + 1) * 2
        b = noted(a) - a
        r = ts.rand(b.shape) + b.relu()
        chosen = r[r > 0.5].sum()
        return [a * 2 + b, chosen * 2]

    x = ts.randn(4, 4)
    ts.manual_seed(3)
    runner = planned(program, x)
    for turn in range(3):
        x = ts.randn(4, 4, generator=ts.Generator().manual_seed(turn))
        ts.manual_seed(turn)
        expected = program(x)
        count = len(seen)
        ts.manual_seed(turn)
        assert all(map(same_bits, run(runner, x), expected))
        assert len(seen) == count + 1
    (plan,) = runner.plans()
    assert plan["called"] >= 3 and plan["kernels"] >= 2


def test_two_threads_run_one_graph() -> None:
    def program(x):
        y = (x * 3 + 1).relu()
        return [(y @ y).softmax(-1) + y.sum(0), y.t() * 2]

    runner = planned(program, ts.randn(64, 64), plans="again")
    given = [ts.randn(64, 64) for _ in range(4)] + [ts.randn(48, 48) for _ in range(2)]
    expected = [program(x) for x in given]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(30):
            if not all(map(same_bits, run(runner, given[k]), expected[k])):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(given))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(runner.plans()) == 2


def test_kernels_that_are_replaced_are_seen() -> None:
    @library.custom_op("plans::doubled", mutates_args=())
    def doubled(x: ts.Tensor) -> ts.Tensor:
        return x * 2

    runner = planned(lambda x: [doubled(x + 1) + 1], ts.ones(3))
    for _ in range(2):
        assert run(runner, ts.ones(3))[0].tolist() == [5, 5, 5]
    doubled.register_kernel("cpu")(lambda x: x * 10)
    assert run(runner, ts.ones(3))[0].tolist() == [21, 21, 21]


def test_memory_between_is_used_again() -> None:
    def program(x):
        for _ in range(10):
            x = (x @ x) * 0.01
        return [x]

    runner = planned(program, ts.randn(64, 64))
    run(runner, ts.randn(64, 64))
    (plan,) = runner.plans()
    assert plan["apart"] >= 8 * 64 * 64 * 4 and plan["arena"] <= 3 * 64 * 64 * 4


COMPLEX: dict[str, Callable[[ts.Tensor], ts.Tensor]] = {
    "sgn": lambda z: z.sgn() * 1.0,
    "of a sum": lambda z: (z + z).sgn() * z,
    "magnitude": lambda z: z.abs() * z,
    "parts": lambda z: (z.sgn() * z.real).real * z.imag,
    "conjugate": lambda z: (z.sgn().conj() * z).resolve_conj() * 2,
    "made": lambda z: ts.complex(z.real * 2, z.imag * 3).sgn() * z.abs(),
}


@pytest.mark.parametrize("name", COMPLEX)
@pytest.mark.parametrize("dtype", [ts.complex64, ts.complex128])
def test_parts_of_complex_numbers_are_each_stored(name: str, dtype: ts.dtype) -> None:
    """Two results of one call in the same memory, one beside the other."""
    z = [ts.randn(3, 4, dtype=dtype, generator=ts.Generator().manual_seed(k)) for k in range(4)]
    runner = planned(lambda z: [COMPLEX[name](z)], z[0])
    for each in z:
        assert same_bits(run(runner, each)[0], COMPLEX[name](each))
    assert runner.plans()

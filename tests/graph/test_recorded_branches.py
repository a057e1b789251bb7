"""Plans on a card whose recordings span streams: kernels that share no memory go to streams side by side.

The card replays in orders other than that of the recording, so a wait that is missing gives other results.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import tesserack as ts
from programs import Program, inputs, record, same_bits
from tesserack import _native
from tesserack.testing import seeds

pytest.importorskip("tesserack_reference", reason="needs the reference backend, which make test installs")
from branching_card import BranchingCard, Node
from recording_card import model, planned, registered, run

pytestmark = pytest.mark.skipif("TESSERACK_SANITIZED" in os.environ, reason="there every tensor is an allocation")
NAME = "branchingcard"


@pytest.fixture
def card() -> Iterator[BranchingCard]:
    made: BranchingCard = registered(NAME, kind=BranchingCard)
    made.forget()
    yield made
    gc.collect()
    assert made.wrong == []
    assert all(stream.recording is None for stream in made.streams)


def small(*shape: int, device: str = NAME) -> ts.Tensor:
    """Whole numbers, so that sums are exact."""
    return ts.randint(-2, 3, shape).float().to(device)


def side_by_side(a: Node, b: Node) -> bool:
    return a not in b.ancestors() and b not in a.ancestors()


def widest(nodes: list[Node]) -> int:
    """How many streams have kernels beside which another runs."""
    return len({a.stream for a in nodes if any(side_by_side(a, b) for b in nodes if b is not a)})


def towers(x: ts.Tensor, w: ts.Tensor, v: ts.Tensor) -> list[ts.Tensor]:
    """Two chains of nine kernels, one written after the other, and one kernel for both."""
    found = []
    for weight in (w, v):
        y = x
        for _ in range(3):
            y = (y @ weight).cumsum(1).flip(0)
        found.append(y)
    return [found[0] + found[1]]


def heads(x: ts.Tensor, w: ts.Tensor, v: ts.Tensor) -> list[ts.Tensor]:
    """Three products of one tensor, and what is made of them."""
    q, k, u = (x @ w).cumsum(0), (x @ v).cumsum(1), (x @ (w + v)).flip(0)
    return [((q @ k.mT) @ u).cumsum(0)]


def replayed(card: BranchingCard, function: Any, *given: ts.Tensor, turns: int = 12) -> Any:
    """Runs until it is replayed, again and again, each time compared with calls: of other numbers, since memory still
    holds what the last run left there."""
    runner = planned(function, *given)
    for turn in range(turns):
        given[0].copy_(small(*given[0].shape))
        expected = function(*given)
        got = run(runner, *given)
        assert all(map(same_bits, got, expected)), turn
        del got, expected
    assert card.replayed
    return runner


# --- what is side by side ---------------------------------------------------------------------------------------------


def test_independent_chains_are_side_by_side_and_not_split(card: BranchingCard) -> None:
    (plan,) = replayed(card, towers, small(4, 5), small(5, 5), small(5, 5)).plans()
    assert plan["recorded"] == plan["kernels"] == 19 and plan["branches"] == 2
    *kernels, last = card.kernels
    chains = [[node for node in kernels if node.stream is stream] for stream in {node.stream: 0 for node in kernels}]
    assert [len(chain) for chain in chains] == [9, 9]
    assert all(side_by_side(a, b) for a in chains[0] for b in chains[1])
    assert all(a in b.ancestors() for chain in chains for a, b in pairwise(chain))
    assert last.ancestors() >= {*kernels}
    assert card.waits == 3, "to fork, for the sum, and to join"


def test_products_of_one_tensor_are_side_by_side(card: BranchingCard) -> None:
    replayed(card, heads, small(4, 5), small(5, 5), small(5, 5))
    first = [node for node in card.kernels if node.op == "matmul"][:3]
    assert all(side_by_side(a, b) for a in first for b in first if a is not b)
    assert len({node.stream for node in first}) == 3


def test_no_more_than_four_streams(card: BranchingCard) -> None:
    def many(x: ts.Tensor, w: ts.Tensor) -> list[ts.Tensor]:
        return [((x + k) @ w).cumsum(0).flip(1) for k in range(10)]

    replayed(card, many, small(4, 5), small(5, 5))
    assert len({node.stream for node in card.kernels}) == 4 == widest(card.kernels)


def test_a_chain_is_recorded_on_one_stream(card: BranchingCard) -> None:
    def chain(x: ts.Tensor, w: ts.Tensor) -> list[ts.Tensor]:
        for _ in range(4):
            x = (x @ w).cumsum(1)
        return [x]

    (plan,) = replayed(card, chain, small(4, 5), small(5, 5)).plans()
    assert plan["branches"] == 1 and card.waits == 0
    assert len({node.stream for node in card.kernels}) == 1


class Line(BranchingCard):
    """One whose recordings are of one stream."""

    capture_streams = False


def test_a_card_that_does_not_say_so_is_given_one_stream() -> None:
    made: Line = registered("linecard", kind=Line)
    given = [small(*shape, device=made.name) for shape in ((4, 5), (5, 5), (5, 5))]
    (plan,) = replayed(made, towers, *given).plans()
    assert plan["recorded"] == 19 and plan["branches"] == 1 and made.waits == 0
    assert len({node.stream for node in made.kernels}) == 1


def test_explain_tells_of_branches(card: BranchingCard) -> None:
    compiled = ts.compile(lambda x, w, v: towers(x, w, v)[0])
    given = small(4, 5), small(5, 5), small(5, 5)
    with ts.no_grad():
        for _ in range(8):
            compiled(*given)
        told = str(ts.compiler.explain(compiled)(*given))
    assert "19 kernels, 19 of them launched together in up to 2 branches side by side" in told


def test_branches_have_places_of_their_own_unless_they_are_large(card: BranchingCard) -> None:
    """Written one after the other, later chains would otherwise lie where the first one lay."""

    def chains(x: ts.Tensor) -> list[ts.Tensor]:
        return [x.flip(k % 2).cumsum(k // 2).flip(k % 2).sum() for k in range(4)]

    def arena(name: str, rows: int) -> int:
        x = ts.ones(rows, 16, device=name)
        runner = planned(chains, x)
        run(runner, x)
        return int(runner.plans()[0]["arena"])

    other = registered("recordingcard").name
    assert arena(NAME, 8) > arena(other, 8)
    assert arena(NAME, 1 << 18) == arena(other, 1 << 18) >= 2 << 24
    replayed(card, chains, small(8, 16))
    assert widest(card.kernels) == 4


# --- what is in order -------------------------------------------------------------------------------------------------


def test_writes_in_place_and_views(card: BranchingCard) -> None:
    def step(x: ts.Tensor, w: ts.Tensor, v: ts.Tensor) -> list[ts.Tensor]:
        left, right = x[:2], x[2:]
        before = x.cumsum(0)
        left.add_(1)
        right.mul_(2)
        a, b = (left @ w).cumsum(1), (right @ v).cumsum(1)
        x[1:3].copy_(a)
        right.sub_(b)
        return [x @ w, before, a + b]

    x, w, v = small(4, 5), small(5, 5), small(5, 5)
    runner = planned(step, x.clone(), w, v)
    mine, plain = x.clone(), x.clone()
    for turn in range(12):
        mine.copy_(plain.copy_(small(4, 5)))
        got, expected = run(runner, mine, w, v), step(plain, w, v)
        assert all(map(same_bits, got, expected)) and same_bits(mine, plain), turn
        del got, expected
    assert card.replayed and widest(card.kernels) > 1


def test_halves_of_a_block_are_written_side_by_side(card: BranchingCard) -> None:
    def halves(x: ts.Tensor, w: ts.Tensor) -> list[ts.Tensor]:
        x[:2].copy_((x[:2] @ w).cumsum(1).flip(0))
        x[2:].copy_((x[2:] @ w).cumsum(1).flip(0))
        return [x.cumsum(0)]

    x, w = small(4, 5), small(5, 5)
    runner = planned(halves, x.clone(), w)
    mine, plain = x.clone(), x.clone()
    for _ in range(10):
        mine.copy_(plain.copy_(small(4, 5)))
        assert same_bits(run(runner, mine, w)[0], halves(plain, w)[0]) and same_bits(mine, plain)
    products = [node for node in card.kernels if node.op == "matmul"]
    assert side_by_side(*products)


def test_inputs_that_are_one_tensor(card: BranchingCard) -> None:
    """Where memory is shared otherwise than when the plan was made, another is made."""

    def both(x: ts.Tensor, y: ts.Tensor, w: ts.Tensor) -> list[ts.Tensor]:
        x.copy_((x @ w).cumsum(1))
        y.copy_((y @ w).flip(0).cumsum(0))
        return [x + y]

    w = small(5, 5)
    given = [small(4, 5), small(4, 5)]
    runner = planned(both, *(t.clone() for t in given), w)
    for turn in range(24):
        shared = turn // 6 % 2
        mine, plain = ([t.clone() for t in given] for _ in range(2))
        pairs = [(m[0], m[0]) if shared else tuple(m) for m in (mine, plain)]
        got, expected = run(runner, *pairs[0], w), both(*pairs[1], w)
        assert same_bits(got[0], expected[0]) and all(map(same_bits, mine, plain)), turn
        del got, expected


@pytest.mark.parametrize("draws", [False, True])
def test_random_programs_give_the_bits_of_eager(card: BranchingCard, draws: bool) -> None:
    chance = seeds.generator(f"recorded branches {draws}")
    for _ in range(100 if seeds.full() else 8):
        seed = chance.randrange(2**31)
        program = Program(seed, writes=True, draws=draws)

        def given(seed: int = seed) -> list[ts.Tensor]:
            return [t.to(NAME) for t in inputs(seed)]

        with ts.device(NAME):
            recorded, _ = record(program, *given())
            runner = _native._GraphRunner(recorded.leaf_level(), "at once")
            for turn in range(8):
                ts.manual_seed(seed + turn)
                expected = program(*(t + turn for t in given()))
                ts.manual_seed(seed + turn)
                got = run(runner, *(t + turn for t in given()))
                assert all(map(same_bits, got, expected)), f"Program({seed}), {turn}"
    assert card.replayed and card.waits


def wide(chance: Any) -> Any:
    """A program of many branches: each step takes what any earlier one gave, now and then in place or a part of it."""
    steps = [
        (
            chance.choice(["matmul", "cumsum", "flip", "add", "write", "part", "halves"]),
            chance.randrange(1 << 30),
            chance.randrange(1 << 30),
        )
        for _ in range(chance.randrange(12, 40))
    ]

    def program(x: ts.Tensor, y: ts.Tensor, w: ts.Tensor) -> list[ts.Tensor]:
        there = [x, y]
        for what, one, two in steps:
            a, b = there[one % len(there)], there[two % len(there)]
            if what == "matmul":
                there.append((a @ w).clamp(-9, 9))
            elif what == "cumsum":
                there.append(a.cumsum(one % 2).clamp(-9, 9))
            elif what == "flip":
                there.append(a.flip(one % 2))
            elif what == "add":
                there.append((a - b).cumsum(1).clamp(-9, 9))
            elif what == "write":
                a.copy_(b.flip(0))
            elif what == "part":
                a[:2].add_(b[2:].cumsum(0)).clamp_(-9, 9)
            else:
                a[one % 4].mul_(b[two % 4]).clamp_(-9, 9)
        return [x.clone(), *there[2::3], there[-1]]

    return program


def test_random_branches_give_the_bits_of_eager(card: BranchingCard) -> None:
    chance = seeds.generator("random branches")
    spread = 0
    for turn in range(200 if seeds.full() else 15):
        program = wide(chance)
        x, y, w = small(4, 4), small(4, 4), small(4, 4)
        runner = planned(program, x.clone(), y.clone(), w)
        mine, plain = [x.clone(), y.clone()], [x.clone(), y.clone()]
        for _ in range(6):
            for m, p in zip(mine, plain, strict=True):
                m.copy_(p.copy_(small(4, 4)))
            got, expected = run(runner, *mine, w), program(*plain, w)
            assert all(map(same_bits, got, expected)) and all(map(same_bits, mine, plain)), turn
            del got, expected
        spread += runner.plans()[0]["branches"] > 1 if runner.plans() else 0
    assert spread > 5


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_training_steps(card: BranchingCard, optimizer: str) -> None:
    data = ts.randn(20, 6, 8)

    def steps(compiled: bool) -> list[Any]:
        ts.manual_seed(0)
        net = model(False).to(NAME)
        run = ts.compile(net) if compiled else net
        chosen = getattr(ts.optim, optimizer)(net.parameters(), lr=0.1)
        y = ts.tensor([0, 1, 2, 0, 1, 1]).to(NAME)
        losses = []
        for k in range(20):
            chosen.zero_grad()
            loss = ts.nn.functional.cross_entropy(run(data[k].to(NAME)), y)
            loss.backward()
            chosen.step()
            losses.append(loss.item())
        return [losses, *(value.tolist() for value in net.state_dict().values())]

    assert steps(True) == steps(False)
    assert card.replayed > 10 and card.waits, "a layer's gradients are side by side"


def test_a_wait_that_is_forgotten_is_seen(card: BranchingCard) -> None:
    """By its results, so the tests above would see one; that of a stream which joins the first by the card."""
    given = ts.randn(4, 5).to(NAME), small(5, 5), small(5, 5)
    seen = []
    for number in range(6):
        card.forget()
        card.drops = number
        runner = planned(heads, *given)
        wrong = 0
        for _ in range(24):
            given[0].copy_(ts.randn(4, 5))
            expected = heads(*given)
            wrong += not same_bits(run(runner, *given)[0], expected[0])
            del expected
        seen.append(("wrong" if wrong else "right", len({node.stream for node in card.kernels})))
    forks, needs, joins = seen[:2], seen[2:4], seen[4:]
    assert forks == [("right", 3)] * 2 and needs == [("wrong", 3)] * 2
    assert joins == [("right", 3), ("right", 1)], "the last kernel is behind one of the streams anyway"


# --- where it does not work -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["record", "wait", "cumsum", "flip", "end"])
def test_what_cannot_be_recorded_is_called(card: BranchingCard, where: str) -> None:
    """Side by side, then one after the other, then never again."""
    asked: list[str] = []
    where = {"cumsum": "scan", "flip": "copy_cast"}.get(where, where)

    def fails(what: str) -> None:
        asked.append(what)
        if what == where and (what in ("record", "wait", "end") or asked.count(what) % 4 == 0):
            raise RuntimeError(f"no {what} today")

    given = small(4, 5), small(5, 5), small(5, 5)
    runner = planned(towers, *given)
    expected = towers(*given)[0]
    card.fails = fails
    for _ in range(8):
        assert same_bits(run(runner, *given)[0], expected)
        assert all(stream.recording is None for stream in card.streams)
    if where in ("record", "wait"):
        assert asked.count(where) == 1 and card.replayed and len({node.stream for node in card.kernels}) == 1
    else:
        assert asked.count("begin") == 2 and not card.replayed and not card.live


@pytest.mark.parametrize("count", [1, 4, 6])
def test_an_interruption_in_a_branch(card: BranchingCard, count: int) -> None:
    given = small(4, 5), small(5, 5), small(5, 5)
    runner = planned(towers, *given)
    expected = towers(*given)[0]
    asked: list[str] = []

    def fails(what: str) -> None:
        asked.append(what)
        if asked.count("scan") == count:
            raise KeyboardInterrupt

    card.fails = fails
    with pytest.raises(KeyboardInterrupt):
        for _ in range(6):
            run(runner, *given)
    assert all(stream.recording is None for stream in card.streams)
    card.fails = lambda what: None
    for _ in range(6):
        assert same_bits(run(runner, *given)[0], expected)
    assert card.replayed and widest(card.kernels) == 2


def test_a_device_that_was_lost(card: BranchingCard) -> None:
    """Streams and events of before are not given to it again."""

    def given() -> list[ts.Tensor]:
        return [small(4, 5), small(5, 5), small(5, 5)]

    x = given()
    runner = planned(towers, *x)
    for _ in range(5):
        run(runner, *x)
    assert card.replayed
    made = len(card.streams)
    ts.backends.recover(f"{NAME}:0")
    gone = set(map(id, card.streams[:made]))
    for _ in range(6):
        x = given()
        for _ in range(4):
            assert same_bits(run(runner, *x)[0], towers(*x)[0])
    assert card.live and not gone & {id(node.stream) for node in card.kernels}


def test_streams_and_events_are_used_again(card: BranchingCard) -> None:
    given = small(4, 5), small(5, 5), small(5, 5)
    replayed(card, towers, *given)
    streams = len(card.streams)
    for _ in range(4):
        replayed(card, towers, *given, turns=6)
    assert len(card.streams) == streams


def test_several_threads(card: BranchingCard) -> None:
    w, v = small(5, 5), small(5, 5)
    runner = planned(towers, small(4, 5), w, v)
    given = [small(4, 5) for _ in range(3)]
    expected = [towers(x, w, v)[0].tolist() for x in given]
    errors: list[Any] = []

    def work(k: int) -> None:
        try:
            with ts.stream(ts.Stream(NAME) if k else ts.current_stream(NAME)):
                for turn in range(20):
                    x = given[k] + 0
                    if run(runner, x, w, v)[0].tolist() != expected[k]:
                        errors.append((k, turn))
        except BaseException as error:
            errors.append(error)

    ts.synchronize(NAME)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert card.replayed

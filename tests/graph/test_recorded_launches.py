"""Plans on a card that records launches: the kernels between two calls are one launch when memory comes again."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tesserack as ts
from programs import Program, inputs, record, same_bits
from tesserack import _native
from tesserack.backends import recording
from tesserack.nn import functional as F
from tesserack.testing import seeds

pytest.importorskip("tesserack_reference", reason="needs the reference backend, which make test installs")
from recording_card import RecordingCard, model, planned, registered, run

pytestmark = pytest.mark.skipif("TESSERACK_SANITIZED" in os.environ, reason="there every tensor is an allocation")
NAME = "recordingcard"


@pytest.fixture
def card() -> Iterator[RecordingCard]:
    made = registered(NAME)
    made.forget()
    yield made
    gc.collect()
    assert made.wrong == []


def layers(x: ts.Tensor, w: ts.Tensor) -> list[ts.Tensor]:
    """21 kernels."""
    for _ in range(7):
        x = (x @ w).relu().cumsum(1)
    return [x]


def small(*shape: int, device: str = NAME) -> ts.Tensor:
    """Whole numbers, so that sums are exact."""
    return ts.randint(-2, 3, shape).float().to(device)


def counted(card: RecordingCard, work: Callable[[], Any]) -> tuple[Any, int, int]:
    """What the work gives, kernels that Python was called for, and replays."""
    called, replayed = card.called, card.replayed
    return work(), card.called - called, card.replayed - replayed


def test_a_chain_is_one_launch_when_memory_comes_again(card: RecordingCard) -> None:
    x, w = small(4, 5), small(5, 5)
    runner = planned(layers, x, w)
    expected = layers(x, w)[0]
    seen = []
    for _ in range(6):
        out, called, replayed = counted(card, lambda: run(runner, x, w)[0])
        assert same_bits(out, expected)
        del out
        seen.append((called, replayed))
    (plan,) = runner.plans()
    assert plan["kernels"] == plan["recorded"] == 21
    # It is made, sees its memory, records and replays; then it replays.
    assert seen[1:] == [(21, 0), (21, 1), (0, 1), (0, 1), (0, 1)]
    assert card.recorded == 1


def test_results_that_are_kept_and_inputs_that_move(card: RecordingCard) -> None:
    w = small(5, 5)
    runner = planned(layers, small(4, 5), w)
    kept, expected = [], []
    for k in range(40):
        x = small(4, 5)
        kept.append(run(runner, x, w)[0])
        expected.append(layers(x, w)[0])
        if k % 3:
            kept.pop(0)
            expected.pop(0)
        assert all(map(same_bits, kept, expected)), k
    assert card.replayed


@pytest.mark.parametrize("elements", [10, 100_000])
def test_whatever_is_freed_first_the_same_addresses_come_again(card: RecordingCard, elements: int) -> None:
    chance = seeds.generator("order of freeing")
    for _ in range(4):
        made: list[Any] = [ts.empty(elements, device=NAME) for _ in range(6)]
        before = sorted(x.data_ptr() for x in made)
        for k in chance.sample(range(6), 6):
            made[k] = None
        made = [ts.empty(elements, device=NAME) for _ in range(6)]
        assert [x.data_ptr() for x in made] == before
        del made


def test_an_input_is_read_where_it_lies(card: RecordingCard) -> None:
    block, w = small(12, 5), small(5, 5)
    runner = planned(layers, block[:4], w)
    for k in range(24):
        part = block[4 * (k % 3) : 4 * (k % 3) + 4]
        assert same_bits(run(runner, part, w)[0], layers(part, w)[0])
        block.add_(1)
        if k % 5 == 4:
            block = small(12, 5)
    assert card.replayed


@pytest.mark.parametrize("every", [1, 2, 5])
def test_recordings_go_before_their_memory(card: RecordingCard, every: int) -> None:
    w = small(5, 5)
    runner = planned(layers, small(4, 5), w)
    for k in range(30):
        x = small(4, 5)
        assert same_bits(run(runner, x, w)[0], layers(x, w)[0])
        if k % every == every - 1:
            del x
            ts.empty_cache(NAME)
            assert not card.live
    assert card.destroyed or not card.recorded
    assert every < 5 or card.recorded
    del runner
    gc.collect()
    assert card.destroyed == card.recorded


def test_writes_to_what_is_given(card: RecordingCard) -> None:
    def step(x: ts.Tensor, w: ts.Tensor) -> list[ts.Tensor]:
        x.add_(1)
        out = layers(x, w)
        x.mul_(out[0].sum() * 0 + 0.5)
        x[:, 1:].copy_(x[:, :-1].clone())
        return out

    x, w = small(4, 5), small(5, 5)
    runner = planned(step, x.clone(), w)
    mine, plain = x.clone(), x.clone()
    for _ in range(8):
        version = mine._version
        got, expected = run(runner, mine, w), step(plain, w)
        assert same_bits(got[0], expected[0]) and same_bits(mine, plain)
        assert mine._version > version
    assert card.replayed


@pytest.mark.parametrize("draws", [False, True])
def test_random_programs_give_the_bits_of_eager(card: RecordingCard, draws: bool) -> None:
    chance = seeds.generator(f"recorded launches {draws}")
    some = 100 if seeds.full() else 8
    for k in range(100):
        if k >= some and card.replayed:  # of some seeds' first programs none has its memory again
            break
        seed = chance.randrange(2**31)
        program = Program(seed, writes=True, draws=draws)

        def given(seed: int = seed) -> list[ts.Tensor]:
            return [t.to(NAME) for t in inputs(seed)]

        with ts.device(NAME):
            recorded, _ = record(program, *given())
            runner = _native._GraphRunner(recorded.leaf_level(), "at once")
            for turn in range(7):
                ts.manual_seed(seed + turn)
                expected = program(*(t + turn for t in given()))
                ts.manual_seed(seed + turn)
                got = run(runner, *(t + turn for t in given()))
                assert all(map(same_bits, got, expected)), f"Program({seed}), {turn}"
                if turn == 4 and chance.random() < 0.5:
                    ts.empty_cache(NAME)
    assert card.replayed


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_training_steps(card: RecordingCard, optimizer: str, drops: bool) -> None:
    data = ts.randn(20, 6, 8)

    def steps(compiled: bool) -> list[Any]:
        ts.manual_seed(0)
        net = model(drops).to(NAME)
        run = ts.compile(net) if compiled else net
        make = getattr(ts.optim, optimizer)
        chosen = make(net.parameters(), lr=0.1)
        y = ts.tensor([0, 1, 2, 0, 1, 1]).to(NAME)
        losses = []
        for k in range(20):
            chosen.zero_grad()
            loss = F.cross_entropy(run(data[k].to(NAME)), y)
            loss.backward()
            chosen.step()
            losses.append(loss.item())
        return [losses, *(value.tolist() for value in net.state_dict().values())]

    expected = steps(False)
    assert card.recorded == 0
    assert steps(True) == expected
    assert card.replayed > 10


def test_numbers_that_change(card: RecordingCard) -> None:
    @ts.compile
    def f(x: ts.Tensor, w: ts.Tensor, factor: float) -> ts.Tensor:
        return layers(x, w)[0] * factor

    x, w = small(4, 5), small(5, 5)
    with ts.no_grad():
        for k in range(24):
            factor = (0.5, 2.0)[k // 2 % 2] if k < 16 else float(k)
            assert same_bits(f(x, w, factor), layers(x, w)[0] * factor)


def test_explain_tells_what_is_launched_together(card: RecordingCard) -> None:
    compiled = ts.compile(lambda x, w: layers(x, w)[0])
    x, w = small(4, 5), small(5, 5)
    with ts.no_grad():
        for _ in range(8):
            compiled(x, w)
        assert "21 kernels, 21 of them launched together" in str(ts.compiler.explain(compiled)(x, w))


# --- several at once --------------------------------------------------------------------------------------------------


def test_two_threads(card: RecordingCard) -> None:
    w = small(5, 5)
    runner = planned(layers, small(4, 5), w)
    given = [small(4, 5) for _ in range(4)]
    expected = [layers(x, w)[0].tolist() for x in given]
    errors: list[Any] = []
    barrier = threading.Barrier(4)

    def work(k: int) -> None:
        try:
            barrier.wait()
            streams = ts.Stream(NAME) if k % 2 else ts.current_stream(NAME)
            with ts.stream(streams):
                for turn in range(30):
                    x = given[k] + 0
                    if run(runner, x, w)[0].tolist() != expected[k]:
                        errors.append((k, turn))
                    if turn % 10 == 9:
                        ts.empty_cache(NAME)
        except BaseException as error:
            errors.append(error)

    ts.synchronize(NAME)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert card.replayed


def test_each_stream_has_its_own(card: RecordingCard) -> None:
    x, w = small(4, 5), small(5, 5)
    runner = planned(layers, x, w)
    expected = layers(x, w)[0].tolist()
    ts.synchronize(NAME)
    side = ts.Stream(NAME)
    for k in range(20):
        with ts.stream(side if k // 2 % 2 else ts.current_stream(NAME)):
            assert run(runner, x, w)[0].tolist() == expected
    assert card.replayed and card.recorded >= 2


def test_a_recording_of_the_program_s_own(card: RecordingCard) -> None:
    """Within it operators are called, and memory of it is in no recording of plans."""
    x, w = small(4, 5), small(5, 5)
    runner = planned(layers, x, w)
    for _ in range(4):
        run(runner, x, w)
    before = card.recorded
    made = recording.record(lambda: run(runner, x, w)[0], NAME)
    assert card.recorded == before + 1
    x.copy_(small(4, 5))
    assert made.replay().tolist() == layers(x, w)[0].tolist()
    for _ in range(4):
        made.replay()
        assert same_bits(run(runner, made.result[:4], w)[0], layers(made.result, w)[0])
    assert card.recorded == before + 1


def test_who_looks_at_kernels_sees_each(card: RecordingCard) -> None:
    x, w = small(4, 5), small(5, 5)
    runner = planned(layers, x, w)
    for _ in range(4):
        run(runner, x, w)
    with ts.profiler.profile() as seen:
        _, called, replayed = counted(card, lambda: run(runner, x, w))
    assert (called, replayed) == (21, 0) and seen is not None
    before = ts.backends.set_checked(True)
    try:
        _, called, replayed = counted(card, lambda: run(runner, x, w))
    finally:
        ts.backends.set_checked(before)
    assert called >= 21 and replayed == 0


# --- where it does not work -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["begin", "end", "scan", "matmul", "last"])
def test_what_cannot_be_recorded_is_called(card: RecordingCard, where: str) -> None:
    asked: list[str] = []

    def fails(what: str) -> None:
        asked.append(what)
        if what == where or (where == "last" and asked.count("scan") == 7):
            raise RuntimeError(f"no {what} today")

    x, w = small(4, 5), small(5, 5)
    runner = planned(lambda x, w: [x.add_(1), *layers(x, w)], x.clone(), w)
    card.fails = fails
    mine, plain = x.clone(), x.clone()
    for _ in range(8):
        got = run(runner, mine, w)[1]
        assert same_bits(got, layers(plain.add_(1), w)[0]) and same_bits(mine, plain)
    assert asked.count("begin") == 1  # and never again
    assert card.replayed == 0 and not card.live
    assert all(stream.recording is None for stream in card.streams)


def test_an_interruption_while_it_is_recorded(card: RecordingCard) -> None:
    x, w = small(4, 5), small(5, 5)
    runner = planned(layers, x, w)
    asked: list[str] = []

    def fails(what: str) -> None:
        asked.append(what)
        if asked.count("scan") == 3:
            raise KeyboardInterrupt

    card.fails = fails
    with pytest.raises(KeyboardInterrupt):
        for _ in range(6):
            run(runner, x, w)
    assert asked and all(stream.recording is None for stream in card.streams)
    card.fails = lambda what: None
    for _ in range(6):
        assert same_bits(run(runner, x, w)[0], layers(x, w)[0])
    assert card.replayed


def test_a_replay_that_fails_ends_the_run(card: RecordingCard) -> None:
    x, w = small(4, 5), small(5, 5)
    runner = planned(layers, x, w)
    for _ in range(4):
        run(runner, x, w)

    def fails(what: str) -> None:
        if what == "replay":
            raise RuntimeError("the launch is lost")

    card.fails = fails
    with pytest.raises(RuntimeError, match="the launch is lost"):
        run(runner, x, w)
    for _ in range(4):
        assert same_bits(run(runner, x, w)[0], layers(x, w)[0])


def test_an_error_of_the_work_itself(card: RecordingCard) -> None:
    """Told as without recordings: by the wait behind it."""
    x, w = small(4, 5), small(5, 5)
    index = ts.tensor([0, 1, 2, 3]).to(NAME)
    runner = planned(lambda x, w, i: [layers(x, w)[0].index_select(0, i)], x, w, index)
    for _ in range(6):
        assert same_bits(run(runner, x, w, index)[0], layers(x, w)[0])
    assert card.replayed
    index.fill_(77)
    with pytest.raises((RuntimeError, IndexError)):
        run(runner, x, w, index)[0].tolist()
    index.copy_(ts.tensor([3, 2, 1, 0]))
    assert run(runner, x, w, index)[0].tolist() == layers(x, w)[0].flip(0).tolist()


def test_memory_that_never_comes_again_is_not_recorded_forever(card: RecordingCard) -> None:
    x, w = small(4, 5), small(5, 5)
    runner = planned(layers, x, w)
    kept = [run(runner, x, w)[0] for _ in range(200)]
    expected = layers(x, w)[0]
    assert all(same_bits(one, expected) for one in kept)
    assert card.recorded == 0


def test_a_card_with_its_own_allocator_is_not_asked() -> None:
    made = registered("recordingown", own=True)
    x, w = small(4, 5, device=made.name), small(5, 5, device=made.name)
    runner = planned(layers, x, w)
    for _ in range(6):
        assert same_bits(run(runner, x, w)[0], layers(x, w)[0])
    assert made.recorded == 0


def test_what_would_be_kept_for_long_ends_a_launch(card: RecordingCard) -> None:
    """Blocks of 8 MiB come and go, as they do on a card that records nothing, but for four."""
    other = registered("recordingown", own=True)

    def peak(name: str) -> int:
        x, w = (small(1 << 10, 1 << 11, device=name) for _ in range(2))
        w.requires_grad_()

        @ts.compile
        def wide(x: ts.Tensor) -> ts.Tensor:
            for _ in range(4):
                x = (x.cumsum(0) * w).flip(0).cumsum(1) * 0.001
            return x.sum()

        for k in range(7):
            if k == 5:
                ts.reset_peak_memory_stats(name)
            w.grad = None
            wide(x).backward()
        return ts.memory_stats(name)["allocated_peak"]

    assert peak(NAME) <= peak(other.name) + (33 << 20)
    assert card.recorded and card.replayed


def test_a_device_that_was_lost() -> None:
    made = registered("recordinglost")
    made.forget()

    def given() -> tuple[ts.Tensor, ts.Tensor]:
        return small(4, 5, device=made.name), small(5, 5, device=made.name)

    x, w = given()
    runner = planned(layers, x, w)
    for _ in range(5):
        run(runner, x, w)
    assert made.replayed and made.live
    destroyed = made.destroyed
    ts.backends.recover(f"{made.name}:0")
    for _ in range(6):
        x, w = given()
        assert same_bits(run(runner, x, w)[0], layers(x, w)[0])
    assert made.destroyed == destroyed or made.recorded > 1
    assert made.wrong == []

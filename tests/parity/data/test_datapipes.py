"""Chains of datapipes give what PyTorch's give."""

from __future__ import annotations

import importlib
from typing import Any

import pytest


def both(program: Any) -> tuple[Any, Any]:
    """What the program makes of torch's datapipes and of ours; an error is its class's name."""
    results = []
    for name in ("torch", "tesserack"):
        it = importlib.import_module(f"{name}.utils.data.datapipes.iter")
        mp = importlib.import_module(f"{name}.utils.data.datapipes.map")
        fw = importlib.import_module(name)
        fw.manual_seed(0)
        try:
            results.append(program(it, mp, fw))
        except Exception as error:
            results.append(type(error).__name__)
    return results[0], results[1]


def second_of(pair: Any) -> Any:
    return pair[1]


PROGRAMS = {
    "map": lambda it, mp, fw: list(it.IterableWrapper(range(5)).map(lambda n: n * n)),
    "map column": lambda it, mp, fw: list(it.IterableWrapper([(1, 2), (3, 4)]).map(lambda n: -n, input_col=1)),
    "map columns": lambda it, mp, fw: list(it.IterableWrapper([(1, 2, 3)]).map(lambda a, b: a + b, input_col=[0, 2])),
    "map to new": lambda it, mp, fw: list(
        it.IterableWrapper([(1, 2, 3)]).map(lambda a: a + 9, input_col=0, output_col=-1)
    ),
    "map dict": lambda it, mp, fw: list(
        it.IterableWrapper([{"a": 1, "b": 2}]).map(lambda a: a + 9, input_col="a", output_col="c")
    ),
    "map wrong arguments": lambda it, mp, fw: it.IterableWrapper([1]).map(lambda a, b: a, input_col=0),
    "map output alone": lambda it, mp, fw: it.IterableWrapper([1]).map(lambda a: a, output_col=0),
    "filter": lambda it, mp, fw: list(it.IterableWrapper(range(9)).filter(lambda n: n % 3 == 0)),
    "filter column": lambda it, mp, fw: list(it.IterableWrapper([(1, 2), (3, 4)]).filter(lambda n: n > 2, input_col=1)),
    "filter no bool": lambda it, mp, fw: list(it.IterableWrapper(range(3)).filter(lambda n: n)),
    "batch": lambda it, mp, fw: [list(b) for b in it.IterableWrapper(range(7)).batch(3)],
    "batch dropped": lambda it, mp, fw: (
        len(it.IterableWrapper(range(7)).batch(3, drop_last=True)),
        [list(b) for b in it.IterableWrapper(range(7)).batch(3, drop_last=True)],
    ),
    "batch of none": lambda it, mp, fw: it.IterableWrapper(range(7)).batch(0),
    "unbatch": lambda it, mp, fw: list(it.IterableWrapper([[[0, 1], [2]], [[3]]]).unbatch(unbatch_level=2)),
    "unbatch all": lambda it, mp, fw: list(it.IterableWrapper([[[0, 1], [2]], [3]]).unbatch(unbatch_level=-1)),
    "unbatch too deep": lambda it, mp, fw: list(it.IterableWrapper([[0, 1]]).unbatch(unbatch_level=2)),
    "groupby": lambda it, mp, fw: [
        list(g) for g in it.IterableWrapper(["a1", "b1", "a2", "c", "b2", "a3"]).groupby(lambda s: s[0], group_size=2)
    ],
    "groupby keys": lambda it, mp, fw: [
        (k, list(g)) for k, g in it.IterableWrapper(range(7)).groupby(lambda n: n % 2, keep_key=True)
    ],
    "groupby full": lambda it, mp, fw: [
        list(g)
        for g in it.IterableWrapper(range(9)).groupby(
            lambda n: n % 3, buffer_size=4, group_size=3, guaranteed_group_size=2
        )
    ],
    "groupby too full": lambda it, mp, fw: list(
        it.IterableWrapper(range(9)).groupby(lambda n: n, buffer_size=3, group_size=2)
    ),
    "zip": lambda it, mp, fw: list(it.IterableWrapper("abc").zip(it.IterableWrapper(range(2)))),
    "concat": lambda it, mp, fw: list(it.IterableWrapper("ab") + it.IterableWrapper("cd")),
    "mux": lambda it, mp, fw: list(it.IterableWrapper("abc").mux(it.IterableWrapper(range(2)))),
    "fork": lambda it, mp, fw: [list(p) for p in it.IterableWrapper(range(4)).fork(3)],
    "fork overflow": lambda it, mp, fw: [list(p) for p in it.IterableWrapper(range(9)).fork(2, buffer_size=3)],
    "fork of none": lambda it, mp, fw: it.IterableWrapper(range(9)).fork(0),
    "demux": lambda it, mp, fw: [list(p) for p in it.IterableWrapper(range(7)).demux(3, lambda n: n % 3)],
    "demux none": lambda it, mp, fw: [
        list(p) for p in it.IterableWrapper(range(7)).demux(2, lambda n: None if n > 4 else n % 2, drop_none=True)
    ],
    "demux out of range": lambda it, mp, fw: [list(p) for p in it.IterableWrapper(range(7)).demux(2, lambda n: n)],
    "sharding": lambda it, mp, fw: _sharded(it),
    "collate": lambda it, mp, fw: [t.tolist() for t in it.IterableWrapper([[1, 2], [3, 4]]).collate()],
    "shuffle is a permutation": lambda it, mp, fw: sorted(it.IterableWrapper(range(20)).shuffle(buffer_size=5)),
    "seeded shuffle": lambda it, mp, fw: list(it.IterableWrapper(range(20)).shuffle(buffer_size=5).set_seed(3)),
    "shuffle off": lambda it, mp, fw: list(it.IterableWrapper(range(5)).shuffle().set_shuffle(False)),
    "length": lambda it, mp, fw: len(it.IterableWrapper(range(5)).map(str).shuffle().zip(it.IterableWrapper("ab"))),
    "no length": lambda it, mp, fw: len(it.IterableWrapper(range(5)).filter(lambda n: True)),
    "two iterators": lambda it, mp, fw: _twice(it),
    "no such form": lambda it, mp, fw: it.IterableWrapper([1]).no_such_form(),
    "sampler": lambda it, mp, fw: list(it.Sampler(it.IterableWrapper(range(4)))),
    "maps": lambda it, mp, fw: (
        list(mp.SequenceWrapper([1, 2, 3]).map(lambda n: n + 1)),
        [list(b) for b in mp.SequenceWrapper(range(5)).batch(2)],
        list(mp.SequenceWrapper([1, 2]) + mp.SequenceWrapper([3])),
        list(mp.SequenceWrapper([1, 2]).zip(mp.SequenceWrapper("ab"))),
        list(mp.SequenceWrapper(range(9)).shuffle().set_seed(5)),
    ),
    "maps out of range": lambda it, mp, fw: mp.SequenceWrapper([1]).concat(mp.SequenceWrapper([2]))[2],
    "named": lambda it, mp, fw: str(it.IterableWrapper([1]).map(str)),
    "loader": lambda it, mp, fw: [
        b.tolist() for b in fw.utils.data.DataLoader(it.IterableWrapper(range(6)).map(lambda n: 2 * n), batch_size=4)
    ],
    "loader shuffles": lambda it, mp, fw: sorted(
        n for b in fw.utils.data.DataLoader(it.IterableWrapper(range(6)).shuffle(), shuffle=True) for n in b.tolist()
    ),
    "loader does not": lambda it, mp, fw: [
        n for b in fw.utils.data.DataLoader(it.IterableWrapper(range(6)).shuffle(), shuffle=False) for n in b.tolist()
    ],
}


def _sharded(it: Any) -> Any:
    pipe = it.IterableWrapper(range(10)).sharding_filter()
    pipe.apply_sharding(3, 1)
    return list(pipe), len(pipe)


def _twice(it: Any) -> Any:
    pipe = it.IterableWrapper(range(3))
    first = iter(pipe)
    next(first)
    next(iter(pipe))
    return next(first)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_chains(name: str) -> None:
    expected, got = both(PROGRAMS[name])
    assert got == expected


@pytest.mark.filterwarnings("ignore")
def test_files(tmp_path: Any) -> None:
    for name, text in (("b.txt", "two"), ("a.txt", "one"), ("c.json", '{"x": 1}')):
        (tmp_path / name).write_text(text)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "d.txt").write_text("four")

    def program(it: Any, mp: Any, fw: Any) -> Any:
        names = list(it.FileLister(str(tmp_path), masks="*.txt", recursive=True))
        read = list(it.FileLister(str(tmp_path), "*.txt").open_files("rb").read_from_stream(2))
        decoded = list(it.FileLister(str(tmp_path)).open_files("rb").routed_decode())
        return names, read, decoded

    expected, got = both(program)
    assert got == expected


def test_workers_share_the_samples() -> None:
    """Each worker process, or thread, takes its share of one order."""
    from tesserack.utils.data import DataLoader
    from tesserack.utils.data.datapipes.iter import IterableWrapper

    pipe = IterableWrapper(range(20)).shuffle().sharding_filter()
    for kind in ("process", "thread"):
        loader = DataLoader(pipe, batch_size=3, num_workers=2, worker_type=kind)
        for _ in range(2):
            assert sorted(n for batch in loader for n in batch.tolist()) == list(range(20))

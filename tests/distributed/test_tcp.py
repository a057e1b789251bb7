"""The communicator over sockets, and how a group comes to it."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from tesserack.distributed import HashStore, PrefixStore
from tesserack.distributed import _tcp as tcp
from tesserack.distributed._backends import automatic
from tesserack.distributed._engine import Call
from tesserack.testing import seeds

CALL = Call(300.0)


def on_each(size: int, part: Callable[[int], Any]) -> list[Any]:
    """What a function gives on each of some ranks, threads of this process."""
    given: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            given[rank] = part(rank)
        except Exception as error:
            given[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return given


class Misled(PrefixStore):
    """A store of which one rank reads another address of shared memory: as if it were elsewhere."""

    def get(self, key: str) -> bytes:
        return b"tesserack-nobody" if key.endswith("/address") else super().get(key)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_ranks_that_cannot_share_memory_take_tcp(elsewhere: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TESSERACK_COMM", raising=False)
    store = HashStore()

    def part(rank: int) -> tuple[str, float]:
        mine = Misled("", store) if rank == 2 and elsewhere else PrefixStore("", store)
        engine = automatic(mine, "e", rank, 3, 300.0)
        x = ts.full((5,), float(rank + 1))
        engine.all_reduce(x, x, 0, CALL)
        engine.close()
        return engine.name, x[4].item()

    assert on_each(3, part) == [("tcp" if elsewhere else "local", 6.0)] * 3


def test_who_asked_for_shared_memory_is_told_on_every_rank() -> None:
    store = HashStore()

    def part(rank: int) -> Any:
        mine = Misled("", store) if rank == 1 else PrefixStore("", store)
        return ts.distributed.Backend.makers["local"](mine, "e", rank, 3, 300.0)

    for error in on_each(3, part):
        assert isinstance(error, ts.distributed.DistError) and "rank 1 where" in str(error)


def test_strangers_are_not_let_in() -> None:
    store = HashStore()

    def stranger() -> None:
        port = json.loads(store.get("e/tcp/rank0"))["port"]
        for word in (b"", b"x" * tcp._HELLO.size):
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(word)
                connection.shutdown(socket.SHUT_WR)
                assert connection.recv(1) == b""

    def part(rank: int) -> float:
        if rank == 1:
            stranger()
        engine = tcp.TCPEngine(store, "e", rank, 2, 300.0)
        x = ts.full((2,), 1.0 + rank)
        engine.all_reduce(x, x, 0, CALL)
        return x[0].item()

    assert on_each(2, part) == [3.0, 3.0]


def test_who_does_not_join_is_named() -> None:
    with pytest.raises(ts.distributed.DistError, match=r"rank 1, rank 2 did not join rank 0 within 0.2 s"):
        tcp.TCPEngine(HashStore(), "e", 0, 3, 0.2)


def test_an_interface_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert tcp.addresses("localhost") == ["127.0.0.1"]
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nosuch0")
    with pytest.raises(ts.distributed.DistError, match=r"nosuch0.*there are .*lo"):
        tcp.addresses("localhost")


def test_the_variable_that_names_the_communicator_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERACK_COMM", "pigeon")
    with pytest.raises(ValueError, match=r"one of fake, local.*tcp.*, got 'pigeon'"):
        automatic(HashStore(), "e", 0, 1, 1.0)


def test_large_tensors_come_in_blocks(tmp_path: Any) -> None:
    """More than the blocks under way hold; the same bits as shared memory gives, of floats too."""
    count = 25_000_000 if seeds.full() else 3_000_001
    store, results = HashStore(), {}
    sources = [ts.randn(count, generator=ts.Generator().manual_seed(k)) for k in range(3)]
    for name in ("local", "tcp"):

        def part(rank: int, name: str = name) -> list[Any]:
            engine = ts.distributed.Backend.makers[name](store, name, rank, 3, 300.0)
            total, one, copy = ts.empty(count), ts.empty(count), sources[rank].clone()
            engine.all_reduce(sources[rank], total, 0, CALL)
            engine.reduce(sources[rank], one, 0, 1, CALL)
            engine.broadcast(copy, 2, CALL)
            share = ts.empty(count // 3)
            engine.reduce_scatter([sources[rank][k : k + count // 3] for k in range(3)], share, 1, CALL)
            return [total, share, one if rank == 1 else copy, copy]

        results[name] = on_each(3, part)
    for ours, theirs in zip(results["tcp"], results["local"], strict=True):
        assert not isinstance(ours, Exception), ours
        assert all(a.equal(b) for a, b in zip(ours, theirs, strict=True))
    assert all(r[0].equal(results["tcp"][0][0]) and r[3].equal(sources[2]) for r in results["tcp"])


NAMESPACES = """
set -e
ip link set lo up
ip netns add there 2>/dev/null || exit 77
trap 'ip netns del there' EXIT
ip link add name ts-here type veth peer name ts-there netns there || exit 77
ip addr add 10.9.0.1/24 dev ts-here && ip link set ts-here up
ip -n there addr add 10.9.0.2/24 dev ts-there && ip -n there link set ts-there up && ip -n there link set lo up
export MASTER_ADDR=10.9.0.1 MASTER_PORT=29501 WORLD_SIZE=2
RANK=1 ip netns exec there "$@" & "$0" "$@"
wait $!
"""


@pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists("/usr/sbin/ip"), reason="needs root and iproute2's ip")
def test_ranks_in_two_networks_meet(tmp_path: Any) -> None:
    """Each in a network namespace of its own, with a cable between: no shared memory."""
    program = tmp_path / "program.py"
    program.write_text(
        "import tesserack as ts\nfrom tesserack import distributed as dist\ndist.init_process_group()\n"
        "x = ts.ones(3)\ndist.all_reduce(x)\nassert x.tolist() == [2.0] * 3\n"
        "import os; os.write(1, dist.group.WORLD.engine.name.encode() + b'\\n')\ndist.destroy_process_group()\n"
    )
    script = NAMESPACES.replace('"$0" "$@"', 'RANK=0 "$@"')
    words = ["unshare", "-n", "-m", "bash", "-c", script, "x", sys.executable, str(program)]
    environment = {k: v for k, v in os.environ.items() if k != "TESSERACK_COMM"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, env=environment)
    if done.returncode == 77 or "Operation not permitted" in done.stderr:
        pytest.skip(f"no network namespaces here: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0 and done.stdout.split() == ["tcp", "tcp"], done.stderr[-3000:]


@pytest.mark.parametrize("name", ["local", "tcp"])
def test_a_collective_that_all_have_called_ends_well_though_one_gives_up_after_it(name: str) -> None:
    """The data and the news come at once to those who sleep."""
    store, maker = HashStore(), ts.distributed.Backend.makers[name]

    def part(rank: int, round: int) -> Any:
        engine = maker(PrefixStore("", store), f"round{round}", rank, 3, 300.0)
        x = ts.full((4,), float(rank))
        if rank == 1:
            time.sleep(0.02)
        engine.broadcast(x, 1, CALL)
        if rank == 1:
            engine.abort("given up")
        return x[0].item()

    for round in range(20):
        assert on_each(3, lambda rank, round=round: part(rank, round)) == [1.0] * 3

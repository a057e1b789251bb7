"""``torch.distributed``'s stores of keys and values: of a process, of a file, between processes."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pickle
import socket
import struct
import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest
from tesserack.compat.shims import distributed as dist

SOON, NOW = timedelta(seconds=300), timedelta(milliseconds=30)


def tcp(**options):
    return dist.TCPStore("127.0.0.1", 0, world_size=1, is_master=True, timeout=SOON, **options)


@pytest.fixture(params=["hash", "file", "master", "client", "prefix"])
def store(request, tmp_path):
    if request.param == "hash":
        yield dist.HashStore()
    elif request.param == "file":
        yield dist.FileStore(tmp_path / "store", 1)
    else:
        master = tcp()
        client = dist.TCPStore("127.0.0.1", master.port, timeout=SOON)
        yield {"master": master, "client": client, "prefix": dist.PrefixStore("a", client)}[request.param]


def test_values_are_bytes_and_counts_numbers(store):
    store.set("k", "one")
    store.set("b", b"\0\xff")
    assert store.get("k") == b"one" and store.get("b") == b"\0\xff"
    assert store.add("n", 2) == 2 and store.add("n", -5) == -3 and store.get("n") == b"-3"
    store.append("k", "two")
    store.append("new", "x")
    assert store.multi_get(["k", "new"]) == [b"onetwo", b"x"]
    store.multi_set(["p", "q"], ["1", "2"])
    assert store.check(["p", "q"]) and not store.check(["p", "z"])
    assert store.delete_key("p") and not store.delete_key("p") and not store.check(["p"])
    with pytest.raises(dist.DistStoreError, match="number"):
        store.add("k", 1)


def test_values_are_exchanged_where_they_are_as_expected(store):
    assert store.compare_set("k", "no", "v") == b"no" and not store.check(["k"])
    assert store.compare_set("k", "", "v") == b"v" and store.compare_set("k", "x", "w") == b"v"
    assert store.compare_set("k", "v", "w") == b"w" and store.get("k") == b"w"


def test_queues_give_the_first_value(store):
    store.queue_push("q", "1")
    store.queue_push("q", "2")
    assert store.queue_len("q") == 2 and store.check(["q"])
    assert store.queue_pop("q") == b"1" and store.queue_pop("q", block=False) == b"2"
    with pytest.raises(dist.QueueEmptyError):
        store.queue_pop("q", block=False)


def test_waiting_ends_when_a_key_is_there_or_the_time_is_over(store):
    with pytest.raises(dist.DistStoreError, match=r"timeout after 30ms, keys: .*late"):
        store.wait(["late"], NOW)
    threading.Timer(0.1, lambda: store.clone().set("late", "v")).start()
    assert store.clone().get("late") == b"v"
    store.set_timeout(NOW)
    assert store.timeout == NOW
    with pytest.raises(RuntimeError, match="timeout"):
        store.get("never")
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(store)


def test_processes_share_a_store(tmp_path):
    program = """
        import sys, datetime
        from tesserack.compat.shims import distributed as dist
        rank = int(sys.argv[2])
        store = dist.TCPStore("127.0.0.1", int(sys.argv[1]), 3, False, datetime.timedelta(seconds=600))
        store.set(f"rank{rank}", str(rank * 10))
        store.wait(["rank0", "rank1", "rank2"])
        print(sum(int(store.get(f"rank{k}")) for k in range(3)), store.add("done", 1) > 0)
    """
    (tmp_path / "part.py").write_text("\n".join(line.strip() for line in program.splitlines()))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(tmp_path / "part.py"), str(port)]
    parts = [subprocess.Popen([*command, str(k)], stdout=subprocess.PIPE, text=True) for k in (1, 2)]
    master = dist.TCPStore("127.0.0.1", port, 3, True, timedelta(seconds=600))  # waits for the two
    master.set("rank0", "1")
    assert [part.communicate(timeout=600)[0].split() for part in parts] == [["31", "True"]] * 2
    assert master.get("done") == b"2"


def test_a_store_ends_with_its_master_and_says_so():
    master = tcp()
    port = master.port
    client = dist.TCPStore("127.0.0.1", port, timeout=SOON)
    del master
    with pytest.raises(dist.DistNetworkError, match="gone"):
        for _ in range(3000):
            client.set("k", "v")
            time.sleep(0.01)
    with pytest.raises(dist.DistNetworkError, match="no master answers"):
        dist.TCPStore("127.0.0.1", port, timeout=NOW)


def test_two_masters_at_one_port():
    first = tcp()
    with pytest.raises(dist.DistNetworkError, match="cannot listen"):
        dist.TCPStore("127.0.0.1", first.port, 1, True)
    shared = dist.TCPStore("127.0.0.1", first.port, 1, True, multi_tenant=True)
    first.set("k", "v")
    assert shared.get("k") == b"v"
    del first
    assert dist.TCPStore("127.0.0.1", shared.port, timeout=SOON).get("k") == b"v"


def test_a_master_outlives_what_is_no_message():
    master = tcp()
    for sent in (b"\xff\xff\xff\xff", struct.pack("!I", 3) + b"abc", struct.pack("!II", 4, 9), b"\0"):
        with socket.create_connection(("127.0.0.1", master.port)) as raw:
            raw.sendall(sent)
            raw.shutdown(socket.SHUT_WR)
            assert raw.recv(10) == b""
    client = dist.TCPStore("127.0.0.1", master.port, timeout=SOON)
    with pytest.raises(dist.DistStoreError, match="operation"):
        client._ask("nothing", [])
    client.set("k", "v")
    assert master.get("k") == b"v"


def test_the_last_process_removes_the_file(tmp_path):
    path = tmp_path / "store"
    first, second = dist.FileStore(str(path), 2), dist.FileStore(str(path), 2)
    first.set("k", "v")
    assert second.get("k") == b"v" and path.exists()
    del first
    assert path.exists()
    del second
    assert not path.exists()


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch to compare with")
def test_programs_see_what_they_see_with_torch(program):
    program.write(
        "stores.py",
        """
        from datetime import timedelta
        import torch.distributed as dist
        tcp = dist.TCPStore("127.0.0.1", 0, 1, True)
        for s in (dist.HashStore(), tcp, dist.TCPStore("127.0.0.1", tcp.port), dist.PrefixStore("p", dist.HashStore())):
            s.set("a", "1")
            print(s.get("a"), s.add("n", 3), s.add("n", 4), s.get("n"), s.num_keys(), s.check(["a", "z"]))
            print(s.compare_set("q", "", "v"), s.compare_set("q", "x", "w"), s.compare_set("r", "x", "w"))
            print(s.delete_key("a"), s.delete_key("a"), s.timeout, isinstance(s, dist.Store), s.multi_get(["n"]))
            try:
                s.wait(["zz"], timedelta(milliseconds=20))
            except dist.DistStoreError as error:
                print(type(error).__name__, "timeout" in str(error).lower(), isinstance(error, RuntimeError))
        """,
    )
    theirs = program.start("stores.py")
    ours = program.start("-m", "tesserack", "run", "stores.py")
    assert ours.stdout == theirs.stdout and len(ours.stdout.splitlines()) == 16, ours.stderr + theirs.stderr


def test_what_a_killed_process_wrote_of_a_line_is_cut_off(tmp_path):
    store = dist.FileStore(tmp_path / "store", 1)
    store.set("a", "1")
    with open(tmp_path / "store", "a") as file:
        file.write('["set", ["b"], ["')
    assert store.get("a") == b"1" and not store.check(["b"])
    store.set("c", "3")
    assert store.get("c") == b"3" and store.get("a") == b"1"


@pytest.mark.parametrize("which", ["master", "client"])
def test_a_forked_child_has_a_connection_of_its_own(which):
    """Neither does it take its parent's answers, nor keep its parent's port."""
    master = tcp()
    client = dist.TCPStore("127.0.0.1", master.port, timeout=SOON)
    store = {"master": master, "client": client}[which]
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            for k in range(200):
                store.set("child", str(k))
            status = 0 if store.get("child") == b"199" else 2
            while not store.check(["over"]):  # it lives on
                time.sleep(0.01)
        os._exit(status)
    assert [store.add("parent", 1) for _ in range(200)] == list(range(1, 201))
    port = master.port
    while store.get("child") != b"199":
        time.sleep(0.01)
    store.set("over", "")
    assert os.waitpid(child, 0)[1] == 0
    del store, master, client
    dist.TCPStore("127.0.0.1", port, world_size=1, is_master=True, timeout=SOON)

"""Too many requests, the end under load, and workers that die: nothing accepted is lost, nothing is answered twice."""

from __future__ import annotations

import collections
import http.client
import json
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

from serving_process import Server, infer_body, serving

FULL = float(os.environ.get("LOAD_SECONDS", "600" if os.environ.get("FULL") else "3"))


class Client(threading.Thread):
    """Asks again and again; every request has a number that its answer must have."""

    def __init__(self, server: Server, number: int, seconds: float, cost: float = 2000.0) -> None:
        super().__init__()
        self.server, self.number, self.seconds, self.cost = server, number, seconds, cost
        self.codes: collections.Counter[Any] = collections.Counter()
        self.wrong: list[Any] = []
        self.times: list[float] = []  # of what was answered
        self.stopping = threading.Event()

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        until, count = time.monotonic() + self.seconds, 0
        while time.monotonic() < until and not self.stopping.is_set():
            count += 1
            label = f"{self.number}-{count}"
            body = json.dumps(infer_body([[self.cost, 0.0, self.number, count]]) | {"id": label})
            began = time.monotonic()
            try:
                connection.request("POST", "/v2/models/slow/infer", body)
                response = connection.getresponse()
                answer = json.loads(response.read())
            except (OSError, http.client.HTTPException) as error:
                self.codes[type(error).__name__] += 1
                connection.close()
                time.sleep(0.02)
                continue
            self.codes[response.status] += 1
            if response.status == 200:
                self.times.append(time.monotonic() - began)
                if answer["id"] != label or answer["outputs"][0]["data"] != [self.number, count]:
                    self.wrong.append((label, answer))
            else:
                time.sleep(random.uniform(0.005, 0.02))
        connection.close()


SLOW = """
import time
from pathlib import Path

def build():
    def slow(x):
        time.sleep(float(x[:, 0].sum()) / 1e6)
        with open("computed.txt", "a") as log:
            log.writelines(f"{int(row[2])}-{int(row[3])}\\n" for row in x.tolist())
        return x[:, 2:]
    return slow
"""
WORDS = ("slow.py:build", "--name", "slow", "--input", "x=float32[batch 4]", "--max-batch", "4", "--queue", "8")


def computed(folder: Path) -> collections.Counter[str]:
    """How often each request was computed; those of warming up have no number."""
    found = collections.Counter((folder / "computed.txt").read_text().split())
    del found["0-0"]
    return found


def total(clients: list[Client]) -> collections.Counter[Any]:
    assert not [client.wrong for client in clients if client.wrong]
    return sum((client.codes for client in clients), collections.Counter())


def memory(process: int) -> int:
    """Kilobytes of a process and its children."""
    found, pages = 0, os.sysconf("SC_PAGE_SIZE") // 1024
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if os.getpgid(int(folder.name)) == process:
                    found += int((folder / "statm").read_text().split()[1]) * pages
            except OSError:
                pass
    return found


def test_twice_the_capacity(tmp_path: Path) -> None:
    """2 ms a row, so 500 rows a second at most; 24 clients in a loop of which the queue takes 8."""
    (tmp_path / "slow.py").write_text(SLOW)
    with serving(tmp_path, *WORDS) as server:
        warm = [Client(server, k, 1.0) for k in range(24)]
        for client in warm:
            client.start()
        for client in warm:
            client.join()
        before = memory(server.process.pid)
        clients = [Client(server, 100 + k, FULL) for k in range(24)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        codes = total(clients)
        assert set(codes) == {200, 429} and codes[200] > 20, codes
        asked = collections.Counter({k: n for k, n in computed(tmp_path).items() if int(k.split("-")[0]) >= 100})
        assert max(asked.values()) == 1 and len(asked) == codes[200]
        # Eight are in the server at most: what is accepted waits for two batches, not for the clients.
        assert max(max(client.times) for client in clients) < 5
        assert memory(server.process.pid) < before + 30_000
        if FULL > 60:
            times = sorted(time for client in clients for time in client.times)
            ends = [times[len(times) * k // 1000] * 1e3 for k in (500, 990, 999)]
            print(f"\n{dict(codes)} in {FULL:.0f} s; ms at 50, 99, 99.9 %: {ends}, longest {times[-1] * 1e3:.0f};")
            print(f"memory {before} KiB before, {memory(server.process.pid)} after")
        state = server.get("/status.json")[1]
        assert state["models"][0]["pending"] == 0


def test_the_end_under_load_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    with serving(tmp_path, *WORDS, "--frontends", "2", "--grace", "0.2") as server:
        clients = [Client(server, k + 1, 30.0, cost=20000.0) for k in range(6)]
        for client in clients:
            client.start()
        time.sleep(1.0)
        os.killpg(server.process.pid, signal.SIGTERM)  # as a terminal or a container would: to all its processes
        time.sleep(0.1)
        server.process.terminate()  # and once more, as supervisors do that end a program and then its group
        assert server.process.wait(30) == 0
        for client in clients:
            client.stopping.set()
        for client in clients:
            client.join()
        codes = total(clients)
        done = computed(tmp_path)
        assert codes[200] == len(done) == sum(done.values()) > 10, (codes, len(done))
        assert set(codes) <= {
            200,
            503,
            "ConnectionRefusedError",
            "RemoteDisconnected",
            "ConnectionResetError",
            "BrokenPipeError",
        }


def test_who_comes_while_it_ends_is_told_so_at_once(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    with serving(tmp_path, *WORDS, "--frontends", "2") as server:
        answers: list[Any] = []
        asking = threading.Thread(target=lambda: answers.append(server.infer([[3e6, 0, 1, 1]], "slow")))
        asking.start()
        until = time.monotonic() + 20
        while server.get("/status.json")[1]["models"][0]["pending"] == 0:
            assert time.monotonic() < until
        server.process.terminate()
        while "SIGTERM" not in server.log.read_text():
            assert time.monotonic() < until
        time.sleep(0.05)  # what comes before it is accepted
        codes = []
        began = time.monotonic()
        while time.monotonic() < began + 1.5:
            asked = time.monotonic()
            try:
                codes.append(server.infer([[1.0, 0, 2, 2]], "slow")[0])
            except (OSError, http.client.HTTPException) as error:
                codes.append(type(error).__name__)
            assert time.monotonic() < asked + 1.0 and not answers, "it waited for the end"
            time.sleep(0.05)
        asking.join()
        assert answers[0][0] == 200 and 200 not in codes and codes[-1] == "ConnectionRefusedError", codes
        assert server.process.wait(30) == 0


def alive(group: int) -> list[str]:
    """Processes of a group that have not ended; who collects those that have is not ours to say."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split() if folder.name.isdigit() else []
            if fields and int(fields[2]) == group and fields[0] != "Z":
                found.append((folder / "cmdline").read_text())
        except OSError:
            pass
    return found


def nobody_stays(group: int) -> None:
    """Of a group whose first process has ended: the others, as Python's resource tracker, may need a moment."""
    until = time.monotonic() + 10
    while left := alive(group):
        assert time.monotonic() < until, left
        time.sleep(0.05)


def test_ctrl_c_answers_what_was_accepted_and_leaves_nobody(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    with serving(tmp_path, *WORDS) as server:
        answers: list[Any] = []
        asking = threading.Thread(target=lambda: answers.append(server.infer([[5e5, 0, 1, 1]], "slow")))
        asking.start()
        until = time.monotonic() + 20
        while server.get("/status.json")[1]["models"][0]["pending"] == 0:
            assert time.monotonic() < until
        os.killpg(server.process.pid, signal.SIGINT)
        assert server.process.wait(30) == 0
        asking.join()
        assert answers[0][0] == 200 and answers[0][1]["outputs"][0]["data"] == [1, 1]
        said = server.log.read_text()
        assert "SIGINT: 1 requests to answer, no new ones" in said and said.endswith("stopped\n"), said
        assert "Traceback" not in said and "WARNING" not in said
        nobody_stays(server.process.pid)


def test_ctrl_c_twice_does_not_wait(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    with serving(tmp_path, *WORDS) as server:
        codes: list[str] = []

        def ask() -> None:
            try:
                codes.append(server.infer([[5e7, 0, 1, 1]], "slow")[0])
            except (OSError, http.client.HTTPException) as error:
                codes.append(type(error).__name__)

        asking = threading.Thread(target=ask)
        asking.start()
        until = time.monotonic() + 20
        while server.get("/status.json")[1]["models"][0]["pending"] == 0:
            assert time.monotonic() < until
        for _ in range(2):
            os.killpg(server.process.pid, signal.SIGINT)
            time.sleep(0.5)
        server.process.wait(20)  # of the fifty seconds that the model takes, and the thirty that it may
        asking.join()
        assert codes and codes[0] != 200
        nobody_stays(server.process.pid)


def test_a_worker_that_dies_takes_only_what_it_had_in_hand(tmp_path: Path, repository: Path) -> None:
    with serving(tmp_path, "--repository", str(repository), "--load", "net", "--load", "text") as server:
        assert server.infer([[1.0] * 4])[0] == 200
        status, answer = server.infer([[777.0] * 4])
        assert status == 500 and "died" in answer["error"]
        assert server.infer([[1.0] * 4])[0] == 200  # waits for the new worker
        assert server.post("/v2/models/text/generate", {"text_input": "a"})[0] == 200
        assert server.get("/status.json")[1]["workers"][0]["starts"] == 2


def test_what_a_dead_worker_had_is_answered_before_the_next_is_there(tmp_path: Path, repository: Path) -> None:
    words = ["--repository", str(repository), "--load", "net", "--timeout", "1.5"]
    with serving(tmp_path, *words) as server:
        status, answer = server.infer([[777.0] * 4])
        assert status == 500 and "died" in answer["error"]
        assert server.get("/v2/health/ready")[0] == 503 and server.get("/status.json")[1]["workers"][0]["starts"] == 1
        server.wait()
        assert server.infer([[1.0] * 4])[0] == 200


def test_no_answer_in_time(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    with serving(tmp_path, *WORDS, "--timeout", "0.5") as server:
        status, answer = server.infer([[2e6, 0, 0, 0]], "slow")
        assert status == 504 and "0.5 seconds" in answer["error"]
        until = time.monotonic() + 20
        while server.infer([[1.0, 0, 0, 0]], "slow")[0] != 200:
            assert time.monotonic() < until


def test_a_reader_who_goes_away_ends_the_text(tmp_path: Path, repository: Path) -> None:
    with serving(tmp_path, "--repository", str(repository), "--load", "text") as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        body = json.dumps({"text_input": "a", "parameters": {"max_tokens": 62}})
        connection.request("POST", "/v2/models/text/generate_stream", body)
        assert connection.getresponse().read(5) == b"data:"
        connection.close()
        until = time.monotonic() + 20
        while True:
            (model,) = server.get("/status.json")[1]["models"]
            if model["pending"] == 0 and server.post("/v2/models/text/generate", {"text_input": "b"})[0] == 200:
                break
            assert time.monotonic() < until
        (model,) = server.get("/status.json")[1]["models"]
        assert model["cache_pages_used"] == 0 and model["sequences_running"] == 0


def test_answers_of_any_size_reach_who_waits(tmp_path: Path) -> None:
    (tmp_path / "wide.py").write_text("def build():\n    return lambda x: x.repeat(1, int(x.max()))\n")
    words = ("wide.py:build", "--name", "wide", "--max-batch", "1", "--frontends", "2", "--workers", "2")
    with serving(tmp_path, *words) as server:
        sizes, wrong = [1, 200_000, 3, 50_000, 7], []

        def ask(times: int) -> None:
            status, answer = server.infer([[times, 0, 0, 0]], "wide")
            if status != 200 or answer["outputs"][0]["data"] != [times, 0, 0, 0] * times:
                wrong.append((times, status))

        threads = [threading.Thread(target=ask, args=(n,)) for n in sizes * 3]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

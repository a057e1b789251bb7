"""What serving costs: a request beside an empty one of LitServe's, and batches beside the model alone.

Server and model alone take turns, so that both see the machine as busy as it is; medians of the pairs are printed.

    python benchmarks/serving.py [--apart] [request resnet18 gpt text]

With `tesserack-serving` installed. The clients run on the same processors as the server: what they take is missing from
its throughput. With `--apart` the model has the first processor, alone as served, and everything else has the others:
what is left is what serving costs the model.
"""

from __future__ import annotations

import http.client
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "examples")]
PORT, EMPTY_PORT = 18230, 18231
PAIRS, SECONDS = 5, 4.0
IMAGES, SEQUENCES, TOKENS = 8, 16, 64
PROMPT = "The statement "
APART = "TESSERACK_BENCHMARK_APART"  # the processor that the model has for itself
EMPTY = f"""
import litserve as ls

class Echo(ls.LitAPI):
    def setup(self, device): pass
    def predict(self, x): return x

if __name__ == "__main__":
    ls.LitServer(Echo(), accelerator="cpu", timeout=False).run(
        host="127.0.0.1", port={EMPTY_PORT}, generate_client_file=False, log_level="error", access_log=False
    )
"""


def build_identity() -> Callable[[Any], Any]:
    """What an empty request asks."""
    return lambda x: x


def build_resnet18() -> Any:
    """ResNet-18 for images of 224 x 224."""
    import models
    import tesserack as ts

    keep_apart()
    return models.build_resnet18(ts.nn, large=True)


def build_gpt() -> Any:
    """The model of examples/char_gpt.py, for whole sequences of 96."""
    return build_text().module


def build_text() -> Any:
    """The same, writing."""
    keep_apart()
    return importlib.import_module("char_gpt").text()


def keep_apart() -> None:
    """Called where the model is built, in the process that runs it."""
    if APART in os.environ:
        import tesserack as ts

        os.sched_setaffinity(0, {int(os.environ[APART])})
        ts.set_num_threads(1)


# --- the model alone -------------------------------------------------------------------------------------------------


def alone(name: str) -> None:
    """Run batches for a second or more whenever a line comes; print how many rows or tokens a second."""
    import tesserack as ts

    run, rows = _alone_text() if name == "text" else _alone_batch(name, ts)
    run()
    for line in sys.stdin:
        until, count, began = time.monotonic() + float(line), 0, time.monotonic()
        while time.monotonic() < until:
            run()
            count += rows
        print(count / (time.monotonic() - began), flush=True)


def _alone_batch(name: str, ts: Any) -> tuple[Callable[[], Any], int]:
    model = {"resnet18": build_resnet18, "gpt": build_gpt}[name]().eval()
    rows = IMAGES if name == "resnet18" else SEQUENCES
    x = ts.randn(rows, 3, 224, 224) if name == "resnet18" else ts.zeros(rows, 96, dtype=ts.int64)

    def run() -> None:
        with ts.inference_mode():
            model(x)

    return run, rows


def _alone_text() -> tuple[Callable[[], Any], int]:
    from tesserack_serving import Sampling
    from tesserack_serving.text.scheduler import Scheduler

    model = build_text()
    model.module.eval()

    def run() -> None:
        scheduler = Scheduler(model, "cpu")
        for k in range(SEQUENCES):
            scheduler.add(str(k), PROMPT, Sampling(max_tokens=TOKENS))
        while scheduler.active:
            scheduler.step()

    return run, SEQUENCES * TOKENS


# --- served ----------------------------------------------------------------------------------------------------------


def _post(connection: http.client.HTTPConnection, path: str, body: bytes, headers: dict[str, str]) -> bytes:
    connection.request("POST", path, body, headers)
    response = connection.getresponse()
    found = response.read()
    if response.status != 200:
        raise RuntimeError(found.decode())
    return found


def _request(name: str) -> tuple[str, bytes, dict[str, str], int]:
    """Path, body, headers and rows or tokens of a request."""
    if name == "text":
        body = {"text_input": PROMPT, "parameters": {"max_tokens": TOKENS}}
        return "/v2/models/served/generate", json.dumps(body).encode(), {}, TOKENS
    rows = 1 if name == "resnet18" else 4
    shape, datatype, size = ([rows, 3, 224, 224], "FP32", 4) if name == "resnet18" else ([rows, 96], "INT64", 8)
    for axis in shape:
        size *= axis
    tensor = {"name": "x", "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    return "/v2/models/served/infer", head + bytes(size), headers, rows


def served(name: str, seconds: float, clients: int) -> float:
    """Rows or tokens a second of as many clients as make two batches."""
    path, body, headers, rows = _request(name)
    until, counts = time.monotonic() + seconds, [0] * clients

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", PORT)
        while time.monotonic() < until:
            _post(connection, path, body, headers)
            counts[number] += rows
        connection.close()

    threads = [threading.Thread(target=client, args=(k,)) for k in range(clients)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.monotonic() - began)


def start(name: str, *options: str) -> subprocess.Popen[bytes]:
    """A server that is ready."""
    place = f"{Path(__file__).resolve()}:build_{name}"
    command = [sys.executable, "-m", "tesserack", "serve", place, "--name", "served", "--port", str(PORT)]
    process = subprocess.Popen([*command, "--grpc-port", "0", *options], stdout=subprocess.DEVNULL)
    _await(PORT, "/v2/health/ready")
    return process


def _await(port: int, path: str) -> None:
    for _ in range(600):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        try:
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.1)
    raise RuntimeError(f"nobody answers on port {port}")


def throughput(name: str, clients: int, *options: str) -> None:
    """Print what the server does of what the model does alone."""
    server = start(name, *options)
    command = [sys.executable, __file__, "--alone", name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as bare:
        assert bare.stdin is not None and bare.stdout is not None
        served(name, 1.0, clients)
        ratios, both = [], []
        for _ in range(PAIRS):
            print(SECONDS, file=bare.stdin, flush=True)
            one = float(bare.stdout.readline())
            two = served(name, SECONDS, clients)
            ratios.append(two / one)
            both.append((one, two))
        bare.stdin.close()
    server.terminate()
    server.wait()
    one, two = (statistics.median(pair[k] for pair in both) for k in (0, 1))
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    print(f"{name}: alone {one:.1f}, served {two:.1f} a second; ratio {statistics.median(ratios):.3f} ({spread})")


def request() -> None:
    """Print what a request takes beside an empty one of LitServe's."""
    server = start("identity", "--input", "x=float32[batch 4]")
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "empty.py"
        script.write_text(EMPTY)
        empty = subprocess.Popen([sys.executable, script], start_new_session=True)
        _await(EMPTY_PORT, "/health")
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
        body = json.dumps({"inputs": [tensor]}).encode()
        headers = {"content-type": "application/json"}
        ours, theirs = (http.client.HTTPConnection("127.0.0.1", port) for port in (PORT, EMPTY_PORT))
        pairs = []
        for _ in range(1000):
            began = time.perf_counter()
            _post(theirs, "/predict", body, headers)
            between = time.perf_counter()
            _post(ours, "/v2/models/served/infer", body, headers)
            pairs.append((between - began, time.perf_counter() - between))
        os.killpg(empty.pid, 9)
    server.terminate()
    server.wait()
    one, two = (1e3 * statistics.median(pair[k] for pair in pairs[100:]) for k in (0, 1))
    more = 1e3 * statistics.median(b - a for a, b in pairs[100:])
    print(f"request: LitServe's empty one {one:.3f} ms, ours {two:.3f} ms; {more:+.3f} ms")


def main() -> None:
    if sys.argv[1:2] == ["--alone"]:
        alone(sys.argv[2])
        return
    if "--apart" in sys.argv:
        sys.argv.remove("--apart")
        first, *others = sorted(os.sched_getaffinity(0))
        if not others:
            sys.exit("serving.py: --apart needs two processors, one for the model; there is one")
        os.environ[APART] = str(first)
        os.sched_setaffinity(0, others)
    wanted = sys.argv[1:] or ["request", "resnet18", "gpt", "text"]
    if "request" in wanted:
        request()
    if "resnet18" in wanted:
        throughput("resnet18", 2 * IMAGES, "--max-batch", str(IMAGES), "--input", "x=float32[batch 3 224 224]")
    if "gpt" in wanted:
        throughput("gpt", 8, "--max-batch", str(SEQUENCES), "--input", "x=int64[batch 96]")
    if "text" in wanted:
        throughput("text", SEQUENCES)


if __name__ == "__main__":
    main()

"""Models to serve, and a process that serves them."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tesserack as ts

MODEL = """
import os, time
import tesserack as ts
from tesserack import nn

class Net(nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.linear = nn.Linear(4, width)

    def forward(self, x):
        peak = float(x.max()) if x.numel() else 0.0
        if peak == 666:
            raise RuntimeError("the card caught fire")
        if peak == 777:
            os._exit(3)
        if peak >= 1000:
            time.sleep(peak / 1e6)
        return {"y": self.linear(x)}

class Counts(nn.Module):
    def forward(self, tokens, mask):
        return (tokens * mask).sum(-1), mask.sum(-1)
"""
TEXT = """
import tesserack as ts
from tesserack import nn
from tesserack.nn import functional as F
from tesserack_serving import TextModel

WORDS = "abcdefghijklmnopqrstuvwxyz .é"

class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, attend):
        batch, length, width = x.shape
        parts = self.qkv(x).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        return x + self.out(attend(q, k, v).transpose(1, 2).reshape(batch, length, width))

def causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(len(WORDS), 16), nn.Embedding(64, 16)
        self.blocks = nn.ModuleList(Block(16, 2) for _ in range(2))
        self.head = nn.Linear(16, len(WORDS))

    def forward(self, tokens, places=None, attend=causal):
        places = ts.arange(tokens.shape[1], device=tokens.device) if places is None else places
        x = self.embed(tokens) * 4 + self.place(places) * 4
        for block in self.blocks:
            x = block(x, attend)
        return self.head(x) * 4

def build(sequences=4, cache_tokens=0, chunk=24, end=None):
    ts.manual_seed(0)
    return TextModel(
        Model(),
        encode=lambda text: [WORDS.index(c) for c in text],
        decode=lambda tokens: "".join(WORDS[t] for t in tokens),
        context=64, block=8, sequences=sequences, cache_tokens=cache_tokens, chunk=chunk, end=end,
    )
"""


def write_model(folder: Path, name: str, toml: str, code: str = MODEL) -> Path:
    """A model in a repository."""
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    (place / "model.toml").write_text(toml)
    (place / "model.py").write_text(code)
    return place


def write_version(place: Path, version: int, width: int = 3) -> dict[str, Any]:
    """Weights of a version; gives them back."""
    (place / str(version)).mkdir(exist_ok=True)
    ts.manual_seed(version)
    state = {"linear.weight": ts.randn(width, 4), "linear.bias": ts.randn(width)}
    ts.save(state, place / str(version) / "weights.safetensors")
    return state


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Server:
    """A process that serves."""

    def __init__(self, folder: Path, *words: str, **environment: str) -> None:
        self.port, self.grpc_port = free_ports(2)
        self.log = folder / f"server-{self.port}.log"
        command = [sys.executable, "-m", "tesserack", "serve", *words]
        command += ["--port", str(self.port), "--grpc-port", str(self.grpc_port)]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=folder,
                start_new_session=True,
                env={**os.environ, "OMP_WAIT_POLICY": "passive", **environment},
            )

    def wait(self, seconds: float = 60) -> Server:
        """Until it is ready."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.process.poll() is None:
            with contextlib.suppress(OSError):
                if self.get("/v2/health/ready")[0] == 200:
                    return self
            time.sleep(0.05)
        raise AssertionError(f"the server is not ready:\n{self.log.read_text()}")

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """Status and answer of one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, data, headers or {})
            response = connection.getresponse()
            text = response.read()
            is_json = response.headers.get("content-type") == "application/json"
            return response.status, json.loads(text) if is_json else text
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """GET"""
        return self.ask("GET", path)

    def post(self, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """POST"""
        return self.ask("POST", path, body, headers)

    def infer(self, rows: list[list[float]], model: str = "net") -> Any:
        """Ask ``net``."""
        return self.post(f"/v2/models/{model}/infer", infer_body(rows))

    def stop(self) -> int:
        """SIGTERM, and what it left with."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def kill(self) -> None:
        """Whatever is left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def infer_body(rows: list[list[float]]) -> dict[str, Any]:
    """A request to ``net``."""
    data = [value for row in rows for value in row]
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [len(rows), 4], "data": data}]}


@contextlib.contextmanager
def serving(folder: Path, *words: str, **environment: str) -> Iterator[Server]:
    """A server that is ready."""
    server = Server(folder, *words, **environment)
    try:
        yield server.wait()
    finally:
        server.kill()

"""Our models under other servers, where their packages are installed."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import tesserack as ts
from serving_process import free_ports, infer_body
from tesserack_serving.adapters.batches import BatchModel
from tesserack_serving.engine.config import read_folder
from tesserack_serving.protocol.errors import ServingError
from tesserack_serving.protocol.http import decode_infer


def request(rows: list[list[float]], **more: Any) -> Any:
    return decode_infer("net", "", json.dumps(infer_body(rows) | more).encode(), None)


def answer(repository: Path, rows: list[list[float]]) -> list[float]:
    state = ts.load(repository / "net" / "2" / "weights.safetensors")
    return (ts.tensor(rows) @ state["linear.weight"].t() + state["linear.bias"]).flatten().tolist()


def test_batches_of_any_mixture(repository: Path, device: str) -> None:
    model = BatchModel(read_folder(repository, "net")[-1], device)
    rng = random.Random(3)
    asked = [[[rng.random()] * 4 for _ in range(rng.randint(1, 5))] for _ in range(12)]
    asked[5] = [[666.0] * 4]
    results = model.run([request(rows) for rows in asked])
    for rows, result in zip(asked, results, strict=True):
        if rows == [[666.0] * 4]:
            assert isinstance(result, ServingError)
        else:
            found = ts.frombuffer(bytearray(result[0].data), dtype=ts.float32).tolist()
            assert found == pytest.approx(answer(repository, rows), abs=1e-4)
    with pytest.raises(ServingError, match="no output"):
        model.check(request([[0.0] * 4], outputs=[{"name": "z"}]))
    with pytest.raises(ServingError, match="writes text"):
        BatchModel(read_folder(repository, "text")[-1], device)


def test_ray_serve(repository: Path) -> None:
    ray = pytest.importorskip("ray", reason="Ray Serve is not installed")
    serve = pytest.importorskip("ray.serve")
    from tesserack_serving.adapters.ray import application

    (port,) = free_ports(1)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        serve.run(application(read_folder(repository, "net")[-1]), route_prefix="/v2/models/net")
        url = f"http://127.0.0.1:{port}/v2/models/net"
        assert json.load(urlopen(url))["inputs"][0]["shape"] == [-1, 4]
        rows = [[1.0, 2.0, 3.0, 4.0]]
        found = json.load(urlopen(f"{url}/infer", json.dumps(infer_body(rows)).encode()))
        assert found["outputs"][0]["data"] == pytest.approx(answer(repository, rows), abs=1e-4)
        with pytest.raises(HTTPError, match="500"):
            urlopen(f"{url}/infer", json.dumps(infer_body([[666.0] * 4])).encode())
    finally:
        serve.shutdown()
        ray.shutdown()


def test_kserve(repository: Path) -> None:
    kserve = pytest.importorskip("kserve", reason="KServe is not installed")
    asyncio = pytest.importorskip("asyncio")
    from tesserack_serving.adapters.kserve import KServeModel

    model = KServeModel(read_folder(repository, "net")[-1])
    assert model.load() and model.ready
    given = kserve.InferInput("x", [1, 4], "FP32", [1.0, 2.0, 3.0, 4.0])
    found = asyncio.run(model.predict(kserve.InferRequest("net", [given])))
    assert found.outputs[0].data == pytest.approx(answer(repository, [[1.0, 2.0, 3.0, 4.0]]), abs=1e-4)

"""A running server, by curl and by the protocol's own clients."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
from serving_process import Server, infer_body, serving, write_model, write_version

ONE = [[1.0, 1.0, 1.0, 1.0]]


def expected(repository: Path, version: int, x: list[list[float]]) -> Any:
    state = ts.load(repository / "net" / str(version) / "weights.safetensors")
    return (ts.tensor(x) @ state["linear.weight"].t() + state["linear.bias"]).tolist()


def test_health_and_metadata(server: Server) -> None:
    assert server.get("/v2/health/live") == (200, {"live": True})
    assert server.get("/v2/health/ready") == (200, {"ready": True})
    assert server.get("/v2/models/net/ready") == (200, {"name": "net", "ready": True})
    status, model = server.get("/v2/models/net")
    assert status == 200 and model["versions"] == ["1", "2"]
    assert model["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    assert model["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}]
    assert server.get("/v2")[1]["name"] == "tesserack-serving"
    assert server.get("/openapi.json")[1]["openapi"].startswith("3.")


@pytest.mark.parametrize("version", [1, 2])
def test_curl(server: Server, repository: Path, version: int) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    url = f"http://127.0.0.1:{server.port}/v2/models/net/versions/{version}/infer"
    body = json.dumps(infer_body(ONE) | {"id": "abc"})
    answer = json.loads(subprocess.run(["curl", "-sf", "-d", body, url], check=True, capture_output=True).stdout)
    assert answer["id"] == "abc" and answer["model_version"] == str(version)
    assert answer["outputs"][0]["data"] == pytest.approx(expected(repository, version, ONE)[0], abs=1e-4)


@pytest.mark.parametrize("binary", [False, True])
def test_tritonclient_http(server: Server, repository: Path, binary: bool) -> None:
    np = pytest.importorskip("numpy")
    client = pytest.importorskip("tritonclient.http", reason="the protocol's client")
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    with client.InferenceServerClient(f"127.0.0.1:{server.port}") as one:
        assert one.is_server_live() and one.is_server_ready() and one.is_model_ready("net", "2")
        assert not one.is_model_ready("nothing")
        given = client.InferInput("x", [2, 4], "FP32")
        given.set_data_from_numpy(x, binary_data=binary)
        asked = client.InferRequestedOutput("y", binary_data=binary)
        for options in ({}, {"request_compression_algorithm": "gzip"}, {"request_compression_algorithm": "deflate"}):
            found = one.infer("net", [given], outputs=[asked], **options)
            np.testing.assert_allclose(found.as_numpy("y"), expected(repository, 2, x.tolist()), atol=1e-4)
        found = one.infer("net", [given], model_version="1")
        np.testing.assert_allclose(found.as_numpy("y"), expected(repository, 1, x.tolist()), atol=1e-4)
        assert {m["name"] for m in one.get_model_repository_index()} >= {"net", "counts", "text", "broken"}


def test_tritonclient_grpc(server: Server, repository: Path) -> None:
    np = pytest.importorskip("numpy")
    client = pytest.importorskip("tritonclient.grpc", reason="the protocol's client")
    utils = pytest.importorskip("tritonclient.utils")
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    with client.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as one:
        assert one.is_server_live() and one.is_server_ready() and one.is_model_ready("net")
        assert (
            one.is_model_ready("net", "2") and not one.is_model_ready("net", "9") and not one.is_model_ready("nothing")
        )
        assert [*one.get_model_metadata("net").versions] == ["1", "2"] and one.get_server_metadata().name
        given = client.InferInput("x", [2, 4], "FP32")
        given.set_data_from_numpy(x)
        found = one.infer("net", [given], request_id="r1")
        np.testing.assert_allclose(found.as_numpy("y"), expected(repository, 2, x.tolist()), atol=1e-4)
        assert found.get_response().id == "r1"
        tokens, mask = (client.InferInput(name, [1, 3], "INT64") for name in ("tokens", "mask"))
        tokens.set_data_from_numpy(np.array([[5, 6, 7]]))
        mask.set_data_from_numpy(np.array([[1, 0, 1]]))
        found = one.infer("counts", [mask, tokens], outputs=[client.InferRequestedOutput("output0")])
        assert found.as_numpy("output0").tolist() == [12] and len(found.get_response().outputs) == 1
        for name, status in (("nothing", "NOT_FOUND"), ("counts", "INVALID_ARGUMENT")):
            with pytest.raises(utils.InferenceServerException, match=r"model|inputs") as error:
                one.infer(name, [given])
            assert status in str(error.value.status())


def test_one_bad_request_is_500_and_the_next_is_served(server: Server) -> None:
    assert server.infer([[666.0] * 4]) == (
        500,
        {"error": "model 'net': RuntimeError: the card caught fire"},
    )
    assert server.infer(ONE)[0] == 200


def test_refusals(server: Server) -> None:
    for path, body, status in [
        ("/v2/models/nothing/infer", infer_body(ONE), 404),
        ("/v2/models/net/versions/9/infer", infer_body(ONE), 404),
        ("/v2/models/net/infer", {"inputs": []}, 400),
        ("/v2/models/net/infer", infer_body(ONE) | {"outputs": [{"name": "z"}]}, 400),
        ("/v2/models/counts/infer", infer_body(ONE), 400),
        ("/v2/models/net/generate", {"text_input": "a"}, 400),
        ("/v2/models/text/generate", {"text_input": "€"}, 400),
        ("/v2/models/text/generate", {"text_input": "a", "parameters": {"max_tokens": 0}}, 400),
        ("/v2/models/text/generate_stream", {"text_input": "€"}, 400),
        ("/v2/repository/models/broken/load", None, 500),
        ("/v2/repository/models/..%2Fnet/load", None, 404),
        ("/v2/repository/models/none/load", None, 404),
        ("/v2/nowhere", None, 404),
        ("/v2/trace/setting", {"trace_level": ["TENSORS"]}, 400),
    ]:
        found, answer = server.post(path, body)
        assert found == status and answer["error"], (path, found, answer)
    assert server.get("/v2/models/net/infer")[0] == 405
    body = infer_body(ONE)
    assert server.post("/v2/models/net/infer", json.dumps(body).encode(), {"content-encoding": "br"})[0] == 415
    assert server.post("/v2/models/net/infer", bytes(70 << 20))[0] == 413


def test_text(server: Server) -> None:
    whole = server.post("/v2/models/text/generate", {"text_input": "the cat", "parameters": {"max_tokens": 12}})
    assert whole[0] == 200 and whole[1]["details"] == {"finish_reason": "length", "tokens": 12}
    stream = server.post("/v2/models/text/generate_stream", {"text_input": "the cat", "parameters": {"max_tokens": 12}})
    events = [json.loads(line.removeprefix("data: ")) for line in stream[1].decode().splitlines() if line]
    assert len(events) > 3 and "".join(e["text_output"] for e in events) == whole[1]["text_output"]
    tensors = {"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["the cat"]}]}
    found = server.post("/v2/models/text/infer", tensors | {"parameters": {"max_tokens": 12}})
    assert [o["data"] for o in found[1]["outputs"]] == [[whole[1]["text_output"]], ["length"]]


def test_text_over_grpc_comes_as_it_is_written(server: Server) -> None:
    np = pytest.importorskip("numpy")
    client = pytest.importorskip("tritonclient.grpc", reason="the protocol's client")
    pieces: list[Any] = []
    with client.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as one:
        one.start_stream(lambda result, error: pieces.append((result, error)))
        given = client.InferInput("text_input", [1], "BYTES")
        given.set_data_from_numpy(np.array([b"the cat"], dtype=object))
        one.async_stream_infer("text", [given], parameters={"max_tokens": 12})
        until = time.monotonic() + 30
        while not (
            pieces and (pieces[-1][1] or pieces[-1][0].get_response().parameters["triton_final_response"].bool_param)
        ):
            assert time.monotonic() < until
            time.sleep(0.01)
        one.stop_stream()
    assert not [error.message() for _, error in pieces if error]
    text = "".join(result.as_numpy("text_output")[0].decode() for result, _ in pieces)
    whole = server.post("/v2/models/text/generate", {"text_input": "the cat", "parameters": {"max_tokens": 12}})
    assert len(pieces) > 3 and text == whole[1]["text_output"]


def test_metrics_and_page(server: Server) -> None:
    server.infer(ONE)
    text = server.get("/metrics")[1].decode()
    assert 'tesserack_serving_requests_total{code="200",model="net",protocol="http"}' in text
    assert "tesserack_serving_batch_requests_bucket" in text
    status, state = server.get("/status.json")
    models = {(m["name"], m["version"]): m for m in state["models"]}
    assert status == 200 and state["ready"] and models["net", "2"]["requests"] > 0
    assert b"<title>Tesserack serving</title>" in server.get("/status")[1]


def test_requests_are_traced(server: Server) -> None:
    folder = Path(server.get("/v2/trace/setting")[1]["trace_file"])
    assert server.post("/v2/trace/setting", {"trace_level": ["TIMESTAMPS"], "trace_count": "2"})[0] == 200
    try:
        for k in range(4):
            assert server.post("/v2/models/net/infer", infer_body(ONE) | {"id": f"traced-{k}"})[0] == 200
        until = time.monotonic() + 20
        while not (files := [*folder.glob("worker0-*.json")]):
            assert time.monotonic() < until
            time.sleep(0.05)
        time.sleep(0.2)
        names = [event["name"] for event in json.loads(files[0].read_text())["traceEvents"]]
    finally:
        server.post("/v2/trace/setting", {"trace_level": ["OFF"]})
    assert (
        sum(name.startswith("request traced-") for name in names) == 2 and "batch of net" in names and "linear" in names
    )


def test_load_and_unload(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    place = write_model(folder, "net", 'build = "model.py:Net"\ninputs = ["x=float32[batch 4]"]\n')
    first = write_version(place, 1)
    with serving(tmp_path, "--repository", str(folder), "--load", "net") as server:
        assert server.infer(ONE)[1]["model_version"] == "1"
        second = write_version(place, 2)
        assert server.post("/v2/repository/models/net/load") == (200, {})
        answer = server.infer(ONE)[1]
        want = ts.ones(1, 4) @ second["linear.weight"].t() + second["linear.bias"]
        assert answer["model_version"] == "2" and answer["outputs"][0]["data"] == pytest.approx(
            want[0].tolist(), abs=1e-4
        )
        assert server.get("/v2/models/net/versions/1")[0] == 404  # the policy is the latest
        write_model(folder, "late", 'build = "model.py:Net"\n')
        assert [m["state"] for m in server.post("/v2/repository/index")[1]] == ["UNAVAILABLE", "READY"]
        assert server.post("/v2/repository/models/late/load") == (200, {}) and server.infer(ONE, "late")[0] == 200
        assert server.post("/v2/repository/models/late/unload", {"parameters": {"unload_dependents": True}}) == (
            200,
            {},
        )
        assert server.infer(ONE, "late")[0] == 404 and server.get("/v2/health/ready")[0] == 200
        write_model(folder, "net", 'build = "model.py:Nothing"\n')
        assert server.post("/v2/repository/models/net/load")[0] == 500
        assert server.infer(ONE)[0] == 200, "what was there before stays"
    assert first


def test_several_workers_and_devices(tmp_path: Path, repository: Path) -> None:
    words = ["--repository", str(repository), "--load", "net", "--load", "text", "--device", "cpu,cpu:0"]
    with serving(tmp_path, *words) as server:
        assert len(server.get("/status.json")[1]["workers"]) == 2
        for _ in range(4):
            assert server.infer(ONE)[0] == 200
        assert server.post("/v2/models/text/generate", {"text_input": "a"})[0] == 200
        assert server.post("/v2/repository/models/counts/load") == (200, {})


def test_keys_are_asked_of_every_client(tmp_path: Path, repository: Path) -> None:
    client = pytest.importorskip("tritonclient.grpc", reason="the protocol's client")
    words = ["--repository", str(repository), "--load", "net"]
    server = Server(tmp_path, *words, LIT_SERVER_API_KEY="secret")
    try:
        until = time.monotonic() + 60
        while True:
            try:
                if server.ask("GET", "/v2/health/ready", None, {"X-API-Key": "secret"})[0] == 200:
                    break
            except OSError:
                pass
            assert time.monotonic() < until, server.log.read_text()
            time.sleep(0.05)
        assert server.get("/v2/health/ready")[0] == 401 and server.infer(ONE)[0] == 401
        with client.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as one:
            with pytest.raises(Exception, match="x-api-key"):
                one.get_server_metadata()
            assert one.is_server_ready(headers={"x-api-key": "secret"})
    finally:
        server.kill()


@pytest.mark.parametrize(
    "words, message",
    [
        (["missing.py:build"], "no file"),
        (["{model}:Nothing"], "Nothing"),
        (["{model}:Net", "--device", "nosuchcard"], "nosuchcard"),
        (["{model}:Net", "--input", "x=float32[batch 5]"], "fails on zeros"),
        ([], "expected FILE:NAME"),
        (["{model}:Net", "--weights", "none.safetensors"], "no file"),
    ],
)
def test_what_cannot_be_served_ends_with_a_reason(
    tmp_path: Path, repository: Path, words: list[str], message: str
) -> None:
    model = repository / "net" / "model.py"
    server = Server(tmp_path, *(word.replace("{model}", str(model)) for word in words))
    try:
        assert server.process.wait(60) in (1, 2)
    finally:
        server.kill()
    last = server.log.read_text().strip().splitlines()[-1]
    assert last.startswith("tesserack: error: serve:") and message in last

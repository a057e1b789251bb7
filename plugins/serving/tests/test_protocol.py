"""Messages of the protocol, without a server."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest
from tesserack_serving.protocol import datatypes
from tesserack_serving.protocol.errors import ServingError
from tesserack_serving.protocol.grpc_convert import infer_request
from tesserack_serving.protocol.grpc_messages import METHODS, _messages, message
from tesserack_serving.protocol.http import decode_infer, encode_infer
from tesserack_serving.protocol.messages import TensorData, pack_bytes, unpack_bytes
from tesserack_serving.protocol.openapi import document

GOOD = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [[1, 2], [3, 4.5]]}]}


def decode(body: Any, header: str | None = None) -> Any:
    return decode_infer("m", "", body if isinstance(body, bytes) else json.dumps(body).encode(), header)


@pytest.mark.parametrize("datatype", sorted(datatypes.SIZES))
def test_values_of_every_datatype_come_back(datatype: str) -> None:
    values: list[Any] = [True, False] if datatype == "BOOL" else [0, 1, 100]
    if datatype in ("FP16", "BF16", "FP32", "FP64"):
        values = [0.5, -2.0, math.inf]
    data = datatypes.pack(datatype, values, "x")
    assert len(data) == len(values) * datatypes.SIZES[datatype] and datatypes.unpack(datatype, data) == values


def test_bfloat16_rounds_as_tensors_do(device: str) -> None:
    import tesserack as ts
    from tesserack_serving.engine.tensors import to_bytes

    rng = random.Random(1)
    values = [rng.uniform(-4, 4) * 2.0 ** rng.randint(-20, 20) for _ in range(500)]
    assert datatypes.pack("BF16", values, "x") == to_bytes(ts.tensor(values).to(ts.bfloat16))


def test_json_and_binary_say_the_same() -> None:
    request = decode(GOOD)
    assert request.inputs[0] == TensorData("x", "FP32", (2, 2), datatypes.pack("FP32", [1, 2, 3, 4.5], "x"))
    head = json.dumps(
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 2], "parameters": {"binary_data_size": 16}}]}
    ).encode()
    assert decode(head + bytes(request.inputs[0].data), str(len(head))).inputs == request.inputs


def test_answers_are_json_or_bytes_as_asked() -> None:
    outputs = [TensorData("a", "INT64", (2,), datatypes.pack("INT64", [1, -2], "a"))]
    body, headers = encode_infer(decode(GOOD | {"id": "7"}), "3", outputs)
    assert json.loads(body)["outputs"] == [{"name": "a", "datatype": "INT64", "shape": [2], "data": [1, -2]}]
    assert json.loads(body)["id"] == "7" and headers == {"content-type": "application/json"}
    asked = decode(GOOD | {"outputs": [{"name": "a", "parameters": {"binary_data": True}}]})
    body, headers = encode_infer(asked, "3", outputs)
    size = int(headers["inference-header-content-length"])
    assert body[size:] == outputs[0].data
    assert json.loads(body[:size])["outputs"][0]["parameters"] == {"binary_data_size": 16}


def test_byte_strings() -> None:
    values = [b"", b"abc", b"\xff\x00"]
    assert unpack_bytes(pack_bytes(values), "x") == values
    for cut in range(1, 17):
        if cut not in (4, 11):  # where a value ends
            with pytest.raises(ServingError, match="cut off"):
                unpack_bytes(pack_bytes(values)[:cut], "x")


def changed(**given: Any) -> dict[str, Any]:
    tensor = {**GOOD["inputs"][0], **given}
    return {"inputs": [{key: value for key, value in tensor.items() if value is not None}]}


BAD = {
    "no json": b"{",
    "no object": [],
    "no inputs": {},
    "empty": {"inputs": []},
    "id": GOOD | {"id": 3},
    "parameters": GOOD | {"parameters": []},
    "output": GOOD | {"outputs": [3]},
    "classification": GOOD | {"outputs": [{"name": "y", "parameters": {"classification": 2}}]},
    "tensor": {"inputs": [3]},
    "name": changed(name=3),
    "datatype": changed(datatype="FP31"),
    "datatype's type": changed(datatype=["FP32"]),
    "shape": changed(shape=[-1, 4]),
    "shape's type": changed(shape="2"),
    "true as a size": changed(shape=[True, 4]),
    "huge shape": changed(shape=[1 << 61, 1 << 61]),
    "count": changed(shape=[3, 2]),
    "no data": changed(data=None),
    "data": changed(data=3),
    "mixed": changed(data=[[1, 2], 3, 4]),
    "words": changed(data=["1", "2", "3", "4"]),
    "truth": changed(data=[True, True, True, True]),
    "fractions": changed(datatype="INT8", data=[1.5, 1, 1, 1]),
    "range": changed(datatype="INT8", data=[128, 1, 1, 1]),
    "huge": changed(datatype="FP32", data=[10**400, 1, 1, 1]),
    "numbers as bool": changed(datatype="BOOL", data=[1, 0, 1, 0]),
    "numbers as bytes": changed(datatype="BYTES"),
    "half a character": changed(datatype="BYTES", shape=[1], data=["\ud800"]),
    "binary size": changed(data=None, parameters={"binary_data_size": 16}),
    "negative size": changed(data=None, parameters={"binary_data_size": -1}),
}


@pytest.mark.parametrize("name", BAD)
def test_malformed_requests_are_refused(name: str) -> None:
    with pytest.raises(ServingError) as found:
        decode(BAD[name])
    assert found.value.status == 400 and len(found.value.message) < 300


@pytest.mark.parametrize("header", ["x", "-1", "10000", "²", ""])
def test_bad_lengths_are_refused(header: str) -> None:
    with pytest.raises(ServingError, match="Content-Length"):
        decode(GOOD, header)


def test_bytes_left_over_are_refused() -> None:
    body = json.dumps(GOOD).encode()
    with pytest.raises(ServingError, match="3 bytes belong to no input"):
        decode(body + b"abc", str(len(body)))


def test_grpc_messages_are_those_of_the_published_protocol() -> None:
    published = pytest.importorskip("tritonclient.grpc.service_pb2", reason="the protocol as published").DESCRIPTOR

    def fields(descriptor: Any) -> Any:
        return [
            (f.number, f.name, f.type, f.is_repeated, f.message_type and f.message_type.full_name)
            for f in descriptor.fields
        ]

    for name in _messages():
        assert fields(message(name).DESCRIPTOR) == fields(published.pool.FindMessageTypeByName(f"inference.{name}"))
    methods = {
        m.name: (m.client_streaming, m.server_streaming)
        for m in published.services_by_name["GRPCInferenceService"].methods
    }
    assert METHODS.items() <= methods.items()


def test_grpc_contents_by_type() -> None:
    request = message("ModelInferRequest")(model_name="m")
    request.parameters["temperature"].double_param = 0.5
    request.inputs.add(name="a", datatype="INT8", shape=[2]).contents.int_contents.extend([1, -1])
    request.inputs.add(name="b", datatype="BYTES", shape=[1]).contents.bytes_contents.append(b"hi")
    found = infer_request(request)
    assert [t.data for t in found.inputs] == [b"\x01\xff", [b"hi"]] and found.parameters == {"temperature": 0.5}
    request.inputs[0].contents.int_contents[0] = 300
    with pytest.raises(ServingError, match="range"):
        infer_request(request)


def test_the_document_is_openapi() -> None:
    text = json.dumps(document())
    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert names <= document()["components"]["schemas"].keys() and "/v2/models/{model}/infer" in document()["paths"]

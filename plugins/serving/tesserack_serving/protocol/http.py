"""Requests and answers over HTTP: JSON, and the extension that lets tensors follow it as bytes."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from tesserack_serving.protocol.datatypes import SIZES, pack, unpack
from tesserack_serving.protocol.errors import ServingError
from tesserack_serving.protocol.messages import InferRequest, RequestedOutput, TensorData, pack_bytes, unpack_bytes

__all__ = ["HEADER", "decode_infer", "encode_infer", "read_object"]

HEADER = "Inference-Header-Content-Length"


def read_object(body: bytes, what: str = "request") -> dict[str, Any]:
    """A JSON object. ``ServingError`` for anything else."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ServingError(f"the {what} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ServingError(f"the {what}: expected an object")
    return found


def decode_infer(model: str, version: str, body: bytes, header: str | None) -> InferRequest:
    """A request from its body; ``header`` is what ``Inference-Header-Content-Length`` says.

    Raises:
        ServingError: it is malformed; the message says where.
    """
    rest = memoryview(b"")
    if header is not None:
        if not (header.isascii() and header.isdigit() and int(header) <= len(body)):
            raise ServingError(f"{HEADER}: expected a number of bytes up to {len(body)}, got {header!r}")
        body, rest = body[: int(header)], memoryview(body)[int(header) :]
    message = read_object(body)
    parameters = _parameters(message, "the request")
    inputs = _list(message, "inputs")
    if not inputs:
        raise ServingError("the request: expected at least one input")
    tensors = []
    for item in inputs:
        tensor, rest = _tensor(item, rest)
        tensors.append(tensor)
    if len(rest):
        raise ServingError(f"the request: {len(rest)} bytes belong to no input")
    outputs = [_requested(item) for item in _list(message, "outputs")] if message.get("outputs") is not None else []
    return InferRequest(
        model, version, tensors, outputs, _id(message), parameters, parameters.get("binary_data_output") is True
    )


def _list(message: Mapping[str, Any], key: str) -> list[Any]:
    value = message.get(key)
    if not isinstance(value, list):
        raise ServingError(f"the request: expected a list as {key!r}")
    return value


def _id(message: Mapping[str, Any]) -> str:
    value = message.get("id")
    if value is not None and not isinstance(value, str):
        raise ServingError("the request: expected a string as 'id'")
    return value or ""


def _parameters(message: Mapping[str, Any], where: str) -> dict[str, Any]:
    value = message.get("parameters")
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(v, (str, int, float, bool)) for v in value.values()):
        raise ServingError(f"{where}: expected strings, numbers and truth values as 'parameters'")
    return value


def _requested(item: Any) -> RequestedOutput:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        raise ServingError("an output: expected an object with a 'name'")
    parameters = _parameters(item, f"output {item['name']!r}")
    if "classification" in parameters:
        raise ServingError(f"output {item['name']!r}: classification is not offered; ask for the scores")
    return RequestedOutput(item["name"], parameters.get("binary_data") is True)


def _tensor(item: Any, rest: memoryview) -> tuple[TensorData, memoryview]:
    """An input, and what remains of the bytes after the JSON."""
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        raise ServingError("an input: expected an object with a 'name'")
    name, datatype, shape = item["name"], item.get("datatype"), item.get("shape")
    if datatype != "BYTES" and (not isinstance(datatype, str) or datatype not in SIZES):
        raise ServingError(f"input {name!r}: expected a datatype among {', '.join(SIZES)}, BYTES, got {datatype!r}")
    if not isinstance(shape, list) or not all(type(size) is int and 0 <= size < 1 << 62 for size in shape):
        raise ServingError(f"input {name!r}: expected a list of sizes as 'shape', got {shape!r}")
    size = _parameters(item, f"input {name!r}").get("binary_data_size")
    if size is None:
        if "data" not in item:
            raise ServingError(f"input {name!r}: expected 'data', or 'binary_data_size' among its parameters")
        data = _values(name, datatype, item["data"])
    else:
        if type(size) is not int or not 0 <= size <= len(rest):
            raise ServingError(f"input {name!r}: binary_data_size is {size!r}, and {len(rest)} bytes are left")
        raw, rest = bytes(rest[:size]), rest[size:]
        data = unpack_bytes(raw, name) if datatype == "BYTES" else raw
    tensor = TensorData(name, datatype, tuple(shape), data)
    tensor.check_size()
    return tensor, rest


def _values(name: str, datatype: str, data: Any) -> bytes | list[bytes]:
    values = _flatten(name, data)
    if datatype != "BYTES":
        return pack(datatype, values, name)
    if not all(isinstance(value, str) for value in values):
        raise ServingError(f"input {name!r}: expected strings for BYTES")
    try:
        return [value.encode() for value in values]
    except UnicodeEncodeError as error:
        raise ServingError(f"input {name!r}: a string is no text: {error.reason}") from error


def _flatten(name: str, data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise ServingError(f"input {name!r}: expected a list as 'data'")
    values: list[Any] = data
    while any(isinstance(value, list) for value in values):
        if not all(isinstance(value, list) for value in values):
            raise ServingError(f"input {name!r}: 'data' mixes lists and values")
        values = [*chain.from_iterable(values)]
    return values


def encode_infer(request: InferRequest, version: str, outputs: Sequence[TensorData]) -> tuple[bytes, dict[str, str]]:
    """Body and headers of an answer; a BYTES value that is no text comes as base64, and its parameters say so."""
    wants = {output.name: output.binary for output in request.outputs}
    described, tail = [], []
    for tensor in outputs:
        item: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": [*tensor.shape]}
        if wants.get(tensor.name, request.binary):
            raw = pack_bytes(tensor.data) if isinstance(tensor.data, list) else tensor.data
            item["parameters"] = {"binary_data_size": len(raw)}
            tail.append(raw)
        elif isinstance(tensor.data, list):
            item.update(_texts(tensor.data))
        else:
            item["data"] = unpack(tensor.datatype, tensor.data)
        described.append(item)
    message: dict[str, Any] = {"model_name": request.model, "model_version": version, "outputs": described}
    if request.id:
        message["id"] = request.id
    body = json.dumps(message, separators=(",", ":")).encode()
    if not tail:
        return body, {"content-type": "application/json"}
    headers = {"content-type": "application/octet-stream", HEADER.lower(): str(len(body))}
    return b"".join((body, *tail)), headers


def _texts(values: Sequence[bytes]) -> dict[str, Any]:
    try:
        return {"data": [value.decode() for value in values]}
    except UnicodeDecodeError:
        texts = [base64.b64encode(value).decode() for value in values]
        return {"data": texts, "parameters": {"content_type": "base64"}}

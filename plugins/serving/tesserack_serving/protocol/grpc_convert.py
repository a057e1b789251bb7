"""Between gRPC's messages and ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tesserack_serving.protocol.datatypes import SIZES, pack
from tesserack_serving.protocol.errors import ServingError
from tesserack_serving.protocol.grpc_messages import message
from tesserack_serving.protocol.messages import InferRequest, RequestedOutput, TensorData, pack_bytes, unpack_bytes

__all__ = ["infer_request", "infer_response"]

_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def infer_request(found: Any) -> InferRequest:
    """A ``ModelInferRequest``. ``ServingError`` if it is malformed."""
    raw = found.raw_input_contents
    if len(raw) and len(raw) != len(found.inputs):
        raise ServingError(f"expected raw contents for all of {len(found.inputs)} inputs or none, got {len(raw)}")
    if not found.inputs:
        raise ServingError("the request: expected at least one input")
    inputs = [_tensor(item, raw[k] if len(raw) else None) for k, item in enumerate(found.inputs)]
    outputs = [RequestedOutput(item.name, True) for item in found.outputs]
    parameters = _parameters(found.parameters)
    return InferRequest(found.model_name, found.model_version, inputs, outputs, found.id, parameters, True)


def _parameters(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: getattr(p, p.WhichOneof("parameter_choice") or "string_param") for name, p in found.items()}


def _tensor(item: Any, raw: bytes | None) -> TensorData:
    name, datatype, shape = item.name, item.datatype, tuple(item.shape)
    if datatype not in SIZES and datatype != "BYTES":
        raise ServingError(f"input {name!r}: expected a datatype among {', '.join(SIZES)}, BYTES, got {datatype!r}")
    if any(size < 0 for size in shape):
        raise ServingError(f"input {name!r}: expected sizes from 0, got {[*shape]}")
    data: bytes | list[bytes]
    if raw is not None:
        data = unpack_bytes(raw, name) if datatype == "BYTES" else raw
    elif datatype not in _CONTENTS:
        raise ServingError(f"input {name!r}: {datatype} comes as raw contents only")
    else:
        values = [*getattr(item.contents, _CONTENTS[datatype])]
        data = values if datatype == "BYTES" else pack(datatype, values, name)
    tensor = TensorData(name, datatype, shape, data)
    tensor.check_size()
    return tensor


def infer_response(model: str, version: str, label: str, outputs: Sequence[TensorData]) -> Any:
    """A ``ModelInferResponse``, with raw contents."""
    response = message("ModelInferResponse")(model_name=model, model_version=version, id=label)
    for tensor in outputs:
        response.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        response.raw_output_contents.append(pack_bytes(tensor.data) if isinstance(tensor.data, list) else tensor.data)
    return response

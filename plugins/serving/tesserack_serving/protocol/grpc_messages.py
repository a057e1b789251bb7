"""The messages of the protocol's gRPC service, made at run time from the table below: no generated code."""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["METHODS", "SERVICE", "message"]

PACKAGE = "inference"
SERVICE = "inference.GRPCInferenceService"
# Name: whether requests come, and answers go, as streams.
METHODS = {
    "ServerLive": (False, False),
    "ServerReady": (False, False),
    "ModelReady": (False, False),
    "ServerMetadata": (False, False),
    "ModelMetadata": (False, False),
    "ModelInfer": (False, False),
    "ModelStreamInfer": (True, True),
    "RepositoryIndex": (False, False),
    "RepositoryModelLoad": (False, False),
    "RepositoryModelUnload": (False, False),
    "TraceSetting": (False, False),
}

# A message a line, then its fields: number, name, type; * is repeated, | one of several, % a map from strings.
_TABLE = """
InferParameter: 1 bool_param |bool, 2 int64_param |int64, 3 string_param |string, 4 double_param |double, 5 uint64_param |uint64
InferTensorContents: 1 bool_contents *bool, 2 int_contents *int32, 3 int64_contents *int64, 4 uint_contents *uint32, 5 uint64_contents *uint64, 6 fp32_contents *float, 7 fp64_contents *double, 8 bytes_contents *bytes
ServerLiveRequest:
ServerLiveResponse: 1 live bool
ServerReadyRequest:
ServerReadyResponse: 1 ready bool
ModelReadyRequest: 1 name string, 2 version string
ModelReadyResponse: 1 ready bool
ServerMetadataRequest:
ServerMetadataResponse: 1 name string, 2 version string, 3 extensions *string
ModelMetadataRequest: 1 name string, 2 version string
ModelMetadataResponse.TensorMetadata: 1 name string, 2 datatype string, 3 shape *int64
ModelMetadataResponse: 1 name string, 2 versions *string, 3 platform string, 4 inputs *ModelMetadataResponse.TensorMetadata, 5 outputs *ModelMetadataResponse.TensorMetadata
ModelInferRequest.InferInputTensor: 1 name string, 2 datatype string, 3 shape *int64, 4 parameters %InferParameter, 5 contents InferTensorContents
ModelInferRequest.InferRequestedOutputTensor: 1 name string, 2 parameters %InferParameter
ModelInferRequest: 1 model_name string, 2 model_version string, 3 id string, 4 parameters %InferParameter, 5 inputs *ModelInferRequest.InferInputTensor, 6 outputs *ModelInferRequest.InferRequestedOutputTensor, 7 raw_input_contents *bytes
ModelInferResponse.InferOutputTensor: 1 name string, 2 datatype string, 3 shape *int64, 4 parameters %InferParameter, 5 contents InferTensorContents
ModelInferResponse: 1 model_name string, 2 model_version string, 3 id string, 4 parameters %InferParameter, 5 outputs *ModelInferResponse.InferOutputTensor, 6 raw_output_contents *bytes
ModelStreamInferResponse: 1 error_message string, 2 infer_response ModelInferResponse
ModelRepositoryParameter: 1 bool_param |bool, 2 int64_param |int64, 3 string_param |string, 4 bytes_param |bytes
RepositoryIndexRequest: 1 repository_name string, 2 ready bool
RepositoryIndexResponse.ModelIndex: 1 name string, 2 version string, 3 state string, 4 reason string
RepositoryIndexResponse: 1 models *RepositoryIndexResponse.ModelIndex
RepositoryModelLoadRequest: 1 repository_name string, 2 model_name string, 3 parameters %ModelRepositoryParameter
RepositoryModelLoadResponse:
RepositoryModelUnloadRequest: 1 repository_name string, 2 model_name string, 3 parameters %ModelRepositoryParameter
RepositoryModelUnloadResponse:
TraceSettingRequest.SettingValue: 1 value *string
TraceSettingRequest: 1 settings %TraceSettingRequest.SettingValue, 2 model_name string
TraceSettingResponse.SettingValue: 1 value *string
TraceSettingResponse: 1 settings %TraceSettingResponse.SettingValue
"""  # noqa: E501 # a line a message

_Field = descriptor_pb2.FieldDescriptorProto


def message(name: str) -> Any:
    """The class of a message.

    >>> message("ServerLiveResponse")(live=True).live
    True
    """
    return _messages()[name]


@functools.cache
def _messages() -> dict[str, Any]:
    """All of them, in a pool of their own: other packages may bring the same names."""
    file = descriptor_pb2.FileDescriptorProto(
        name="tesserack_serving/inference.proto", package=PACKAGE, syntax="proto3"
    )
    known: dict[str, Any] = {}
    lines = [line.partition(":") for line in _TABLE.strip().splitlines()]
    for name, _, _ in sorted(lines, key=lambda line: line[0].count(".")):  # the outer ones first
        outer, _, own = name.rpartition(".")
        into = known[outer].nested_type if outer else file.message_type
        known[name] = into.add(name=own)
    for name, _, fields in lines:
        for text in filter(None, fields.strip().split(", ")):
            _add_field(known[name], name, *text.split())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in known}


def _add_field(into: Any, owner: str, number: str, name: str, kind: str) -> None:
    mark, kind = (kind[0], kind[1:]) if kind[0] in "*|%" else ("", kind)
    field = into.field.add(name=name, number=int(number))
    field.label = _Field.LABEL_REPEATED if mark in ("*", "%") else _Field.LABEL_OPTIONAL
    if mark == "%":
        entry = into.nested_type.add(name="".join(map(str.capitalize, name.split("_"))) + "Entry")
        entry.options.map_entry = True
        _add_field(entry, "", "1", "key", "string")
        _add_field(entry, "", "2", "value", kind)
        kind = f"{owner}.{entry.name}"
    if kind[0].isupper():
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    else:
        field.type = getattr(_Field, f"TYPE_{kind.upper()}")
    if mark == "|":
        if not into.oneof_decl:
            into.oneof_decl.add(name="parameter_choice")
        field.oneof_index = 0

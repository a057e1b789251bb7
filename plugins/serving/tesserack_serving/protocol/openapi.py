"""The protocol as an OpenAPI document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tesserack_serving.protocol.datatypes import SIZES

__all__ = ["document"]

_JSON = "application/json"


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": [*required], "properties": properties}


def _or_null(**properties: Any) -> dict[str, Any]:
    return {"type": ["object", "null"], "properties": properties}


_TEXT = {"type": "string"}
_TRUTH = {"type": "boolean"}
_PARAMETERS = {"type": ["object", "null"], "additionalProperties": {"type": ["string", "number", "boolean"]}}
_ID = {"type": ["string", "null"]}
_SHAPE = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 1 << 40}}
_DATATYPE = {"type": "string", "enum": [*SIZES, "BYTES"]}
_SCALARS = {"type": ["number", "string", "boolean"]}
_DATA = {"type": "array", "items": {"anyOf": [_SCALARS, {"type": "array"}]}}
_SCHEMAS = {
    "error": _object(("error",), error=_TEXT),
    "live": _object(("live",), live=_TRUTH),
    "ready": _object(("ready",), ready=_TRUTH, name=_TEXT),
    "server": _object(
        ("name", "version", "extensions"), name=_TEXT, version=_TEXT, extensions={"type": "array", "items": _TEXT}
    ),
    "tensor_metadata": _object(
        ("name", "datatype", "shape"),
        name=_TEXT,
        datatype=_DATATYPE,
        shape={"type": "array", "items": {"type": "integer", "minimum": -1}},
    ),
    "model": _object(
        ("name", "platform", "inputs", "outputs"),
        name=_TEXT,
        platform=_TEXT,
        versions={"type": "array", "items": _TEXT},
        inputs={"type": "array", "items": _reference("tensor_metadata")},
        outputs={"type": "array", "items": _reference("tensor_metadata")},
    ),
    "input": _object(
        ("name", "datatype", "shape", "data"),
        name=_TEXT,
        datatype=_DATATYPE,
        shape=_SHAPE,
        data=_DATA,
        parameters=_PARAMETERS,
    ),
    "requested_output": _object(("name",), name=_TEXT, parameters=_PARAMETERS),
    "output": _object(
        ("name", "datatype", "shape"), name=_TEXT, datatype=_DATATYPE, shape=_SHAPE, data=_DATA, parameters=_PARAMETERS
    ),
    "infer_request": _object(
        ("inputs",),
        id=_ID,
        parameters=_PARAMETERS,
        inputs={"type": "array", "minItems": 1, "items": _reference("input")},
        outputs={"type": ["array", "null"], "items": _reference("requested_output")},
    ),
    "infer_response": _object(
        ("model_name", "outputs"),
        id=_TEXT,
        model_name=_TEXT,
        model_version=_TEXT,
        outputs={"type": "array", "items": _reference("output")},
    ),
    "generate_request": _object(
        ("text_input",),
        text_input=_TEXT,
        parameters=_or_null(
            max_tokens={"type": ["integer", "null"], "minimum": 1, "maximum": (1 << 31) - 1},
            temperature={"type": ["number", "null"], "minimum": 0, "maximum": 100},
            top_k={"type": ["integer", "null"], "minimum": 0, "maximum": (1 << 31) - 1},
            top_p={"type": ["number", "null"], "minimum": 0, "maximum": 1},
            seed={"type": ["integer", "null"], "minimum": 0, "maximum": (1 << 63) - 1},
            stop={"type": ["string", "array", "null"], "minLength": 1, "items": {"type": "string", "minLength": 1}},
        ),
    ),
    "generate_response": _object(
        ("model_name", "text_output"),
        model_name=_TEXT,
        model_version=_TEXT,
        text_output=_TEXT,
        details=_object((), finish_reason=_TEXT, tokens={"type": "integer"}),
    ),
    "index_request": _object((), ready=_TRUTH),
    "index": {
        "type": "array",
        "items": _object(("name", "state"), name=_TEXT, version=_TEXT, state=_TEXT, reason=_TEXT),
    },
    "change_request": _object((), parameters=_or_null(unload_dependents=_TRUTH) | {"additionalProperties": False}),
    "empty": {"type": "object"},
    "trace": _object(
        ("trace_level", "trace_count"),
        trace_level={"type": "array", "items": _TEXT},
        trace_count=_TEXT,
        trace_file=_TEXT,
    ),
    "trace_request": _object(
        (),
        trace_level={"type": "array", "minItems": 1, "maxItems": 1, "items": {"enum": ["OFF", "TIMESTAMPS"]}},
        trace_count={"type": "string", "pattern": "^(-1|[0-9]{1,9})$"},
    )
    | {"additionalProperties": False},
}
_REFUSALS = {
    400: "the request is malformed",
    404: "there is no such model",
    413: "the request is too large",
    415: "the request is packed in an unknown way",
    429: "the model has too many requests",
    500: "the model failed",
    503: "not ready, stopping, or the server has too many requests",
    504: "no answer in time",
}


def _content(schema: str, kind: str = _JSON) -> dict[str, Any]:
    return {kind: {"schema": _reference(schema)}}


def _operation(
    summary: str, answer: str, refusals: tuple[int, ...], asked: str = "", kind: str = _JSON
) -> dict[str, Any]:
    responses: dict[str, Any] = {"200": {"description": "done", "content": _content(answer, kind)}}
    for status in refusals:
        responses[str(status)] = {"description": _REFUSALS[status], "content": _content("error")}
    operation: dict[str, Any] = {"summary": summary, "responses": responses}
    if asked:
        needed = "required" in _SCHEMAS[asked] and bool(_SCHEMAS[asked]["required"])
        operation["requestBody"] = {"required": needed, "content": _content(asked)}
    return operation


def document(models: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
    """The document, with names and versions of ``models`` as examples.

    >>> document()["openapi"], sorted(document()["paths"])[0]
    ('3.1.0', '/v2')
    """
    malformed, running = (400, 404, 413, 415), (400, 404, 413, 415, 429, 500, 503, 504)
    not_ready = {"description": _REFUSALS[503], "content": _content("ready")}
    ready = _operation("whether the server takes requests", "ready", ())
    ready["responses"]["503"] = not_ready
    paths: dict[str, Any] = {
        "/v2": {"get": _operation("the server", "server", ())},
        "/v2/health/live": {"get": _operation("whether the server answers", "live", ())},
        "/v2/health/ready": {"get": ready},
        "/v2/repository/index": {"post": _operation("all models", "index", (400, 413, 415), "index_request")},
        "/v2/trace/setting": {
            "get": _operation("what is recorded", "trace", ()),
            "post": _operation("record, or end it", "trace", (400, 413, 415), "trace_request"),
        },
    }
    model = {"name": "model", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    known, numbers = ({f"{k}": {"value": m[part]} for k, m in enumerate(models)} for part in (0, 1))
    served = {**model, "examples": known} if models else model
    version = {**model, "name": "version", **({"examples": numbers} if models else {})}
    for change in ("load", "unload"):
        operation = _operation(f"{change} a model", "empty", (*malformed, 500, 504), "change_request")
        paths[f"/v2/repository/models/{{model}}/{change}"] = {"post": operation, "parameters": [model]}
    for place, names in (
        ("/v2/models/{model}", [served]),
        ("/v2/models/{model}/versions/{version}", [served, version]),
    ):
        model_ready = _operation("whether a model takes requests", "ready", (404,))
        model_ready["responses"]["503"] = not_ready
        stream = _operation("a text as it is written", "empty", running, "generate_request", "text/event-stream")
        paths |= {
            place: {"get": _operation("a model", "model", (404,)), "parameters": names},
            f"{place}/ready": {"get": model_ready, "parameters": names},
            f"{place}/infer": {
                "post": _operation("inference", "infer_response", running, "infer_request"),
                "parameters": names,
            },
            f"{place}/generate": {
                "post": _operation("a text", "generate_response", running, "generate_request"),
                "parameters": names,
            },
            f"{place}/generate_stream": {"post": stream, "parameters": names},
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Open Inference Protocol", "version": "2"},
        "paths": paths,
        "components": {"schemas": _SCHEMAS},
    }

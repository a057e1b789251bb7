"""The Open Inference Protocol over HTTP, as a spec of LitServe's."""

from __future__ import annotations

import asyncio
import functools
import gzip
import json
import time
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from litserve.specs.base import LitSpec

from tesserack_serving.protocol.errors import ServingError
from tesserack_serving.protocol.http import HEADER, decode_infer, encode_infer, read_object
from tesserack_serving.server import metrics
from tesserack_serving.server.board import Board
from tesserack_serving.server.frontend import Entry, Frontend
from tesserack_serving.server.options import ServerOptions
from tesserack_serving.server.page import page, state
from tesserack_serving.server.work import Answer
from tesserack_serving.text.model import Sampling

__all__ = ["ProtocolSpec", "error_response"]

Endpoint = Callable[[Request], Awaitable[Response]]


def error_response(error: ServingError) -> Response:
    """The protocol's form of an error."""
    headers = {} if error.retry_after is None else {"retry-after": f"{error.retry_after:g}"}
    return _json({"error": error.message}, error.status, headers)


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    body = json.dumps(content, separators=(",", ":")).encode()
    return Response(body, status, headers, media_type="application/json")


def answering(endpoint: Callable[..., Awaitable[Response]]) -> Callable[..., Awaitable[Response]]:
    """An endpoint whose errors are answers."""

    @functools.wraps(endpoint)
    async def inside(self: ProtocolSpec, request: Request) -> Response:
        try:
            return await endpoint(self, request)
        except ServingError as error:
            return error_response(error)

    inside.__annotations__ = {"request": Request, "return": Response}
    del inside.__dict__["__wrapped__"]
    return inside


class ProtocolSpec(LitSpec):  # type: ignore[misc] # without types
    """The protocol's endpoints, and those of the server itself: metrics, and a page of its state."""

    def __init__(self, board: Board, options: ServerOptions) -> None:
        super().__init__()
        self.api_path = "/v2"
        self.board, self.options = board, options
        self._frontend: Frontend | None = None
        for path, endpoint, methods in self._routes():
            self.add_endpoint(path, endpoint, methods)

    def __getstate__(self) -> dict[str, Any]:
        """Workers need no endpoints."""
        return {"api_path": self.api_path, "board": self.board, "options": self.options}

    @property
    def stream(self) -> bool:
        """An answer may come in pieces."""
        return True

    def decode_request(self, request: Any, context_kwargs: Any = None) -> Any:
        """As it came: requests are decoded where they arrive, so that a bad one costs no worker anything."""
        return request

    def encode_response(self, output: Any, context_kwargs: Any = None) -> Any:
        """As it is."""
        return output

    def connect(self, frontend: Frontend) -> None:
        """Have requests answered, in the process that serves them."""
        self._frontend = frontend

    @property
    def frontend(self) -> Frontend:
        """What answers in this process."""
        assert self._frontend is not None
        return self._frontend

    def _routes(self) -> list[tuple[str, Endpoint, list[str]]]:
        get, post = ["GET"], ["POST"]
        routes: list[tuple[str, Endpoint, list[str]]] = [
            ("/v2", self.server_metadata, get),
            ("/v2/health/live", self.live, get),
            ("/v2/health/ready", self.ready, get),
            ("/v2/repository/index", self.index, post),
            ("/v2/repository/models/{model}/load", self.load, post),
            ("/v2/repository/models/{model}/unload", self.unload, post),
            ("/v2/trace/setting", self.trace, [*get, *post]),
            ("/metrics", self.metrics, get),
            ("/status", self.status, get),
            ("/status.json", self.status_data, get),
        ]
        for place in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
            routes += [
                (place, self.model_metadata, get),
                (f"{place}/ready", self.model_ready, get),
                (f"{place}/infer", self.infer, post),
                (f"{place}/generate", self.generate, post),
                (f"{place}/generate_stream", self.generate_stream, post),
            ]
        return routes

    # --- the protocol ------------------------------------------------------------------------------------------------

    @answering
    async def server_metadata(self, request: Request) -> Response:
        """``GET /v2``"""
        return _json(self.frontend.server_metadata())

    @answering
    async def live(self, request: Request) -> Response:
        """``GET /v2/health/live``: this process answers."""
        return _json({"live": True})

    @answering
    async def ready(self, request: Request) -> Response:
        """``GET /v2/health/ready``: 503 while something is loading, and once the server is stopping."""
        ready = self.frontend.ready()
        return _json({"ready": ready}, 200 if ready else 503)

    @answering
    async def model_ready(self, request: Request) -> Response:
        """``GET /v2/models/NAME/ready``"""
        name, version = _names(request)
        ready = self.frontend.model_ready(name, version)
        return _json({"name": name, "ready": ready}, 200 if ready else 503)

    @answering
    async def model_metadata(self, request: Request) -> Response:
        """``GET /v2/models/NAME``"""
        return _json(self.frontend.model_metadata(*_names(request)))

    @answering
    async def infer(self, request: Request) -> Response:
        """``POST /v2/models/NAME/infer``"""
        body = await self._body(request)
        message = decode_infer(*_names(request), body, request.headers.get(HEADER))
        version, outputs = await self.frontend.infer(message, "http")
        answer, headers = encode_infer(message, version, outputs)
        return Response(answer, 200, headers)

    @answering
    async def index(self, request: Request) -> Response:
        """``POST /v2/repository/index``"""
        body = await self._body(request)
        asked = read_object(body) if body else {}
        if not isinstance(asked.get("ready", False), bool):
            raise ServingError("the request: expected true or false as 'ready'")
        return _json(self.frontend.index(asked.get("ready", False)))

    @answering
    async def load(self, request: Request) -> Response:
        """``POST /v2/repository/models/NAME/load``"""
        await self._no_override(request)
        await self.frontend.load(_names(request)[0])
        return _json({})

    @answering
    async def unload(self, request: Request) -> Response:
        """``POST /v2/repository/models/NAME/unload``"""
        await self._no_override(request)
        await self.frontend.unload(_names(request)[0])
        return _json({})

    async def _no_override(self, request: Request) -> None:
        body = await self._body(request)
        asked = read_object(body) if body else {}
        parameters = _parameters(asked)
        if not isinstance(parameters.get("unload_dependents", False), bool):
            raise ServingError("the request: expected true or false as 'unload_dependents'")
        if {*parameters} - {"unload_dependents"}:
            raise ServingError("a model is loaded as its folder says; parameters are not taken")

    @answering
    async def trace(self, request: Request) -> Response:
        """``GET`` and ``POST /v2/trace/setting``: what is being recorded for the profiler's viewers."""
        if request.method == "POST":
            set_trace(self.board, self.options, read_object(await self._body(request)))
        return _json(trace_setting(self.board, self.options))

    # --- text --------------------------------------------------------------------------------------------------------

    @answering
    async def generate(self, request: Request) -> Response:
        """``POST /v2/models/NAME/generate``: a text, whole."""
        arguments = await self._generate_arguments(request)
        async with aclosing(self.frontend.generate(*arguments, "http", False)) as pieces:
            async for entry, answer in pieces:
                return _json(_piece(entry, answer))
        raise ServingError("no answer", 500)

    @answering
    async def generate_stream(self, request: Request) -> Response:
        """``POST /v2/models/NAME/generate_stream``: a text as it is written, as server-sent events."""
        arguments = await self._generate_arguments(request)
        pieces = self.frontend.generate(*arguments, "http", True)
        first = await anext(pieces)  # what is refused is answered with its status

        async def events() -> AsyncGenerator[bytes, None]:
            async with aclosing(pieces):
                yield _event(_piece(*first))
                try:
                    async for entry, answer in pieces:
                        yield _event(_piece(entry, answer))
                except ServingError as error:
                    yield _event({"error": error.message})

        return StreamingResponse(events(), media_type="text/event-stream")

    async def _generate_arguments(self, request: Request) -> tuple[str, str, str, Sampling]:
        asked = read_object(await self._body(request))
        if not isinstance(asked.get("text_input"), str):
            raise ServingError("the request: expected a string as 'text_input'")
        return (*_names(request), asked["text_input"], Sampling.from_parameters(_parameters(asked)))

    # --- the server itself -------------------------------------------------------------------------------------------

    @answering
    async def metrics(self, request: Request) -> Response:
        """``GET /metrics``, for Prometheus."""
        text = await asyncio.to_thread(metrics.scrape)
        return Response(text, media_type="text/plain; version=0.0.4")

    @answering
    async def status(self, request: Request) -> Response:
        """``GET /status``: a page that shows the server's state."""
        return Response(page(), media_type="text/html")

    @answering
    async def status_data(self, request: Request) -> Response:
        """``GET /status.json``: what the page shows."""
        samples = await asyncio.to_thread(metrics.collect)
        return _json({"time": time.time(), **state(self.frontend, samples)})

    async def _body(self, request: Request) -> bytes:
        """The body, unpacked, within the limit."""
        limit, parts, size = self.options.max_request, [], 0
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise ServingError(f"the request is larger than {limit} bytes", 413)
            parts.append(part)
        body = b"".join(parts)
        coding = request.headers.get("content-encoding", "identity")
        return body if coding == "identity" else _unpacked(body, coding, limit)


def _names(request: Request) -> tuple[str, str]:
    return request.path_params["model"], request.path_params.get("version", "")


def _parameters(asked: dict[str, Any]) -> dict[str, Any]:
    found = asked.get("parameters")
    if not isinstance(found, (dict, type(None))):
        raise ServingError("the request: expected an object as 'parameters'")
    return found or {}


def _unpacked(body: bytes, coding: str, limit: int) -> bytes:
    if coding not in ("gzip", "deflate"):
        raise ServingError(f"content-encoding {coding!r} is not known; send gzip, deflate or none", 415)
    try:
        unpacker = zlib.decompressobj(31 if coding == "gzip" else 15)
        plain = unpacker.decompress(body, limit + 1)
    except (zlib.error, gzip.BadGzipFile) as error:
        raise ServingError(f"the request is no {coding}: {error}") from error
    if len(plain) > limit:
        raise ServingError(f"the request is larger than {limit} bytes", 413)
    if not unpacker.eof:
        raise ServingError(f"the request is no whole {coding}")
    return plain


def _piece(entry: Entry, answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = {"model_name": entry.name, "model_version": entry.version, "text_output": answer.text}
    if answer.final:
        found["details"] = {"finish_reason": answer.finished, "tokens": answer.tokens}
    return found


def _event(content: Any) -> bytes:
    return b"data: " + json.dumps(content, separators=(",", ":")).encode() + b"\n\n"


def trace_setting(board: Board, options: ServerOptions) -> dict[str, Any]:
    """What is being recorded."""
    on = board.trace != 0
    return {
        "trace_level": ["TIMESTAMPS" if on else "OFF"],
        "trace_count": str(board.trace),
        "trace_file": options.trace,
    }


def set_trace(board: Board, options: ServerOptions, asked: dict[str, Any]) -> None:
    """Begin or end to record. ``ServingError`` for settings that are not offered."""
    level = asked.get("trace_level", ["TIMESTAMPS"])
    count = asked.get("trace_count", "-1")
    level = [level] if isinstance(level, str) else level
    unknown = sorted({*asked} - {"trace_level", "trace_count"})
    if unknown or level not in (["OFF"], ["TIMESTAMPS"]):
        raise ServingError("trace: expected trace_level OFF or TIMESTAMPS, and trace_count, the number of batches")
    if not isinstance(count, str) or not count.removeprefix("-").isdecimal() or not count.isascii():
        raise ServingError(f"trace: expected a number in a string as trace_count, got {count!r}")
    if not -1 <= int(count) < 1 << 31:
        raise ServingError(f"trace: expected trace_count from -1 to 2147483647, got {count}")
    if level == ["TIMESTAMPS"] and not options.trace:
        raise ServingError("trace: the server has no folder for traces: start it with --trace FOLDER")
    board.set_trace(0 if level == ["OFF"] else int(count))

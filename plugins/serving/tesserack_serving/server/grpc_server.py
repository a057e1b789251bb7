"""The Open Inference Protocol over gRPC."""

from __future__ import annotations

import contextlib
import hmac
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from tesserack_serving.protocol.errors import ServingError
from tesserack_serving.protocol.grpc_convert import infer_request, infer_response
from tesserack_serving.protocol.grpc_messages import METHODS, SERVICE, message
from tesserack_serving.protocol.messages import InferRequest
from tesserack_serving.server.frontend import Frontend, prompt_of, text_outputs
from tesserack_serving.server.spec import set_trace, trace_setting
from tesserack_serving.text.model import Sampling

__all__ = ["grpc_server"]

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}


@contextlib.asynccontextmanager
async def grpc_server(frontend: Frontend) -> AsyncIterator[None]:
    """Serves within it; at the end what was accepted is answered."""
    options = frontend.options
    limits = [(f"grpc.max_{way}_message_length", options.max_request) for way in ("receive", "send")]
    server = grpc.aio.server(options=[*limits, ("grpc.so_reuseport", 1)])
    service = _Service(frontend)
    handlers = {}
    for name, (streams_in, streams_out) in METHODS.items():
        asked = "ModelInferRequest" if name == "ModelStreamInfer" else f"{name}Request"
        kind = (
            grpc.stream_stream_rpc_method_handler if streams_in and streams_out else grpc.unary_unary_rpc_method_handler
        )
        handlers[name] = kind(
            service.guarded(getattr(service, name)) if not streams_in else service.ModelStreamInfer,
            request_deserializer=message(asked).FromString,
            response_serializer=message(f"{name}Response").SerializeToString,
        )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(
        f"[{options.host}]:{options.grpc_port}" if ":" in options.host else f"{options.host}:{options.grpc_port}"
    )
    await server.start()
    try:
        yield
    finally:
        await server.stop(options.drain)


class _Service:
    """A method for each of the protocol's."""

    def __init__(self, frontend: Frontend) -> None:
        self.frontend = frontend
        self.key = os.environ.get("LIT_SERVER_API_KEY")

    def guarded(self, method: Callable[[Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
        """A method whose errors become gRPC's."""

        async def inside(request: Any, context: Any) -> Any:
            try:
                self._authorize(context)
                return await method(request)
            except ServingError as error:
                await context.abort(_CODES.get(error.status, grpc.StatusCode.UNKNOWN), error.message)
            except Exception as error:
                await context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")

        return inside

    def _authorize(self, context: Any) -> None:
        """The key that LitServe wants of HTTP's clients, too."""
        if self.key is None:
            return
        given = dict(context.invocation_metadata()).get("x-api-key", "")
        if not hmac.compare_digest(str(given), self.key):
            context.set_code(grpc.StatusCode.UNAUTHENTICATED)
            raise ServingError("a valid x-api-key is expected", 401)

    async def ServerLive(self, request: Any) -> Any:
        return message("ServerLiveResponse")(live=True)

    async def ServerReady(self, request: Any) -> Any:
        return message("ServerReadyResponse")(ready=self.frontend.ready())

    async def ModelReady(self, request: Any) -> Any:
        """One that there is not is not ready, as the protocol has it; no error."""
        try:
            ready = self.frontend.model_ready(request.name, request.version)
        except ServingError:
            ready = False
        return message("ModelReadyResponse")(ready=ready)

    async def ServerMetadata(self, request: Any) -> Any:
        return message("ServerMetadataResponse")(**self.frontend.server_metadata())

    async def ModelMetadata(self, request: Any) -> Any:
        return message("ModelMetadataResponse")(**self.frontend.model_metadata(request.name, request.version))

    async def ModelInfer(self, request: Any) -> Any:
        asked = infer_request(request)
        version, outputs = await self.frontend.infer(asked, "grpc")
        return infer_response(asked.model, version, asked.id, outputs)

    async def ModelStreamInfer(self, requests: Any, context: Any) -> Any:
        """Requests one after another; a text's pieces as they are written."""
        self._authorize(context)
        answer = message("ModelStreamInferResponse")
        async for request in requests:
            try:
                async for response in self._answers(infer_request(request)):
                    yield answer(infer_response=response)
            except ServingError as error:
                yield answer(error_message=error.message, infer_response=infer_response("", "", request.id, []))

    async def _answers(self, asked: InferRequest) -> AsyncIterator[Any]:
        if not self.frontend.find(asked.model, asked.version).text:
            version, outputs = await self.frontend.infer(asked, "grpc")
            yield infer_response(asked.model, version, asked.id, outputs)
            return
        options = Sampling.from_parameters(asked.parameters)
        pieces = self.frontend.generate(asked.model, asked.version, prompt_of(asked), options, "grpc", True, asked.id)
        async with contextlib.aclosing(pieces):
            async for entry, piece in pieces:
                wanted = [output.name for output in asked.outputs]
                response = infer_response(asked.model, entry.version, asked.id, text_outputs(piece, wanted))
                response.parameters["triton_final_response"].bool_param = piece.final
                yield response

    async def RepositoryIndex(self, request: Any) -> Any:
        return message("RepositoryIndexResponse")(models=self.frontend.index(request.ready))

    async def RepositoryModelLoad(self, request: Any) -> Any:
        if request.parameters:
            raise ServingError("a model is loaded as its folder says; parameters are not taken")
        await self.frontend.load(request.model_name)
        return message("RepositoryModelLoadResponse")()

    async def RepositoryModelUnload(self, request: Any) -> Any:
        await self.frontend.unload(request.model_name)
        return message("RepositoryModelUnloadResponse")()

    async def TraceSetting(self, request: Any) -> Any:
        frontend = self.frontend
        asked: dict[str, Any] = {name: [*setting.value] for name, setting in request.settings.items()}
        if "trace_count" in asked:
            asked["trace_count"] = (asked["trace_count"] or [None])[0]
        if asked:
            set_trace(frontend.board, frontend.options, asked)
        response = message("TraceSettingResponse")()
        for name, value in trace_setting(frontend.board, frontend.options).items():
            response.settings[name].value.extend(value if isinstance(value, list) else [value])
        return response

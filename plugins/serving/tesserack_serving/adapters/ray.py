"""A deployment of Ray Serve, whose replicas may be on several machines."""

from __future__ import annotations

import json
from typing import Any

from ray import serve
from starlette.requests import Request
from starlette.responses import Response

from tesserack_serving.adapters.batches import BatchModel
from tesserack_serving.engine.config import ModelConfig
from tesserack_serving.protocol.errors import ServingError
from tesserack_serving.protocol.http import HEADER, decode_infer, encode_infer
from tesserack_serving.protocol.messages import InferRequest

__all__ = ["application"]


def application(config: ModelConfig, device: str = "cpu", **options: Any) -> Any:
    """An application for ``ray.serve.run``, which answers the protocol's requests over HTTP, JSON and binary.

    Args:
        config: the model.
        device: where each replica has it.
        options: of ``ray.serve.deployment``, such as ``num_replicas`` or ``max_ongoing_requests``.
    """
    return serve.deployment(name=config.name, **options)(_Replica).bind(config, device)


class _Replica:
    def __init__(self, config: ModelConfig, device: str) -> None:
        self.model = BatchModel(config, device)
        # Ray keeps the queue of a batched function with the object that it is a method of.
        self._together.set_max_batch_size(config.max_batch)
        self._together.set_batch_wait_timeout_s(config.batch_delay)

    @serve.batch(max_batch_size=8, batch_wait_timeout_s=0.0)  # type: ignore[untyped-decorator]
    async def _together(self, requests: list[InferRequest]) -> list[Any]:
        return list(self.model.run(requests))

    async def __call__(self, request: Request) -> Response:
        """``POST .../infer``, and ``GET .../ready`` and the metadata."""
        name, version = self.model.config.name, self.model.config.version
        try:
            if request.method == "GET":
                return _json({"ready": True} if request.url.path.endswith("/ready") else self._metadata())
            asked = decode_infer(name, version, await request.body(), request.headers.get(HEADER))
            self.model.check(asked)
            result = await self._together(asked)
            if isinstance(result, ServingError):
                raise result
            body, headers = encode_infer(asked, version, result)
            return Response(body, 200, headers)
        except ServingError as error:
            return _json({"error": error.message}, error.status)

    def _metadata(self) -> dict[str, Any]:
        model = self.model.model
        return {
            "name": self.model.config.name,
            "versions": [self.model.config.version],
            "platform": "tesserack",
            "inputs": [spec.as_json() for spec in model.inputs],
            "outputs": [spec.as_json() for spec in model.outputs],
        }


def _json(content: Any, status: int = 200) -> Response:
    return Response(json.dumps(content), status, media_type="application/json")

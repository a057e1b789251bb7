"""A model of KServe's model server."""

from __future__ import annotations

from typing import Any

from kserve import InferOutput, InferRequest, InferResponse, Model
from kserve.errors import InferenceError, InvalidInput

from tesserack_serving.adapters.batches import BatchModel
from tesserack_serving.engine.config import ModelConfig
from tesserack_serving.protocol.datatypes import pack, unpack
from tesserack_serving.protocol.errors import ServingError
from tesserack_serving.protocol.messages import InferRequest as Request
from tesserack_serving.protocol.messages import RequestedOutput, TensorData

__all__ = ["KServeModel"]


class KServeModel(Model):  # type: ignore[misc] # without types
    """One of our models for ``kserve.ModelServer().start([...])``, which batches nothing: requests run one by one."""

    def __init__(self, config: ModelConfig, device: str = "cpu") -> None:
        super().__init__(config.name)
        self._config, self._device = config, device
        self._model: BatchModel | None = None

    def load(self) -> bool:
        """Build the model."""
        self._model = BatchModel(self._config, self._device)
        self.ready = True
        return True

    async def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        """Answer a request of the protocol's second version."""
        assert self._model is not None
        if not isinstance(payload, InferRequest):
            raise InvalidInput("expected a request of the Open Inference Protocol, version 2")
        try:
            inputs = [_tensor(item) for item in payload.inputs]
            outputs = [RequestedOutput(item.name) for item in payload.request_outputs or []]
            asked = Request(self._config.name, self._config.version, inputs, outputs)
            self._model.check(asked)
            (result,) = self._model.run([asked])
            if isinstance(result, ServingError):
                raise result
        except ServingError as error:
            raise (InferenceError if error.status >= 500 else InvalidInput)(error.message) from error
        found = [_output(tensor) for tensor in result]
        return InferResponse(payload.id or "", self._config.name, found, self._config.version)


def _tensor(item: Any) -> TensorData:
    raw = getattr(item, "_raw_data", None)
    data = raw if raw is not None else pack(item.datatype, [*item.data], item.name)
    tensor = TensorData(item.name, item.datatype, tuple(item.shape), data)
    tensor.check_size()
    return tensor


def _output(tensor: TensorData) -> Any:
    values = tensor.data if isinstance(tensor.data, list) else unpack(tensor.datatype, tensor.data)
    return InferOutput(tensor.name, [*tensor.shape], tensor.datatype, values)

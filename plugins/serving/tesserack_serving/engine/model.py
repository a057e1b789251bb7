"""A model that is loaded, and how requests run on it together."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor, nn

from tesserack_serving.engine.building import build
from tesserack_serving.engine.config import ModelConfig
from tesserack_serving.engine.tensors import dtype_name, join, named_outputs, to_bytes
from tesserack_serving.protocol.datatypes import NAMES, SIZES
from tesserack_serving.protocol.errors import ServingError
from tesserack_serving.protocol.messages import TensorData, TensorSpec
from tesserack_serving.text.model import TextModel

__all__ = ["LoadedModel", "Result"]

logger = logging.getLogger("tesserack.serving")

Result = list[TensorData] | ServingError
# The sizes that varying axes are tried with, the first one apart: what follows them in the outputs varies too.
_TRIALS = ((1, 8), (2, 12))


class LoadedModel:
    """A model on a device.

    Raises:
        ServingError: it cannot be built, or fails on zeros of the declared shapes.
    """

    def __init__(self, config: ModelConfig, device: str) -> None:
        self.config, self.device = config, device
        self.where = f"model {config.name!r}"
        built = build(config, device)
        self.text = built if isinstance(built, TextModel) else None
        self.module: Any = built if self.text is None else self.text.module
        self.batching = config.batching and self.text is None
        self.inputs: list[TensorSpec] = config.specs()
        self.outputs: list[TensorSpec] = []
        function = self.module.forward if isinstance(self.module, nn.Module) else self.module
        self._parameters = {*inspect.signature(function).parameters}
        if self.text is None and config.warm_up and self.inputs:
            self._warm_up()

    def _warm_up(self) -> None:
        """Run on zeros in two sizes, and note what comes out; a size that differs varies."""
        shapes: dict[str, list[list[int]]] = {}
        datatypes: dict[str, str] = {}
        for first, others in _TRIALS:
            zeros = []
            for spec in self.inputs:
                sizes = [s if s >= 0 else (first if k == 0 else others) for k, s in enumerate(spec.shape)]
                count = 1
                for size in sizes:
                    count *= size
                data: Any = [b""] * count if spec.datatype == "BYTES" else bytes(count * SIZES[spec.datatype])
                zeros.append(TensorData(spec.name, spec.datatype, tuple(sizes), data))
            (answer,) = self.run([zeros])
            if isinstance(answer, ServingError):
                raise ServingError(f"{self.where} fails on zeros of the declared shapes: {answer}", 500)
            for output in answer:
                shapes.setdefault(output.name, []).append([*output.shape])
                datatypes[output.name] = output.datatype
        for name, (one, *more) in shapes.items():
            other = more[0] if more and len(more[0]) == len(one) else one
            shape = tuple(a if a == b else -1 for a, b in zip(one, other, strict=True))
            self.outputs.append(TensorSpec(name, datatypes[name], shape))

    def describe(self) -> dict[str, Any]:
        """What is known of it beyond its configuration, as JSON."""
        return {
            "text": self.text is not None,
            "context": self.text.context if self.text else 0,
            "inputs": [[s.name, s.datatype, [*s.shape]] for s in self.inputs],
            "outputs": [[s.name, s.datatype, [*s.shape]] for s in self.outputs],
        }

    def key(self, inputs: Sequence[TensorData]) -> Any:
        """Requests with the same key may run together; None: it runs alone."""
        if not self.batching or any(len(t.shape) < 1 or t.datatype == "BYTES" for t in inputs):
            return None
        if len({t.shape[0] for t in inputs}) != 1:
            return None
        return tuple((t.name, t.datatype, t.shape[1:]) for t in inputs)

    def run(self, requests: Sequence[Sequence[TensorData]]) -> list[Result]:
        """An answer or an error for each request. Where a batch fails, each is run alone, so that one fails alone."""
        try:
            return [*self._run(requests)]
        except Exception as error:
            if len(requests) > 1:
                return [self.run([request])[0] for request in requests]
            if isinstance(error, ServingError):
                return [error]
            logger.exception("%s failed a request", self.where)
            return [ServingError(f"{self.where}: {type(error).__name__}: {error}", 500)]

    def _run(self, requests: Sequence[Sequence[TensorData]]) -> Sequence[Result]:
        columns = [join(parts, self.device) for parts in zip(*requests, strict=True)]
        names = [tensor.name for tensor in requests[0]]
        by_name = {n: c for n, c in zip(names, columns, strict=True) if n in self._parameters}
        by_place = [c for n, c in zip(names, columns, strict=True) if n not in self._parameters]
        with ts.inference_mode():
            outputs = named_outputs(self.module(*by_place, **by_name), self.where)
        if len(requests) == 1:
            return [[_data(name, tensor) for name, tensor in outputs.items()]]
        rows = [request[0].shape[0] for request in requests]
        if any(t.dim() < 1 or t.shape[0] != sum(rows) for t in outputs.values()):
            self.batching = False
            logger.warning("%s: outputs do not follow the first axis of the inputs: requests run alone", self.where)
            raise ServingError("cannot be split", 500)
        return _split(outputs, rows)


def _data(name: str, tensor: Tensor) -> TensorData:
    return TensorData(name, NAMES[dtype_name(tensor)], tuple(tensor.shape), to_bytes(tensor))


def _split(outputs: Mapping[str, Tensor], rows: Sequence[int]) -> list[Result]:
    answers: list[list[TensorData]] = [[] for _ in rows]
    for name, tensor in outputs.items():
        whole = _data(name, tensor)
        assert isinstance(whole.data, bytes)
        stride, place = len(whole.data) // max(sum(rows), 1), 0
        for answer, count in zip(answers, rows, strict=True):
            piece = whole.data[place * stride : (place + count) * stride]
            answer.append(TensorData(name, whole.datatype, (count, *whole.shape[1:]), piece))
            place += count
    return [*answers]

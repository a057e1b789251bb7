"""A model for servers that bring the batches, the processes and the connections."""

from __future__ import annotations

from collections.abc import Sequence

from tesserack_serving.engine.config import ModelConfig
from tesserack_serving.engine.engine import Engine
from tesserack_serving.engine.model import Result
from tesserack_serving.protocol.errors import ServingError
from tesserack_serving.protocol.messages import InferRequest, TensorData, check_input

__all__ = ["BatchModel"]


class BatchModel:
    """A model of tensors, with requests as the protocol has them.

    Raises:
        ServingError: it cannot be built, or writes text, which needs the server of this package.
    """

    def __init__(self, config: ModelConfig, device: str) -> None:
        self.config = config
        self.model = Engine(device).load(config)
        if self.model.text is not None:
            raise ServingError(f"model {config.name!r} writes text: serve it with tesserack serve", 500)

    def check(self, request: InferRequest) -> None:
        """``ServingError`` unless the request's inputs and outputs are the model's."""
        check_input(request.inputs, self.model.inputs)
        known = {spec.name for spec in self.model.outputs}
        for output in request.outputs:
            if known and output.name not in known:
                raise ServingError(f"there is no output {output.name!r}; there are {', '.join(sorted(known))}")

    def run(self, requests: Sequence[InferRequest]) -> list[Result]:
        """An answer or an error for each; those alike run together, up to ``max_batch`` rows."""
        answers: list[Result] = [ServingError("not run", 500)] * len(requests)
        waiting = [*range(len(requests))]
        while waiting:
            key, rows = self.model.key(requests[waiting[0]].inputs), 0
            chosen: list[int] = []
            for place in waiting:
                inputs = requests[place].inputs
                count = inputs[0].shape[0] if key is not None and inputs[0].shape else 1
                alike = key is not None and self.model.key(inputs) == key and rows + count <= self.config.max_batch
                if not chosen or alike:
                    chosen.append(place)
                    rows += count
            for place, result in zip(chosen, self.model.run([requests[p].inputs for p in chosen]), strict=True):
                answers[place] = _only(requests[place], result)
            waiting = [place for place in waiting if place not in chosen]
        return answers


def _only(request: InferRequest, result: Result) -> Result:
    wanted = [output.name for output in request.outputs]
    if isinstance(result, ServingError) or not wanted:
        return result
    by_name: dict[str, TensorData] = {tensor.name: tensor for tensor in result}
    missing = [name for name in wanted if name not in by_name]
    if missing:
        return ServingError(f"there is no output {missing[0]!r}; there are {', '.join(by_name)}")
    return [by_name[name] for name in wanted]

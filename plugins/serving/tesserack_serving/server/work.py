"""What travels between the processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tesserack_serving.engine.config import ModelConfig
from tesserack_serving.protocol.errors import ServingError
from tesserack_serving.protocol.messages import TensorData
from tesserack_serving.text.model import Sampling

__all__ = ["Answer", "Command", "Work"]


@dataclass
class Work:
    """A request on its way to a worker: tensors for a model, or a prompt for a model of text."""

    model: str
    version: str
    inputs: list[TensorData]
    outputs: list[str]
    arrived: float
    deadline: float
    prompt: str | None = None
    options: Sampling = field(default_factory=Sampling)
    stream: bool = False
    label: str = ""  # the client's id
    gathered: str = ""  # text of a request that is not streamed


@dataclass
class Answer:
    """What a worker says to a request: tensors or a piece of text; ``final`` unless more follows."""

    outputs: list[TensorData] = field(default_factory=list)
    text: str = ""
    finished: str = ""
    tokens: int = 0
    final: bool = True
    error: ServingError | None = None
    details: Any = None


@dataclass(frozen=True)
class Command:
    """What a frontend asks of every worker: ``load``, ``unload`` or ``cancel``."""

    kind: str
    key: str
    frontend: int
    config: ModelConfig | None = None
    name: str = ""
    version: str = ""

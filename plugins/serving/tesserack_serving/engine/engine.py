"""The models of one device."""

from __future__ import annotations

import threading

from tesserack_serving.engine.config import ModelConfig
from tesserack_serving.engine.model import LoadedModel
from tesserack_serving.protocol.errors import ServingError

__all__ = ["Engine"]


class Engine:
    """Loads, finds and forgets models; threads may load while another one runs."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._models: dict[tuple[str, str], LoadedModel] = {}
        self._lock = threading.Lock()

    def load(self, config: ModelConfig) -> LoadedModel:
        """Build a model and put it in the place of one of the same name and version."""
        model = LoadedModel(config, self.device)
        with self._lock:
            self._models[config.name, config.version] = model
        return model

    def unload(self, name: str, version: str) -> None:
        """Forget a model; one that is not there is no error."""
        with self._lock:
            self._models.pop((name, version), None)

    def find(self, name: str, version: str) -> LoadedModel:
        """A loaded model. ``ServingError`` if it is not there."""
        with self._lock:
            found = self._models.get((name, version))
        if found is None:
            raise ServingError(f"model {name!r}, version {version}, was unloaded", 503)
        return found

    def models(self) -> list[LoadedModel]:
        """All of them."""
        with self._lock:
            return [*self._models.values()]

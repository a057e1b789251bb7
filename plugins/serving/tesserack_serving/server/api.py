"""The worker's side of LitServe: its LitAPI."""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import Any

from litserve import LitAPI

from tesserack_serving.engine.config import ModelConfig
from tesserack_serving.engine.engine import Engine
from tesserack_serving.protocol.errors import ServingError
from tesserack_serving.server.board import READY, Board
from tesserack_serving.server.loop import ServingLoop
from tesserack_serving.server.options import ServerOptions
from tesserack_serving.server.spec import ProtocolSpec

__all__ = ["ServingAPI"]

logger = logging.getLogger("tesserack.serving")


class ServingAPI(LitAPI):  # type: ignore[misc] # without types
    """All models of the server, on one device."""

    def __init__(self, board: Board, options: ServerOptions) -> None:
        super().__init__(spec=ProtocolSpec(board, options), loop=ServingLoop(board, options))
        self.board, self.options = board, options
        self.stream = True
        self.engine: Engine | None = None

    def setup(self, device: str) -> None:
        """Load what the table has. The worker ends only when the main process has waited for what was accepted."""
        _configure_worker(self.board)
        worker = int(os.environ["LITSERVE_WORKER_ID"])
        self.board.start_worker(worker)
        self.engine = Engine(device)
        for versions in self.board.table.read().values():
            for entry in versions.values():
                self._load(ModelConfig.from_json(entry["config"]))

    def _load(self, config: ModelConfig) -> None:
        assert self.engine is not None
        try:
            model = self.engine.load(config)
        except ServingError as error:
            (self.board.folder / "failure.txt").write_text(str(error))
            raise
        with self.board.table.change() as models:
            entry = models.get(config.name, {}).get(config.version)
            if entry is not None and entry["state"] != READY:
                entry.update(state=READY, **model.describe())

    def predict(self, x: Any) -> Any:
        """Not used: the loop runs the engine."""
        raise NotImplementedError("ServingAPI: requests run in ServingLoop")


def _configure_worker(board: Board) -> None:
    def end(number: int, frame: Any) -> None:
        if board.stopping:
            os._exit(0)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the main process takes care
    signal.signal(signal.SIGTERM, end)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")

"""Serving models by one call."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from prometheus_client import values

from tesserack_serving.engine.config import ModelConfig
from tesserack_serving.server.board import Board
from tesserack_serving.server.options import ServerOptions

__all__ = ["serve"]


def serve(models: Sequence[ModelConfig], options: ServerOptions) -> None:
    """Serve models until SIGTERM or SIGINT; then what was accepted is answered, and it returns.

    Raises:
        ServingError: a model cannot be built, or a device not be used.
    """
    folder = Path(tempfile.mkdtemp(prefix="tesserack-serving-"))
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
    values.ValueClass = values.get_value_class()  # the folder is looked for when the package is imported
    from tesserack_serving.server.frontend import new_entry
    from tesserack_serving.server.server import ServingServer

    try:
        board = Board(folder, options.frontends, len(options.devices) * options.workers)
        with board.table.change() as table:
            for config in models:
                table.setdefault(config.name, {})[config.version] = new_entry(config, board.new_slot())
        ServingServer(board, options).run_here()
    finally:
        shutil.rmtree(folder, ignore_errors=True)

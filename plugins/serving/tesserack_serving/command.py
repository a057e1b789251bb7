"""``tesserack serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tesserack.cli import CommandError

from tesserack_serving.engine.config import ModelConfig, read_folder, read_repository
from tesserack_serving.protocol.errors import ServingError
from tesserack_serving.server.options import ServerOptions
from tesserack_serving.serving import serve

__all__ = ["run"]


def run(arguments: Any) -> int:
    """Serve until a signal comes."""
    try:
        models = [*_models(arguments)]
        options = _options(arguments)
        print(f"serving {', '.join(m.name for m in models) or 'no model yet'} on http://{options.host}:{options.port}")
        serve(models, options)
        print("stopped")
    except ServingError as error:
        raise CommandError(f"serve: {error}", status=1) from error
    return 0


def _models(arguments: Any) -> list[ModelConfig]:
    if bool(arguments.target) == bool(arguments.repository):
        raise CommandError("serve: expected FILE:NAME, which builds a model, or --repository FOLDER")
    if arguments.repository:
        folder = Path(arguments.repository)
        names = read_repository(folder) if arguments.load is None else arguments.load
        return [config for name in names for config in read_folder(folder, name)]
    if arguments.weights and not Path(arguments.weights).is_file():
        raise CommandError(f"serve: there is no file {arguments.weights!r}")
    place = arguments.target.rpartition(":")[0]
    return [
        ModelConfig(
            arguments.name or Path(place).name.removesuffix(".py").rpartition(".")[2],
            arguments.target,
            folder=str(Path.cwd()),
            weights=arguments.weights,
            inputs=tuple(arguments.input),
            batching=not arguments.no_batching,
            max_batch=arguments.max_batch,
            batch_delay=arguments.batch_delay,
            queue=arguments.queue,
            torch=not arguments.no_torch,
        )
    ]


def _options(arguments: Any) -> ServerOptions:
    devices = tuple(name.strip() for name in arguments.device.split(",") if name.strip())
    if not devices or min(arguments.workers, arguments.frontends, arguments.queue, arguments.max_batch) < 1:
        raise CommandError("serve: expected a device, and numbers above 0 for workers, frontends, queue and max-batch")
    for port in (arguments.port, arguments.grpc_port):
        if not 1024 <= port <= 65535 and (port or port is arguments.port):
            raise CommandError(f"serve: expected a port from 1024 to 65535, got {port}")
    if arguments.trace:
        Path(arguments.trace).mkdir(parents=True, exist_ok=True)
    return ServerOptions(
        devices=devices,
        workers=arguments.workers,
        frontends=arguments.frontends,
        host=arguments.host,
        port=arguments.port,
        grpc_port=arguments.grpc_port,
        queue=max(1024, arguments.queue),
        timeout=arguments.timeout,
        drain=arguments.drain,
        grace=arguments.grace,
        max_request=arguments.max_request << 20,
        repository=arguments.repository,
        trace=arguments.trace,
        read_ahead=max(64, 2 * arguments.max_batch),
    )

"""LitServe's server with our processes' beginning and end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from litserve import LitServer
from starlette.exceptions import HTTPException

from tesserack_serving.protocol.errors import ServingError
from tesserack_serving.protocol.openapi import document
from tesserack_serving.server import metrics
from tesserack_serving.server.api import ServingAPI
from tesserack_serving.server.board import Board
from tesserack_serving.server.frontend import Frontend
from tesserack_serving.server.options import ServerOptions
from tesserack_serving.server.spec import error_response
from tesserack_serving.server.transport import Bundles

__all__ = ["ServingServer"]


class ServingServer(LitServer):  # type: ignore[misc] # without types
    """Serves the models of a board."""

    def __init__(self, board: Board, options: ServerOptions) -> None:
        self.board, self.options = board, options
        self.api = ServingAPI(board, options)
        super().__init__(
            self.api, accelerator="cpu", workers_per_device=options.workers, timeout=False, restart_workers=True
        )
        self.devices = [[device] for device in options.devices]
        self.uvicorn_graceful_timeout = max(1, round(options.drain))
        self.frontend_processes: list[Any] = []
        self._ending = threading.Lock()
        self.app.add_exception_handler(HTTPException, _http_error)
        self.app.add_exception_handler(Exception, _failure)

    # --- processes -------------------------------------------------------------------------------------------------

    def _init_manager(self, num_api_servers: int) -> Any:
        # Queues outlive a signal that is sent to the whole group: who ends when is decided here.
        before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            manager = super()._init_manager(num_api_servers)
            self._transport: Any = Bundles(manager, self._transport._queues)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return manager

    def launch_inference_worker(self, lit_api: Any) -> Any:
        """Workers start deaf to signals, and set their own handlers."""
        before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            return super().launch_inference_worker(lit_api)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def launch_single_inference_worker(self, lit_api: Any, worker_id: int) -> Any:
        """In the place of one that died."""
        dead = self.inference_workers[worker_id].pid
        if dead is not None:
            metrics.forget_process(dead)
        return super().launch_single_inference_worker(lit_api, worker_id)

    def _start_server(self, *args: Any, **kwargs: Any) -> Any:
        found = super()._start_server(*args, **kwargs)
        self.frontend_processes = [*found.values()]
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        return found

    def _on_signal(self, number: int, frame: Any) -> None:
        if self._ending.acquire(blocking=False):
            # By the file's number: the signal may have come while Python was writing to the same stream.
            said = f"serve: {signal.Signals(number).name}: {self.board.outstanding} requests to answer, no new ones\n"
            with contextlib.suppress(OSError):  # nobody reads it any more
                os.write(2, said.encode())
            threading.Thread(target=self._drain, name="drain").start()
        elif number == signal.SIGINT:  # a person who asks again does not want to wait; supervisors send SIGTERM twice
            for process in self.frontend_processes:
                process.kill()

    def _perform_graceful_shutdown(self, manager: Any, uvicorn_workers: Any, *args: Any, **kwargs: Any) -> None:
        # Those that ended by themselves, as all do here, it would warn of.
        alive = {key: worker for key, worker in uvicorn_workers.items() if worker.is_alive()}
        super()._perform_graceful_shutdown(manager, alive, *args, **kwargs)

    def _drain(self) -> None:
        """Refuse what is new, wait for what was accepted, then let LitServe end the rest."""
        self.board.drain()
        time.sleep(self.options.grace)
        for process in self.frontend_processes:
            process.terminate()  # uvicorn ends when its last answer is sent
        until = time.monotonic() + self.options.drain + 5
        for process in self.frontend_processes:
            process.join(max(0.0, until - time.monotonic()))
        self.board.stop()
        self._shutdown_event.set()

    def end_workers(self) -> None:
        """Where LitServe did not come to it."""
        self.board.stop()
        for worker in getattr(self, "inference_workers", ()):
            worker.kill()
            worker.join(5)

    # --- in the process of a frontend ------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Connects what answers; gRPC ends before the transport that its answers come by."""
        number = app.response_queue_id
        frontend = Frontend(self.board, self.options, self, number)
        self.api.spec.connect(frontend)
        self.app.openapi = lambda: document([(m["name"], m["version"]) for m in frontend.index(ready_only=True)])
        async with super().lifespan(app), contextlib.AsyncExitStack() as stack:
            watching = asyncio.create_task(frontend.watch())
            stack.callback(watching.cancel)
            if self.options.grpc_port:
                from tesserack_serving.server.grpc_server import grpc_server

                await stack.enter_async_context(grpc_server(frontend))
            yield

    def run_here(self) -> None:
        """Serve until a signal ends it. ``ServingError`` if a worker cannot begin."""
        options = self.options
        try:
            self.run(
                host=options.host,
                port=options.port,
                num_api_servers=options.frontends,
                log_level="warning",
                generate_client_file=False,
                access_log=False,
                timeout_keep_alive=75,
            )
        except RuntimeError as error:
            path = self.board.folder / "failure.txt"
            if not path.exists():
                raise
            raise ServingError(path.read_text(), 500) from error
        finally:
            self.end_workers()


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = error_response(ServingError(str(error.detail), error.status_code))
    response.headers.update(error.headers or {})
    return response


async def _failure(request: Request, error: Exception) -> Response:
    return error_response(ServingError(f"{type(error).__name__}: {error}", 500))

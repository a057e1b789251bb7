"""LitServe's server with our processes' beginning and end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
import weakref
from collections.abc import AsyncIterator
from multiprocessing.connection import wait
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from litserve import LitServer
from litserve.utils import WorkerSetupStatus
from starlette.exceptions import HTTPException

from tesserack_serving.protocol.errors import ServingError
from tesserack_serving.protocol.openapi import document
from tesserack_serving.server import metrics
from tesserack_serving.server.api import ServingAPI
from tesserack_serving.server.board import Board
from tesserack_serving.server.frontend import Frontend
from tesserack_serving.server.line import Lines
from tesserack_serving.server.options import ServerOptions
from tesserack_serving.server.spec import error_response
from tesserack_serving.server.transport import Bundles

__all__ = ["ServingServer"]

_LOOK = 0.2  # seconds between looks for workers that others replace


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
        self._noting = threading.Lock()
        self._dead: weakref.WeakSet[Any] = weakref.WeakSet()  # workers whose end is noted
        self.app.add_exception_handler(HTTPException, _http_error)
        self.app.add_exception_handler(Exception, _failure)

    # --- processes -------------------------------------------------------------------------------------------------

    def _init_manager(self, num_api_servers: int) -> Any:
        return self._manager

    def _make_manager(self, num_api_servers: int) -> Any:
        # Queues outlive a signal that is sent to the whole group: who ends when is decided here.
        before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            manager = super()._init_manager(num_api_servers)
            self._lines = Lines()
            self._lines.start()
            self.litapi_request_queues: dict[str, Any] = {self.api.api_path: self._lines.line()}
            self._transport: Any = Bundles(manager, self._transport._queues, self.board.folder)
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
        self._note_end(worker_id, self.inference_workers[worker_id])
        dead = self.inference_workers[worker_id].pid
        if dead is not None:
            metrics.forget_process(dead)
        return super().launch_single_inference_worker(lit_api, worker_id)

    def _start_worker_monitoring(self, *args: Any) -> None:
        super()._start_worker_monitoring(*args)
        threading.Thread(target=self._watch_workers, daemon=True, name="ends of workers").start()

    def _watch_workers(self) -> None:
        """See that a worker dies as it happens: LitServe looks now and then, and those that wait for an answer wait."""
        while not self.board.stopping:
            alive = {w.sentinel: (k, w) for k, w in enumerate(self.inference_workers) if w not in self._dead}
            for sentinel in wait([*alive], _LOOK) if alive else ():
                self._note_end(*alive[sentinel])
            if not alive:
                time.sleep(_LOOK)

    def _note_end(self, worker: int, process: Any) -> None:
        with self._noting:
            if process not in self._dead and not self.board.stopping:
                self._dead.add(process)
                name = self.api.api_path.rpartition("/")[2]
                self.workers_setup_status[f"{name}_{worker}"] = WorkerSetupStatus.STARTING  # the next one will be
                self.board.end_worker(worker)

    def _start_server(self, port: Any, count: Any, log_level: Any, sockets: Any, *args: Any, **kwargs: Any) -> Any:
        found = super()._start_server(port, count, log_level, sockets, *args, **kwargs)
        self.frontend_processes = [*found.values()]
        for listening in sockets:
            listening.close()  # or it would take connections for those that have ended, and nobody answer them
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
            await stack.enter_async_context(self._transport.taking(number, frontend.take))
            watching = asyncio.create_task(frontend.watch())
            stack.callback(watching.cancel)
            if self.options.grpc_port:
                from tesserack_serving.server.grpc_server import grpc_server

                await stack.enter_async_context(grpc_server(frontend))
            yield

    def run_here(self) -> None:
        """Serve until a signal ends it. ``ServingError`` if a worker cannot begin."""
        options = self.options
        # Before the socket is there, which the manager's process would inherit, and keep open.
        self._manager = self._make_manager(options.frontends)
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
            self._lines.shutdown()
            self._manager.shutdown()


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = error_response(ServingError(str(error.detail), error.status_code))
    response.headers.update(error.headers or {})
    return response


async def _failure(request: Request, error: Exception) -> Response:
    return error_response(ServingError(f"{type(error).__name__}: {error}", 500))

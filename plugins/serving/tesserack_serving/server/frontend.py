"""What a server does for its clients, whichever protocol they speak."""

from __future__ import annotations

import asyncio
import itertools
import pickle
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litserve.utils import ResponseBufferItem, WorkerSetupStatus
from tesserack import __version__

from tesserack_serving.engine.config import ModelConfig, read_folder, read_repository
from tesserack_serving.protocol.errors import ServingError
from tesserack_serving.protocol.messages import InferRequest, TensorData, TensorSpec, check_input
from tesserack_serving.server.board import READY, Board
from tesserack_serving.server.metrics import FrontendMetrics
from tesserack_serving.server.options import ServerOptions
from tesserack_serving.server.work import Answer, Command, Work
from tesserack_serving.text.model import Sampling

__all__ = ["EXTENSIONS", "TEXT_INPUTS", "TEXT_OUTPUTS", "Entry", "Frontend"]

EXTENSIONS = ("binary_tensor_data", "model_repository", "model_repository(unload_dependents)", "generate", "trace")
TEXT_INPUTS = (TensorSpec("text_input", "BYTES", (1,)),)
TEXT_OUTPUTS = (TensorSpec("text_output", "BYTES", (1,)), TensorSpec("finish_reason", "BYTES", (1,)))
LOAD_SECONDS = 600.0
_LOOK = 0.1  # seconds between looks for workers that died


@dataclass(frozen=True)
class Entry:
    """A model and version of the table."""

    name: str
    version: str
    state: str
    reason: str
    slot: int
    queue: int
    text: bool
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class Frontend:
    """One of the processes that take requests."""

    def __init__(self, board: Board, options: ServerOptions, server: Any, number: int) -> None:
        self.board, self.options, self.server, self.number = board, options, server, number
        self.metrics = FrontendMetrics()
        self.began = time.time()
        self._keys = itertools.count()
        self._entries: dict[str, dict[str, Entry]] = {}
        self._generation = -1
        self._ends = [board.ends(worker) for worker in range(board.workers)]
        self._changes = asyncio.Lock()

    # --- what is there -----------------------------------------------------------------------------------------------

    def entries(self) -> dict[str, dict[str, Entry]]:
        """All models, by name and version."""
        if self._generation != self.board.generation:
            generation = self.board.generation
            table = self.board.table.read()
            self._entries = {n: {v: _entry(n, v, e) for v, e in vs.items()} for n, vs in table.items()}
            self._generation = generation
        return self._entries

    def find(self, name: str, version: str = "") -> Entry:
        """A model; without a version the highest that is ready. ``ServingError`` if there is none."""
        versions = self.entries().get(name)
        if not versions or (version and version not in versions):
            asked = f"{name!r}, version {version}" if version else repr(name)
            raise ServingError(f"there is no model {asked}", 404)
        if version:
            return versions[version]
        ready = [entry for entry in versions.values() if entry.state == READY] or [*versions.values()]
        return max(ready, key=lambda entry: int(entry.version))

    def ready(self) -> bool:
        """Whether all workers are, with what they were started for, and new requests are taken."""
        status = self.server.workers_setup_status.values()
        return not self.board.draining and all(state == WorkerSetupStatus.READY for state in status)

    def model_ready(self, name: str, version: str = "") -> bool:
        """Whether a model takes requests."""
        return self.find(name, version).state == READY and not self.board.draining

    def server_metadata(self) -> dict[str, Any]:
        """As ``/v2`` answers."""
        return {"name": "tesserack-serving", "version": __version__, "extensions": [*EXTENSIONS]}

    def model_metadata(self, name: str, version: str = "") -> dict[str, Any]:
        """As ``/v2/models/NAME`` answers."""
        entry = self.find(name, version)
        versions = [v for v, e in self.entries()[name].items() if e.state == READY]
        return {
            "name": name,
            "versions": sorted(versions, key=int) if not version else [version],
            "platform": "tesserack",
            "inputs": [spec.as_json() for spec in entry.inputs],
            "outputs": [spec.as_json() for spec in entry.outputs],
        }

    # --- inference ---------------------------------------------------------------------------------------------------

    async def infer(self, request: InferRequest, protocol: str) -> tuple[str, list[TensorData]]:
        """Version and outputs. ``ServingError`` where the request is refused or fails."""
        began, code = time.monotonic(), 500
        try:
            entry = self._admit(request.model, request.version)
            work = _work(entry, request, began, self.options.timeout)
            answer = await self._ask(entry, work)
            code = 200
            if not entry.text:
                return entry.version, answer.outputs
            return entry.version, text_outputs(answer, work.outputs)
        except ServingError as error:
            code = error.status
            raise
        finally:
            known = request.model if request.model in self._entries else ""
            self.metrics.answered(known, protocol, code, time.monotonic() - began)

    async def generate(
        self, model: str, version: str, prompt: str, options: Sampling, protocol: str, stream: bool, label: str = ""
    ) -> AsyncGenerator[tuple[Entry, Answer], None]:
        """The pieces of a text; one, if it is not streamed. A client that goes away ends it."""
        began, code = time.monotonic(), 499
        try:
            entry = self._admit(model, version)
            if not entry.text:
                raise ServingError(f"model {model!r} is no model of text")
            deadline = began + self.options.timeout
            work = Work(model, entry.version, [], [], began, deadline, prompt, options, stream, label)
            async with aclosing(self._converse(entry, work)) as answers:
                async for answer in answers:
                    yield entry, answer
            code = 200
        except ServingError as error:
            code = error.status
            raise
        finally:
            known = model if model in self._entries else ""
            self.metrics.answered(known, protocol, code, time.monotonic() - began)

    def _admit(self, name: str, version: str) -> Entry:
        if self.board.draining:
            raise ServingError("the server is stopping", 503, retry_after=5)
        entry = self.find(name, version)
        if entry.state != READY:
            raise ServingError(f"model {name!r} is not ready: {entry.state} {entry.reason}".rstrip(), 503, 1)
        if self.board.pending(entry.slot) >= entry.queue:
            raise ServingError(f"model {name!r} has {entry.queue} requests already", 429, retry_after=1)
        if len(self.server.response_buffer) >= self.options.queue // self.options.frontends:
            raise ServingError(f"the server has {self.options.queue} requests already", 503, retry_after=1)
        return entry

    async def _ask(self, entry: Entry, work: Work) -> Answer:
        answer = Answer()
        async for found in self._converse(entry, work):
            answer = found
        return answer

    async def _converse(self, entry: Entry, work: Work) -> AsyncGenerator[Answer, None]:
        """The answers to a request until the final one, or the error it ended in."""
        key, item = self._open()
        self.board.count(self.number, entry.slot, 1)
        timer = asyncio.get_running_loop().call_later(self.options.timeout + 0.01, item.event.set)
        ended = False
        try:
            # As bytes: the process of the queue would make objects of it, and bytes again.
            packed = pickle.dumps((self.number, key, work), pickle.HIGHEST_PROTOCOL)
            self.server._get_request_queue("/v2").put(packed)
            while not ended:
                await item.event.wait()
                item.event.clear()
                if time.monotonic() >= work.deadline:
                    raise ServingError(f"no answer within {self.options.timeout:g} seconds", 504)
                while item.response_queue and not ended:
                    answer: Answer = item.response_queue.popleft()
                    ended = answer.final
                    if answer.error is not None:
                        raise answer.error
                    yield answer
        finally:
            timer.cancel()
            self._close(key)
            self.board.count(self.number, entry.slot, -1)
            if not ended and work.prompt is not None:
                self._tell(Command("cancel", "", self.number, name=key))

    def _open(self) -> tuple[str, Any]:
        key = f"{self.number}-{next(self._keys)}"
        item = ResponseBufferItem(event=asyncio.Event(), response_queue=deque())
        self.server.response_buffer[key] = item
        return key, item

    def _close(self, key: str) -> None:
        self.server.response_buffer.pop(key, None)

    def take(self, key: str, answer: Answer) -> None:
        """Give an answer to what waits for it, if that still does."""
        item = self.server.response_buffer.get(key)
        if item is not None:
            item.response_queue.append(answer)
            item.event.set()

    def _tell(self, command: Command) -> None:
        for control in self.board.controls:
            control.put(command)

    async def watch(self) -> None:
        """Answer for workers that died: what they had in hand has failed, what waits is another's."""
        while True:
            await asyncio.sleep(_LOOK)
            for worker, known in enumerate(self._ends):
                if self.board.ends(worker) == known:
                    continue
                self._ends[worker] = self.board.ends(worker)
                error = ServingError("the worker that ran this request died", 500)
                for key in self.board.lost(worker):
                    self.take(key, Answer(error=error))

    # --- the repository ----------------------------------------------------------------------------------------------

    def index(self, ready_only: bool = False) -> list[dict[str, str]]:
        """All models of the server and of its folder."""
        found = [
            {"name": name, "version": version, "state": entry.state, "reason": entry.reason}
            for name, versions in self.entries().items()
            for version, entry in versions.items()
            if entry.state == READY or not ready_only
        ]
        if self.options.repository and not ready_only:
            known = {item["name"] for item in found}
            names = read_repository(Path(self.options.repository))
            found += [{"name": n, "version": "", "state": "UNAVAILABLE", "reason": ""} for n in names if n not in known]
        return sorted(found, key=lambda item: (item["name"], item["version"]))

    async def load(self, name: str) -> None:
        """Load a model of the folder, or load it again; versions that are no longer wanted go."""
        if not self.options.repository:
            raise ServingError("the server has no repository to load from: start it with --repository FOLDER")
        configs = read_folder(Path(self.options.repository), name)
        async with self._changes:
            for config in configs:
                await self._load(config)
            gone = {*self.entries()[name]} - {config.version for config in configs}
            for version in gone:
                await self._unload(name, version)

    async def _load(self, config: ModelConfig) -> None:
        name, version = config.name, config.version
        with self.board.table.change() as models:
            entry = models.setdefault(name, {}).get(version)
            if entry is None:
                models[name][version] = new_entry(config, self.board.new_slot())
        try:
            details = await self._order(Command("load", "", self.number, config))
        except ServingError as error:
            with self.board.table.change() as models:
                entry = models.get(name, {}).get(version)
                if entry is not None and entry["state"] != READY:  # one that was there before stays
                    entry.update(state="UNAVAILABLE", reason=str(error))
            raise
        with self.board.table.change() as models:
            entry = models.setdefault(name, {}).setdefault(version, new_entry(config, 0))
            entry.update(config=config.as_json(), state=READY, reason="", queue=config.queue, **details)

    async def unload(self, name: str) -> None:
        """Forget a model, once what was accepted for it has its answers."""
        self.find(name)
        async with self._changes:
            for version in [*self.entries().get(name, {})]:
                await self._unload(name, version)

    async def _unload(self, name: str, version: str) -> None:
        slot = self.find(name, version).slot
        with self.board.table.change() as models:
            models.get(name, {}).pop(version, None)
            if not models.get(name):
                models.pop(name, None)
        until = time.monotonic() + self.options.timeout
        while self.board.pending(slot) and time.monotonic() < until:
            await asyncio.sleep(0.01)
        await self._order(Command("unload", "", self.number, name=name, version=version))

    async def _order(self, command: Command) -> dict[str, Any]:
        """Have every worker do something; what the last one found."""
        waiting = []
        for control in self.board.controls:
            key, item = self._open()
            control.put(Command(command.kind, key, self.number, command.config, command.name, command.version))
            waiting.append((key, item))
        details: dict[str, Any] = {}
        try:
            for _, item in waiting:
                try:
                    await asyncio.wait_for(item.event.wait(), LOAD_SECONDS)
                except asyncio.TimeoutError as error:
                    raise ServingError(f"{command.kind}: a worker does not answer", 504) from error
                answer: Answer = item.response_queue.popleft()
                if answer.error is not None:
                    raise answer.error
                details = answer.details or details
        finally:
            for key, _ in waiting:
                self._close(key)
        return details


def new_entry(config: ModelConfig, slot: int) -> dict[str, Any]:
    """A line of the table, for a model that is about to be loaded."""
    return {
        "config": config.as_json(),
        "state": "LOADING",
        "reason": "",
        "slot": slot,
        "queue": config.queue,
        "text": False,
        "context": 0,
        "inputs": [],
        "outputs": [],
    }


def _entry(name: str, version: str, found: dict[str, Any]) -> Entry:
    inputs, outputs = ([TensorSpec(n, d, tuple(s)) for n, d, s in found[key]] for key in ("inputs", "outputs"))
    if found["text"]:
        inputs, outputs = [*TEXT_INPUTS], [*TEXT_OUTPUTS]
    state, reason = found["state"], found["reason"]
    return Entry(name, version, state, reason, found["slot"], found["queue"], found["text"], (*inputs,), (*outputs,))


def _work(entry: Entry, request: InferRequest, began: float, timeout: float) -> Work:
    check_input(request.inputs, entry.inputs)
    wanted = [output.name for output in request.outputs]
    known = {spec.name for spec in entry.outputs}
    for name in wanted:
        if known and name not in known:
            raise ServingError(f"there is no output {name!r}; there are {', '.join(sorted(known))}")
    work = Work(entry.name, entry.version, request.inputs, wanted, began, began + timeout, label=request.id)
    if entry.text:
        work.prompt = prompt_of(request)
        work.options = Sampling.from_parameters(request.parameters)
        work.inputs = []
    return work


def prompt_of(request: InferRequest) -> str:
    """The text that a request for a model of text has as its one input."""
    try:
        (text,) = request.inputs[0].data
        return text.decode() if isinstance(text, bytes) else ""
    except (UnicodeDecodeError, ValueError) as error:
        raise ServingError("input 'text_input': expected one text in UTF-8") from error


def text_outputs(answer: Answer, wanted: list[str]) -> list[TensorData]:
    """A text as tensors."""
    values = {"text_output": answer.text, "finish_reason": answer.finished}
    return [
        TensorData(name, "BYTES", (1,), [value.encode()])
        for name, value in values.items()
        if not wanted or name in wanted
    ]

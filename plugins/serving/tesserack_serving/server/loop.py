"""What a worker does all day: LitServe's loop, with batches by model, and steps of text between them."""

from __future__ import annotations

import logging
import os
import pickle
import threading
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

from litserve.loops.base import LitLoop

from tesserack_serving.engine.engine import Engine
from tesserack_serving.engine.model import LoadedModel
from tesserack_serving.protocol.errors import ServingError
from tesserack_serving.server.board import Board
from tesserack_serving.server.line import WaitingLine
from tesserack_serving.server.metrics import WorkerMetrics
from tesserack_serving.server.options import ServerOptions
from tesserack_serving.server.trace import Tracer
from tesserack_serving.server.work import Answer, Command, Work
from tesserack_serving.text.scheduler import Scheduler

__all__ = ["ServingLoop"]

logger = logging.getLogger("tesserack.serving")

Taken = tuple[int, str, Work]  # frontend, key, work


class ServingLoop(LitLoop):  # type: ignore[misc] # without types
    """Takes requests, runs those of one model together, and sends the answers of a batch in one message."""

    def __init__(self, board: Board, options: ServerOptions) -> None:
        super().__init__()
        self.board, self.options = board, options

    def __call__(
        self,
        lit_api: Any,
        device: str,
        worker_id: int,
        request_queue: Any,
        transport: Any,
        workers_setup_status: Any,
        callback_runner: Any,
    ) -> None:
        Worker(self.board, self.options, lit_api.engine, worker_id, request_queue, transport).run()


class Worker:
    """The state of the loop."""

    def __init__(
        self, board: Board, options: ServerOptions, engine: Engine, number: int, line: WaitingLine, transport: Any
    ) -> None:
        self.board, self.options, self.engine, self.number, self.transport = board, options, engine, number, transport
        self.metrics = WorkerMetrics(number)
        self.tracer = Tracer(board, options.trace, number)
        self.arrived: deque[Taken] = deque()
        self.line = line
        self.texts: dict[int, tuple[LoadedModel, Scheduler]] = {}
        self.sequences: dict[str, Taken] = {}
        self.canceled: deque[str] = deque()
        self.computing: list[Taken] = []

    def run(self) -> None:
        """For ever."""
        threading.Thread(target=self._obey, daemon=True, name="control").start()
        while True:
            self._wait()
            self.tracer.before_step()
            batch = self._next_batch()
            if batch:
                self._run_batch(*batch)
            self._cancel()
            for model, scheduler in [*self.texts.values()]:
                if scheduler.active:
                    self._step(model, scheduler)
            self.tracer.after_step()

    # --- taking requests ---------------------------------------------------------------------------------------------

    def _take(self, limit: int, seconds: float) -> bool:
        """Whether requests came from the line in which all workers' wait."""
        try:
            packed = self.line.take(limit, seconds)
        except (EOFError, ConnectionError):
            os._exit(0)  # the server has ended
        self.arrived.extend(map(pickle.loads, packed))
        self._note()
        return bool(packed)

    def _take_waiting(self) -> None:
        """What waits in the line, as far as it can be made use of soon, without waiting for more."""
        waiting = any(scheduler.waiting for _, scheduler in self.texts.values())
        if waiting and self.board.workers > 1:
            return  # another worker may have a seat for the next one
        while (room := self.options.read_ahead - len(self.arrived)) > 0 and self.board.queued() > 0:
            if not self._take(room, 0):
                return

    def _note(self) -> None:
        self.board.hold(self.number, [key for _, key, _ in (*self.computing, *self.arrived)] + [*self.sequences])

    def _wait(self) -> None:
        """Until there is something to do."""
        idle = not self.arrived and not any(scheduler.active for _, scheduler in self.texts.values())
        if idle and not self._take(1, 0.5):
            return
        self._take_waiting()

    def _next_batch(self) -> tuple[LoadedModel, list[Taken]] | None:
        """The oldest request, with those that may run with it."""
        while self.arrived:
            first = self.arrived.popleft()
            model = self._model_of(first)
            if model is None:
                continue
            if model.text is not None:
                self._add_text(model, first)
                continue
            key = model.key(first[2].inputs)
            self.computing = [first]
            if key is not None:
                self._await_more(model, first)
                self.computing = self._alike(model, first, key)
            return model, self.computing
        self._note()
        return None

    def _await_more(self, model: LoadedModel, first: Taken) -> None:
        """Within the batch's delay, until there is enough for a batch."""
        until = time.monotonic() + model.config.batch_delay
        rows = _rows(first) + sum(map(_rows, self.arrived))
        while model.config.batch_delay and rows < model.config.max_batch:
            if not self._take(1, max(0.0, until - time.monotonic())):
                return
            rows += _rows(self.arrived[-1])

    def _alike(self, model: LoadedModel, first: Taken, key: Any) -> list[Taken]:
        batch, rows, rest = [first], first[2].inputs[0].shape[0], deque[Taken]()
        for taken in self.arrived:
            work = taken[2]
            same = (work.model, work.version, work.prompt) == (model.config.name, model.config.version, None)
            if not same or model.key(work.inputs) != key or rows + work.inputs[0].shape[0] > model.config.max_batch:
                rest.append(taken)
                continue
            rows += work.inputs[0].shape[0]
            batch.append(taken)
        self.arrived = rest
        now = time.monotonic()
        late = [taken for taken in batch if now > taken[2].deadline]
        self._refuse_late(late)
        return [taken for taken in batch if taken not in late]

    def _model_of(self, taken: Taken) -> LoadedModel | None:
        work = taken[2]
        try:
            if time.monotonic() > work.deadline:
                raise ServingError("the request waited too long", 504)
            return self.engine.find(work.model, work.version)
        except ServingError as error:
            self._send([(taken, Answer(error=error))])
            return None

    def _refuse_late(self, late: Sequence[Taken]) -> None:
        self._send([(taken, Answer(error=ServingError("the request waited too long", 504))) for taken in late])

    # --- computing ---------------------------------------------------------------------------------------------------

    def _run_batch(self, model: LoadedModel, batch: list[Taken]) -> None:
        if batch:
            began = time.monotonic()
            with self.tracer.batch(model.config.name, [(key, work.label, work.arrived) for _, key, work in batch]):
                results = model.run([work.inputs for _, _, work in batch])
            seconds = time.monotonic() - began
            pairs = zip(batch, results, strict=True)
            self._send([(taken, _answer(taken[2], result)) for taken, result in pairs])
            self.metrics.batch(model.config, [began - work.arrived for _, _, work in batch], seconds)
        self.computing = []
        self._note()

    def _add_text(self, model: LoadedModel, taken: Taken) -> None:
        assert model.text is not None
        _, key, work = taken
        if id(model) not in self.texts:
            self.texts[id(model)] = (model, Scheduler(model.text, self.engine.device))
        try:
            self.texts[id(model)][1].add(key, work.prompt or "", work.options)
        except ServingError as error:
            self._send([(taken, Answer(error=error))])
            return
        self.sequences[key] = taken

    def _cancel(self) -> None:
        while self.canceled:
            key = self.canceled.popleft()
            if self.sequences.pop(key, None) is not None:
                for _, scheduler in self.texts.values():
                    scheduler.cancel(key)

    def _step(self, model: LoadedModel, scheduler: Scheduler) -> None:
        began = time.monotonic()
        try:
            with self.tracer.batch(f"{model.config.name} step", []):
                events = scheduler.step()
        except Exception as error:
            logger.exception("model %r failed a step", model.config.name)
            failure = ServingError(f"model {model.config.name!r}: {type(error).__name__}: {error}", 500)
            gone = [self.sequences.pop(key) for key in scheduler.clear() if key in self.sequences]
            self._send([(taken, Answer(error=failure)) for taken in gone])
            return
        self.metrics.step(model.config, scheduler, events, time.monotonic() - began)
        said = []
        for event in events:
            taken = self.sequences[event.key]
            if event.finished:
                del self.sequences[event.key]
                text = taken[2].gathered + event.text
                said.append((taken, Answer(text=text, finished=event.finished, tokens=event.tokens)))
            elif taken[2].stream:
                if event.text:
                    said.append((taken, Answer(text=event.text, tokens=event.tokens, final=False)))
            else:
                taken[2].gathered += event.text
        self._send(said)
        if any(event.finished for event in events):
            self._note()
        if not scheduler.active and model not in self.engine.models():
            del self.texts[id(model)]  # unloaded meanwhile

    def _send(self, answers: Sequence[tuple[Taken, Answer]]) -> None:
        by_frontend: dict[int, list[tuple[str, Answer]]] = defaultdict(list)
        for (frontend, key, _), answer in answers:
            by_frontend[frontend].append((key, answer))
        for frontend, bundle in by_frontend.items():
            self.transport.send_all(bundle, frontend)

    # --- commands ----------------------------------------------------------------------------------------------------

    def _obey(self) -> None:
        """In a thread of its own, so that a model is built while others answer."""
        while True:
            try:
                command: Command = self.board.controls[self.number].get()
            except (EOFError, OSError):
                os._exit(0)
            answer = Answer()
            try:
                if command.kind == "load" and command.config is not None:
                    answer.details = self.engine.load(command.config).describe()
                elif command.kind == "unload":
                    self.engine.unload(command.name, command.version)
                else:
                    self.canceled.append(command.name)
                    continue
            except ServingError as error:
                answer.error = error
            except Exception as error:
                logger.exception("%s failed", command.kind)
                answer.error = ServingError(f"{command.kind}: {type(error).__name__}: {error}", 500)
            self.transport.send_all([(command.key, answer)], command.frontend)


def _rows(taken: Taken) -> int:
    inputs = taken[2].inputs
    return inputs[0].shape[0] if inputs and inputs[0].shape else 1


def _answer(work: Work, result: Any) -> Answer:
    if isinstance(result, ServingError):
        return Answer(error=result)
    if not work.outputs:
        return Answer(outputs=result)
    by_name = {output.name: output for output in result}
    missing = [name for name in work.outputs if name not in by_name]
    if missing:
        return Answer(error=ServingError(f"there is no output {missing[0]!r}; there are {', '.join(by_name)}"))
    return Answer(outputs=[by_name[name] for name in work.outputs])

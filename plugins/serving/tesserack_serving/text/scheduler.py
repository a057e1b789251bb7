"""Which sequences take part in the next step."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from random import Random

import tesserack as ts

from tesserack_serving.protocol.errors import ServingError
from tesserack_serving.text.cache import Chunk, PagedCache, Pass
from tesserack_serving.text.model import Sampling, TextModel
from tesserack_serving.text.sampling import choose

__all__ = ["Event", "Scheduler", "Sequence"]


@dataclass
class Sequence:
    """A prompt and what follows it."""

    key: str
    prompt: list[int]
    options: Sampling
    produced: list[int] = field(default_factory=list)
    done: int = 0  # tokens whose keys and values are in pages
    blocks: list[int] = field(default_factory=list)
    text: str = ""
    random: Random = field(default_factory=Random)

    @property
    def length(self) -> int:
        """All its tokens."""
        return len(self.prompt) + len(self.produced)

    def pending(self, most: int) -> list[int]:
        """The next tokens to compute."""
        return [*self.prompt, *self.produced][self.done : self.done + most]


@dataclass(frozen=True)
class Event:
    """What a step made of a sequence: more of its text, and at the end why it ended, ``stop`` or ``length``."""

    key: str
    text: str
    finished: str = ""
    tokens: int = 0


class Scheduler:
    """A text model's sequences; :meth:`step` computes one batch of new tokens.

    Sequences that write get their token first; prompts share what is left of ``chunk``. A sequence that finds no page
    sends the youngest away, which computes its tokens again when there is room: nothing is lost.
    """

    def __init__(self, model: TextModel, device: str) -> None:
        self.model = model
        self.cache = PagedCache(model.cache_tokens // model.block, model.block, device)
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.preemptions = 0

    def add(self, key: str, prompt: str, options: Sampling) -> None:
        """Let a prompt wait for its turn. ``ServingError`` if it is empty, or longer than the context allows."""
        tokens = self._encode(prompt)
        if not tokens or len(tokens) >= self.model.context:
            raise ServingError(
                f"expected a prompt of 1 to {self.model.context - 1} tokens (the context is {self.model.context}), "
                f"got {len(tokens)}"
            )
        random = Random(options.seed) if options.seed is not None else Random()
        self.waiting.append(Sequence(key, tokens, options, random=random))

    def _encode(self, prompt: str) -> list[int]:
        try:
            return [int(token) for token in self.model.encode(prompt)]
        except Exception as error:
            raise ServingError(f"the prompt cannot be encoded: {type(error).__name__}: {error}") from error

    def cancel(self, key: str) -> None:
        """Forget a sequence; one that has ended is no error."""
        for sequence in self.running:
            if sequence.key == key:
                self._leave(sequence)
                return
        self.waiting = deque(s for s in self.waiting if s.key != key)

    def clear(self) -> list[str]:
        """Forget all; their keys."""
        everyone = [*self.running, *self.waiting]
        for sequence in [*self.running]:
            self._leave(sequence)
        self.waiting.clear()
        return [sequence.key for sequence in everyone]

    @property
    def active(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.running or self.waiting)

    def step(self) -> list[Event]:
        """Compute a batch; what came of it."""
        chosen = self._plan()
        if not chosen:
            return []
        batch = Pass(self.cache, [Chunk(tokens, s.done, s.blocks) for s, tokens in chosen])
        with ts.inference_mode():
            scores = self.model.module(batch.tokens, batch.places, batch.attend)
            ends, last = [], -1
            for sequence, tokens in chosen:
                last += len(tokens)
                sequence.done += len(tokens)
                if sequence.done == sequence.length:
                    ends.append((sequence, last))
            if not ends:
                return []
            rows = scores[0].index_select(0, ts.tensor([row for _, row in ends], device=scores.device))
            tokens_chosen = choose(rows, [s.options for s, _ in ends], [s.random for s, _ in ends])
        return [self._continue(s, token) for (s, _), token in zip(ends, tokens_chosen, strict=True)]

    def _plan(self) -> list[tuple[Sequence, list[int]]]:
        budget = self.model.chunk
        plan: list[tuple[Sequence, list[int]]] = []
        writing = [s for s in self.running if s.length - s.done == 1]
        reading = [s for s in self.running if s.length - s.done > 1]
        for sequence in chain(writing, reading, self._admitted()):  # admitted only when it is its turn
            if budget < 1:
                break
            if sequence not in self.running:
                continue  # sent away by one before it
            tokens = sequence.pending(budget)
            if not self._make_room(sequence, len(tokens)):
                continue
            plan.append((sequence, tokens))
            budget -= len(tokens)
        return [(s, tokens) for s, tokens in plan if s in self.running]

    def _admitted(self) -> Iterable[Sequence]:
        """Those that wait, as long as there are seats and a page for each, one by one."""
        while self.waiting and len(self.running) < self.model.sequences and self.cache.free:
            sequence = self.waiting[0]
            needed = -(-sequence.length // self.model.block)
            if needed > self.cache.free:
                return
            self.waiting.popleft()
            self.running.append(sequence)
            yield sequence

    def _make_room(self, sequence: Sequence, count: int) -> bool:
        needed = -(-(sequence.done + count) // self.model.block) - len(sequence.blocks)
        while (blocks := self.cache.take(max(needed, 0))) is None:
            youngest = self.running[-1]
            self._send_away(youngest)
            if youngest is sequence:
                return False
        sequence.blocks.extend(blocks)
        return True

    def _send_away(self, sequence: Sequence) -> None:
        self._leave(sequence)
        sequence.done = 0
        self.waiting.appendleft(sequence)
        self.preemptions += 1

    def _leave(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.cache.give_back(sequence.blocks)
        sequence.blocks = []

    def _continue(self, sequence: Sequence, token: int) -> Event:
        """Add a token; the text that it adds. Of a character cut in two nothing is said before it is whole."""
        ended = token == self.model.end
        if not ended:
            sequence.produced.append(token)
        count = len(sequence.produced)
        full = count >= sequence.options.max_tokens or sequence.length >= self.model.context
        whole = self.model.decode(sequence.produced)
        cut = min((at for text in sequence.options.stop if (at := whole.find(text)) >= 0), default=-1)
        reason = "stop" if ended or cut >= 0 else "length" if full else ""
        if cut >= 0:
            whole = whole[:cut]
        elif not reason:
            whole = whole[: len(whole) - _held_back(whole, sequence.options.stop)]
        added = whole[len(sequence.text) :]
        sequence.text += added
        if reason:
            self._leave(sequence)
        return Event(sequence.key, added, reason, count)


def _held_back(text: str, stops: tuple[str, ...]) -> int:
    """How many characters at the end may yet change: half a character, or the beginning of a stop text."""
    broken = len(text) - len(text.rstrip("\N{REPLACEMENT CHARACTER}"))
    begun = (size for stop in stops for size in range(1, len(stop)) if text.endswith(stop[:size]))
    return max(broken, max(begun, default=0))

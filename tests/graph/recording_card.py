"""A card that records launches, and looks whether what it recorded may still be replayed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tesserack as ts
from programs import record
from tesserack import _native, nn
from tesserack.backends import Operand

sys.path.insert(0, str(Path(__file__).parents[1] / "plugins"))

from late_backend import Late


class Recorded(dict[str, Any]):
    """Work that was written down, and the addresses that it uses."""

    blocks: set[int]


class RecordingCard(Late):
    """``fails`` is called at each slot of recordings and by each kernel that is written down, with its name."""

    vendor = "org.tesserack.tests.recording"

    def __init__(self, name: str, own: bool = False) -> None:
        super().__init__(name, own=own)
        for op, (function, *rest) in self._kernels.items():
            self._kernels[op] = (self._noted(op, function), *rest)
        self.forget()

    def forget(self) -> None:
        """As if nothing had been recorded yet, but for what is there."""
        self.fails: Callable[[str], None] = lambda what: None
        self.recorded = self.replayed = self.destroyed = self.called = 0
        self.wrong: list[str] = []  # memory that went back under a recording, replays of what is gone

    @property
    def live(self) -> list[Recorded]:
        return self.__dict__.setdefault("_live", [])  # type: ignore[no-any-return]

    @property
    def noted(self) -> dict[int, set[int]]:
        """Addresses, by stream that is recorded."""
        return self.__dict__.setdefault("_by_stream", {})  # type: ignore[no-any-return]

    def _noted(self, op: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def kernel(*args: Any, **fields: Any) -> Any:
            self.called += 1
            stream = self.stream(fields["device"], fields["stream"])
            if stream.recording is not None:
                self.fails(op)
                groups = (*args, *fields.get("outputs", ()), *fields.get("inputs", ()))
                for x in groups:
                    if isinstance(x, Operand) and x.handle is not None:
                        self.noted[id(stream)].add(x.handle.ctypes.data)
            return function(*args, **fields)

        return kernel

    def free(self, device: int, handle: Any, nbytes: int, stream: Any) -> None:
        if any(handle.ctypes.data in recording.blocks for recording in self.live):
            self.wrong.append("memory went back that a recording uses")
        super().free(device, handle, nbytes, stream)

    def copy_within(
        self, device: int, dst: Any, dst_offset: int, src: Any, src_offset: int, nbytes: int, stream: Any
    ) -> None:
        if self.stream(device, stream).recording is not None:
            self.noted[id(self.stream(device, stream))] |= {dst.ctypes.data, src.ctypes.data}
        super().copy_within(device, dst, dst_offset, src, src_offset, nbytes, stream)

    def recover(self, device: int) -> None:
        self.live.clear()

    def capture_begin(self, device: int, stream: Any) -> None:
        if stream is None:
            raise RuntimeError("the default stream is not recorded")
        self.fails("begin")
        super().capture_begin(device, stream)
        self.noted[id(stream)] = set()

    def capture_end(self, device: int, stream: Any) -> Any:
        made = Recorded(super().capture_end(device, stream))
        made.blocks = self.noted.pop(id(stream))
        self.fails("end")
        self.recorded += 1
        self.live.append(made)
        return made

    def capture_replay(self, device: int, recording: Any, stream: Any) -> None:
        self.fails("replay")
        if not any(recording is one for one in self.live):
            self.wrong.append("a recording that is gone is replayed")
        super().capture_replay(device, recording, stream)

    def capture_destroy(self, device: int, recording: Any) -> None:
        self.destroyed += 1
        self.live[:] = [one for one in self.live if one is not recording]
        super().capture_destroy(device, recording)


CARDS: dict[str, RecordingCard] = {}


def registered(name: str, own: bool = False, kind: type[RecordingCard] = RecordingCard) -> Any:
    """The card of a name, which is the same one for all tests."""
    if name not in CARDS:
        CARDS[name] = kind(name, own)
        native: Any = _native
        native._register_python_backend(CARDS[name], __file__)
    return CARDS[name]


def planned(function: Callable[..., list[ts.Tensor]], *examples: ts.Tensor, plans: str = "at once") -> Any:
    """What runs the function's graph."""
    recorded, _ = record(function, *examples)
    return _native._GraphRunner(recorded.outer_level(), plans)


def run(runner: Any, *given: ts.Tensor) -> list[ts.Tensor]:
    """Its results."""
    with ts.no_grad():
        return runner.run(list(given))  # type: ignore[no-any-return]


def model(drops: bool) -> nn.Module:
    """Layers of several kernels each."""
    parts: list[nn.Module] = []
    for _ in range(3):
        parts += [nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.LayerNorm(8)]
        parts += [nn.Dropout(0.25)] if drops else []
    return nn.Sequential(*parts, nn.Linear(8, 3))

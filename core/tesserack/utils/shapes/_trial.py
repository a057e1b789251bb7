"""A model run once on tensors without data: shapes of modules, operations, bytes alive, and the first mismatch."""

from __future__ import annotations

import contextlib
import re
import traceback
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tesserack import Tensor, empty_like, enable_grad, int64, no_grad
from tesserack._native import device
from tesserack.jit.compiler import exporting
from tesserack.library import dispatch
from tesserack.nn.modules.module import Module
from tesserack.utils._pytree import tree_leaves, tree_map
from tesserack.utils._results import shapes_of
from tesserack.utils.flop_counter import FlopCounterMode
from tesserack.utils.shapes._broadcasts import Broadcasts
from tesserack.utils.shapes._constants import Constants

__all__ = ["Failure", "Trial", "run_trial"]

_ASKS_VALUES = re.compile(
    "(on|out of|values of a) meta tensor|on the meta device (do not have|have no)|meta device type tensor to numpy"
    "|Tensor.__format__"
)
_ASKS_GRADIENTS = re.compile("does not require grad|does not have a grad_fn|requires? grad")
_BROADCAST = "Using a target size"  # what losses warn of, as PyTorch's do
_NONE = "forward asks a tensor for its values, and a trial has none"
_MOST_PAIRS = 32  # of calls that broadcast so, among them those of numbers that no name decides
_RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu"}  # the sizes of packed steps stay on the cpu, with data
_PACKAGE = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True)
class Failure:
    """The first mismatch: where in the model, what was said, and the line of the program that asked for it."""

    path: str
    kind: str
    error: str
    message: str
    line: str


@dataclass
class Trial:
    """What one run found."""

    outputs: dict[str, tuple[str, Any]] = field(default_factory=dict)  # path: class, shapes of the result
    order: list[str] = field(default_factory=list)
    flops: dict[str, int] = field(default_factory=dict)
    total_flops: int = 0
    peak: int = 0  # bytes of results of operators alive at once
    kept: int = 0  # bytes of what the innermost modules give
    failure: Failure | None = None
    beyond: Failure | None = None  # the first row that an embedding does not have, by values the model made
    builds: str = ""  # class of a module that a function makes of its arguments, which tensors are not then
    spread: list[tuple[int, Failure]] = field(default_factory=list)  # what broadcasts to all pairs, and of which size

    @property
    def asks_values(self) -> bool:
        """Whether it ended where the model asks a tensor for its values."""
        return self.failure is not None and _NONE in self.failure.message

    @property
    def asks_gradients(self) -> bool:
        """Whether it ended where the model differentiates by itself, which needs results to be recorded."""
        return self.failure is not None and _ASKS_GRADIENTS.search(self.failure.message) is not None


class _Memory:
    """Bytes of the results of operators, while they live. A view counts with what it looks at."""

    def __init__(self) -> None:
        self.live = self.peak = 0
        self._seen: set[int] = set()

    def note(self, result: Any) -> None:
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._note(tensor)

    def _note(self, tensor: Tensor) -> None:
        base = tensor._base
        if id(tensor) in self._seen:
            return
        self._seen.add(id(tensor))
        size = tensor.numel() * tensor.element_size() if base is None else 0
        # The view holds what it looks at, so that this counts as long.
        weakref.finalize(tensor, self._forget, id(tensor), size, base)
        self.live += size
        self.peak = max(self.peak, self.live)

    def _forget(self, key: int, size: int, base: Any) -> None:
        self._seen.discard(key)
        self.live -= size


class _Observer:
    """What one trial sees of its operators' calls."""

    def __init__(self, trial: Trial, failed: Callable[[Exception], Failure], inputs: Sequence[Any]) -> None:
        self.trial, self.failed = trial, failed
        self.memory, self.constants, self.broadcasts = _Memory(), Constants(), Broadcasts(inputs)

    def before(self, call: dispatch.Call, args: Sequence[Any]) -> None:
        """Look at the arguments of a call."""
        message = "" if self.trial.beyond else self.constants.beyond(call, args)
        if message:
            self.trial.beyond = self._found(IndexError(message))
        pairs = self.broadcasts.pairs(call, args) if len(self.trial.spread) < _MOST_PAIRS else None
        if pairs is not None:
            self.trial.spread.append((pairs.size, self._found(RuntimeError(pairs.text))))

    def _found(self, error: Exception) -> Failure:
        return replace(self.failed(error), line=_line(traceback.extract_stack()))

    def after(self, call: dispatch.Call, args: Sequence[Any], result: Any) -> None:
        """Note what came out."""
        self.memory.note(result)
        self.constants.note(call, args, result)
        self.broadcasts.note(call, args, result)


_observed: list[_Observer] = []
_registered: list[dispatch.Key] = []
_depth = 0


def _key() -> dispatch.Key:
    if not _registered:
        key = dispatch.register_key("ShapeTrial", before="Profiler")
        key.fallback(_observe)
        _registered.append(key)
    return _registered[0]


def _observe(call: Any, *args: Any) -> Any:
    global _depth
    recurrent = call.op.partition(".")[0] in _RECURRENT
    args, observer = _without_devices(args, recurrent), _observed[-1] if _observed and not _depth else None
    if observer is not None:
        observer.before(call, args)
    _depth += 1
    try:
        result = call.redispatch(*args)
        if observer is not None:
            observer.after(call, args, result)
    finally:
        _depth -= 1
    return result


def _without_devices(args: tuple[Any, ...], recurrent: bool = False) -> tuple[Any, ...]:
    """The arguments of a call, on meta where the model names a device, or meets a constant that has data."""
    has_no_data = any(isinstance(x, Tensor) and x.is_meta for x in tree_leaves([*args]))

    def moved(x: Any) -> Any:
        if isinstance(x, device):
            return device("meta")
        if not (has_no_data and isinstance(x, Tensor)) or x.is_meta or (recurrent and x.dtype is int64):
            return x
        return empty_like(x, device="meta")

    return tuple(tree_map(moved, arg) if isinstance(arg, (list, tuple)) else moved(arg) for arg in args)


def run_trial(
    model: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    parts: Mapping[str, Module],
    exported: bool = False,
    gradients: bool = False,
) -> Trial:
    """Run a model; ``parts`` are its modules by path. An exception of the model becomes the trial's ``failure``.

    ``exported``: as within ``export``, where models that ask for values take another way. ``gradients``: with results
    recorded, for models that differentiate.
    """
    trial, running = Trial(), list[str]()
    inputs = [*args, *kwargs.values()]
    observer = _Observer(trial, lambda error: _failure(error, running, parts, model), inputs)
    handles = []

    def enter(path: str) -> None:
        running.append(path)
        if path not in trial.order:
            trial.order.append(path)

    def leave(path: str, module: Module, result: Any) -> None:
        del running[running.index(path) :]  # what failed inside and was caught is over too
        trial.outputs.setdefault(path, (type(module).__name__, shapes_of(result)))
        if not module._modules:
            trial.kept += sum(t.numel() * t.element_size() for t in tree_leaves(result) if isinstance(t, Tensor))

    for path, module in parts.items():
        handles.append(module.register_forward_pre_hook(lambda *_, p=path: enter(p)))
        handles.append(module.register_forward_hook(lambda m, _, result, p=path: leave(p, m, result)))
    root, name = model if isinstance(model, Module) else None, type(model).__name__  # a lazy one changes its class
    _observed.append(observer)
    way = exporting() if exported else contextlib.nullcontext()
    try:
        with (
            warnings.catch_warnings(),
            way,
            enable_grad() if gradients else no_grad(),
            device("meta"),
            _key().enabled(),
            FlopCounterMode(display=False) as counter,
        ):
            warnings.filterwarnings("error", _BROADCAST)
            result = model(*args, **kwargs)
        if root is None:
            trial.order.append("")
            trial.outputs[""] = getattr(model, "__name__", "function"), shapes_of(result)
            trial.builds = type(result).__name__ if isinstance(result, Module) else ""
        trial.total_flops = counter.get_total_flops()
        trial.flops = _by_path(counter, name) if root is not None else {}
    except Exception as error:
        trial.failure = _failure(error, running, parts, model)
        trial.builds = _in_making(error) if root is None else ""
    finally:
        _observed.remove(observer)
        for handle in handles:
            handle.remove()
    trial.peak = observer.memory.peak
    return trial


def _by_path(counter: FlopCounterMode, name: str) -> dict[str, int]:
    found = {}
    for place, counts in counter.get_flop_counts().items():
        if place.startswith(name) and place != "Global":
            found[place[len(name) + 1 :]] = sum(counts.values())
    return found


def _failure(error: Exception, running: Sequence[str], parts: Mapping[str, Module], model: Any) -> Failure:
    path = running[-1] if running else ""
    kind = type(parts[path]).__name__ if path in parts else getattr(model, "__name__", type(model).__name__)
    message = str(error) or type(error).__name__
    if _ASKS_VALUES.search(message):
        message += f"; {_NONE}"
    return Failure(path, kind, type(error).__name__, message, _line(traceback.extract_tb(error.__traceback__)))


def _in_making(error: Exception) -> str:
    """The class of the module whose ``__init__`` this comes from; empty for other errors."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code.co_name == "__init__")
    made = (frame.f_locals.get("self") for frame in frames)
    return next((type(module).__name__ for module in made if isinstance(module, Module)), "")


def _line(frames: Sequence[traceback.FrameSummary]) -> str:
    """The last line of the program among these."""
    theirs = [f for f in frames if not f.filename.startswith((_PACKAGE, "<"))]
    return f"{theirs[-1].filename}:{theirs[-1].lineno}: {theirs[-1].line}" if theirs else ""

"""Checkpointing: activations are computed again in backward instead of being kept.

After Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016).
"""

from __future__ import annotations

import contextlib
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tesserack import _native
from tesserack._native import Tensor
from tesserack.amp._autocast import kept_regions
from tesserack.autograd import Function, _whole, backward
from tesserack.autograd.graph import saved_tensors_hooks
from tesserack.ops.random import default_generator
from tesserack.utils._selective import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
    recorded_operators,
)

__all__ = [
    "CheckpointError",
    "CheckpointFunction",
    "CheckpointPolicy",
    "DefaultDeviceType",
    "GraphExecGroup",
    "SelectiveCheckpointContext",
    "check_backward_validity",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "detach_variable",
    "get_device_states",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
    "set_device_states",
]


class CheckpointError(RuntimeError):
    """The function did not do the same when it ran again."""


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, Any]] | None = None,
    preserve_rng_state: bool = True,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """``function(*args, **kwargs)``, keeping none of the tensors it saves for backward: it runs again to get them.

    Args:
        use_reentrant: use the older scheme, a backward within the backward, where some input must require grad and
            ``autograd.grad`` does not go: give it, since it is True by default with a warning, as in PyTorch.
        context_fn: makes two context managers, around the first run and around the second; those of
            :func:`create_selective_checkpoint_contexts` keep the results of chosen operators.
        preserve_rng_state: let random operators draw the same numbers again.
        determinism_check: ``"default"`` compares shapes and dtypes of both runs, ``"none"`` does not.
        debug: name the operators of both runs in a ``CheckpointError``.
        early_stop: end the second run when it has all that is needed.

    Raises ``CheckpointError`` in backward if the second run saves other tensors than the first.

    >>> import tesserack as ts
    >>> x = ts.tensor([1.0, 2.0], requires_grad=True)
    >>> checkpoint(lambda t: (t * t).sum(), x, use_reentrant=False).backward()
    >>> x.grad
    tensor([2., 4.])
    """
    if _whole.takers:
        options = {"use_reentrant": use_reentrant, "context_fn": context_fn, "preserve_rng_state": preserve_rng_state,
                   "determinism_check": determinism_check, "debug": debug, "early_stop": early_stop}  # fmt: skip
        found = _taken(function, args, kwargs, options)
        if found is not NotImplemented:
            return found
    if use_reentrant is None:
        use_reentrant = True
        _warn_of_default("checkpoint")
    if use_reentrant:
        if kwargs or context_fn is not None:
            raise ValueError(
                f"checkpoint: use_reentrant=True takes no keyword arguments and no context_fn, got {[*kwargs]}"
            )
        check_backward_validity(args)
        return CheckpointFunction.apply(function, preserve_rng_state, *args)
    if determinism_check not in ("default", "none"):
        raise ValueError(f"checkpoint: expected determinism_check 'default' or 'none', got {determinism_check!r}")
    first, second = context_fn() if context_fn else noop_context_fn()
    if not _native.is_grad_enabled():
        with first:
            return function(*args, **kwargs)
    state = _RandomState(args) if preserve_rng_state else None
    run = _Run(function, args, kwargs, state, second, determinism_check != "none")
    run.stops_early = early_stop if _settings.early_stop is None else _settings.early_stop
    if debug if _settings.debug is None else _settings.debug:
        run.operators = []
    with saved_tensors_hooks(run.pack, run.unpack), first, recorded_operators(run.operators):
        result = function(*args, **kwargs)
    run.complete = True
    return result


def _taken(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
    """A call in a run that is captured: one that stands whole, or the function's where nothing is saved."""
    if _native.is_grad_enabled():
        return _whole.take(checkpoint, (function, *args), {**kwargs, **options}, computes=True)
    return NotImplemented if options["context_fn"] else function(*args, **kwargs)


_whole.add_entry(checkpoint)
_whole.add_entry(_taken)


def _warn_of_default(name: str) -> None:
    warnings.warn(
        f"{name}: the use_reentrant parameter should be passed explicitly. use_reentrant=False is recommended, but if "
        "you need to preserve the current default behavior, you can pass use_reentrant=True.",
        stacklevel=3,
    )


def noop_context_fn() -> tuple[Any, Any]:
    """Two contexts that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


class _Settings(threading.local):
    early_stop: bool | None = None
    debug: bool | None = None


_settings = _Settings()


@contextlib.contextmanager
def _set(name: str, value: bool | None) -> Iterator[None]:
    before = getattr(_settings, name)
    setattr(_settings, name, value)
    try:
        yield
    finally:
        setattr(_settings, name, before)


def set_checkpoint_early_stop(enable: bool) -> Any:
    """Context manager: whether second runs of what is checkpointed inside end as soon as they have all tensors.

    >>> with set_checkpoint_early_stop(False):
    ...     pass  # checkpoint(...)
    """
    return _set("early_stop", enable)


def set_checkpoint_debug_enabled(enabled: bool | None) -> Any:
    """Context manager: ``debug`` of every :func:`checkpoint` inside; None leaves it to their argument."""
    return _set("debug", enabled)


class GraphExecGroup:
    """Context manager: several backward calls inside compute what they share of checkpointed regions again only once.

    They must not need the same tensor: ``CheckpointError``. ``RuntimeError`` within another group.
    """

    def __init__(self) -> None:
        self.runs: list[_Run] = []
        self._used: set[_Holder] = set()

    def note_use(self, holder: _Holder) -> None:
        """A tensor that was computed again is taken: once."""
        if holder in self._used:
            raise CheckpointError(
                "checkpoint: Unpack is being triggered for a tensor that was already unpacked once. Performing two "
                "backward calls that overlap (i.e. require the same saved activation in order to compute gradients) is "
                "not allowed while under a GraphExecGroup"
            )
        self._used.add(holder)

    def __enter__(self) -> GraphExecGroup:
        if getattr(_groups, "current", None) is not None:
            raise RuntimeError("GraphExecGroup contexts cannot be nested")
        _groups.current = self
        return self

    def __exit__(self, *exc: object) -> None:
        _groups.current = None
        for run in self.runs:
            run.forget()
        self.runs.clear()
        self._used.clear()


_groups = threading.local()


def checkpoint_sequential(functions: Sequence[Callable[..., Any]], segments: int, input: Any, **kwargs: Any) -> Any:
    """Run functions one after another in ``segments`` checkpointed groups; the last group is not checkpointed."""
    steps = [*functions]
    if kwargs.get("use_reentrant") is None:
        kwargs["use_reentrant"] = True
        _warn_of_default("checkpoint_sequential")
    if not 1 <= segments <= max(len(steps), 1):
        raise ValueError(f"checkpoint_sequential: expected 1 to {len(steps)} segments, got {segments}")
    size = len(steps) // segments
    for start in range(0, size * (segments - 1), size):
        input = checkpoint(_chain(steps[start : start + size]), input, **kwargs)
    return _chain(steps[size * (segments - 1) :])(input)


def _chain(functions: Sequence[Callable[..., Any]]) -> Callable[[Any], Any]:
    def run(value: Any) -> Any:
        for function in functions:
            value = function(value)
        return value

    return run


# --- random numbers --------------------------------------------------------------------------------------------------


class _RandomState:
    """Positions of the random streams that a function of these arguments may draw from."""

    def __init__(self, args: tuple[Any, ...]) -> None:
        devices = {str(a.device): a.device for a in args if isinstance(a, Tensor) and not a.is_meta}
        default = _native.get_default_device()
        devices.setdefault(str(default), default)
        self._generators = [default_generator(device) for device in devices.values()]
        self._positions = [generator._position() for generator in self._generators]

    @contextlib.contextmanager
    def again(self) -> Any:
        """The streams as they were; afterwards, as they are now."""
        now = [generator._position() for generator in self._generators]
        self._set(self._positions)
        try:
            yield
        finally:
            self._set(now)

    def _set(self, positions: list[tuple[int, int]]) -> None:
        for generator, position in zip(self._generators, positions, strict=True):
            generator._set_position(*position)


# --- the scheme of saved-tensor hooks ------------------------------------------------------------------------------


class _Holder:
    """Stands in the graph for a tensor that was not kept."""

    __slots__ = ("__weakref__", "index", "meta")

    def __init__(self, index: int, tensor: Tensor) -> None:
        self.index = index
        self.meta = (tuple(tensor.shape), tensor.dtype, str(tensor.device))


class _Enough(BaseException):  # which no function catches as an error of its own, as vmap does
    """Everything that was saved has been computed again."""


class _Run:
    """One checkpointed call: what it takes to run it again."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        state: _RandomState | None,
        context: Any,
        check: bool,
    ) -> None:
        self._function, self._args, self._kwargs = function, args, kwargs
        self._state, self._context, self._check = state, context, check
        self._regions = kept_regions()
        self._holders: list[weakref.ref[_Holder]] = []
        self._values: weakref.WeakKeyDictionary[_Holder, Tensor] = weakref.WeakKeyDictionary()
        self.stops_early = True
        self.complete = False  # gradients taken within the first run need what it saved so far
        self.operators: list[str] | None = None  # of the first run, in debug mode

    def forget(self) -> None:
        """Drop what was computed again."""
        self._values.clear()

    def pack(self, tensor: Tensor) -> _Holder:
        holder = _Holder(len(self._holders), tensor)
        self._holders.append(weakref.ref(holder))
        return holder

    def unpack(self, holder: _Holder) -> Tensor:
        if holder not in self._values:
            self._run_again()
            self._forget_later()
        if holder not in self._values:
            raise CheckpointError(
                f"checkpoint: A different number of tensors was saved by the second run of {self._function!r} for "
                f"backward, fewer than by the first: it must do the same every time{self._shown()}"
            )
        value = self._values[holder]
        group = getattr(_groups, "current", None)
        if group is not None:
            group.note_use(holder)
        elif _native._current_run() < 0:
            self._values.clear()  # a look from outside of a backward
        return value

    def _forget_later(self) -> None:
        """What was computed again lasts as long as the backward that asked, or the group of several."""
        group = getattr(_groups, "current", None)
        if group is not None:
            group.runs.append(self)
        elif _native._current_run() >= 0:
            _native._queue_callback(self.forget)

    def _shown(self) -> str:
        """The operators of both runs, where they are known."""
        if self.operators is None:
            return ""
        return f"\nOperators of the first run: {', '.join(self.operators)}\nof the second: {', '.join(self._again)}"

    def _run_again(self) -> None:
        count = 0

        def keep(tensor: Tensor) -> Tensor:
            nonlocal count
            holder = self._holders[count]() if count < len(self._holders) else None
            count += 1
            if holder is not None:
                self._compare(holder, tensor)
                self._values[holder] = tensor if tensor.grad_fn is None else tensor.detach()
            if count >= len(self._holders) and (self.stops_early or not self.complete):
                raise _Enough
            return tensor

        again = self._state.again() if self._state else contextlib.nullcontext()
        self._again: list[str] = []
        with (
            contextlib.suppress(_Enough),
            _native.enable_grad(),
            again,
            self._regions(),
            self._context,
            recorded_operators(self._again if self.operators is not None else None),
            saved_tensors_hooks(keep, lambda tensor: tensor),
        ):
            self._function(*self._args, **self._kwargs)
        if self._check and count > len(self._holders):
            raise CheckpointError(
                f"checkpoint: A different number of tensors was saved for backward by the second run, {count}, and "
                f"the first, {len(self._holders)}: "
                f"the function must do the same every time{self._shown()}"
            )

    def _compare(self, holder: _Holder, tensor: Tensor) -> None:
        meta = (tuple(tensor.shape), tensor.dtype, str(tensor.device))
        if self._check and meta != holder.meta:
            raise CheckpointError(
                "checkpoint: Recomputed values for the following tensors have different metadata than during the "
                f"forward pass: tensor {holder.index} saved for backward was {holder.meta} in the first run "
                f"and {meta} in the second: the function must do the same every time{self._shown()}"
            )


# --- the reentrant scheme ------------------------------------------------------------------------------------------


class CheckpointFunction(Function):
    """The older scheme: ``apply(function, preserve_rng_state, *args)``."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        ctx.function = function
        ctx.state = _RandomState(args) if preserve_rng_state else None
        ctx.regions = kept_regions()
        ctx.others = [None if isinstance(a, Tensor) else a for a in args]
        ctx.is_tensor = [isinstance(a, Tensor) for a in args]
        ctx.save_for_backward(*(a for a in args if isinstance(a, Tensor)))
        return function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if _native._run_has_inputs():
            raise RuntimeError(
                "checkpoint: When use_reentrant=True, checkpoint is incompatible with .grad() or passing an `inputs` "
                "parameter to .backward(). Use .backward() without an `inputs` parameter, or use_reentrant=False."
            )
        saved = iter(ctx.saved_tensors)
        args = [next(saved) if tensor else other for tensor, other in zip(ctx.is_tensor, ctx.others, strict=True)]
        inputs = [a.detach().requires_grad_(a.requires_grad) if isinstance(a, Tensor) else a for a in args]
        again = ctx.state.again() if ctx.state else contextlib.nullcontext()
        with _native.enable_grad(), again, ctx.regions():
            outputs = ctx.function(*inputs)
        results = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
        pairs = [(o, g) for o, g in zip(results, grads, strict=True) if isinstance(o, Tensor) and o.requires_grad]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        backward([o for o, _ in pairs], [g for _, g in pairs])
        return None, None, *(a.grad if isinstance(a, Tensor) else None for a in inputs)


# --- what PyTorch's own parts are called ---------------------------------------------------------------------------


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with their tensors detached, each requiring gradients if it did. ``RuntimeError`` for no tuple."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple(a.detach().requires_grad_(a.requires_grad) if isinstance(a, Tensor) else a for a in inputs)


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn where no argument requires gradients: then there is none for what is in the function either."""
    if not any(value.requires_grad for value in inputs if isinstance(value, Tensor)):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=3)


class DefaultDeviceType:
    """The kind of device that random states are kept of where no argument tells."""

    _default_device_type = "cuda"

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        """Set it."""
        DefaultDeviceType._default_device_type = device

    @staticmethod
    def get_device_type() -> str:
        """What was set."""
        return DefaultDeviceType._default_device_type


def _cards(values: Any) -> Iterator[Any]:
    """The devices of tensors inside containers, but for the cpu and meta."""
    if isinstance(values, Tensor):
        if values.device.type not in ("cpu", "meta"):
            yield values.device
    elif isinstance(values, dict):
        yield from _cards(list(values.values()))
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from _cards(value)


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """Numbers of the cards that tensors among the arguments are on, and the states of their random streams."""
    devices = {str(device): device for device in _cards(args)}
    return [d.index or 0 for d in devices.values()], [default_generator(d).get_state() for d in devices.values()]


def set_device_states(devices: Iterable[int], states: Iterable[Tensor], *, device_type: str | None = None) -> None:
    """Put back what :func:`get_device_states` gave, on cards of a kind (:class:`DefaultDeviceType`)."""
    kind = device_type or DefaultDeviceType.get_device_type()
    for index, state in zip(devices, states, strict=True):
        default_generator(_native.device(kind, index)).set_state(state)

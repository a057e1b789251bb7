"""Checkpointing: activations are computed again in backward instead of being kept.

After Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016).
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from tesserack import _native
from tesserack._native import Tensor
from tesserack.autograd import Function, backward
from tesserack.autograd.graph import saved_tensors_hooks
from tesserack.random import default_generator

__all__ = ["CheckpointError", "checkpoint", "checkpoint_sequential"]


class CheckpointError(RuntimeError):
    """The function did not do the same when it ran again."""


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool = False,
    context_fn: Callable[[], tuple[Any, Any]] | None = None,
    preserve_rng_state: bool = True,
    determinism_check: str = "default",
    **kwargs: Any,
) -> Any:
    """``function(*args, **kwargs)``, keeping none of the tensors it saves for backward: it runs again to get them.

    Args:
        use_reentrant: use the older scheme: a backward within the backward; some input must require grad.
        context_fn: makes two context managers, around the first run and around the second.
        preserve_rng_state: let random operators draw the same numbers again.
        determinism_check: ``"default"`` compares shapes and dtypes of both runs, ``"none"`` does not.

    Raises ``CheckpointError`` in backward if the second run saves other tensors than the first.

    >>> import tesserack as ts
    >>> x = ts.tensor([1.0, 2.0], requires_grad=True)
    >>> checkpoint(lambda t: (t * t).sum(), x).backward()
    >>> x.grad
    tensor([2., 4.])
    """
    if use_reentrant:
        if kwargs or context_fn is not None:
            raise ValueError(
                f"checkpoint: use_reentrant=True takes no keyword arguments and no context_fn, got {[*kwargs]}"
            )
        return _Reentrant.apply(function, preserve_rng_state, *args)
    if determinism_check not in ("default", "none"):
        raise ValueError(f"checkpoint: expected determinism_check 'default' or 'none', got {determinism_check!r}")
    first, second = context_fn() if context_fn else (contextlib.nullcontext(), contextlib.nullcontext())
    if not _native.is_grad_enabled():
        with first:
            return function(*args, **kwargs)
    run = _Run(
        function, args, kwargs, _RandomState(args) if preserve_rng_state else None, second, determinism_check != "none"
    )
    with saved_tensors_hooks(run.pack, run.unpack), first:
        return function(*args, **kwargs)


def checkpoint_sequential(functions: Sequence[Callable[..., Any]], segments: int, input: Any, **kwargs: Any) -> Any:
    """Run functions one after another in ``segments`` checkpointed groups; the last group is not checkpointed."""
    steps = [*functions]
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


class _Enough(Exception):
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
        self._holders: list[weakref.ref[_Holder]] = []
        self._values: weakref.WeakKeyDictionary[_Holder, Tensor] = weakref.WeakKeyDictionary()

    def pack(self, tensor: Tensor) -> _Holder:
        holder = _Holder(len(self._holders), tensor)
        self._holders.append(weakref.ref(holder))
        return holder

    def unpack(self, holder: _Holder) -> Tensor:
        if holder not in self._values:
            self._run_again()
        if holder not in self._values:
            raise CheckpointError(
                f"checkpoint: the second run of {self._function!r} saved fewer tensors for backward than the first: "
                "it must do the same every time"
            )
        return self._values[holder]

    def _run_again(self) -> None:
        count = 0

        def keep(tensor: Tensor) -> Tensor:
            nonlocal count
            holder = self._holders[count]() if count < len(self._holders) else None
            count += 1
            if holder is not None:
                self._compare(holder, tensor)
                self._values[holder] = tensor.detach()
            if count >= len(self._holders):
                raise _Enough
            return tensor

        again = self._state.again() if self._state else contextlib.nullcontext()
        with (
            contextlib.suppress(_Enough),
            _native.enable_grad(),
            again,
            self._context,
            saved_tensors_hooks(keep, lambda tensor: tensor),
        ):
            self._function(*self._args, **self._kwargs)

    def _compare(self, holder: _Holder, tensor: Tensor) -> None:
        meta = (tuple(tensor.shape), tensor.dtype, str(tensor.device))
        if self._check and meta != holder.meta:
            raise CheckpointError(
                f"checkpoint: tensor {holder.index} saved for backward was {holder.meta} in the first run "
                f"and {meta} in the second: "
                "the function must do the same every time"
            )


# --- the reentrant scheme ------------------------------------------------------------------------------------------


class _Reentrant(Function):
    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        ctx.function = function
        ctx.state = _RandomState(args) if preserve_rng_state else None
        ctx.others = [None if isinstance(a, Tensor) else a for a in args]
        ctx.is_tensor = [isinstance(a, Tensor) for a in args]
        ctx.save_for_backward(*(a for a in args if isinstance(a, Tensor)))
        return function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        saved = iter(ctx.saved_tensors)
        args = [next(saved) if tensor else other for tensor, other in zip(ctx.is_tensor, ctx.others, strict=True)]
        inputs = [a.detach().requires_grad_(a.requires_grad) if isinstance(a, Tensor) else a for a in args]
        with _native.enable_grad(), ctx.state.again() if ctx.state else contextlib.nullcontext():
            outputs = ctx.function(*inputs)
        results = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
        pairs = [(o, g) for o, g in zip(results, grads, strict=True) if isinstance(o, Tensor) and o.requires_grad]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        backward([o for o, _ in pairs], [g for _, g in pairs])
        return None, None, *(a.grad if isinstance(a, Tensor) else None for a in inputs)

"""Checkpointing that keeps the results of chosen operators."""

from __future__ import annotations

import contextlib
import enum
import functools
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from tesserack import _native
from tesserack._native import Tensor
from tesserack.library import dispatch

__all__ = [
    "CheckpointPolicy",
    "SelectiveCheckpointContext",
    "create_selective_checkpoint_contexts",
    "recorded_operators",
]


class CheckpointPolicy(enum.Enum):
    """What becomes of an operator's results: kept, kept in the host's memory, or computed again.

    ``MUST_*`` and ``PREFER_*`` are the same here: nothing overrides a policy.
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


_SAVED = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)
_OFFLOADED = (CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD)


class SelectiveCheckpointContext:
    """What a policy is told of the call: the operator's result. It is asked in the first run alone."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute = is_recompute
        self.op_output = op_output


# --- the keys at which operators are seen -------------------------------------------------------------------------


class _Watch:
    """A dispatch key below autograd's at which ``see(call, *args)`` of whoever is in charge gets every operator."""

    def __init__(self, name: str) -> None:
        self._stack: list[Callable[..., Any]] = []
        self.key = dispatch.register_key(name, after="Autograd")
        self.key.fallback(lambda call, *args: self._stack[-1](call, *args))

    @contextlib.contextmanager
    def by(self, see: Callable[..., Any]) -> Iterator[None]:
        self._stack.append(see)
        try:
            with self.key.enabled():
                yield
        finally:
            self._stack.pop()


@functools.cache
def _watch(name: str) -> _Watch:
    return _Watch(name)


@functools.cache
def _records() -> dict[str, dict[str, Any]]:
    return {record["name"]: record for record in _native._operators()}


def _record(name: str) -> dict[str, Any]:
    if name not in _records():  # derivatives become operators when they are first needed
        _records.cache_clear()
    return _records()[name]


@contextlib.contextmanager
def recorded_operators(names: list[str] | None) -> Iterator[None]:
    """Append the names of operators that run inside; nothing for None."""
    if names is None:
        yield
        return

    def see(call: Any, *args: Any) -> Any:
        names.append(call.op)
        return call.redispatch(*args)

    with _watch("CheckpointTrace").by(see):
        yield


# --- keeping and giving back --------------------------------------------------------------------------------------


class _Kept:
    """A result that is kept, with its version, perhaps in the host's memory."""

    def __init__(self, value: Any, offload: bool) -> None:
        self._tensor = isinstance(value, Tensor)
        self._value = value.detach() if self._tensor else value
        self._device = value.device if self._tensor else None
        if self._tensor and offload:
            self._value = self._value.to("cpu", copy=True)
        self._version = self._value._version if self._tensor else 0

    def value(self, may_change: bool) -> Any:
        if not self._tensor:
            return self._value
        if self._value._version != self._version and not may_change:
            raise RuntimeError(
                "Tensor cached during selective activation checkpoint has been mutated; use copies, or "
                "allow_cache_entry_mutation=True"
            )
        return self._value.to(self._device).detach()


class _EachTime:
    """A context manager that may be entered again: each backward of a kept graph makes the second run anew."""

    def __init__(self, make: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
        self._make = make
        self._entered: list[contextlib.AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        self._entered.append(self._make())
        self._entered[-1].__enter__()

    def __exit__(self, *exc: Any) -> None:
        self._entered.pop().__exit__(*exc)


class _Run:
    """Both runs of one checkpointed call."""

    def __init__(self, policy: Callable[..., Any], may_change: bool) -> None:
        self._policy, self._may_change = policy, may_change
        self._kept: defaultdict[str, list[list[_Kept] | None]] = defaultdict(list)  # for each call; None: not kept
        self._several: dict[str, bool] = {}
        self._watch = _watch("SelectiveCheckpoint")

    @contextlib.contextmanager
    def first(self) -> Iterator[None]:
        with self._watch.by(functools.partial(self._see, False)):
            yield

    @contextlib.contextmanager
    def second(self) -> Iterator[None]:
        self._given: defaultdict[str, int] = defaultdict(int)
        with self._watch.by(functools.partial(self._see, True)):
            yield

    def _see(self, again: bool, call: Any, *args: Any) -> Any:
        record = _record(call.op)
        # Whose parts are recorded, what shows memory in another way, and what writes: these run every time.
        if record["traced"] or record["view"] or "!" in record["schema"] or not record["differentiable"]:
            return call.redispatch(*args)
        if again and self._is_kept(call.op):
            return self._give_back(call.op)
        with self._watch.key.enabled(False):  # its parts belong to it
            return call.redispatch(*args) if again else self._keep(call, args)

    def _keep(self, call: Any, args: Any) -> Any:
        result = call.redispatch(*args)
        answer = self._chosen(SelectiveCheckpointContext(is_recompute=False, op_output=result), call.op, args)
        if answer in _SAVED + _OFFLOADED:
            self._several[call.op] = isinstance(result, (tuple, list))
            parts = result if self._several[call.op] else (result,)
            self._kept[call.op].append([_Kept(part, answer in _OFFLOADED) for part in parts])
        else:
            self._kept[call.op].append(None)
        return result

    def _is_kept(self, op: str) -> bool:
        """Whether the result of this call of the second run is kept; else the call is one to make again."""
        number = self._given[op]
        self._given[op] += 1
        if number >= len(self._kept[op]):
            raise RuntimeError(f"{op} encountered during backward, but not found in storage: the function must do the "
                               "same in both runs")  # fmt: skip
        return self._kept[op][number] is not None

    def _give_back(self, op: str) -> Any:
        number = self._given[op] - 1
        parts = self._kept[op][number] or []
        if not parts:
            raise RuntimeError("Trying to backward an extra time. You are only allowed to backward once on any region "
                               "computed under selective activation checkpoint.")  # fmt: skip
        self._kept[op][number] = []
        values = [part.value(self._may_change) for part in parts]
        return tuple(values) if self._several[op] else values[0]

    def _chosen(self, context: SelectiveCheckpointContext, name: str, args: Any) -> CheckpointPolicy:
        answer = self._policy(context, _shown(name, args), *args)
        if isinstance(answer, bool):
            return CheckpointPolicy.MUST_SAVE if answer else CheckpointPolicy.PREFER_RECOMPUTE
        if not isinstance(answer, CheckpointPolicy):
            raise TypeError(f"selective checkpoint: expected the policy to return a CheckpointPolicy, got {answer!r}")
        return answer


def _shown(name: str, args: Any) -> Any:
    """The operator as PyTorch's programs name it, ``torch.ops.aten.mm.default``."""
    from tesserack.aten.operators import namespace

    base, _, overload = name.partition(".")
    space, _, own = base.rpartition("::")
    if space:  # an operator of the program's
        return getattr(getattr(namespace(space), own), overload or "default")
    aten: Any = namespace("aten")
    if base == "matmul" and all(isinstance(a, Tensor) for a in args[:2]):
        base = {(2, 2): "mm", (3, 3): "bmm"}.get((args[0].ndim, args[1].ndim), base)
    elif base in ("conv1d", "conv2d", "conv3d"):
        base = "convolution"
    elif base == "linear":
        base = "mm" if args[2] is None else "addmm"
    return getattr(getattr(aten, base), overload or "default")


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Callable[..., Any] | list[Any], allow_cache_entry_mutation: bool = False
) -> tuple[Any, Any]:
    """Two contexts for ``checkpoint(context_fn=...)`` that keep the results of some operators.

    Args:
        policy_fn_or_list: called as ``policy(context, op, *args)`` for each operator that is recorded, it returns a
            :class:`CheckpointPolicy`; or a list of the operators whose results are to be kept.
        allow_cache_entry_mutation: do not raise ``RuntimeError`` where such a result was written to since.

    >>> import functools, tesserack as ts
    >>> from tesserack.utils.checkpoint import checkpoint
    >>> keep = functools.partial(create_selective_checkpoint_contexts, [ts.matmul])
    >>> x = ts.ones(2, 2, requires_grad=True)
    >>> checkpoint(lambda t: (t @ t).sin().sum(), x, context_fn=keep, use_reentrant=False).backward()
    >>> x.grad.shape
    tesserack.Size([2, 2])
    """
    if isinstance(policy_fn_or_list, list):
        policy: Callable[..., Any] = _from_list(policy_fn_or_list)
    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    run = _Run(policy, allow_cache_entry_mutation)
    return _EachTime(run.first), _EachTime(run.second)


def _from_list(chosen: list[Any]) -> Callable[..., Any]:
    """A policy that keeps the results of operators given as overloads, packets or functions."""
    from tesserack.aten.operators import OpOverloadPacket

    for op in chosen:
        if isinstance(op, OpOverloadPacket):
            raise ValueError(f"Expected op in `op_list` to be an OpOverload but got the packet {op}; please update the "
                             f"OpOverloadPacket to a specific OpOverload, as {op}.{op.overloads()[0]}")  # fmt: skip
        if not callable(op):
            raise ValueError(f"Expected op in `op_list` to be an OpOverload but got: {op!r} of type {type(op)}")
    names = {getattr(op, "__name__", str(op)).partition(".")[0] for op in chosen}

    def policy(context: SelectiveCheckpointContext, op: Any, *args: Any) -> CheckpointPolicy:
        base = op.__name__.partition(".")[0]
        kept = op in chosen or base in names or ("matmul" in names and base in ("mm", "bmm"))
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return policy

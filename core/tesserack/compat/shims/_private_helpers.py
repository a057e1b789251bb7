"""Private functions and constants of PyTorch's modules that packages take for their own code."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack._tensor import printing
from tesserack.utils._pytree_kinds import MappingKey
from tesserack.utils.profiler import ProfilerAction

__all__: list[str] = []

EXTRA_STATE_SUFFIX = "_extra_state"
PRESERVED_ATTRIBUTES = "_user_preserved_attributes"
NUMPY_TEXT_OR_OBJECT = re.compile(r"[SaUO]")


# --- trees -----------------------------------------------------------------------------------------------------------


def dict_flatten(d: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
    """Its values and its keys.

    >>> dict_flatten({"a": 1, "b": 2})
    ([1, 2], ['a', 'b'])
    """
    return list(d.values()), list(d)


def dict_flatten_with_keys(d: dict[Any, Any]) -> tuple[list[tuple[MappingKey, Any]], list[Any]]:
    """Pairs of a :class:`MappingKey` and a value, and the keys."""
    return [(MappingKey(key), value) for key, value in d.items()], list(d)


def dict_unflatten(values: Sequence[Any], context: Sequence[Any]) -> dict[Any, Any]:
    """The dict of which :func:`dict_flatten` gave values and keys; ``ValueError`` for other numbers of them."""
    return dict(zip(context, values, strict=True))


# --- tensors ---------------------------------------------------------------------------------------------------------


def is_contiguous_or_false(a: Tensor, memory_format: Any = ts.contiguous_format) -> bool:
    """Whether it is contiguous: sizes are known here, so that it can always be said."""
    return a.is_contiguous(memory_format=memory_format)


def is_fake(x: Any) -> bool:
    """Whether a tensor has no values, as those of a program that is exported."""
    from tesserack.aten.fake.fake_tensor import FakeTensor

    return isinstance(x, FakeTensor)


def unwrap_optional(x: Any) -> Any:
    """The value; ``AssertionError`` if it is None."""
    assert x is not None, "Unwrapping null optional"
    return x


def clipped_sigmoid(x: Tensor) -> Tensor:
    """The sigmoid, kept off 0 and 1 by the smallest normal number and the distance to the number below 1."""
    info = ts.finfo(x.dtype)
    return ts.clamp(ts.sigmoid(x), min=info.tiny, max=1.0 - info.eps)


def default_restore_location(storage: Any, location: str) -> Any:
    """A storage on the device that ``location`` names: for a ``map_location`` of ``load``."""
    device = ts.device(location)
    return storage if storage.device == device else storage.to(device=device)


def location_tag(storage: Any) -> str:
    """How a file names the device of a storage, as ``"cpu"`` or ``"cuda:0"``."""
    return str(storage.device)


# --- the rest --------------------------------------------------------------------------------------------------------


def default_schedule_fn(_: int) -> ProfilerAction:
    """Every step is recorded."""
    return ProfilerAction.RECORD


def is_checkpoint_valid() -> bool:
    """True: gradients may be asked for in any way where a checkpoint runs once more."""
    return True


@contextlib.contextmanager
def enable_get_lr_call(scheduler: Any) -> Iterator[Any]:
    """Within it ``_get_lr_called_within_step`` is True, as where a scheduler asks its parent for rates."""
    scheduler._get_lr_called_within_step = True
    try:
        yield scheduler
    finally:
        scheduler._get_lr_called_within_step = False


def sync_module_states(
    module: Any,
    process_group: Any,
    broadcast_bucket_size: int,
    src: int,
    params_and_buffers_to_ignore: Sequence[str] = (),
    broadcast_buffers: bool = True,
) -> None:
    """Give every rank of a group the parameters, and buffers, that rank ``src`` has."""
    from tesserack.distributed._coalesced import broadcast_coalesced

    named = [*module.named_parameters(), *(module.named_buffers() if broadcast_buffers else ())]
    states = [t.detach() for name, t in named if name not in params_and_buffers_to_ignore]
    if states:
        broadcast_coalesced(process_group, states, broadcast_bucket_size, src)


def rebuild_from_type_v2(func: Callable[..., Any], new_type: type, args: tuple[Any, ...], state: Any) -> Any:
    """A tensor of a class, and with the attributes, that it had when it was saved."""
    value = func(*args)
    if type(value) is not new_type:
        value = value.as_subclass(new_type)
    own = getattr(new_type, "__setstate__", None)
    if own not in (None, getattr(Tensor, "__setstate__", None)):
        own(value, state)
        return value
    parts = state if isinstance(state, tuple) and len(state) == 2 else (state,)
    for part in parts:
        for name, item in (part or {}).items():
            setattr(value, name, item)
    return value


@contextlib.contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """Tensors are printed so within it; what :func:`set_printoptions` takes."""
    names = ("precision", "threshold", "edgeitems", "linewidth", "sci_mode")
    before = {name: getattr(printing._options, name) for name in names}
    printing.set_printoptions(**options)
    try:
        yield
    finally:
        printing.set_printoptions(**before)

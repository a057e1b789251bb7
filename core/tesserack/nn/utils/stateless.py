"""Calling a module with other tensors in the place of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from tesserack import Tensor
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import Parameter

__all__ = ["functional_call"]

_ABSENT: Any = object()  # stands for a name that the module did not have


def functional_call(
    module: Module,
    parameters_and_buffers: Mapping[str, Tensor],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """``module(*args, **kwargs)`` with the tensors named in ``parameters_and_buffers`` in the place of its own.

    What the call assigns to these names is afterwards in ``parameters_and_buffers``, if that can change, and not in the
    module; changes made in place stay in the given tensors.
    ``tie_weights`` replaces every name of a tensor that the module holds under several; ``strict`` wants all names
    given and no others; without it, a name that is none of the module's parameters is set for the time of the call, as
    in PyTorch. ``RuntimeError`` for names that do not match with ``strict``, ``ValueError`` for two tensors given for
    one tied weight, ``TypeError`` for the name of a submodule or method.

    >>> import tesserack as ts
    >>> from tesserack import nn
    >>> layer = nn.Linear(2, 1, bias=False)
    >>> functional_call(layer, {"weight": ts.ones(1, 2)}, ts.tensor([1.0, 2.0])).tolist()
    [3.0]
    """
    positional = () if args is None else args if isinstance(args, tuple) else (args,)
    with replaced(module, parameters_and_buffers, tie_weights, strict):
        return module(*positional, **(kwargs or {}))


@contextlib.contextmanager
def replaced(
    module: Module, given: Mapping[str, Tensor], tie_weights: bool = False, strict: bool = False
) -> Iterator[None]:
    """A context within which the module holds the tensors given, as :func:`functional_call` has it for its call."""
    chosen = dict(given)
    if tie_weights or strict:  # modules that hold each other have no end of names
        own = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
        chosen = _with_tied(own, given) if tie_weights else chosen
        if strict:
            _check_names(own, chosen)
    saved: list[tuple[Module, str, str, Any]] = []
    try:
        for path, tensor in chosen.items():
            prefix, _, name = path.rpartition(".")
            holder = module.get_submodule(prefix)
            table = _table_of(holder, name, path, tensor)
            saved.append((holder, table, name, getattr(holder, table).get(name, _ABSENT)))
            getattr(holder, table)[name] = tensor
        yield
    finally:
        interruption: KeyboardInterrupt | None = None
        try:
            if isinstance(given, MutableMapping):
                for path, (holder, table, name, _) in zip(chosen, saved, strict=False):
                    now = getattr(holder, table).get(name)
                    if path in given and isinstance(now, Tensor):
                        given[path] = now
        finally:
            while saved:
                try:
                    while saved:
                        holder, table, name, tensor = saved[-1]
                        if tensor is _ABSENT:
                            getattr(holder, table).pop(name, None)
                        else:
                            getattr(holder, table)[name] = tensor
                        saved.pop()
                except KeyboardInterrupt as error:  # nothing must stay replaced
                    interruption = error
            if interruption is not None:
                raise interruption


def _table_of(holder: Module, name: str, path: str, tensor: object) -> str:
    if not (tensor is None or isinstance(tensor, Tensor)):
        raise TypeError(f"functional_call: {tensor!r} is not an instance of Tensor (given as {path!r})")
    for table in ("_parameters", "_buffers"):
        if name in getattr(holder, table):
            return table
    if "." in name or not name or hasattr(type(holder), name) or name in holder._modules:
        raise TypeError(f"functional_call: {type(holder).__name__} takes no tensor as {name!r} (in {path!r})")
    held = holder.__dict__.get(name)
    if not (held is None or isinstance(held, Tensor)):
        raise TypeError(f"functional_call: attribute {path!r} is {held!r}, which is not an instance of Tensor")
    # A plain attribute, which the module may have or not; a parameter that it lacks is listed as one.
    return "_parameters" if isinstance(tensor, Parameter) and name not in holder.__dict__ else "__dict__"


def _with_tied(own: dict[str, Tensor], given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    names: dict[int, list[str]] = {}
    for name, tensor in own.items():
        names.setdefault(id(tensor), []).append(name)
    chosen = dict(given)
    for name, tensor in given.items():
        for other in names.get(id(own.get(name)), ()):
            if chosen.setdefault(other, tensor) is not tensor:
                raise ValueError(f"functional_call: got two values for the tied weights {name!r} and {other!r}")
    return chosen


def _check_names(own: dict[str, Tensor], chosen: dict[str, Tensor]) -> None:
    missing, unexpected = sorted(own.keys() - chosen.keys()), sorted(chosen.keys() - own.keys())
    if missing or unexpected:
        raise RuntimeError(f"functional_call: missing keys {missing}, unexpected keys {unexpected}")

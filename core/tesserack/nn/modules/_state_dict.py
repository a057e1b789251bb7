"""Writing the state of a module tree into a flat dictionary, and reading it back."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tesserack import Tensor, equal, no_grad
from tesserack.nn.modules._hooks import Hooks, add_hook
from tesserack.nn.modules._registry import Registry
from tesserack.nn.parameter import Parameter
from tesserack.utils.hooks import RemovableHandle

_EXTRA_STATE = "_extra_state"


class _LocalMetadata(dict[str, Any]):
    """A module's own metadata, as its hooks see it; beside it what the whole load has assigned so far."""

    assigned: dict[int, Any]


class IncompatibleKeys(NamedTuple):
    """What ``load_state_dict`` did not find, and what it found but had no use for."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


class StateDict(OrderedDict[str, Any]):
    """What ``Module.state_dict`` returns: an ordered dictionary with the modules' versions in ``_metadata``."""

    _metadata: OrderedDict[str, dict[str, Any]]

    def __repr__(self) -> str:
        return repr(OrderedDict(self))  # as PyTorch's prints


class StateDictMixin:
    """``state_dict``, ``load_state_dict`` and their hooks."""

    _version: int | None = 1
    _parameters: Registry
    _buffers: Registry
    _modules: Registry
    _non_persistent_buffers_set: set[str]
    _state_dict_hooks: Hooks
    _state_dict_pre_hooks: Hooks
    _load_state_dict_pre_hooks: Hooks
    _load_state_dict_post_hooks: Hooks

    def get_extra_state(self) -> Any:
        """Override to store more than parameters and buffers; saved under the module's name + ``_extra_state``."""
        raise RuntimeError(f"{type(self).__name__}.get_extra_state is not defined")

    def set_extra_state(self, state: Any) -> None:
        """Override to restore what :meth:`get_extra_state` returned."""
        raise RuntimeError(f"{type(self).__name__}.set_extra_state is not defined, yet the state dict has extra state")

    def state_dict(
        self, *args: Any, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """All parameters and persistent buffers by dotted name, in registration order.

        The tensors share memory with the module and do not require grad, unless ``keep_vars`` hands out the
        parameters themselves. ``prefix`` goes before every name; ``destination`` is filled instead of a new one.

        >>> from tesserack import nn
        >>> list(nn.Sequential(nn.Linear(2, 3), nn.ReLU()).state_dict())
        ['0.weight', '0.bias']
        """
        if args:  # the old form, where they came by position
            given = dict(zip(("destination", "prefix", "keep_vars"), args, strict=False))
            return self.state_dict(**{"destination": destination, "prefix": prefix, "keep_vars": keep_vars, **given})
        if destination is None:
            destination = StateDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in list(self._state_dict_pre_hooks.values()):
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in list(self._state_dict_hooks.values()):
            replaced = hook(self, destination, prefix, local_metadata)
            if replaced is not None:
                destination = replaced
        return destination

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Store this module's own tensors; override to store them in another way."""
        for name, tensor in self._own_state():
            destination[prefix + name] = tensor if keep_vars else tensor.detach()
        if _overrides(self, "get_extra_state"):
            destination[prefix + _EXTRA_STATE] = self.get_extra_state()

    def _own_state(self) -> list[tuple[str, Tensor]]:
        own = [*self._parameters.items()]
        own += [
            (name, buffer) for name, buffer in self._buffers.items() if name not in self._non_persistent_buffers_set
        ]
        return [(name, tensor) for name, tensor in own if tensor is not None]

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy the tensors of ``state_dict`` into the parameters and buffers of the same names.

        With ``strict`` every name must match on both sides. ``assign=True`` puts the given tensors in place instead
        of copying values. Raises ``TypeError`` when ``state_dict`` is not a mapping and ``RuntimeError`` listing all
        missing and unexpected names and all shapes that differ. Returns the names that did not match.

        >>> from tesserack import nn
        >>> a, b = nn.Linear(2, 3), nn.Linear(2, 3)
        >>> b.load_state_dict(a.state_dict())
        <All keys matched successfully>
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}")
        load = _Load(getattr(state_dict, "_metadata", None), assign)
        load.into(self, "", OrderedDict(state_dict))
        if strict:
            load.complain_about_names()
        if load.errors:
            raise RuntimeError(
                f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join(load.errors)
            )
        return IncompatibleKeys(load.missing, load.unexpected)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load this module's own tensors; override to accept older layouts. Problems are appended to the lists."""
        loading = (state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        for hook in list(self._load_state_dict_pre_hooks.values()):
            if isinstance(hook, _ModuleHook):
                hook.hook(self, *loading)
            else:
                hook(*loading)
        assigned = getattr(local_metadata, "assigned", {})
        assign = assigned if local_metadata.get("assign_to_params_buffers") else None
        own = dict(self._own_state())
        for name, tensor in own.items():
            key = prefix + name
            if key in state_dict:
                self._load_tensor(name, tensor, key, state_dict[key], assign, error_msgs)
            elif strict:
                missing_keys.append(key)
        self._load_extra_state(state_dict, prefix, strict, missing_keys, unexpected_keys)
        if strict:
            unexpected_keys += self._strangers(state_dict, prefix, own)

    def _load_tensor(
        self, name: str, tensor: Tensor, key: str, value: Any, assign: dict[int, Any] | None, error_msgs: list[str]
    ) -> None:
        if not isinstance(value, Tensor):
            error_msgs.append(f"{key}: expected a Tensor, got {type(value).__name__}")
            return
        if tensor.dim() == 0 and value.dim() == 1 and len(value):  # numbers were saved as vectors once
            value = value[0]
        if tuple(value.shape) != tuple(tensor.shape):
            error_msgs.append(
                f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, "
                f"the shape in current model is {tensor.shape}."
            )
            return
        try:
            with no_grad():
                if assign is not None:
                    self._assign_tensor(name, tensor, value, assign)
                else:
                    if tensor.is_meta and not value.is_meta:
                        warnings.warn(
                            f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in "
                            "the current model, which is a no-op. (Did you mean to pass `assign=True` to assign items "
                            "in the state dictionary to their corresponding key in the module instead of copying them "
                            "in place?)",
                            stacklevel=2,
                        )
                    tensor.copy_(value)
        except Exception as error:
            error_msgs.append(
                f"{key}: copying {value.dtype} on {value.device} into {tensor.dtype} on {tensor.device} failed: {error}"
            )

    def _assign_tensor(self, name: str, tensor: Tensor, value: Tensor, assigned: dict[int, Any]) -> None:
        """Put ``value`` in the place of a tensor, and what is there already where that had another place too and the
        values are the same: tied weights stay tied."""
        before = assigned.get(id(tensor))
        if before is not None and _same(before[1], value):
            value = before[1]
        elif isinstance(tensor, Parameter):
            if not isinstance(value, Parameter):
                value = Parameter(value, requires_grad=tensor.requires_grad)
            else:
                value.requires_grad_(tensor.requires_grad)
        assigned.setdefault(id(tensor), (tensor, value))
        (self._parameters if isinstance(tensor, Parameter) else self._buffers)[name] = value

    def _load_extra_state(
        self, state_dict: dict[str, Any], prefix: str, strict: bool, missing: list[str], unexpected: list[str]
    ) -> None:
        key = prefix + _EXTRA_STATE
        if _overrides(self, "set_extra_state"):
            if key in state_dict:
                self.set_extra_state(state_dict[key])
            elif strict:
                missing.append(key)
        elif strict and key in state_dict:
            unexpected.append(key)

    def _strangers(self, state_dict: dict[str, Any], prefix: str, own: Mapping[str, Any]) -> list[str]:
        """Names below ``prefix`` that neither this module nor one of its children could own."""
        found = []
        for key in state_dict:
            if not key.startswith(prefix) or key == prefix + _EXTRA_STATE:
                continue
            first, *deeper = key[len(prefix) :].split(".", 1)
            if deeper:
                if first not in self._modules:
                    found.append(key)
            elif first not in own:
                found.append(key)
        return found

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, prefix, keep_vars)`` before the module's state is collected."""
        return add_hook(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata)`` afterwards; it may edit ``state_dict`` in place."""

        def checked(module: Any, state_dict: Any, prefix: str, metadata: Any) -> None:
            if hook(module, state_dict, prefix, metadata) is not None:
                raise RuntimeError("state_dict post-hook: expected None, edit the state_dict in place")

        return add_hook(
            self._state_dict_hooks, functools.wraps(hook)(checked) if hasattr(hook, "__name__") else checked
        )

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        return add_hook(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, metadata, strict, missing, unexpected, errors)`` before loading.

        It may edit ``state_dict`` (a copy of the caller's) in place, for example to rename keys.
        """
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        return add_hook(self._load_state_dict_pre_hooks, _ModuleHook(hook) if with_module else hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, incompatible_keys)`` after loading; it may edit both lists in place."""
        return add_hook(self._load_state_dict_post_hooks, hook)


class _ModuleHook:
    """Marks a hook that wants the module first, without holding the module (that would be a reference cycle)."""

    def __init__(self, hook: Callable[..., Any]) -> None:
        self.hook = hook

    def __call__(self, module: Any, *loading: Any) -> Any:
        return self.hook(module, *loading)


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same values."""
    if a is b:
        return True
    if a.shape != b.shape or a.dtype is not b.dtype or a.device != b.device:
        return False
    return a.is_meta or a.data_ptr() == b.data_ptr() or bool(equal(a, b))


class _Load:
    """One ``load_state_dict``: walks the modules and gathers what does not fit."""

    def __init__(self, metadata: Any, assign: bool) -> None:
        self.metadata = metadata or {}
        self.assign = assign
        self._assigned: dict[int, Any] = {}  # what took the place of a tensor, by its id
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.errors: list[str] = []

    def into(self, module: Any, prefix: str, state: dict[str, Any]) -> None:
        local = _LocalMetadata(self.metadata.get(prefix[:-1], {}))
        if self.assign:
            local["assign_to_params_buffers"] = True
            local.assigned = self._assigned
        # Always strict here: what did not match is reported to the caller even if it is no error.
        module._load_from_state_dict(state, prefix, local, True, self.missing, self.unexpected, self.errors)
        for name, child in module._modules.items():
            if child is not None:
                below = f"{prefix}{name}."
                self.into(child, below, {key: value for key, value in state.items() if key.startswith(below)})
        for hook in list(module._load_state_dict_post_hooks.values()):
            if hook(module, IncompatibleKeys(self.missing, self.unexpected)) is not None:
                raise AssertionError(
                    "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new "
                    "values; edit the two lists of incompatible keys in place"
                )

    def complain_about_names(self) -> None:
        """Turn missing and unexpected names into errors, before those about shapes."""
        lists = (("Missing", self.missing), ("Unexpected", self.unexpected))
        self.errors[:0] = [
            f"{kind} key(s) in state_dict: " + ", ".join(f'"{name}"' for name in names) + "."
            for kind, names in lists
            if names
        ]


def _overrides(module: StateDictMixin, method: str) -> bool:
    return getattr(type(module), method) is not getattr(StateDictMixin, method)

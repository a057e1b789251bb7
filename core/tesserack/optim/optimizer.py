"""The base class of optimizers: parameter groups, state, saving, hooks.

A new optimizer defines ``_check_group`` (complain about bad options) and ``_update`` (one step of one group, best as
one fused operator for each list of :func:`same_kind`); the rest is here. Overriding ``step`` as in PyTorch works too.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.autograd import _whole
from tesserack.optim._counts import NUMBERS
from tesserack.optim._kept_names import Inherited
from tesserack.utils import _ranges
from tesserack.utils.hooks import RemovableHandle

__all__ = ["Optimizer", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook"]

Group = dict[str, Any]
Hooks = OrderedDict[int, Callable[..., Any]]


_HOOK_TABLES = tuple(
    f"_{what}_{when}_hooks" for what in ("step", "state_dict", "load_state_dict") for when in ("pre", "post")
)

_GLOBAL: dict[str, Hooks] = {"_step_pre_hooks": OrderedDict(), "_step_post_hooks": OrderedDict()}


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` before each step of every optimizer, before its own hooks."""
    return _add(_GLOBAL["_step_pre_hooks"], hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` after each step of every optimizer, after its own hooks."""
    return _add(_GLOBAL["_step_post_hooks"], hook)


def _with_hooks(run: Callable[..., Any]) -> Callable[..., Any]:
    """``step`` with its hooks around it; the ``super().step()`` of a subclass runs them once."""

    @functools.wraps(run)
    def step(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if self._stepping:
            return run(self, *args, **kwargs)
        if _whole.takers:
            found = _whole.take(step, (self, *args), kwargs)
            if found is not NotImplemented:
                return found
        self._stepping = True
        try:
            if _ranges.named:
                with _ranges.around(f"Optimizer.step#{type(self).__name__}.step"):
                    result = _between_hooks(run, self, args, kwargs)
            else:
                result = _between_hooks(run, self, args, kwargs)
        finally:
            self._stepping = False
        self._steps_taken += 1
        return result

    _whole.add_entry(step)
    return step


def _between_hooks(run: Callable[..., Any], self: Optimizer, args: Any, kwargs: Any) -> Any:
    for pre in _hooks_of(self, "_step_pre_hooks"):
        args, kwargs = _replaced_arguments(pre(self, (self, *args), kwargs), args, kwargs)
    result = run(self, *args, **kwargs)
    for post in _hooks_of(self, "_step_post_hooks"):
        post(self, (self, *args), kwargs)
    return result


def _hooks_of(optimizer: Optimizer, name: str) -> list[Callable[..., Any]]:
    """The hooks now; none in a subclass that does not call ``super().__init__``, as wrappers of optimizers do not."""
    hooks: Hooks | None = getattr(optimizer, name, None)
    own, all_of_them = list(hooks.values()) if hooks else [], list(_GLOBAL[name].values())
    return own + all_of_them if name == "_step_post_hooks" else all_of_them + own


def _replaced_arguments(answer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    if answer is None:
        return args, kwargs
    if not (isinstance(answer, tuple) and len(answer) == 2):
        raise RuntimeError(f"optimizer step pre-hook: expected None or (args, kwargs), got {answer!r}")
    return tuple(answer[0])[1:], answer[1]


def _check_defaults(defaults: Mapping[str, Any]) -> None:
    rate = defaults.get("lr")
    if isinstance(rate, Tensor) and rate.numel() != 1:
        raise ValueError(f"optimizer: Tensor lr must be 1-element, got shape {tuple(rate.shape)}")
    for other in ("differentiable", "foreach"):
        if defaults.get("fused") and defaults.get(other):
            raise RuntimeError(f"optimizer: `fused` and `{other}` cannot be True together; give one of them")


@_whole.keeps_itself
class Optimizer(Inherited):
    """Parameters in groups with options, and a state per parameter.

    ``params`` is an iterable of tensors, of (name, tensor) pairs, or of dicts with such an iterable under "params"
    and the options in which the group differs from ``defaults``. Raises ``TypeError`` for a lone tensor and
    ``ValueError`` for no parameters, non-leaf tensors, bad options, or a parameter in two groups.
    """

    state: defaultdict[Any, dict[str, Any]]
    param_groups: list[Group]
    _step_pre_hooks: Hooks
    _step_post_hooks: Hooks
    _state_dict_pre_hooks: Hooks
    _state_dict_post_hooks: Hooks
    _load_state_dict_pre_hooks: Hooks
    _load_state_dict_post_hooks: Hooks
    _stepping = False
    _steps_taken = 0
    _step_known: Any = None  # what programs had put in the place of step() when the last schedule was made

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.__dict__["step"])  # type: ignore[method-assign]

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got a Tensor; "
                "pass [tensor]"
            )
        if isinstance(defaults, Mapping):  # what a subclass keeps there otherwise is its own affair
            _check_defaults(defaults)
        self.defaults = defaults
        self.state = defaultdict(dict)
        self.param_groups = []
        self._make_hook_tables()
        self._check_group(defaults)
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list; pass model.parameters()")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def _make_hook_tables(self) -> None:
        for name in _HOOK_TABLES:
            setattr(self, name, OrderedDict())

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the hooks, which need not be of a kind that pickles, as in PyTorch."""
        return {name: value for name, value in vars(self).items() if name not in _HOOK_TABLES}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_step_pre_hooks" not in vars(self):
            self._make_hook_tables()

    # --- the step -----------------------------------------------------------------------------------------------

    @_with_hooks
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient. A ``closure`` is called first, to compute the loss returned."""
        loss = None
        if closure is not None:
            with ts.enable_grad():
                loss = closure()
        for group in self.param_groups:
            with ts.enable_grad() if group.get("differentiable") else ts.no_grad():  # an interruption ends these
                self._update(group)
        return loss

    def _update(self, group: Group) -> None:
        """One step of one group; called without gradient recording, unless the group is ``differentiable``."""
        raise NotImplementedError(f"{type(self).__name__}: define _update(group), or override step()")

    def _patch_step_function(self) -> None:
        """Nothing: hooks stand around ``step`` from the class on. Wrappers of optimizers call it, as in PyTorch."""

    def _check_group(self, group: Group) -> None:
        """Raise ``ValueError`` for options out of range; called with the defaults and with every group."""

    @_whole.whole
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop all gradients; with ``set_to_none=False`` fill them with zeros instead."""
        if _ranges.named:
            with _ranges.around(f"Optimizer.zero_grad#{type(self).__name__}.zero_grad"):
                self._drop_grads(set_to_none)
        else:
            self._drop_grads(set_to_none)

    def _drop_grads(self, set_to_none: bool) -> None:
        for group in self.param_groups:
            if set_to_none:
                _native._drop_grads(group["params"])
                continue
            for param in group["params"]:
                if param.grad is not None:
                    param.grad = param.grad.detach().zero_()

    # --- groups -------------------------------------------------------------------------------------------------

    def add_param_group(self, param_group: Group) -> None:
        """Add a dict with "params" and options; options not given are the optimizer's defaults."""
        if not isinstance(param_group, dict):
            raise TypeError(f"add_param_group: expected a dict, got {type(param_group).__name__}")
        if "params" not in param_group:
            raise ValueError(f"add_param_group: expected the key 'params', got {sorted(param_group)}")
        group = dict(param_group)
        group["params"] = self._listed(group)
        group |= {key: value for key, value in self.defaults.items() if key not in group}
        self._check_group(group)
        self._check_params(group["params"])
        self.param_groups.append(group)

    def _listed(self, group: Group) -> list[Tensor]:
        """The parameters of a new group as a list; their names, if given, go to ``group["param_names"]``."""
        params = group["params"]
        if isinstance(params, Tensor):
            return [params]
        if isinstance(params, (set, frozenset)):
            raise TypeError("optimizer: expected parameters in a fixed order, got a set; use a list")
        params = list(params)
        pairs = [isinstance(param, tuple) and len(param) == 2 for param in params]
        if any(pairs) and not all(pairs):
            raise ValueError(
                "optimizer: all optimizer params should be with/without names. Some param names are missing"
            )
        if any(pairs):
            group["param_names"] = [name for name, _ in params]
            params = [param for _, param in params]
        named = any("param_names" in other for other in self.param_groups)
        if self.param_groups and named != ("param_names" in group):
            raise ValueError("add_param_group: give names for the parameters of all groups, or of none")
        return params

    def _check_params(self, params: list[Any]) -> None:
        for param in params:
            if not isinstance(param, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(param).__name__}")
            if not (param.is_leaf or param.retains_grad or self.defaults.get("differentiable")):
                raise ValueError("optimizer: can't optimize a non-leaf Tensor; pass the tensors it was computed from")
        if len(set(params)) != len(params):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters, which are updated once for each time",
                stacklevel=4,
            )
        taken = {param for group in self.param_groups for param in group["params"]}
        if not taken.isdisjoint(params):
            raise ValueError("optimizer: some parameters appear in more than one parameter group")

    # --- saving -------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """``{"state": {index: state}, "param_groups": [options with indices]}``; the tensors are shared, not copied.

        Parameters are numbered through all groups, so the dict can be loaded into an optimizer built alike.
        """
        for hook in list(self._state_dict_pre_hooks.values()):
            hook(self)
        index: dict[Any, int] = {}
        for i, param in enumerate(self._all_params()):
            index.setdefault(param, i)  # what is listed again keeps its first number
        groups = self.param_groups
        packed: dict[str, Any] = {
            # Some optimizers keep what belongs to no parameter under a name, and it need not be a dict.
            "state": {
                index.get(key, key): dict(value) if isinstance(value, dict) else value
                for key, value in self.state.items()
            },
            "param_groups": [_options(group) | {"params": [index[p] for p in group["params"]]} for group in groups],
        }
        for hook in list(self._state_dict_post_hooks.values()):
            packed = hook(self, packed) or packed
        return packed

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over options and state; tensors are copied, to the device and floating-point dtype of their parameter.

        Raises ``ValueError`` when the groups differ in number or size.
        """
        packed = dict(state_dict)
        for hook in list(self._load_state_dict_pre_hooks.values()):
            packed = hook(self, packed) or packed
        saved = packed["param_groups"]
        sizes, saved_sizes = ([len(group["params"]) for group in groups] for groups in (self.param_groups, saved))
        if sizes != saved_sizes:
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group: "
                f"expected groups of sizes {sizes}, got {saved_sizes}"
            )
        numbers = (number for group in saved for number in group["params"])
        params = dict(zip(numbers, self._all_params(), strict=True))
        state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        for key, value in packed["state"].items():
            param = params.get(key)
            state[key if param is None else param] = value if param is None else _state_for(param, value)
        self.state = state
        self.param_groups = [
            {**self._kept_options(group), **copy.deepcopy(old), "params": group["params"]}
            for group, old in zip(self.param_groups, saved, strict=True)
        ]
        for hook in list(self._load_state_dict_post_hooks.values()):
            hook(self)

    def _kept_options(self, group: Group) -> Group:
        """What a saved group may lack: options that are newer, and names. Others go, as what schedulers note."""
        return {key: value for key, value in group.items() if key in self.defaults or key == "param_names"}

    def _all_params(self) -> Iterable[Tensor]:
        return (param for group in self.param_groups for param in group["params"])

    # --- hooks --------------------------------------------------------------------------------------------------

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before each step; it may return new ``(args, kwargs)``."""
        return _add(self._step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after each step."""
        return _add(self._step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` before ``state_dict``."""
        return _add(self._state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` after ``state_dict``; a returned dict replaces it."""
        return _add(self._state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` before loading; a returned dict replaces it."""
        return _add(self._load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` after loading."""
        return _add(self._load_state_dict_post_hooks, hook, prepend)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines += ["", f"Parameter Group {i}"] if i else [f"Parameter Group {i}"]
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])


def _options(group: Group) -> Group:
    return {key: value for key, value in group.items() if key != "params"}


def _add(table: Hooks, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
    if not callable(hook):
        raise TypeError(f"register hook: expected a callable, got {type(hook).__name__}")
    handle = RemovableHandle(table)
    table[handle.id] = hook
    if prepend:
        table.move_to_end(handle.id, last=False)
    return handle


_COUNTS = ("step", *NUMBERS)


def _state_for(param: Tensor, value: Any, key: str = "") -> Any:
    """A copy of saved state that fits ``param``; step counts and other single numbers stay on the cpu."""
    if isinstance(value, Tensor):
        if key in _COUNTS and value.ndim == 0:
            return value.detach().cpu().clone()
        dtype = param.dtype if param.is_floating_point() and value.is_floating_point() else value.dtype
        return value.detach().to(param.device, dtype).clone()
    if isinstance(value, Mapping):
        return {name: _state_for(param, item, name) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_state_for(param, item) for item in value)
    return value


def same_kind(params: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """The parameters that have gradients, in lists of one dtype and device: what one fused operator call takes."""
    ready = [param for param in params if param.grad is not None]
    dtypes = [param.dtype for param in ready]
    devices = [param.device for param in ready]
    if ready and dtypes.count(dtypes[0]) == len(ready) == devices.count(devices[0]):
        yield ready
        return
    kinds = list(zip(dtypes, devices, strict=True))
    for kind in dict.fromkeys(kinds):
        yield [param for param, other in zip(ready, kinds, strict=True) if other == kind]


def require(condition: bool, option: str, value: Any, expected: str) -> None:
    """Raise ``ValueError`` naming a bad option."""
    if not condition:
        raise ValueError(f"Invalid {option}: {value}; expected {expected}")

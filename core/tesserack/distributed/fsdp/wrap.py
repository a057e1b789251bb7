"""Which modules of a model are units of their own: policies, and the walk that wraps what they choose."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tesserack import nn

__all__ = [
    "CustomPolicy",
    "ModuleWrapPolicy",
    "always_wrap_policy",
    "enable_wrap",
    "lambda_auto_wrap_policy",
    "size_based_auto_wrap_policy",
    "transformer_auto_wrap_policy",
    "wrap",
]

Module = nn.Module
Options = dict[str, Any]


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Every module."""
    return True


class _Policy(ABC):
    """Chooses modules of a model, with options for each."""

    @abstractmethod
    def _run_policy(
        self, root_module: Module, ignored_modules: set[Module], root_kwargs: Options
    ) -> dict[Module, Options]:
        """The chosen modules, and what their wrapper is given."""


class ModuleWrapPolicy(_Policy):
    """Modules of these classes."""

    def __init__(self, module_classes: Iterable[type[Module]]) -> None:
        self._module_classes = set(module_classes)

    def _run_policy(
        self, root_module: Module, ignored_modules: set[Module], root_kwargs: Options
    ) -> dict[Module, Options]:
        classes = tuple(self._module_classes)
        return {
            module: dict(root_kwargs)
            for module in root_module.modules()
            if module not in ignored_modules and isinstance(module, classes)
        }

    def __call__(self, module: Module, recurse: bool, *args: Any, **kwargs: Any) -> bool:
        return recurse or isinstance(module, tuple(self._module_classes))

    def __repr__(self) -> str:
        return f"{super().__repr__()}({self._module_classes})"


class CustomPolicy(_Policy):
    """Modules for which ``lambda_fn(module)`` is True, or a dict of options that differ from the root's."""

    def __init__(self, lambda_fn: Callable[[Module], bool | Options]) -> None:
        self._lambda_fn = lambda_fn

    def _run_policy(
        self, root_module: Module, ignored_modules: set[Module], root_kwargs: Options
    ) -> dict[Module, Options]:
        chosen = {}
        for module in root_module.modules():
            if module in ignored_modules:
                continue
            said = self._lambda_fn(module)
            if not isinstance(said, (dict, bool)):
                raise ValueError(
                    "The lambda_fn passed to CustomPolicy should return False/True or a kwarg dict, but it returned "
                    f"{said}"
                )
            if said:
                chosen[module] = {**root_kwargs, **(said if isinstance(said, dict) else {})}
        return chosen


def lambda_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[Module], bool]
) -> bool:
    """Modules for which ``lambda_fn(module)`` is True."""
    return recurse or lambda_fn(module)


def transformer_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: set[type[Module]]
) -> bool:
    """Modules of these classes."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def _module_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, module_classes: set[type[Module]]
) -> bool:
    return recurse or isinstance(module, tuple(module_classes))


def _or_policy(module: Module, recurse: bool, nonwrapped_numel: int, policies: Iterable[Callable[..., bool]]) -> bool:
    return any(policy(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel) for policy in policies)


def size_based_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = int(1e8),
    force_leaf_modules: set[type[Module]] | None = None,
    exclude_wrap_modules: set[type[Module]] | None = None,
) -> bool:
    """Modules with so many elements that are in no unit yet; within ``force_leaf_modules`` none is chosen, and
    ``exclude_wrap_modules`` are not."""
    policy: Any = size_based_auto_wrap_policy
    leaves = policy.FORCE_LEAF_MODULES if force_leaf_modules is None else force_leaf_modules
    excluded = policy.EXCLUDE_WRAP_MODULES if exclude_wrap_modules is None else exclude_wrap_modules
    return nonwrapped_numel >= min_num_params and not isinstance(module, tuple(leaves if recurse else excluded))


size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES = {nn.ModuleList, nn.ModuleDict}  # type: ignore[attr-defined]
size_based_auto_wrap_policy.FORCE_LEAF_MODULES = {nn.MultiheadAttention}  # type: ignore[attr-defined]


# --- by hand ----------------------------------------------------------------------------------------------------------

_enabled: list[tuple[Any, Options]] = []


@contextlib.contextmanager
def enable_wrap(*, wrapper_cls: Any, **wrapper_kwargs: Any) -> Iterator[None]:
    """A context in which :func:`wrap` wraps, by this class with these options."""
    if _enabled:
        raise AssertionError("You are already in an autowrap context and we currently do not support nested autowrap.")
    _enabled.append((wrapper_cls, wrapper_kwargs))
    try:
        yield
    finally:
        _enabled.pop()


def wrap(module: Module, **wrap_overrides: Any) -> Any:
    """The module, wrapped within :func:`enable_wrap`, and as it is elsewhere."""
    if not _enabled:
        return module
    wrapper, options = _enabled[-1]
    return _wrap(module, wrapper, **{**options, **wrap_overrides})


def _wrap(module: Module, wrapper_cls: Callable[..., Any], **options: Any) -> Any:
    return wrapper_cls(module, **{**options, **getattr(module, "_wrap_overrides", {})})


# --- walks ------------------------------------------------------------------------------------------------------------


def wrap_chosen(root: Module, chosen: dict[Module, Options], wrapper: Callable[..., Any]) -> None:
    """Put wrappers in the places of chosen modules below ``root``, innermost first; those of a module that has
    several places are one."""
    below = list(root.modules())
    places: dict[Module, list[tuple[Module, str]]] = {}
    for parent in below:
        for name, child in parent._modules.items():
            if child is not None:
                places.setdefault(child, []).append((parent, name))
    for module in reversed(below):  # what lies within comes after it
        if module in chosen and module is not root:
            made = wrapper(module, **chosen[module])
            for parent, name in places[module]:
                setattr(parent, name, made)


def _recursive_wrap(
    module: Module,
    auto_wrap_policy: Callable[..., bool],
    wrapper_cls: Callable[..., Any],
    ignored_modules: set[Module],
    ignored_params: set[Any],
    only_wrap_children: bool = False,
    **kwargs: Any,
) -> tuple[Any, int]:
    """Wrap what a policy of functions chooses, from the inside; returns the module and how many of its elements are in
    units now."""
    if isinstance(wrapper_cls, type):
        for child in module.modules():
            if child not in ignored_modules and isinstance(child, wrapper_cls):
                raise AssertionError(f"Child module {child} is already wrapped by {wrapper_cls}")
    count = sum(p.numel() for p in module.parameters() if p not in ignored_params)
    if not auto_wrap_policy(module=module, recurse=True, nonwrapped_numel=count):
        return module, 0
    wrapped = 0
    for name, child in list(module.named_children()):
        if child in ignored_modules:
            continue
        made, inside = _recursive_wrap(child, auto_wrap_policy, wrapper_cls, ignored_modules, ignored_params, **kwargs)
        setattr(module, name, made)
        wrapped += inside
    rest = count - wrapped
    if not only_wrap_children and auto_wrap_policy(module=module, recurse=False, nonwrapped_numel=rest):
        return _wrap(module, wrapper_cls, **kwargs), count
    return module, wrapped


def wrap_by(
    root: Module,
    policy: Any,
    wrapper: Callable[..., Any],
    ignored_modules: Iterable[Module] = (),
    ignored_params: Iterable[Any] = (),
    options: Options | None = None,
) -> None:
    """Wrap what either kind of policy chooses below ``root``. ``ValueError`` for none of them."""
    ignored, given = set(ignored_modules), options or {}
    if isinstance(policy, _Policy):
        chosen = policy._run_policy(root, ignored, given)
        wrap_chosen(root, chosen, wrapper)
    elif callable(policy):
        _recursive_wrap(root, policy, wrapper, ignored, set(ignored_params), only_wrap_children=True, **given)
    else:
        raise ValueError(f"Expected {policy} to be callable or be a pre-defined wrap policy")


def _wrap_module_cls_individually(
    module: Module, module_classes: Sequence[type], recurse: bool, *args: Any, **kwargs: Any
) -> bool:
    return recurse or isinstance(module, tuple(module_classes))

"""The base class of everything that has parameters."""

from __future__ import annotations

import copy
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from tesserack import Tensor
from tesserack.autograd._whole import whole
from tesserack.backends import _accessors
from tesserack.nn.modules._convert import ConvertMixin
from tesserack.nn.modules._hooks import (
    BUFFER_REGISTRATION,
    MODULE_REGISTRATION,
    PARAMETER_REGISTRATION,
    GlobalHookNames,
    HookMixin,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
    registered,
)
from tesserack.nn.modules._registry import Registry
from tesserack.nn.modules._state_dict import IncompatibleKeys, StateDictMixin
from tesserack.nn.modules._traversal import TraversalMixin
from tesserack.nn.modules._where import LOOKS, note_module
from tesserack.nn.parameter import Buffer, Parameter
from tesserack.utils._compiler import the_compiler

__all__ = [
    "IncompatibleKeys",
    "Module",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]

Self = TypeVar("Self", bound="Module")
_REGISTRIES = ("_parameters", "_buffers", "_modules")
_HOOK_TABLES = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)

# What other parts of the package give modules on request: by name, a function of the module that answers, or None.
FALLBACKS: dict[str, Callable[[Any], Any]] = {}


def check_compile_options(
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> None:
    """Take what ``tesserack.compile`` does. ``RuntimeError`` for ``mode`` together with ``options``."""
    if mode is not None and options is not None:
        raise RuntimeError("compile: expected mode or options, got both")


class Module(HookMixin, TraversalMixin, ConvertMixin, StateDictMixin):
    """A part of a model: parameters, buffers, submodules and a ``forward``.

    Subclasses call ``super().__init__()``, assign parameters and modules as attributes, and define ``forward``.
    Calling the module runs ``forward`` and its hooks. An error raised inside carries a note with the path of the
    module it came from (Python 3.11 and later).

    >>> from tesserack import nn, ones
    >>> class Net(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.fc = nn.Linear(4, 2)
    ...     def forward(self, x):
    ...         return self.fc(x).relu()
    >>> Net()
    Net(
      (fc): Linear(in_features=4, out_features=2, bias=True)
    )
    >>> tuple(Net()(ones(3, 4)).shape)
    (3, 2)
    """

    training: bool
    call_super_init = dump_patches = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init and (args or kwargs):
            raise TypeError(f"{type(self).__name__}.__init__: nn.Module takes no arguments, got {[*args, *kwargs]}")
        own = self.__dict__
        own["training"] = True
        own["_non_persistent_buffers_set"] = set()
        for name in _HOOK_TABLES:
            own[name] = OrderedDict()
        for name in _REGISTRIES:
            own[name] = Registry(self)
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes; every subclass defines it."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if self._hooked:
                return self._call_hooked(args, kwargs)
            if kwargs:
                return self.forward(*args, **kwargs)
            return self.forward(*args)
        except Exception as error:
            note_module(error, self)
            for look in LOOKS:
                look(self, args, kwargs, error)
            raise

    _call_impl = __call__  # what packages call and replace in PyTorch

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Has ``tesserack.compile`` with these arguments run the module's calls; by default they run as they are."""
        check_compile_options(*args, **kwargs)
        compiled = the_compiler().compiled_call(self, **kwargs)
        self.__dict__["_compiled_call_impl"] = compiled
        if compiled is not None:
            self.__dict__["_hooked"] = True

    # --- registration -------------------------------------------------------------------------------------------

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter (or the place for one, None). The name must be new and contain no dot."""
        self._check_name(name, "parameter", self._registry("_parameters"))
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"register_parameter: expected a nn.Parameter or None for {name!r}, got {type(param).__name__}"
            )
        if param is not None and param.grad_fn is not None:
            raise ValueError(
                f"register_parameter: {name!r} is the result of an operation (not a leaf tensor); "
                "create the Parameter from a tensor, and compute the value in forward"
            )
        if PARAMETER_REGISTRATION:
            param = registered("parameter", self, name, param)
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that belongs to the state but is not trained; with ``persistent=False`` it is not saved."""
        self._check_name(name, "buffer", self._registry("_buffers"))
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"register_buffer: expected a Tensor or None for {name!r}, got {type(tensor).__name__}")
        if BUFFER_REGISTRATION:
            tensor = registered("buffer", self, name, tensor)
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_module(self, name: str, module: Module | None) -> None:
        """Add a submodule; same as :meth:`add_module`."""
        self.add_module(name, module)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a submodule. The name must be new and contain no dot."""
        if not isinstance(module, Module) and module is not None:
            raise TypeError(
                f"add_module: {type(module).__name__} is not a Module subclass, for {name!r}; expected a Module or None"
            )
        self._check_name(name, "module", self._registry("_modules"))
        if MODULE_REGISTRATION:
            module = registered("module", self, name, module)
        self._modules[name] = module

    def _registry(self, registry: str) -> Registry:
        if registry not in self.__dict__:
            kind = "module" if registry == "_modules" else registry.strip("_")
            raise AttributeError(
                f"cannot assign {kind} before Module.__init__() call; "
                f"call super().__init__() first in {type(self).__name__}.__init__"
            )
        return self.__dict__[registry]  # type: ignore[no-any-return]

    def _check_name(self, name: Any, kind: str, registry: Registry) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{kind} name: expected a string, got {type(name).__name__}")
        if not name or "." in name:
            raise KeyError(f'{kind} name can\'t be empty or contain ".", got {name!r}')
        if name in registry:
            return
        own = self.__dict__
        held = any(name in own.get(each, ()) for each in _REGISTRIES)
        # A parameter or module there that is not registered came with another module's __dict__, where members show.
        if held or (name in own and not isinstance(own[name], (Parameter, Module))) or self._class_has(name):
            raise KeyError(f"attribute '{name}' already exists in {type(self).__name__}")

    def _class_has(self, name: str) -> bool:
        """Whether the class has an attribute; not where it is a property that says there is none yet.

        Not ``hasattr(self, name)``: a subclass may forward ``__getattr__`` to a member that is not there yet.
        """
        if not hasattr(type(self), name):
            return False
        found = next((vars(kind)[name] for kind in type(self).__mro__ if name in vars(kind)), None)
        try:
            if isinstance(found, property) and found.fget is not None:
                found.fget(self)
        except AttributeError:
            return False
        return True

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        # What old weight norm, spectral norm and pruning computed is no leaf; the copy computes its own.
        for hook in self.__dict__.get("_forward_pre_hooks", {}).values():
            tensor = self.__dict__.get(getattr(hook, "computes", ""))
            if isinstance(tensor, Tensor) and not tensor.is_leaf:
                memo.setdefault(id(tensor), tensor.detach().clone())
        return copy._reconstruct(self, memo, *self.__reduce_ex__(4))  # type: ignore[attr-defined]

    # --- attributes ---------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if isinstance(value, Parameter):
            self._claim(name, "_parameters")
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self._claim(name, "_modules")
            if MODULE_REGISTRATION:
                value = registered("module", self, name, value)
            self._modules[name] = value
        elif isinstance(value, Buffer):
            # Not over a plain attribute, which register_buffer refuses.
            if name not in own or any(name in own.get(each, ()) for each in _REGISTRIES):
                self._claim(name, "_buffers")
            self._register_buffer(name, value)
        elif (name in own or not self._mirrors()) and self._reassign(name, value):
            return
        elif name in _REGISTRIES:
            own[name] = Registry(self, value)
        else:
            object.__setattr__(self, name, value)

    def _register_buffer(self, name: str, value: Buffer) -> None:
        # A subclass may override register_buffer without a third parameter.
        import inspect

        if type(self).register_buffer is Module.register_buffer or (
            "persistent" in inspect.signature(self.register_buffer).parameters
        ):
            self.register_buffer(name, value, value.persistent)
        else:
            self.register_buffer(name, value)

    def _mirrors(self) -> bool:
        return getattr(self.__dict__.get("_modules"), "mirrors", True)

    def _claim(self, name: str, registry: str) -> None:
        """Take ``name`` away from whatever held it, unless ``registry`` itself does."""
        if name in self._registry(registry):
            return
        for other in _REGISTRIES:
            self.__dict__[other].pop(name, None)
        self._non_persistent_buffers_set.discard(name)
        self.__dict__.pop(name, None)

    def _reassign(self, name: str, value: Any) -> bool:
        """Give a registered name a new value that is no Parameter, Module or Buffer; False if it is not registered."""
        own = self.__dict__
        if name in own.get("_parameters", ()):
            if value is not None:
                raise TypeError(
                    f"cannot assign '{type(value).__name__}' as parameter '{name}' "
                    "(torch.nn.Parameter or None expected); use .data or no_grad and copy_ to change its values"
                )
            self._parameters[name] = None
        elif name in own.get("_modules", ()):
            if value is not None:
                raise TypeError(
                    f"cannot assign '{type(value).__name__}' object to module '{name}' (nn.Module or None required)"
                )
            self._modules[name] = None
        elif name in own.get("_buffers", ()):
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(
                    f"cannot assign '{type(value).__name__}' object to buffer '{name}' (Tensor or None required)"
                )
            self._buffers[name] = value
        else:
            return False
        return True

    def __getattr__(self, name: str) -> Any:
        # Reached only when normal lookup failed: registered names normally lie in __dict__ (see Registry).
        for registry in _REGISTRIES:
            members = self.__dict__.get(registry, ())
            if name in members:
                return members[name]
        declared = getattr(type(self), name, None)
        if isinstance(declared, property) and declared.fget is not None:
            return declared.fget(self)  # the property itself failed with an AttributeError: show that one
        if _accessors.appeared(name):
            return getattr(self, name)
        if name in FALLBACKS and (found := FALLBACKS[name](self)) is not None:
            return found
        raise AttributeError(_accessors.missing(type(self), name))

    __getattr__.reads_registries = True  # type: ignore[attr-defined]

    def __delattr__(self, name: str) -> None:
        for registry in _REGISTRIES:
            if name in self.__dict__.get(registry, ()):
                del self.__dict__[registry][name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for registry in _REGISTRIES:
            self.__dict__[registry] = Registry(self, state.get(registry))
        for table in _HOOK_TABLES:
            self.__dict__.setdefault(table, OrderedDict())

    def __dir__(self) -> list[str]:
        names = {*object.__dir__(self), *self._parameters, *self._modules, *self._buffers}
        names -= {*_accessors.declared_absent()}  # devices that are not here
        return sorted(name for name in names if not name[:1].isdigit())

    # --- mode and gradients -------------------------------------------------------------------------------------

    def train(self: Self, mode: bool = True) -> Self:
        """Set training mode (dropout on, batch statistics) here and in all submodules; returns the module."""
        if not isinstance(mode, bool):
            raise ValueError(f"train: expected a bool mode, got {mode!r}")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: Self) -> Self:
        """Set evaluation mode: ``train(False)``."""
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Let gradients be recorded for all parameters, or not; returns the module."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    @whole
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or fill them with zeros."""
        for parameter in self.parameters():
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.detach_()
                parameter.grad.zero_()

    # --- repr ---------------------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """What ``repr`` shows between the parentheses; override to describe a layer."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): {indented(repr(module))}" for name, module in self._modules.items()]
        if not children and len(lines) <= 1:
            return f"{self._get_name()}({extra})"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines + children) + "\n)"


_accessors.announce_to_module(Module)


def indented(text: str, spaces: int = 2) -> str:
    """``text`` with every line but the first moved to the right."""
    return text.replace("\n", "\n" + " " * spaces)


sys.modules[__name__].__class__ = GlobalHookNames

"""Hooks of a module: before and after forward, before and after its part of backward."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from tesserack import Tensor, is_grad_enabled
from tesserack.nn.modules._backward_hooks import BackwardHooks, warn_of_last_operator
from tesserack.utils.hooks import RemovableHandle

Hooks = OrderedDict[int, Callable[..., Any]]


class HookTables:
    """The hooks of one module, or of all modules (one global instance)."""

    def __init__(self) -> None:
        self.forward_pre: Hooks = OrderedDict()
        self.forward: Hooks = OrderedDict()
        self.backward_pre: Hooks = OrderedDict()
        self.backward: Hooks = OrderedDict()
        self.last_operator: Hooks = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self.forward_pre or self.forward or self.backward_pre or self.backward or self.last_operator)


GLOBAL = HookTables()


def _global_table(field: str) -> Any:
    def get(module: ModuleType) -> Hooks:
        return getattr(GLOBAL, field)  # type: ignore[no-any-return]

    def put(module: ModuleType, hooks: Hooks) -> None:
        setattr(GLOBAL, field, OrderedDict(hooks))
        if field == "backward":  # one table there for both kinds
            GLOBAL.last_operator = OrderedDict()
        HookMixin._hooked |= bool(hooks)

    return property(get, put)


class GlobalHookNames(ModuleType):
    """A file with PyTorch's names for the tables of all modules' hooks: programs empty them by assigning others."""

    _global_forward_pre_hooks = _global_table("forward_pre")
    _global_forward_hooks = _global_table("forward")
    _global_backward_pre_hooks = _global_table("backward_pre")
    _global_backward_hooks = _global_table("backward")


def add_hook(
    table: Hooks, hook: Callable[..., Any], prepend: bool = False, marks: tuple[tuple[Hooks, bool], ...] = ()
) -> RemovableHandle:
    """Put ``hook`` into ``table``; each ``(marks, on)`` remembers an option of it under the same id."""
    if not callable(hook):
        raise TypeError(f"register hook: expected a callable, got {type(hook).__name__}")
    handle = RemovableHandle(table, extra_dict=tuple(mark for mark, _ in marks))
    table[handle.id] = hook
    if prepend:
        table.move_to_end(handle.id, last=False)
    for mark, on in marks:
        if on:
            mark[handle.id] = hook
    return handle


class HookMixin:
    """Registration and running of hooks; ``Module.__call__`` comes here only when ``_hooked`` is set."""

    _hooked = False  # the class value is raised by global hooks, the instance value by hooks of that module
    _full_backward_hooks = True  # what kind _backward_hooks holds
    _forward_hooks: Hooks
    _forward_hooks_with_kwargs: Hooks
    _forward_hooks_always_called: Hooks
    _forward_pre_hooks: Hooks
    _forward_pre_hooks_with_kwargs: Hooks
    _backward_hooks: Hooks
    _backward_pre_hooks: Hooks
    forward: Callable[..., Any]

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args)`` before ``forward``; what it returns (unless None) replaces the arguments.

        With ``with_kwargs`` it is called as ``hook(module, args, kwargs)`` and may return ``(args, kwargs)``.
        ``prepend`` runs it before the hooks already there. Returns a handle whose ``remove()`` undoes this.
        """
        marks = ((self._forward_pre_hooks_with_kwargs, with_kwargs),)
        self.__dict__["_hooked"] = True
        return add_hook(self._forward_pre_hooks, hook, prepend, marks)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args, output)`` after ``forward``; what it returns (unless None) replaces the output.

        With ``with_kwargs``: ``hook(module, args, kwargs, output)``. With ``always_call`` it also runs, with
        ``output=None``, when ``forward`` raised. Returns a handle whose ``remove()`` undoes this.

        >>> from tesserack import nn, ones
        >>> layer = nn.Identity()
        >>> handle = layer.register_forward_hook(lambda module, args, output: output * 2)
        >>> layer(ones(2)).tolist()
        [2.0, 2.0]
        >>> handle.remove()
        >>> layer(ones(2)).tolist()
        [1.0, 1.0]
        """
        marks = ((self._forward_hooks_with_kwargs, with_kwargs), (self._forward_hooks_always_called, always_call))
        self.__dict__["_hooked"] = True
        return add_hook(self._forward_hooks, hook, prepend, marks)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_output)`` before the module's backward; a returned tuple replaces the gradients."""
        self.__dict__["_hooked"] = True
        return add_hook(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` once the gradients of the inputs are known.

        Both gradients are tuples with one entry per positional input (or output), None where there is no gradient.
        A returned tuple replaces ``grad_input``. Inputs and outputs must not be modified in place by the module.
        """
        self._claim_backward_hooks(full=True)
        return add_hook(self._backward_hooks, hook, prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` of the last operator of ``forward`` alone: PyTorch's old form.

        What it returns (unless None) replaces ``grad_input``. :meth:`register_full_backward_hook` sees the gradients of
        the module's own inputs. Raises ``RuntimeError`` on a module that has hooks of that kind.
        """
        self._claim_backward_hooks(full=False)
        return add_hook(self._backward_hooks, hook)

    def _claim_backward_hooks(self, full: bool) -> None:
        if self._backward_hooks and self._full_backward_hooks != full:
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a single Module. "
                "Please use only one of them."
            )
        self.__dict__.update(_hooked=True, _full_backward_hooks=full)

    def _call_hooked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        compiled = self.__dict__.get("_compiled_call_impl")  # what ``compile`` of the module has set
        return self._call_plainly(args, kwargs) if compiled is None else compiled(*args, **kwargs)

    def _call_plainly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call with its hooks, as Python."""
        if not self._any_hooks():
            if self.__dict__.get("_compiled_call_impl") is None:
                self._forget_hooked()
            return self.forward(*args, **kwargs)
        called: set[int] = set()
        try:
            args, kwargs = self._run_pre_hooks(args, kwargs)
            backward = self._backward_watch()
            if backward is not None:
                args = backward.watch_inputs(args)
            result = self._run_forward_hooks(args, kwargs, self.forward(*args, **kwargs), called)
        except Exception:
            self._run_always_called(args, kwargs, called)
            raise
        if (not self._full_backward_hooks or GLOBAL.last_operator) and is_grad_enabled():
            self._watch_last_operator(args, result)
        if backward is None:
            return result
        if not isinstance(result, (Tensor, tuple)):
            warnings.warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but received "
                f"{type(result)}",
                stacklevel=3,
            )
        return backward.watch_outputs(result)

    def _watch_last_operator(self, args: tuple[Any, ...], output: Any) -> None:
        result = output
        while isinstance(result, (dict, list, tuple)) and result:
            result = next(iter(result.values())) if isinstance(result, dict) else result[0]
        node = getattr(result, "grad_fn", None)
        own = OrderedDict() if self._full_backward_hooks else self._backward_hooks
        hooks = [hook for _, hook in _both(GLOBAL.last_operator, own)]
        if node is not None:
            for hook in hooks:
                node.register_hook(functools.partial(hook, self))
            if hooks:
                warn_of_last_operator(args, output, node)

    def _any_hooks(self) -> bool:
        own = self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks
        return bool(own or GLOBAL)

    def _forget_hooked(self) -> None:
        """All hooks were removed: let ``__call__`` take its short way again."""
        self.__dict__.pop("_hooked", None)
        if HookMixin._hooked:  # writing to a class has all that was known of it and those made of it looked up anew
            HookMixin._hooked = False

    def _run_pre_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        for key, hook in _both(GLOBAL.forward_pre, self._forward_pre_hooks):
            if key in self._forward_pre_hooks_with_kwargs:
                result = hook(self, args, kwargs)
                if result is None:
                    continue
                if not (isinstance(result, tuple) and len(result) == 2):
                    raise RuntimeError(f"forward pre-hook: expected None or (args, kwargs), got {result!r}")
                args, kwargs = result
            else:
                result = hook(self, args)
                if result is not None:
                    args = result if isinstance(result, tuple) else (result,)
        return args, kwargs

    def _run_forward_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, called: set[int]) -> Any:
        for key, hook in _both(GLOBAL.forward, self._forward_hooks):
            called.add(key)
            replaced = self._run_forward_hook(key, hook, args, kwargs, output)
            if replaced is not None:
                output = replaced
        return output

    def _run_forward_hook(
        self, key: int, hook: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> Any:
        if key in self._forward_hooks_with_kwargs or key in _GLOBAL_WITH_KWARGS:
            return hook(self, args, kwargs, output)
        return hook(self, args, output)

    def _run_always_called(self, args: tuple[Any, ...], kwargs: dict[str, Any], called: set[int]) -> None:
        """After an error: the hooks that asked to run anyway; their own errors become warnings."""
        always = {**_GLOBAL_ALWAYS, **self._forward_hooks_always_called}
        for key, hook in always.items():
            if key in called:
                continue
            try:
                self._run_forward_hook(key, hook, args, kwargs, None)
            except Exception as error:
                warnings.warn(f"forward hook with always_call=True failed as well: {error!r}", stacklevel=3)

    def _backward_watch(self) -> BackwardHooks | None:
        pre = [hook for _, hook in _both(GLOBAL.backward_pre, self._backward_pre_hooks)]
        own = self._backward_hooks if self._full_backward_hooks else OrderedDict()
        post = [hook for _, hook in _both(GLOBAL.backward, own)]
        if (pre or post) and is_grad_enabled():
            return BackwardHooks(self, pre, post)
        return None


def _both(first: Hooks, second: Hooks) -> Iterator[tuple[int, Callable[..., Any]]]:
    """Items of both tables, copied, so that a hook may remove itself."""
    yield from list(first.items())
    yield from list(second.items())


_GLOBAL_ALWAYS: Hooks = OrderedDict()
_GLOBAL_WITH_KWARGS: Hooks = OrderedDict()


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, args)`` before the forward of every module."""
    HookMixin._hooked = True
    return add_hook(GLOBAL.forward_pre, hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call ``hook(module, args, output)`` after the forward of every module; options as for one module's hooks."""
    HookMixin._hooked = True
    return add_hook(GLOBAL.forward, hook, marks=((_GLOBAL_ALWAYS, always_call), (_GLOBAL_WITH_KWARGS, with_kwargs)))


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, grad_output)`` before the backward of every module."""
    HookMixin._hooked = True
    return add_hook(GLOBAL.backward_pre, hook)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, grad_input, grad_output)`` of the last operator of every module's ``forward``: PyTorch's old
    form. ``RuntimeError`` where there are full ones for every module."""
    _refuse_both(GLOBAL.backward)
    HookMixin._hooked = True
    return add_hook(GLOBAL.last_operator, hook)


def _refuse_both(others: Hooks) -> None:
    if others:
        raise RuntimeError(
            "Cannot use both regular backward hooks and full backward hooks as a global Module hook. Please use only "
            "one of them."
        )


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, grad_input, grad_output)`` after the backward of every module. ``RuntimeError`` where there
    are hooks of the old form for every module."""
    _refuse_both(GLOBAL.last_operator)
    HookMixin._hooked = True
    return add_hook(GLOBAL.backward, hook)


# --- registration -----------------------------------------------------------------------------------------------------

# Called as hook(module, name, value) where a module gets a parameter, a buffer or a submodule; they may replace it.
PARAMETER_REGISTRATION: Hooks = OrderedDict()
BUFFER_REGISTRATION: Hooks = OrderedDict()
MODULE_REGISTRATION: Hooks = OrderedDict()
_REGISTRATION = {
    "parameter": PARAMETER_REGISTRATION,
    "buffer": BUFFER_REGISTRATION,
    "module": MODULE_REGISTRATION,
}


def registered(kind: str, module: object, name: str, value: Any) -> Any:
    """``value`` as the hooks on registrations of its kind leave it."""
    for hook in list(_REGISTRATION[kind].values()):
        replaced = hook(module, name, value)
        if replaced is not None:
            value = replaced
    return value


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, name, parameter)`` whenever a module gets a parameter; an answer replaces it."""
    return add_hook(PARAMETER_REGISTRATION, hook)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, name, buffer)`` whenever a module gets a buffer; an answer replaces it."""
    return add_hook(BUFFER_REGISTRATION, hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, name, submodule)`` whenever a module gets a submodule; an answer replaces it."""
    return add_hook(MODULE_REGISTRATION, hook)

"""Operators defined piece by piece, by a schema and then by kernels."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tesserack import _native, library
from tesserack._native import Tensor
from tesserack.library import CustomOp, open_sizes
from tesserack.library.replacing import device_of_key, replace

__all__ = ["Library", "define", "fallthrough_kernel", "get_ctx", "get_kernel", "impl", "impl_abstract"]
__all__ += ["implicit_kernels"]
__all__ += ["register_autocast", "register_autograd", "register_fake", "register_kernel", "register_torch_dispatch"]
__all__ += ["register_vmap"]

# Dispatch keys that stand for every device.
_EVERYWHERE = ("", "CompositeExplicitAutograd", "CompositeImplicitAutograd", "BackendSelect", "default", "types")
# Those whose kernels are operators of which gradients and graphs may be made.
_OF_OTHERS = ("", "CompositeImplicitAutograd")
_implicit: dict[str, Callable[..., Any]] = {}  # kernels for these, by operator
_left: set[str] = set()  # operators that are there still, of libraries that are not
# Rules for operators that are not defined yet, by name.
_rules: dict[str, Callable[..., Any]] = {}


def fallthrough_kernel(*args: Any) -> Any:
    """A kernel that goes on to the next key; registered as nothing at all."""
    raise NotImplementedError("fallthrough_kernel: is for Library.impl, and not to be called")


class _Defined(CustomOp):
    """An operator that has a schema, and kernels later."""

    def __init__(self, name: str, schema: str) -> None:
        super().__init__(name, schema, _no_body, ())

    def _choose(self, args: Sequence[Any]) -> Any:
        """A kernel for every device is one for outlines, too, where no rule tells how results look."""
        if self._fake is None and None in self._kernels and _on_meta(args):
            return self._kernels[None]
        return super()._choose(args)

    def _run(self, call: Any, *args: Any) -> Any:
        """Where a kernel returns an argument, the result is another tensor of its memory."""
        result = library.called(self._choose(args), args, self.named)
        if isinstance(result, (tuple, list)):
            return type(result)(_apart(value, args) for value in result)
        return _apart(result, args)


def implicit_kernels() -> dict[str, Callable[..., Any]]:
    """Of operators that are made of others, by their names: the functions that say of which."""
    return {**_implicit}


def _on_meta(args: Sequence[Any]) -> bool:
    return any(isinstance(t, Tensor) and t.is_meta for a in args for t in (a if isinstance(a, list) else [a]))


def _no_body(*args: Any) -> Any:
    raise NotImplementedError


def _apart(value: Any, args: Sequence[Any]) -> Any:
    return value.view_as(value) if isinstance(value, Tensor) and any(value is arg for arg in args) else value


def _operator(op: Any) -> CustomOp:
    """The operator of a name, its overload left out if there is none of it, or of ``torch.ops``. ``RuntimeError`` if it
    is not defined."""
    if not isinstance(op, str):
        return library.resolve(op)
    base = op.partition(".")[0]
    if op != base and op in library._operators:
        return library._operators[op]
    try:
        return library.get(base)
    except KeyError as error:
        raise RuntimeError(f"operator {base} does not exist") from error


def define(
    qualname: Any, schema: Any = None, alias_analysis: str = "", *, lib: Library | None = None, tags: Any = ()
) -> Any:
    """Define ``"space::name"`` by ``"(Tensor x) -> Tensor"``. A decorator for its kernel if no schema is given.

    In the older form, ``define(library, schema)``, a decorator for the kernel of ``"name(Tensor x) -> Tensor"``.
    """
    if isinstance(qualname, Library):
        return functools.partial(_define_in, qualname, schema, alias_analysis)
    if schema is None or callable(schema):
        return _define_from(qualname, schema)
    # Sizes that a graph may leave open are numbers of every call here.
    if qualname in _left:  # by a library that is no more, as where a notebook's cell runs again
        forget(qualname)
    made = library._operators[qualname] = _Defined(qualname, schema.replace("SymInt", "int"))
    if qualname in _rules:
        made.register_fake(_rules.pop(qualname))
    return None


def _define_from(qualname: str, function: Any) -> Any:
    def make(body: Callable[..., Any]) -> Callable[..., Any]:
        define(qualname, library.infer_schema(body, mutates_args=()))
        impl(qualname, "default", body)
        return body

    return make if function is None else make(function)


def _define_in(lib: Library, schema: str, alias_analysis: str, function: Callable[..., Any]) -> Callable[..., Any]:
    lib.impl(lib.define(schema, alias_analysis), function)
    return function


def impl(qualname: Any, types: Any, func: Any = None, *, lib: Library | None = None) -> Any:
    """Register a kernel for devices, or for all by ``"default"``. A decorator if no function is given.

    In the older form, ``impl(library, name, key="")``, a decorator for a kernel of the library.
    """
    if isinstance(qualname, Library):
        return functools.partial(_impl_in, qualname, types, func or "")
    names = [types] if isinstance(types, str) else [*types]

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            _set(_operator(qualname), name, function)
        return function

    return register if func is None else register(func)


def _impl_in(lib: Library, name: Any, key: str, function: Callable[..., Any]) -> Callable[..., Any]:
    lib.impl(name, function, key)
    return function


def _set(op: CustomOp, key: str, function: Callable[..., Any]) -> None:
    """Register a kernel for a key as PyTorch names them: ``CPU``, ``Meta``, ``Autograd``."""
    if function is fallthrough_kernel:
        return
    if key in _EVERYWHERE:
        op._kernels[None] = function
        if key in _OF_OTHERS:
            _implicit[op.name] = function
    elif key in ("Meta", "meta"):
        op.register_fake(function)
    elif key.startswith("Autograd"):
        wants = next(iter(inspect.signature(function).parameters), "") == "call"
        kernel = function if wants else lambda call, *args: library.called(function, args, op.named)
        _native._set_kernel(op.name, "Autograd", kernel, f"{op.name} at {key}")
    elif key.startswith("Autocast"):
        _native._set_kernel(
            op.name, "Autocast", lambda call, *args: library.called(function, args, op.named), f"{op.name} at {key}"
        )
    else:
        op._kernels[device_of_key(key) or key] = function


def impl_abstract(qualname: str, func: Any = None, *, lib: Library | None = None, _stacklevel: int = 1) -> Any:
    """The former name of ``register_fake``."""
    return register_fake(qualname, func)


def register_fake(
    op: Any, func: Any = None, /, *, lib: Any = None, _stacklevel: int = 1, allow_override: Any = 0
) -> Any:
    """Say how results look, by the operator's name; kept for an operator that is not defined yet."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            found = _operator(op)
        except RuntimeError:
            _rules[op] = function
            return function
        return found.register_fake(function)

    return register if func is None else register(func)


def register_autograd(
    op: Any, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None, lib: Any = None
) -> None:
    """Say how gradients flow, by the operator's name."""
    _operator(op).register_autograd(backward, setup_context=setup_context)


def register_kernel(op: Any, device_types: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    """Register a kernel for devices; None means every one."""
    if device_types is None:
        return impl(_operator(op).name, "default", func)
    return _operator(op).register_kernel(device_types, func)


def register_vmap(op: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    """Say how ``vmap`` calls the operator for all entries at once, by its name."""
    return _operator(op).register_vmap(func)


def register_autocast(op: Any, device_type: str, cast_inputs: Any, /, *, lib: Any = None) -> None:
    """Say to which dtype autocast casts the operator's tensors, by its name."""
    _operator(op).register_autocast(device_type, cast_inputs)


def get_kernel(op: Any, dispatch_key: str) -> Any:
    """The kernel that was registered for a device, as a callable. ``RuntimeError`` if there is none."""
    found = _operator(op)
    key = str(dispatch_key).rpartition(".")[2]
    kernel = found._kernels.get(None if key in _EVERYWHERE else device_of_key(key) or key)
    if kernel is None:
        raise RuntimeError(f"no kernel of {found.name} for {key}; register one with torch.library.impl")
    return kernel


def register_torch_dispatch(op: Any, torch_dispatch_class: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    """Say what a subclass or a mode with a ``__torch_dispatch__`` answers of an operator."""
    return _operator(op).register_torch_dispatch(torch_dispatch_class, func)


class Library:
    """The operators of a namespace: ``DEF`` makes them, ``IMPL`` and ``FRAGMENT`` add to those there are.

    A library of ``"aten"`` replaces kernels of built-in operators on a device, as long as the library is held.
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("DEF", "IMPL", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind!r}; expected 'DEF', 'IMPL' or 'FRAGMENT'")
        if ns in _RESERVED and kind != "IMPL":
            raise ValueError(f"{ns} is a reserved namespace: name the library otherwise")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._replaced: dict[tuple[str, str], Callable[[], None]] = {}
        self._defined: list[str] = []
        weakref.finalize(self, _take_back, self._replaced)
        weakref.finalize(self, _leave, self._defined)

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Define an operator by its whole schema, ``"name(Tensor x) -> Tensor"``; returns the name.

        ``alias_analysis`` may be ``"FROM_SCHEMA"`` or ``"CONSERVATIVE"``; either way the schema says what is written.
        ``RuntimeError`` for another one.
        """
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise RuntimeError(f"Invalid alias_analysis type {alias_analysis}")
        name, _, rest = schema.partition("(")
        full = f"{self.ns}::{name.strip()}"
        define(full, f"({rest}")
        self._defined.append(full)
        return name.strip()

    def define_all(self, operators: Mapping[str, Callable[..., Any]]) -> None:
        """Define an operator for each schema, with a kernel for every device.

        >>> import tesserack as ts
        >>> numbers = Library("doc_numbers", "DEF")
        >>> numbers.define_all({"twice(Tensor x) -> Tensor": lambda x: x + x})
        >>> ts.library.get("doc_numbers::twice")(ts.ones(1))
        tensor([2.])
        """
        for schema, kernel in operators.items():
            self.impl(self.define(schema), kernel, "CompositeExplicitAutograd")

    def impl(
        self,
        op_name: Any,
        fn: Callable[..., Any],
        dispatch_key: str = "",
        *,
        with_keyset: bool = False,
        allow_override: bool = True,
    ) -> None:
        """Register a kernel for a dispatch key, of an operator by its name or overload.

        Raises ``TypeError`` for what is no function, and ``RuntimeError`` for another key than the library's, for an
        operator of another namespace or that there is not, and where one is there and ``allow_override`` is off.
        """
        if not callable(fn):
            raise TypeError(f"Input function is required to be a callable but found type {type(fn)}")
        if dispatch_key and self.dispatch_key and dispatch_key != self.dispatch_key:
            raise RuntimeError(
                f"impl: the dispatch key {dispatch_key} is inconsistent with the dispatch key of the library, "
                f"{self.dispatch_key}"
            )
        space, name = self._named(op_name)
        if space != self.ns:
            raise RuntimeError(f"impl: the namespace {space} in the operator name does not match namespace {self.ns}")
        key = dispatch_key or self.dispatch_key
        if not allow_override and (name, key) in self._replaced:
            raise RuntimeError(f"impl: there is already a kernel registered from python for {name} at {key}")
        if self.ns == "aten":
            self._replace(name, key, fn)
        else:
            _set(_operator(f"{self.ns}::{name}"), key, fn)

    def _named(self, op_name: Any) -> tuple[str, str]:
        name = op_name if isinstance(op_name, str) else op_name.name()
        space, _, rest = name.rpartition("::")
        return space or self.ns, rest

    def _replace(self, name: str, key: str, function: Callable[..., Any]) -> None:
        if (name, key) in self._replaced:
            self._replaced.pop((name, key))()
        self._replaced[name, key] = replace(name, key, function)

    def _destroy(self) -> None:
        """Take back what it replaced and defined."""
        _take_back(self._replaced)
        while self._defined:
            forget(self._defined.pop())

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"


_RESERVED = ("prim",)


def _take_back(replaced: dict[Any, Callable[[], None]]) -> None:
    while replaced:
        replaced.popitem()[1]()


def _leave(defined: list[str]) -> None:
    _left.update(defined)


def forget(name: str) -> None:
    """Free the name of an operator that was defined."""
    _left.discard(name)
    _implicit.pop(name, None)
    library.forget(name)


def get_ctx() -> Any:
    """For rules of shapes that depend on data: what has a ``new_dynamic_size()``, where such sizes are only compared.

    ``RuntimeError`` elsewhere: what is traced has no symbols for them.
    """
    if open_sizes.current is None:
        raise RuntimeError("get_ctx: sizes that depend on data have no symbols here")
    return open_sizes.current

"""Operators of your own, seen by every part of Tesserack as a built-in one is.

>>> import tesserack as ts
>>> @ts.library.custom_op("demo::double", mutates_args=())
... def double(x: ts.Tensor) -> ts.Tensor:
...     return ts.from_numpy(x.numpy() * 2)
>>> @double.register_fake
... def _(x):
...     return ts.empty_like(x)
>>> double.register_autograd(lambda ctx, grad: grad * 2)
>>> x = ts.ones(3, requires_grad=True)
>>> double(x).sum().backward()
>>> x.grad
tensor([2., 2., 2.])
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tesserack import _native
from tesserack._native import Tensor, strided
from tesserack._native import device as Device
from tesserack.autograd._whole import take, takers
from tesserack.library._check import OpCheckError, opcheck
from tesserack.library._gradient import autograd_kernel
from tesserack.library._schema import infer_schema

__all__ = [
    "CompiledOp",
    "CustomOp",
    "OpCheckError",
    "custom_op",
    "get",
    "in_namespace",
    "infer_schema",
    "opcheck",
    "register_autocast",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_vmap",
]

Function = Callable[..., Any]
_operators: dict[str, CustomOp] = {}
# What classes and modes with a __torch_dispatch__ answer of some operators, by the operators' names.
dispatch_rules: dict[tuple[str, Any], Function] = {}
when_forgotten: list[Callable[[str], None]] = []  # told the names of operators that are no more


class CustomOp:
    """An operator made by :func:`custom_op`. Call it as a function, or by name as ``tesserack.ops.demo.double``."""

    def __init__(self, name: str, schema: str, function: Function, devices: Sequence[str] | None) -> None:
        self.name, self.schema = name, f"{name}{schema}"
        self._kernels: dict[str | None, Function] = {None: function} if devices is None else {}
        self._fake: Function | None = None
        self._mutates = "!" in schema
        self.vmap: Function | None = None
        self.tags: list[Any] = []
        self._off: set[str | None] = set()  # devices whose own kernels are not used now
        self.__name__ = name.partition("::")[2]
        self.__doc__ = function.__doc__
        origin = getattr(function, "__module__", None) or "a custom operator"
        self._call = _native._define_operator(self.schema, self._run, function.__doc__ or "", origin)
        for device in devices or ():
            self._kernels[device] = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.vmap is not None:
            from tesserack.func._batched import Batched, by_rule

            if any(isinstance(arg, Batched) for arg in (*args, *kwargs.values())):
                bound = inspect.signature(self._call).bind(*args, **kwargs)
                if any(isinstance(arg, Batched) for arg in bound.kwargs.values()):
                    raise NotImplementedError(f"{self.name}: expected no batched tensor by keyword alone under vmap")
                return by_rule(self, bound.args, bound.kwargs)
        if takers and not self._mutates:
            found = take(self._call, args, kwargs, computes=True)
            if found is not NotImplemented:
                return found
        return self._call(*args, **kwargs)

    @property
    def default(self) -> CustomOp:
        """Itself: it has one overload."""
        return self

    @property
    def _opoverload(self) -> CustomOp:
        return self.default

    def __repr__(self) -> str:
        return f"<custom operator {self.schema}>"

    def __reduce__(self) -> Any:
        return get, (self.name,)  # by name: there is one, and what reads it has made it before

    # --- registration ---------------------------------------------------------------------------------------------

    def register_kernel(self, device_types: str | Iterable[str], function: Function | None = None) -> Any:
        """Use the function for tensors on these backends (names). A decorator if no function is given."""
        names = [device_types] if isinstance(device_types, str) else [*device_types]

        def register(kernel: Function) -> Function:
            self._kernels.update(dict.fromkeys(names, kernel))
            return kernel

        return register if function is None else register(function)

    def register_fake(self, function: Function) -> Function:
        """The function makes results of the right shape and dtype from tensors without data (device ``meta``)."""
        self._fake = function
        return function

    def register_autograd(self, backward: Function, *, setup_context: Function | None = None) -> None:
        """How gradients flow.

        ``backward(ctx, *grads)`` returns one gradient (or None) per argument that may go by position;
        ``setup_context(ctx, inputs, output)`` runs after the operator and may call ``ctx.save_for_backward`` or set
        attributes of ctx. Of an operator with arguments that go by keyword alone it takes ``keyword_only_inputs``, too.
        ``RuntimeError`` for operators that write their arguments: they have no gradient.
        """
        if self._mutates:
            raise RuntimeError(f"register_autograd: {self.name} writes its arguments, and cannot have a gradient")
        kernel = autograd_kernel(self.name, backward, setup_context, self.named)
        _native._set_kernel(self.name, "Autograd", kernel, f"{self.name}.register_autograd")

    def register_autocast(self, device_type: str, cast_inputs: Any) -> None:
        """Under autocast, floating tensors on these devices reach the operator as dtype ``cast_inputs``."""

        def kernel(call: Any, *args: Any) -> Any:
            return call.redispatch(*(_cast(a, device_type, cast_inputs) for a in args))

        _native._set_kernel(self.name, "Autocast", kernel, f"{self.name}.register_autocast")

    def register_vmap(self, function: Function | None = None) -> Any:
        """How :func:`tesserack.vmap` calls the operator for all entries at once. A decorator if no function is given.

        ``function(info, in_dims, *args, **keywords)`` returns the result and the dim that counts the entries in it, as
        ``vmap`` of :class:`tesserack.autograd.Function`. Without it, it is called once for each entry.
        """

        def register(rule: Function) -> Function:
            self.vmap = rule
            return rule

        return register if function is None else register(function)

    def register_torch_dispatch(self, torch_dispatch_class: Any, fn: Function | None = None, /) -> Any:
        """What a subclass or a mode answers with a ``__torch_dispatch__``, of this operator: ``fn(cls_or_mode, func,
        types, args, kwargs)``, in place of it. A decorator if no function is given."""

        def register(rule: Function) -> Function:
            dispatch_rules[self.name, torch_dispatch_class] = rule
            return rule

        return register if fn is None else register(fn)

    @contextlib.contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """Within it the kernel for a device is used or not; the one for every device takes its place."""
        before = device_type in self._off
        (self._off.discard if enabled else self._off.add)(device_type)
        try:
            yield
        finally:
            (self._off.add if before else self._off.discard)(device_type)

    # --- running --------------------------------------------------------------------------------------------------

    @functools.cached_property
    def named(self) -> tuple[str, ...]:
        """The arguments that go by keyword alone, the last ones."""
        parameters = inspect.signature(self._call).parameters.values()
        return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)

    def _run(self, call: Any, *args: Any) -> Any:
        return _run_kernel(self.name, self._choose(args), args, self.named)

    def _choose(self, args: Sequence[Any]) -> Function:
        tensors = [t for a in args for t in (a if isinstance(a, list) else [a]) if isinstance(t, Tensor)]
        if any(t.is_meta for t in tensors):
            if self._fake is None:
                raise NotImplementedError(f"{self.name}: no rule for shapes; give one with register_fake")
            return self._fake
        where = tensors[0].device if tensors else next((a for a in args if isinstance(a, Device)), None)
        device = None if where is None else where.type
        kernel = self._kernels.get(device) if device not in self._off else None
        kernel = kernel or self._kernels.get(None)
        if kernel is None:
            known = ", ".join(sorted(name for name in self._kernels if name)) or "none"
            raise NotImplementedError(
                f"{self.name}: no kernel for tensors on {device} (registered: {known}); give one with register_kernel"
            )
        return kernel


class CompiledOp(CustomOp):
    """An operator whose function is compiled, from :func:`tesserack.dispatch.load_library`. :func:`get` gives it.

    What is registered here goes beside, or in place of, what the library registers itself.
    """

    def __init__(self, name: str, schema: str, doc: str) -> None:
        self.name, self.schema, self.__doc__ = name, schema, doc
        self.__name__ = name.partition("::")[2]
        self._mutates = "!" in schema
        self.vmap = None
        self.tags = []
        self._call = _native._operator_function(name)

    def register_kernel(self, device_types: str | Iterable[str], function: Function | None = None) -> Any:
        """Use the function for tensors on these backends (names). A decorator if no function is given."""
        names = [device_types] if isinstance(device_types, str) else [*device_types]

        def register(kernel: Function) -> Function:
            for name in names:
                self._set(name, kernel, "register_kernel")
            return kernel

        return register if function is None else register(function)

    def register_fake(self, function: Function) -> Function:
        """The function makes results of the right shape and dtype from tensors without data (device ``meta``)."""
        self._set("meta", function, "register_fake")
        return function

    def _set(self, key: str, function: Function, owner: str) -> None:
        def kernel(call: Any, *args: Any) -> Any:
            return _run_kernel(self.name, function, args, self.named)

        _native._set_kernel(self.name, key, kernel, f"{self.name}.{owner}")


def called(function: Function, args: Sequence[Any], named: Sequence[str]) -> Any:
    """The function's result, the last arguments by these names."""
    if not named:
        return function(*args)
    count = len(args) - len(named)
    return function(*args[:count], **dict(zip(named, args[count:], strict=True)))


def _run_kernel(name: str, kernel: Function, args: Sequence[Any], named: Sequence[str] = ()) -> Any:
    result = called(kernel, args, named)
    values = result if isinstance(result, (tuple, list)) else (result,)
    _of_its_own(name, [v for v in values if isinstance(v, Tensor)], args)
    return result


def _cast(value: Any, device: str, dtype: Any) -> Any:
    if isinstance(value, list):
        return [_cast(v, device, dtype) for v in value]
    castable = isinstance(value, Tensor) and value.is_floating_point() and value.device.type == device
    return value.to(dtype) if castable else value


def custom_op(
    name: str,
    function: Function | None = None,
    /,
    *,
    mutates_args: Iterable[str],
    device_types: str | Sequence[str] | None = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """Make an operator of a Python function. A decorator if no function is given.

    Args:
        name: ``"namespace::operator"``, or ``"namespace::operator.overload"`` beside others of other arguments.
        mutates_args: names of the tensor arguments that the function writes; ``"unknown"`` for all of them.
        device_types: the backends it is for; every one by default.
        schema: ``"(Tensor x, int n) -> Tensor"``; by default inferred from the annotations.
        tags: kept as the operator's ``tags``, for those who ask.

    Raises:
        ValueError: for a malformed name or schema, or annotations that have no type in schemas.
        RuntimeError: if the name is taken by an operator of a library. One that was made so before is replaced.
    """
    space, _, base = name.partition("::")
    if not (space.isidentifier() and all(part.isidentifier() for part in base.split(".", 1))):
        raise ValueError(f"custom_op: expected a name like 'mylib::myop', got {name!r}")
    devices = [device_types] if isinstance(device_types, str) else device_types

    def make(body: Function) -> CustomOp:
        text = infer_schema(body, mutates_args=mutates_args) if schema is None else schema
        if type(_operators.get(name)) is CustomOp:  # as where a notebook's cell runs again
            forget(name)
        made = CustomOp(name, text, body, devices)
        made.tags = [*tags] if isinstance(tags, (list, tuple, set)) else [] if tags is None else [tags]
        _operators[name] = made
        return made

    return make if function is None else make(function)


def forget(name: str) -> None:
    """Free the name of an operator that was made in Python. What holds the operator may go on calling it."""
    _native._forget_operator(name)
    _operators.pop(name, None)
    for key in [key for key in dispatch_rules if key[0] == name]:
        del dispatch_rules[key]
    for told in when_forgotten:
        told(name)


def _adopt_compiled() -> None:
    """Operators that libraries have defined since this was last asked."""
    for name, schema, doc, in_python in _native._custom_operators():
        if not in_python and name not in _operators:
            _operators.setdefault(name, CompiledOp(name, schema, doc))


# Operators that a program which was saved may name before anybody here has called them: the modules of a namespace.
_MADE_LATER = {
    "tesserack_fft": ("tesserack.ops.fft._transform",),
    "tesserack_special": ("tesserack.ops.special._incomplete_gamma", "tesserack.ops.special._polynomials"),
    "tesserack_random": ("tesserack.distributions._samplers", "tesserack.distributions._simplex_gradient"),
}
_makers: dict[str, Callable[[], CustomOp]] = {}


def make_when_asked(name: str, make: Callable[[], CustomOp]) -> None:
    """Note who makes the operator of that name, for those who ask for it before it was called."""
    _makers[name] = make


def _make_later(space: str) -> None:
    if space in _MADE_LATER:
        for module in _MADE_LATER[space]:
            importlib.import_module(module)
        for name in [name for name in _makers if name.startswith(f"{space}::")]:
            _makers[name]()


def make_named_in(text: str) -> None:
    """Make the operators of ours that the text of a graph may name."""
    for space in _MADE_LATER:
        if f"{space}::" in text:
            _make_later(space)


def get(name: str) -> CustomOp:
    """The custom operator of that name. ``KeyError`` naming those there are."""
    if name not in _operators:
        _adopt_compiled()
    _make_later(name.partition("::")[0])
    if name not in _operators:
        raise KeyError(f"library: no custom operator {name!r} (there are: {', '.join(sorted(_operators)) or 'none'})")
    return _operators[name]


def in_namespace(space: str) -> dict[str, CustomOp]:
    """The custom operators ``space::name``, by name."""
    prefix = f"{space}::"
    _adopt_compiled()
    _make_later(space)
    return {name.removeprefix(prefix): op for name, op in _operators.items() if name.startswith(prefix)}


def _of_its_own(name: str, values: Sequence[Tensor], args: Sequence[Any]) -> None:
    """``RuntimeError`` where a result is an argument, or where results and arguments share memory."""
    taken = [t for a in args for t in (a if isinstance(a, list) else (a,)) if isinstance(t, Tensor)]
    for value in values:
        if any(value is t for t in taken):
            raise RuntimeError(f"{name}: the kernel returned one of its arguments; return a copy (clone)")
        if not value.is_meta and value.numel() and any(_share(value, t) for t in taken):
            raise RuntimeError(
                f"{name}: the kernel returned a tensor of shape {tuple(value.shape)} that sees the memory of an "
                "argument, or of another result; return a copy (clone)"
            )
        taken.append(value)


def _share(one: Tensor, other: Tensor) -> bool:
    if other.is_meta or one.layout != strided or other.layout != strided:
        return False
    return bool(one._storage_id()) and one._storage_id() == other._storage_id()  # 0: it has no memory


def overloads(name: str) -> dict[str, CustomOp]:
    """The custom operators of that name by overload, ``""`` for the one without."""
    space, _, base = name.partition("::")
    found = in_namespace(space)
    return {key.partition(".")[2]: op for key, op in found.items() if key.partition(".")[0] == base}


def register_kernel(op: str | CustomOp, device_types: str | Iterable[str], function: Function | None = None) -> Any:
    """:meth:`CustomOp.register_kernel` of an operator or its name."""
    return resolve(op).register_kernel(device_types, function)


def register_fake(op: str | CustomOp, function: Function | None = None) -> Any:
    """:meth:`CustomOp.register_fake` of an operator or its name."""
    return resolve(op).register_fake if function is None else resolve(op).register_fake(function)


def register_autograd(op: str | CustomOp, backward: Function, *, setup_context: Function | None = None) -> None:
    """:meth:`CustomOp.register_autograd` of an operator or its name."""
    resolve(op).register_autograd(backward, setup_context=setup_context)


def register_vmap(op: str | CustomOp, function: Function | None = None) -> Any:
    """:meth:`CustomOp.register_vmap` of an operator or its name."""
    return resolve(op).register_vmap(function)


def register_autocast(op: str | CustomOp, device_type: str, cast_inputs: Any) -> None:
    """:meth:`CustomOp.register_autocast` of an operator or its name."""
    resolve(op).register_autocast(device_type, cast_inputs)


def resolve(op: Any) -> CustomOp:
    """The operator of a name, of ``torch.ops.space.name``, or of an overload of that; ``KeyError`` of another name."""
    if isinstance(op, (str, CustomOp)):
        return get(op) if isinstance(op, str) else op
    name = getattr(op, "_qualified_op_name", None)
    if name is None:  # an overload
        name, overload = op.overloadpacket._qualified_op_name, op._overloadname
        name = name if overload == "default" else f"{name}.{overload}"
    return get(name)

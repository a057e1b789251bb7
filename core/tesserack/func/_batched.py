"""Tensors with a hidden first dim, and how operators are called on them: what :func:`vmap` gives its function.

An operator runs once, on all entries, by its batching rule (``_rules.py``); where it has none, or none for these
arguments, it runs entry by entry and the results are joined. What is no operator, and a truth value, which may differ
from entry to entry, raises :class:`Unbatchable`: the whole function is then called for each entry.
"""

from __future__ import annotations

import functools
import operator
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FunctionType
from typing import Any, Protocol

import tesserack as ts
from tesserack import Tensor, _native
from tesserack._tensor.overrides import handle_torch_function, has_torch_function
from tesserack.autograd.function import Function, batching, use_vmap_rule
from tesserack.ops.registry import operators, said
from tesserack.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = [
    "BadOutput",
    "Batched",
    "Fallback",
    "NoTensor",
    "SharedWrite",
    "Unbatchable",
    "Whole",
    "bottom",
    "by_rule",
    "draws_refused",
    "entries",
    "is_batched",
    "lifted",
    "rewrapped",
    "run",
    "use_rules",
    "whole",
]

_state = threading.local()
# Attributes and methods that tell of an entry's outline, or show an entry another way.
_ASKED = {"stride", "storage_offset", "element_size", "is_contiguous", "is_signed", "ndimension", "nelement"}
_SHOWN = {"itemsize", "layout", "is_sparse", "is_sparse_csr", "is_quantized", "is_nested", "is_meta", "real", "imag",
          "H", "mH"}  # fmt: skip
# Those whose results are views of their argument where its layout allows it.
_MAYBE_VIEWS = {"reshape", "view", "flatten", "contiguous", "to"}


class Rules(Protocol):
    """The batching rules of operators, by the operator's name."""

    def by_name(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The results of a call with batched arguments, batched. ``Unbatchable`` if there is no rule for it."""

    def written(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a rule wrote what the call writes for every entry."""

    def draws(self, func: Any) -> bool:
        """Whether it draws random numbers by its arguments."""

    def drawn(self, func: Any, name: str, level: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The random numbers of a call for every entry, batched; NotImplemented where each draws its own."""


_rules: list[Rules] = []  # one; they are made of what is here


def use_rules(rules: Rules) -> None:
    """Have operators run by these rules."""
    _rules[:] = [rules]


class Unbatchable(RuntimeError):
    """No way to go on with all entries at once: the function is to be called for each entry."""


class NoTensor(Unbatchable):
    """The function gave what is no tensor, and would one by one."""


class Whole:
    """What is known of a function's run on all entries: what it wrote to, and whether views were copied on the way."""

    def __init__(self, level: int, given: list[Any]) -> None:
        self.level = level
        self.given = {_memory(value) for value in given}
        self.wrote = False
        self.copied = False


@contextmanager
def whole(level: int, given: list[Any]) -> Iterator[Whole]:
    """A run on all entries, of arguments whose values are ``given``."""
    runs = _state.__dict__.setdefault("runs", {})
    runs[level] = Whole(level, given)
    try:
        yield runs[level]
    finally:
        del runs[level]


def _level() -> int:
    return getattr(_state, "level", 0)


def _memory(value: Any) -> int:
    while is_batched(value):
        value = value.value
    return int(value._storage_ptr())


def is_batched(x: Any) -> bool:
    return type(x) is Batched


def bottom(x: Any) -> Any:
    """The tensor of all entries of all calls of vmap that a tensor is batched in."""
    while is_batched(x):
        x = x.value
    return x


def rewrapped(like: Any, values: Any) -> Any:
    """``values``, of the shape of ``bottom(like)``, batched as ``like`` is."""
    return Batched(rewrapped(like.value, values), like.level) if is_batched(like) else values


def lifted(x: Any, level: int | None = None) -> Any:
    """The tensor batched in every call of vmap that is under way: an entry of its own for each of theirs."""
    level = len(batching) if level is None else level
    if not level:
        return x
    if is_batched(x) and x.level == level:
        return Batched(lifted(x.value, level - 1), level)
    inner = lifted(x, level - 1)
    return Batched(inner.expand((batching[level - 1].batch_size, *inner.shape)), level)


class Batched:
    """Stands for one entry of ``value``, whose first dim counts the entries of the call of vmap at ``level``.

    In a call of vmap within another, ``value`` may be a batched tensor itself.
    """

    __slots__ = ("level", "value")

    def __init__(self, value: Any, level: int | None = None) -> None:
        self.value = value
        self.level = _level() if level is None else level

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Tensor, since functions ask ``isinstance(x, Tensor)`` and go another way where it is none."""
        return Tensor

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__getitem__:  # what all share, by an index of each entry
            return run(operator.getitem, args, kwargs or {})
        if not isinstance(func, (_native.Operator, _native.OperatorMethod)) and not _rules[0].draws(func):
            raise Unbatchable(str(func))
        return run(func, args, kwargs or {})

    def __repr__(self) -> str:
        return f"BatchedTensor(lvl={self.level}, bdim=0, value={self.value!r})"

    @property
    def shape(self) -> ts.Size:
        return ts.Size(self.value.shape[1:])

    @property
    def ndim(self) -> int:
        return int(self.value.ndim) - 1

    @property
    def dtype(self) -> Any:
        return self.value.dtype

    @property
    def device(self) -> Any:
        return self.value.device

    @property
    def requires_grad(self) -> bool:
        return bool(bottom(self).requires_grad)

    @property
    def T(self) -> Any:
        return self.permute(*range(self.ndim - 1, -1, -1))

    @property
    def mT(self) -> Any:
        if self.ndim < 2:
            raise Unbatchable("mT")
        return self.transpose(-1, -2)

    def dim(self) -> int:
        return self.ndim

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        return int(self.shape.numel())

    def is_floating_point(self) -> bool:
        return bool(self.value.is_floating_point())

    def is_complex(self) -> bool:
        return bool(self.value.is_complex())

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of a 0-d tensor")
        return int(self.shape[0])

    def __iter__(self) -> Any:
        return iter(self.unbind(0))

    def __bool__(self) -> bool:
        raise Unbatchable("a truth value, which differs from entry to entry")

    def __getitem__(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(part, slice) and any(map(is_batched, (part.start, part.stop, part.step))) for part in parts):
            raise Unbatchable("a slice by tensors")
        return run(operator.getitem, (self, index), {})

    def __setitem__(self, index: Any, value: Any) -> None:
        run(operator.setitem, (self, index, value), {})

    def __getattr__(self, name: str) -> Any:
        found = getattr(Tensor, name, None)
        if found is None:
            raise AttributeError(f"'Tensor' object has no attribute {name!r}")
        if isinstance(found, _native.OperatorMethod):
            return lambda *args, **kwargs: run(found, (self, *args), kwargs)
        if isinstance(found, FunctionType):  # written in Python: its parts come here again
            return functools.partial(found, self)
        if name in _ASKED:
            return lambda *args, **kwargs: run(found, (self, *args), kwargs)
        if name in ("real", "imag"):
            return Batched(getattr(self.value, name), self.level)
        if name in _SHOWN:
            return run(operator.attrgetter(name), (self,), {})
        raise Unbatchable(name)


def _slot(name: str) -> Callable[..., Any]:
    turned = name.startswith("r") and name[1:] in _BINARY
    called = getattr(operator, f"__{name.removeprefix('r') if turned else name}__")
    rule = _BINARY.get(name.removeprefix("r") if turned else name)

    def method(self: Any, *others: Any) -> Any:
        args = (*others, self) if turned else (self, *others)
        return run(called if rule is None else operators()[rule], args, {})

    return method


_BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "pow", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": None,
    "rshift": None,
}  # fmt: skip
_UNARY = {"neg": "neg", "abs": "abs", "invert": "bitwise_not"}
_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
_WRITING = {f"i{name}": f"{rule}_" for name, rule in _BINARY.items() if rule and name != "matmul"}
_BINARY |= {name: name for name in _COMPARED}
for _name in (*_BINARY, *(f"r{name}" for name in _BINARY if name not in _COMPARED)):
    setattr(Batched, f"__{_name}__", _slot(_name))
for _name, _rule in _UNARY.items():
    setattr(Batched, f"__{_name}__", lambda self, rule=_rule: run(operators()[rule], (self,), {}))
for _name, _rule in _WRITING.items():
    setattr(Batched, f"__{_name}__", lambda self, other, rule=_rule: run(operators()[rule], (self, other), {}))
Batched.__hash__ = object.__hash__  # type: ignore[method-assign]


def _levelled(args: Any, kwargs: Any) -> tuple[int, int, Any, Any]:
    """The innermost level of the arguments, how many entries it has, and the arguments all of that level: those of
    outer ones are the same for each of its entries."""
    leaves, spec = tree_flatten((args, kwargs))
    found = [x for x in leaves if is_batched(x)]
    level = max(x.level for x in found)
    count = next(int(x.value.shape[0]) for x in found if x.level == level)
    if all(x.level == level for x in found):
        return level, count, args, kwargs
    lifted = [Batched(x.expand((count, *x.shape)), level) if is_batched(x) and x.level < level else x for x in leaves]
    return (level, count, *tree_unflatten(lifted, spec))


def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operator, or one of Python's, on arguments of which some are batched."""
    name = getattr(func, "__name__", "attribute")
    if _state.__dict__.get("runs") and has_torch_function(()) and _rules[0].draws(func):
        return handle_torch_function(func, args, *args, **kwargs)  # a method of a batched tensor: the mode is to see it
    writes = name in ("setitem", *_MUTATING) or (name.endswith("_") and not name.endswith("__"))
    given = args[0] if args else None
    level, count, args, kwargs = _levelled(args, kwargs)
    state, before = _state.__dict__.setdefault("runs", {}).get(level), _level()
    if state is None:
        raise Unbatchable("a tensor of a call of vmap that is over")
    _state.level = level
    try:
        if writes or kwargs.get("out") is not None:
            return _written(func, name, level, count, given if writes else kwargs["out"], args, kwargs)
        found = _rules[0].drawn(func, name, level, args, kwargs)
        if found is not NotImplemented:
            return found
        try:
            found = _rules[0].by_name(name, args, kwargs)
        except Unbatchable:
            return _each(func, level, count, args, kwargs, state, same=_rules[0].draws(func))
        if (
            (name in _MAYBE_VIEWS or name in said("cast"))
            and found.dtype is args[0].dtype
            and _memory(found) != _memory(args[0])
        ):
            state.copied = True  # an entry might have been a view
        return found
    finally:
        _state.level = before


def _picked(level: int, k: int) -> Callable[[Any], Any]:
    return lambda x: x.value.select(0, k) if is_batched(x) and x.level == level else x


def _apart(level: int) -> Callable[[Any], Any]:
    """The entries of a batched tensor, views that go backward together; None for what all share."""
    return lambda x: x.value.unbind(0) if is_batched(x) and x.level == level else None


def _each(func: Any, level: int, count: int, args: Any, kwargs: Any, state: Whole | None, *, same: bool = False) -> Any:
    """The function on one entry after another, and the results joined; what draws may have to draw the same for all."""
    _announce(func)
    rows: list[Any] = []
    spec: Any = None
    same = same and level <= len(batching) and batching[level - 1].randomness == "same"
    device = next(bottom(x).device for x in tree_flatten((args, kwargs))[0] if is_batched(x)) if same else None
    before = ts.get_rng_state(device) if same else None
    given, given_spec = tree_flatten((args, kwargs))
    parts_of = list(map(_apart(level), given))
    for k in range(count):
        if before is not None:
            ts.set_rng_state(before, device)
        picked = [x if apart is None else apart[k] for x, apart in zip(given, parts_of, strict=True)]
        here, here_kwargs = tree_unflatten(picked, given_spec)
        flat, spec = tree_flatten(func(*here, **here_kwargs))
        if k == 0 and state is not None:
            sources = {_memory(x) for x in tree_flatten((here, here_kwargs))[0] if isinstance(x, Tensor)}
            state.copied |= any(isinstance(x, Tensor) and _memory(x) in sources for x in flat)
        rows.append(flat)
    joined = []
    for parts in zip(*rows, strict=True):
        if isinstance(parts[0], Tensor):
            joined.append(Batched(ts.stack(list(parts)), level))
        elif all(type(part) is type(parts[0]) and part == parts[0] for part in parts):
            joined.append(parts[0])
        else:
            raise Unbatchable("numbers that differ from entry to entry")
    return tree_unflatten(joined, spec)


@contextmanager
def draws_refused(refused: bool) -> Iterator[None]:
    """Within it, drawing a random number is an error, of whatever generator."""
    before = _native._refuse_draws(True) if refused else None
    try:
        yield
    finally:
        if before is not None:
            _native._refuse_draws(before)


class Fallback:
    """What is to become of operators that run entry by entry: whether they may, and whether they warn."""

    enabled = True
    warns = False


def _announce(func: Any) -> None:
    name = getattr(func, "__name__", func)
    if not Fallback.enabled:
        raise RuntimeError(f"vmap: {name}: expected an operator with a batching rule, got one that runs entry by entry")
    if Fallback.warns:
        text = f"There is a performance drop because {name} runs entry by entry within vmap: it has no batching rule"
        warnings.warn(f"{text} for these arguments", UserWarning, stacklevel=4)


def _written(func: Any, name: str, level: int, count: int, target: Any, args: Any, kwargs: Any) -> Any:
    """A call that writes to its first argument, or to ``out=``."""
    if name in _MUTATING:  # the statistics of a batch
        _refuse_statistics(name, args, kwargs)
        with suppress(Unbatchable):
            return _rules[0].by_name(name, args, kwargs)
        return _each(func, level, count, args, kwargs, None)
    state = _state.runs[level]
    targets = target if isinstance(target, (tuple, list)) else (target,)
    if not all(is_batched(t) and t.level == level for t in targets):
        raise SharedWrite(
            f"vmap: {name}: in-place arithmetic is not possible because there exists a Tensor `other` in the arguments "
            "that has more elements than `self`: a tensor is written to that all entries share, with values that "
            "differ from entry to entry. Please use an out-of-place operator, or give vmap the tensor as an argument"
        )
    if state.copied:
        raise Unbatchable(f"{name} to a view that was copied")
    if isinstance(target, (tuple, list)):
        for k in range(count):
            here, here_kwargs = tree_map(_picked(level, k), (args, kwargs))
            func(*here, **here_kwargs)
        state.wrote |= any(_memory(t) in state.given for t in targets)
        return target
    if not _rules[0].written(func, name, args, kwargs):
        for k in range(count):
            here, here_kwargs = tree_map(_picked(level, k), (args, kwargs))
            func(*here, **here_kwargs)
    state.wrote |= _memory(target) in state.given
    return target


# Operators that may write to further arguments, and which those are.
_MUTATING = {"batch_norm": ("running_mean", "running_var"), "instance_norm": ("running_mean", "running_var"),
             "native_batch_norm": ("running_mean", "running_var")}  # fmt: skip


def _refuse_statistics(name: str, args: Any, kwargs: Any) -> None:
    order = {"batch_norm": (1, 2, 5), "instance_norm": (1, 2, 5), "native_batch_norm": (3, 4, 5)}[name]
    keys = ("running_mean", "running_var", "use_input_stats" if name == "instance_norm" else "training")
    mean, var, training = (
        args[place] if len(args) > place else kwargs.get(key) for place, key in zip(order, keys, strict=True)
    )
    if not is_batched(args[0] if args else kwargs.get("input")):
        return  # the statistics of a batch that is the same for every entry
    if training and any(x is not None and not is_batched(x) for x in (mean, var)):
        raise SharedWrite(
            f"{name}: got a batched tensor as input while the running_mean or running_var, which will be updated in "
            "place, were not batched; use track_running_stats=False, or tesserack.func.replace_all_batch_norm_modules_"
        )


class BadOutput(ValueError, RuntimeError):
    """What a function gave does not have the dims that were asked for, or cannot be known."""


class SharedDraw(RuntimeError):
    """Random numbers that are to be the same for every entry, of what differs from entry to entry."""


class SharedWrite(RuntimeError):
    """A function of one entry that would change what all entries share."""


def by_rule(function: Any, args: tuple[Any, ...], keywords: dict[str, Any] | None = None) -> Any:
    """What the ``vmap`` of a custom function makes of its arguments, batched again; NotImplemented if none is."""
    if not any(is_batched(arg) for arg in args):
        return NotImplemented
    if function.vmap is not Function.vmap and getattr(function, "generate_vmap_rule", False):
        raise BadOutput(
            f"{function.__name__}: expected either generate_vmap_rule=True or a staticmethod vmap, got both; remove one"
        )
    if function.vmap is Function.vmap:
        raise Unbatchable(f"{function.__name__}, a custom function without vmap()")
    level, _, args, _ = _levelled(args, {})
    in_dims = tuple(0 if is_batched(arg) else None for arg in args)
    values = [arg.value if is_batched(arg) else arg for arg in args]
    found = function.vmap(batching[-1], in_dims, *values, **(keywords or {}))
    if not isinstance(found, tuple) or len(found) != 2:
        raise BadOutput(
            f"{function.__name__}.vmap: expected the outputs and their out_dims, got a {type(found).__name__}"
            + (f" of {len(found)}" if isinstance(found, tuple) else "")
        )
    result, out_dims = found
    many = isinstance(result, (tuple, list))
    if isinstance(out_dims, (tuple, list)) and (not many or len(out_dims) != len(result)):
        raise BadOutput(
            f"{function.__name__}.vmap: expected out_dims as the outputs are, {len(result) if many else 'one'}, got "
            f"{tuple(out_dims)}"
        )

    def batched(value: Any, dim: Any) -> Any:
        return value if dim is None else Batched(value.movedim(dim, 0), level)

    if not many:
        return batched(result, out_dims)
    dims = out_dims if isinstance(out_dims, (tuple, list)) else [out_dims] * len(result)
    return tuple(batched(value, dim) for value, dim in zip(result, dims, strict=True))


use_vmap_rule(by_rule)


def entries(result: Any, level: int, count: int) -> Any:
    """What a function gave, for each entry: the same for all where it did not depend on them."""
    if is_batched(result) and result.level == level:
        return result.value
    if not isinstance(result, Tensor):
        raise NoTensor("a result that is no tensor")
    return result.expand((count, *result.shape))

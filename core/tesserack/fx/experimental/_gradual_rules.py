"""Which types results have by those of what they are made of, where some sizes are not known."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tesserack.fx.experimental.unification import Var
from tesserack.fx.node import Node
from tesserack.fx.tensor_type import Dyn, TensorType, is_consistent, is_more_precise

__all__ = ["FUNCTIONS", "MODULES", "broadcast_types", "calculate_out_dimension", "get_greatest_upper_bound", "pair"]


def pair(value: Any) -> tuple[Any, Any]:
    """Both options of a layer of images."""
    return value if isinstance(value, tuple) else (value, value)


def broadcast_types(t1: Any, t2: Any) -> tuple[Any, Any]:
    """Both types with the sizes that they are broadcast to.

    >>> broadcast_types(TensorType((2, 3)), TensorType((4, 1, 3)))
    (TensorType[(4, 2, 3)], TensorType[(4, 2, 3)])
    """
    if not isinstance(t1, TensorType) or not isinstance(t2, TensorType):
        if any(t == Dyn or isinstance(t, Var) for t in (t1, t2)):
            return t1, t2
        raise TypeError(f"broadcast_types: expected types of tensors, got {t1} and {t2}")
    rank = max(len(t1.__args__), len(t2.__args__))
    a, b = ([1] * (rank - len(t.__args__)) + list(t.__args__) for t in (t1, t2))
    for k in range(rank):
        if a[k] == 1:
            a[k] = b[k]
        elif b[k] == 1:
            b[k] = a[k]
    return TensorType(tuple(a)), TensorType(tuple(b))


def get_greatest_upper_bound(type1: Any, type2: Any) -> Any:
    """What both types tell together. ``TypeError`` where they contradict each other.

    >>> get_greatest_upper_bound(TensorType((1, Dyn)), TensorType((Dyn, 2)))
    TensorType[(1, 2)]
    """
    if type1 == Dyn:
        return type2
    if type2 == Dyn:
        return type1
    if not is_consistent(type1, type2):
        raise TypeError(f"Inconsistent types {type1}, {type2}")
    if isinstance(type1, TensorType) and isinstance(type2, TensorType):
        both = zip(type1.__args__, type2.__args__, strict=True)
        return TensorType(tuple(b if a == Dyn else a for a, b in both))
    return type1


def calculate_out_dimension(d_in: Any, module_instance: Any, index: int) -> Any:
    """The size that a window of a layer makes of one, along the first or second dim of images."""
    if d_in == Dyn:
        return Dyn
    if not isinstance(d_in, int):
        raise TypeError(f"{d_in} in {module_instance} must be a number or Dyn. Received {type(d_in)}")
    names = ("padding", "dilation", "kernel_size", "stride")
    padding, dilation, kernel, stride = (pair(getattr(module_instance, name))[index] for name in names)
    return (d_in + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _expanded(kind: Any, rank: int) -> TensorType:
    """A type with as many sizes. ``TypeError`` for one of another number."""
    if kind == Dyn:
        return TensorType((Dyn,) * rank)
    if not isinstance(kind, TensorType) or len(kind.__args__) != rank:
        raise TypeError(f"Cannot extend tensor to a {rank}-dimensional one, got {kind}")
    return kind


def _of(value: Any) -> Any:
    return value.type if isinstance(value, Node) else type(value)


def _option(n: Node, place: int, name: str, default: Any) -> Any:
    return n.args[place] if len(n.args) > place else n.kwargs.get(name, default)


def _fail(n: Node) -> TypeError:
    return TypeError(f"{n.op} {n.target}: cannot apply to {[_of(arg) for arg in n.args]} with the type {n.type}")


# --- functions -------------------------------------------------------------------------------------------------------


def _add(n: Node) -> Any:
    t1, t2 = _of(n.args[0]), _of(n.args[1])
    for number, tensor in ((t1, t2), (t2, t1)):
        if number in (int, float):
            return tensor
    new1, new2 = broadcast_types(t1, t2)
    n.meta["broadcast"] = new1 != t1 or new2 != t2
    if n.meta["broadcast"]:
        n.meta[str(n.args[0])], n.meta[str(n.args[1])] = new1, new2
    if not is_consistent(new1, new2):
        raise _fail(n)
    return new2 if is_more_precise(new1, new2) else new1


def _transpose(n: Node) -> Any:
    kind, dims = _of(n.args[0]), (n.args[1], n.args[2])
    if kind == Dyn:
        return n.type
    if not isinstance(kind, TensorType) or not all(-len(kind.__args__) <= d < len(kind.__args__) for d in dims):
        raise _fail(n)
    sizes = list(kind.__args__)
    a, b = dims
    sizes[a], sizes[b] = sizes[b], sizes[a]
    return get_greatest_upper_bound(n.type, TensorType(tuple(sizes)))


def _reshape(n: Node) -> Any:
    kind, wanted = _of(n.args[0]), n.args[1]
    made = TensorType(tuple(Dyn if size == -1 else size for size in wanted))
    if kind == Dyn:
        return made
    if not isinstance(kind, TensorType):
        raise _fail(n)
    have = math.prod(1 if size == Dyn else size for size in kind.__args__)
    want = abs(math.prod(wanted))
    if want and (have % want == 0 or want % have == 0):
        return made
    raise _fail(n)


def _flattened(sizes: Sequence[Any], start: int, end: int) -> TensorType:
    start, end = (d % len(sizes) if -len(sizes) <= d < len(sizes) else d for d in (start, end))
    if not 0 <= start <= end < len(sizes):
        raise TypeError(f"flatten: incompatible dims {start} and {end} for {len(sizes)} sizes")
    joined = sizes[start : end + 1]
    size = Dyn if any(d == Dyn for d in joined) else math.prod(joined)
    return TensorType((*sizes[:start], size, *sizes[end + 1 :]))


def _flatten(n: Node) -> Any:
    kind = _of(n.args[0])
    if kind == Dyn:
        return n.type
    made = _flattened(kind.__args__, _option(n, 1, "start_dim", 0), _option(n, 2, "end_dim", -1))
    return get_greatest_upper_bound(n.type, made)


def _getattr(n: Node) -> Any:
    if n.args[1] != "shape":
        raise TypeError(f"getattr: expected the shape of a tensor, got {n.args[1]!r}")
    return Dyn


FUNCTIONS: dict[str, Callable[[Node], Any]] = {
    "add": _add,
    "iadd": _add,
    "flatten": _flatten,
    "getattr": _getattr,
    "reshape": _reshape,
    "transpose": _transpose,
}


# --- layers ----------------------------------------------------------------------------------------------------------


def _input(n: Node, rank: int) -> tuple[Any, ...]:
    """The sizes of a layer's argument, which is known to have as many from then on."""
    argument = n.args[0]
    argument.type = _expanded(argument.type, rank)
    return tuple(argument.type.__args__)


def _batch_norm(n: Node, module: Any) -> Any:
    sizes, own = _input(n, 4), _expanded(n.type, 4)
    if not is_consistent(sizes[1], module.num_features) or not is_consistent(own.__args__[1], module.num_features):
        raise _fail(n)
    return get_greatest_upper_bound(TensorType(sizes), own)


def _conv(n: Node, module: Any) -> Any:
    batch, channels, *image = _input(n, 4)
    if not is_consistent(channels, module.in_channels):
        raise _fail(n)
    made = (batch, module.out_channels, *(calculate_out_dimension(d, module, k) for k, d in enumerate(image)))
    return get_greatest_upper_bound(TensorType(made), _expanded(n.type, 4))


def _relu(n: Node, module: Any) -> Any:
    argument = n.args[0]
    if argument.type == Dyn and isinstance(n.type, TensorType):
        argument.type = _expanded(argument.type, len(n.type.__args__))
    return get_greatest_upper_bound(argument.type, n.type)


def _ranked(n: Node) -> Any:
    """The type of a pooling layer's argument, of three sizes or four; Dyn where nothing is known."""
    argument = n.args[0]
    if argument.type == Dyn and isinstance(n.type, TensorType):
        argument.type = _expanded(argument.type, len(n.type.__args__))
    if argument.type != Dyn and (
        not isinstance(argument.type, TensorType) or len(argument.type.__args__) not in (3, 4)
    ):
        raise _fail(n)
    return argument.type


def _max_pool(n: Node, module: Any) -> Any:
    kind = _ranked(n)
    if kind == Dyn:
        return n.type
    *first, height, width = kind.__args__
    image = [calculate_out_dimension(d, module, k) for k, d in enumerate((height, width))]
    return get_greatest_upper_bound(TensorType((*first, *image)), n.type)


def _adaptive_pool(n: Node, module: Any) -> Any:
    kind = _ranked(n)
    if kind == Dyn:
        return n.type
    *first, height, width = kind.__args__
    image = [old if new is None else new for old, new in zip((height, width), pair(module.output_size), strict=True)]
    return get_greatest_upper_bound(TensorType((*first, *image)), n.type)


def _linear(n: Node, module: Any) -> Any:
    argument = n.args[0]
    if argument.type == Dyn and isinstance(n.type, TensorType):
        argument.type = _expanded(argument.type, len(n.type.__args__))
    if argument.type == Dyn:
        return n.type
    *first, last = argument.type.__args__
    if not is_consistent(last, module.in_features):
        raise _fail(n)
    return get_greatest_upper_bound(TensorType((*first, module.out_features)), n.type)


MODULES: dict[str, Callable[[Node, Any], Any]] = {
    "AdaptiveAvgPool2d": _adaptive_pool,
    "BatchNorm2d": _batch_norm,
    "Conv2d": _conv,
    "Linear": _linear,
    "MaxPool2d": _max_pool,
    "ReLU": _relu,
}

"""What a function returns that its run has made, and how it is made again of a graph's results."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tesserack import Tensor, _native
from tesserack.jit._compile.errors import NotProved
from tesserack.jit._compile.look import is_a, items_of, own_dict, pairs_of
from tesserack.jit._compile.state import PLAIN, is_ours, is_written, slots
from tesserack.utils import _pytree as pytree

__all__ = ["Maker", "Makers", "check_plain", "shape_of", "tensors_of"]

# Given a graph's results, a call's tensors, and what is made already, the same object as the run's.
Maker = Callable[[Any, list[Tensor], dict[int, Any]], Any]


_PYTHONS = ("builtins", "itertools", "collections", "functools")


def _is_object(value: Any) -> bool:
    """Whether an object is its attributes, and nothing happens when it is made of them."""
    cls = type(value)
    return is_written(cls) and not is_ours(cls) and not hasattr(cls, "__del__")


def _attributes(value: Any) -> dict[str, Any]:
    found = dict(own_dict(value) or {})
    for slot in slots(type(value)):
        if hasattr(value, slot.__name__):
            found[slot.__name__] = getattr(value, slot.__name__)
    return found


def _is_constant(value: Any) -> bool:
    """Whether it is a plain value, or a tuple of such."""
    own = type(value) is tuple or (is_a(value, tuple) and is_ours(type(value)))
    return all(map(_is_constant, items_of(value))) if own else is_a(value, PLAIN)


def tensors_of(result: Any, is_new: Callable[[Any], bool | None]) -> Iterator[Tensor]:
    """The tensors that a run hands out: in containers, and in what it has made."""
    pending, seen = pytree.tree_leaves(result), set()
    while pending:
        value = pending.pop(0)
        if is_a(value, Tensor):
            yield value
            continue
        if is_a(value, PLAIN) or id(value) in seen:
            continue
        seen.add(id(value))
        if is_a(value, tuple) or (is_a(value, list) and is_new(value)):
            pending += items_of(value)
        elif is_a(value, dict) and is_new(value):
            pending += [item for _, item in pairs_of(value)]
        elif is_new(value) and _is_object(value):
            pending += _attributes(value).values()


def check_plain(tensor: Tensor) -> None:
    """A graph gives tensors of no other class. ``NotProved`` for one that the run has made."""
    if type(tensor) is not Tensor:
        told = f"a tensor of class {type(tensor).__qualname__} is handed out, which the run has made"
        raise NotProved(told, own=True)


class Makers:
    """Makes makers. ``place`` says of which source a tensor is, ``held`` what lives on, by its id."""

    def __init__(
        self, place: Callable[[Tensor], tuple[str, Any]], held: dict[int, Any], is_new: Callable[[Any], bool | None]
    ) -> None:
        self.place, self.held, self.is_new = place, held, is_new
        self._done: dict[int, Maker] = {}

    def of(self, value: Any) -> Maker:
        """That of a value. ``NotProved`` for what a graph's run could not make."""
        if is_a(value, Tensor):
            return self._of_tensor(value)
        plain = is_a(value, (*PLAIN, _native.Operator))
        if plain or id(value) in self.held or self._lives_on(value):
            return lambda outputs, inputs, made: value
        if type(value) is tuple:
            items = [self.of(item) for item in value]
            return lambda outputs, inputs, made: tuple([item(outputs, inputs, made) for item in items])
        if not (new := self.is_new(value)):
            told = f"an object of class {type(value).__qualname__} is returned, which the run has made"
            own = type(value).__module__ in _PYTHONS  # which graphs of PyTorch's make again
            raise NotProved(told, passing=new is False, own=own)  # it may lie where another one was
        if id(value) not in self._done:
            number = len(self._done)
            self._done[id(value)] = lambda outputs, inputs, made: made[number]  # within itself
            self._done[id(value)] = self._once(number, value)
        return self._done[id(value)]

    def arguments(self, value: Any) -> Maker:
        """That of arguments: also of what is made by every call, and tells nothing by being the same."""
        if type(value) is dict:
            pairs = {key: self.arguments(item) for key, item in value.items()}
            return lambda *given: {key: item(*given) for key, item in pairs.items()}
        if type(value) in (tuple, list):
            cls = type(value)
            places = [self.place(item) if is_a(item, Tensor) else ("", 0) for item in value]
            if all(kind == "output" for kind, _ in places):  # as a list of parameters is
                return lambda outputs, inputs, made: cls([outputs[k] for _, k in places])
            items = [self.arguments(item) for item in value]
            return lambda *given: cls([item(*given) for item in items])
        if id(value) in self.held:
            return lambda *given: value
        if is_a(value, types.MethodType):
            function, owner = self.arguments(value.__func__), self.arguments(value.__self__)
            return lambda *given: types.MethodType(function(*given), owner(*given))
        if type(value) is functools.partial:
            parts = self.arguments((value.func, value.args, value.keywords))
            return lambda *given: (lambda func, args, kwargs: functools.partial(func, *args, **kwargs))(*parts(*given))
        if is_a(value, types.FunctionType):
            return self._function(value)
        if is_a(value, types.BuiltinFunctionType) and is_a(value.__self__, types.ModuleType):
            return lambda *given: value
        if _is_constant(value):
            return lambda *given: value
        return self.of(value)

    def _function(self, value: types.FunctionType) -> Maker:
        """A function that the run has made: what it closes over is made anew."""
        if self.is_new(value) is False:
            return lambda *given: value
        if id(value) in self._done:
            return self._done[id(value)]
        number = len(self._done)
        self._done[id(value)] = lambda outputs, inputs, made: made[number]  # that calls itself
        cells = [self._cell(cell) for cell in value.__closure__ or ()]
        defaults = self.arguments((value.__defaults__, value.__kwdefaults__))

        def maker(outputs: Any, inputs: Any, made: dict[int, Any]) -> Any:
            if number in made:
                return made[number]
            closure = tuple(types.CellType() for _ in cells)
            new = types.FunctionType(value.__code__, value.__globals__, value.__name__, None, closure or None)
            made[number] = new
            new.__defaults__, new.__kwdefaults__ = defaults(outputs, inputs, made)
            new.__dict__.update(value.__dict__)
            for cell, content in zip(closure, cells, strict=True):
                cell.cell_contents = content(outputs, inputs, made)
            return new

        self._done[id(value)] = maker
        return maker

    def _cell(self, cell: Any) -> Maker:
        try:
            return self.arguments(cell.cell_contents)
        except ValueError:
            raise NotProved("a function closes over a name that has no value yet") from None

    def _lives_on(self, value: Any) -> bool:
        lasting = (type, types.FunctionType, _native._CompiledFunction)
        return is_a(value, lasting) and self.is_new(value) is False

    def _of_tensor(self, value: Tensor) -> Maker:
        kind, what = self.place(value)
        if kind == "output":
            return lambda outputs, inputs, made: outputs[what]
        if kind == "input":
            return lambda outputs, inputs, made: inputs[what]
        return lambda outputs, inputs, made: what

    def _once(self, number: int, value: Any) -> Maker:
        make, fill = self._parts(value)

        def maker(outputs: Any, inputs: list[Tensor], made: dict[int, Any]) -> Any:
            if number not in made:
                made[number] = make()
                fill(made[number], outputs, inputs, made)
            return made[number]

        return maker

    def _parts(self, value: Any) -> tuple[Callable[[], Any], Callable[..., None]]:
        """What makes an empty one, and what fills it."""
        cls = type(value)
        if cls is list:
            items = [self.of(item) for item in value]
            return list, lambda to, *given: to.extend([item(*given) for item in items])
        if cls is dict and all(is_a(key, PLAIN) for key in value):
            pairs = {key: self.of(item) for key, item in value.items()}
            return dict, lambda to, *given: to.update({key: item(*given) for key, item in pairs.items()})
        if _is_object(value):
            own = {name: self.of(item) for name, item in _attributes(value).items()}

            def fill(to: Any, *given: Any) -> None:
                for name, item in own.items():
                    object.__setattr__(to, name, item(*given))

            return lambda: object.__new__(cls), fill
        told = f"an object of class {cls.__qualname__} is returned, which the run has made"
        # As what PyTorch's graphs leave to Python, or make again.
        raise NotProved(told, own=bool(cls.__flags__ & (1 << 9)) or cls.__module__ in _PYTHONS)


class _Leaf(NamedTuple):
    kind: str
    what: Any


def shape_of(results: list[tuple[str, Any]], spec: Any) -> Any:
    """How a program puts together what a function returns, of tuples, lists and dicts; None if that is for Python."""
    if any(kind == "made" for kind, _ in results) or not _is_plain(spec):
        return None
    return _shape(pytree.tree_unflatten([_Leaf(*result) for result in results], spec))


def _is_plain(spec: Any) -> bool:
    return spec.type is None or (spec.type in (tuple, list, dict) and all(map(_is_plain, spec.children_specs)))


def _shape(value: Any) -> Any:
    if type(value) is _Leaf:
        return tuple(value)
    if is_a(value, dict):
        return "dict", {key: _shape(item) for key, item in value.items()}
    return type(value).__name__, [_shape(item) for item in value]

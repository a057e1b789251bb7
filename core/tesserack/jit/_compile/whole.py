"""Calls that stand whole in a graph: how they are made again, of what the graph's run has computed."""

from __future__ import annotations

import functools
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tesserack import Tensor, _native
from tesserack._tensor.subclass import no_override
from tesserack.autograd import _whole
from tesserack.jit._compile.code import reads
from tesserack.jit._compile.errors import NotProved
from tesserack.jit._compile.flow import only_returned
from tesserack.jit._compile.inside import Around, changes
from tesserack.jit._compile.results import Makers
from tesserack.jit._compile.state import PLAIN
from tesserack.jit._python_call import OPERATOR, register, unseen
from tesserack.utils import _pytree as pytree

__all__ = ["OtherResults", "WholeCall", "WholeCalls", "check_parts", "values_of"]


class OtherResults(RuntimeError):
    """A call gave results of another kind than in the run that was captured; ``early``: nothing was changed by then."""

    def __init__(self, text: str, early: bool) -> None:
        super().__init__(text)
        self.early = early


class WholeCall:
    """One such call. ``tensors`` are all that its arguments lead to; called with others, it gives its tensors."""

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], computes: bool, line: str
    ) -> None:
        self.function, self.computes, self.line = function, computes, line
        # What is gone through once, as `parameters()` gives it, is a list from here on.
        self.args = tuple([*arg] if isinstance(arg, Iterator) else arg for arg in args)
        self.kwargs = kwargs
        self.tensors = [*_tensors((self.args, kwargs))]
        self.regions = _regions()
        self.number = register(self)
        self.outputs: list[Tensor] = []
        self._make: Any = None
        self._plain: list[tuple[int | None, Any]] | None = None
        self._named: dict[str, Any] = {}
        self._returns_none = False
        self.own: frozenset[int] = frozenset()  # of tensors that its functions hold, and find by themselves
        self.early = False  # whether nothing before it, nor it, changes anything
        # As compilers' graphs call functions.
        shown = args[0] if function is _native._function_apply else function
        self.__name__ = getattr(shown, "__name__", "call").strip("_")
        self.__qualname__, self.__module__ = self.__name__, "tesserack.whole_calls"

    @property
    def _is_impure(self) -> bool:
        return not self.computes

    @property
    def counts_on_sizes(self) -> bool:
        """Whether it gives tensors, which have to be of the same sizes in every run."""
        return bool(self.outputs)

    def first(self) -> Any:
        """The result in the run that is captured."""
        result = self.function(*self.args, **self.kwargs)
        leaves = pytree.tree_leaves(result)
        self.outputs = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        self._others = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self._like = _likenesses(self.outputs, self.tensors)
        return result

    def finish(self, held: dict[int, Any], is_new: Callable[[Any], bool | None]) -> None:
        """Have it make its arguments anew from now on. ``NotProved`` where they hold what cannot be made."""
        name = self.__name__
        for other in self._others:
            if not (other is None or isinstance(other, (bool, str)) or id(other) in held):
                raise NotProved(f"{self.line} calls {name}, which returns more than tensors: {type(other).__name__}")
        places = {id(tensor): k for k, tensor in enumerate(self.tensors)}
        asked: set[int] = set()

        def place(tensor: Tensor) -> tuple[str, int]:
            asked.add(id(tensor))
            return "output", places[id(tensor)]

        try:
            makers = Makers(place, held, is_new)
            args, kwargs = makers.arguments(self.args), makers.arguments(self.kwargs)
        except NotProved as error:
            raise error.told_as(f"{self.line} calls {name} with what the run has made: {error.reason}") from None
        self._make = (args, kwargs)
        self._note_plain(places, held)
        self._returns_none = self._others == [None] and not self._like
        self.own = frozenset(places.keys() - asked)
        self.args, self.kwargs, self.tensors, self.outputs = (), {}, [], []

    def _note_plain(self, places: dict[int, int], held: dict[int, Any]) -> None:
        """Arguments that are tensors, or live on, need no making."""
        plain: list[tuple[int | None, Any]] = []
        for arg in self.args:
            if isinstance(arg, Tensor):
                plain.append((places[id(arg)], None))
            elif isinstance(arg, PLAIN) or id(arg) in held:
                plain.append((None, arg))
            else:
                return
        if all(isinstance(value, PLAIN) or id(value) in held for value in self.kwargs.values()):
            self._plain, self._named = plain, dict(self.kwargs)

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        """The tensors of its result, with these in the place of those that it was given."""
        if self._make is None:  # while it is captured
            self.result = self.first()
            return self.outputs
        if self._plain is not None:
            args, kwargs = [what if k is None else tensors[k] for k, what in self._plain], self._named
        else:
            made: dict[int, Any] = {}
            args, kwargs = (make(tensors, (), made) for make in self._make)
        if self.regions:
            with self.regions():
                result = self.function(*args, **kwargs)
        else:
            result = self.function(*args, **kwargs)
        if result is None and self._returns_none:
            return self.outputs
        leaves = [result] if type(result) is Tensor else pytree.tree_leaves(result)
        outputs = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        others = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        like = _likenesses(outputs, tensors)
        if others != self._others or like != self._like:
            raise OtherResults(
                f"compile: {self.line} calls {self.__name__}, whose results are other than in the run that was "
                f"captured: expected {self._told(self._others, self._like)}, got "
                f"{self._told(others, like)}; decorate what calls it with compiler.disable",
                self.early and self.computes,
            )
        return outputs

    @staticmethod
    def _told(others: list[Any], like: list[Any]) -> str:
        values = [repr(value) for value in others if value is not None]
        return ", ".join([*values, *(f"{dtype} {tuple(shape)}" for shape, _, dtype, *_ in like)]) or "None"


_PASSED_ON = getattr(Tensor, "__torch_function__").__func__  # noqa: B009


def _sees_calls(cls: type[Tensor]) -> bool:
    """Whether a class of tensors decides itself what functions do with it, as nested ones do."""
    own = getattr(cls, "__torch_function__", no_override)
    return own is not no_override and getattr(own, "__func__", own) is not _PASSED_ON


def _likenesses(outputs: list[Tensor], given: Iterable[Tensor]) -> list[Any]:
    """How results lie in memory, and which of the tensors given they are: that is one value of the graph."""
    places = {id(tensor): k for k, tensor in enumerate(given)}
    return [
        (x.shape, x.stride() if x.layout is _native.strided else None, x.dtype, x.requires_grad, places.get(id(x)))
        for x in outputs
    ]


def _regions() -> Any:
    """What enters the autocast regions of now again: casts that the program made there are steps of the graph."""
    from tesserack.amp import _autocast

    return _autocast.kept_regions() if any(_autocast._state.enabled.values()) or _autocast._state.depth else None


def _tensors(value: Any, seen: set[int] | None = None, depth: int = 0) -> Iterator[Tensor]:
    """Those that lists, tuples, dicts and functions that close over something hold, each once."""
    seen = set() if seen is None else seen
    if depth > 20 or id(value) in seen:
        return
    parts: Any = ()
    if isinstance(value, Tensor):
        seen.add(id(value))
        yield value
        return
    if isinstance(value, (list, tuple)):
        parts = value
    elif isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, functools.partial):
        parts = (value.func, value.args, value.keywords)
    elif isinstance(value, types.FunctionType) and value.__closure__:
        seen.add(id(value))
        parts = [cell.cell_contents for cell in value.__closure__ if _is_filled(cell)]
    for part in parts:
        yield from _tensors(part, seen, depth + 1)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


# --- within a run that is captured -----------------------------------------------------------------------------------


class WholeCalls:
    """As a context, within a ``Watch``'s: takes the calls of this thread that stand whole. ``put`` has a recorder write
    one down, and returns its result.
    """

    def __init__(self, watch: Any, put: Callable[[WholeCall], Any], operators: bool, reads: bool = False) -> None:
        """``operators``: those of the program's that are written in Python stand whole, too. ``reads``: the recorder
        sees to values that Python reads."""
        self.watch, self.put, self.operators, self.reads = watch, put, operators, reads
        self.numbers: dict[int, tuple[float, Tensor]] = {}  # what `item` gave, by the numbers' ids
        self.divided = False  # whether there was one whose parts are steps
        self.calls: list[WholeCall] = []
        self._thread = threading.get_ident()

    def __enter__(self) -> WholeCalls:
        _whole.takers.append(self._take)
        _whole.item_takers.append(self._item)
        _whole.watch_methods()
        return self

    def __exit__(self, *exc: object) -> None:
        _whole.takers.remove(self._take)
        _whole.item_takers.remove(self._item)
        _whole.watch_methods()
        self.put = _put_nowhere  # what holds the run is let go at once

    def _take(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], computes: bool, divisible: bool
    ) -> Any:
        watch = self.watch
        if threading.get_ident() != self._thread or watch.paused or watch.inside or watch.opaque:
            return NotImplemented
        if isinstance(function, _native.Operator) and not self.operators:
            return NotImplemented
        if divisible and watch.divides:
            self.divided = True
            return NotImplemented
        line = watch.line()
        watch.inside = True
        try:
            call = WholeCall(function, args, kwargs, computes, line)
            other = next((t for t in call.tensors if _sees_calls(type(t))), None)
            if other is not None:  # which a call written down would be shown to
                watch.refuse(f"{line} calls {call.__name__} with a {type(other).__name__}")
                return NotImplemented
            self.calls.append(call)
            return self.put(call)
        finally:
            watch.inside = False

    def _item(self, tensor: Tensor) -> Any:
        """A number of a tensor that does no more than to become part of what the run returns."""
        watch = self.watch
        if threading.get_ident() != self._thread or watch.paused or watch.inside or watch.opaque:
            return NotImplemented
        frame, line = sys._getframe(2), watch.line()
        first = watch.is_first(frame)
        watch.inside = True
        try:
            fits = first and tensor.is_floating_point() and only_returned(frame.f_code, frame.f_lasti)
        finally:
            watch.inside = False
        if not fits:
            if not self.reads:
                watch.refuse(f"{line} calls item", own=True)
            return NotImplemented
        kept = tensor.detach().clone()
        watch.inside = True
        try:
            with unseen():
                value = kept.item()
        finally:
            watch.inside = False
        self.numbers[id(value)] = value, kept
        return value

    def finish(self, held: dict[int, Any], is_new: Callable[[Any], bool | None], read: frozenset[str]) -> None:
        """``NotProved`` where a call cannot be made again, or writes what the program around it reads."""
        if self.watch.inner:
            of_layers = frozenset({"forward"}).union(*(reads(code).attributes for code in self.watch.own))
            if (change := changes(self.watch.inner, Around(held, read, of_layers))) is not None:
                raise NotProved(change)
        for call in self.calls:
            call.finish(held, is_new)


def _put_nowhere(call: WholeCall) -> Any:
    raise RuntimeError("compile: the run is over")


def check_parts(graph: Any, calls: list[WholeCall]) -> None:
    """``NotProved`` where a function uses tensors that the run has computed, and was not given, or gives results whose
    sizes may follow from values."""
    lines = {call.number: call for call in calls if call.computes}
    given = {*graph.inputs}
    for at in range(graph.num_nodes if lines else 0):
        node = graph.node(at)
        if node["op"] != OPERATOR or (call := lines.get(node["args"][0])) is None:
            continue
        if call.counts_on_sizes and (reader := graph.host_reader(at + 1, node["end"])) is not None:
            raise NotProved(
                f"{call.line} calls {call.__name__}, where {reader} hands out values, or sizes that depend on them"
            )
        own = {number for _, number in node["args"][1]}
        for part in range(at + 1, node["end"]):
            for number in values_of(graph.node(part)["args"]):
                producer = graph.value(number)["producer"]
                outside = number in given if producer is None else producer < at
                if outside and number not in own:
                    raise NotProved(
                        f"{call.line} calls {call.__name__}, which uses a tensor that it was not given as an argument"
                    )


def values_of(args: Any) -> Iterator[int]:
    """The values among a node's arguments."""
    for arg in args:
        if isinstance(arg, tuple) and len(arg) == 2 and arg[0] == "%":
            yield arg[1]
        elif isinstance(arg, list):
            yield from values_of(arg)

"""A run as a graph, with what it depends on."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, cast

from tesserack import Tensor
from tesserack.jit._compile.before import Before, Seeds
from tesserack.jit._compile.dependencies import Dependencies
from tesserack.jit._compile.errors import NotProved
from tesserack.jit._compile.look import is_a, items_of, pairs_of
from tesserack.jit._compile.results import Makers, check_plain, tensors_of
from tesserack.jit._compile.state import PLAIN, Tokens, settings
from tesserack.jit._compile.steps import Steps
from tesserack.jit._compile.watch import Watch
from tesserack.utils import _pytree as pytree

__all__ = ["HELD", "OTHERWISE", "Capture", "Inputs", "compiling", "run"]

_state = threading.local()
OTHERWISE = "it reads what runs of other arguments do not"
HELD = "an argument is a tensor that the program holds besides: Python may tell that, and no graph would"


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """What runs inside is told that nothing is captured."""
    _state.unseen = getattr(_state, "unseen", 0) + 1
    try:
        yield
    finally:
        _state.unseen -= 1


def seen() -> bool:
    """Whether programs are told that this thread captures a run."""
    return compiling() and not getattr(_state, "unseen", 0)


def compiling() -> bool:
    """Whether this thread captures a run."""
    return getattr(_state, "compiling", 0) > 0


class Inputs(NamedTuple):
    """The arguments of a call taken apart: its tensors, each once, and what they depend on besides."""

    tensors: list[Tensor]
    token: Any
    tokens: Tokens

    @classmethod
    def of(cls, args: Any, kwargs: Any, keep: bool = True) -> Inputs:
        """Those of a call. ``NotProved`` for arguments whose changes cannot be seen."""
        try:
            leaves, spec = pytree.tree_flatten((args, kwargs))
        except RecursionError:
            raise NotProved("an argument holds itself") from None
        tokens = Tokens(keep)
        places: dict[int, int] = {}
        tensors: list[Tensor] = []
        found = []
        for leaf in leaves:
            if is_a(leaf, Tensor):
                if id(leaf) not in places:
                    places[id(leaf)] = len(tensors)
                    tensors.append(leaf)
                found.append((places[id(leaf)], tokens.tensor(leaf, identity=False)))
            else:
                found.append(tokens.of(leaf))
        return cls(tensors, (str(spec), tuple(found), tuple(settings())), tokens)


class Capture(NamedTuple):
    """A graph of the tensors of a call; how its results are put together; what else it depends on; and whether it may
    run at once, which it may not where the run has changed something.
    """

    module: Any
    results: Any
    spec: Any
    dependencies: Dependencies
    changed: bool
    kept: Any  # what tokens name by identity; of the tensors of the call no more than their outlines
    outlines: list[tuple[Any, ...]]


def run(
    function: Any,
    roots: list[Any],
    args: Any,
    kwargs: Any,
    seeds: Seeds,
    kind: Any,
    closely: bool = False,
    others: Iterable[Dependencies] = (),
) -> tuple[Any, Capture | NotProved]:
    """The result of a call, and its capture by a recorder of this kind, or why there is none. Raises what the call
    raises.

    What ran is added to ``seeds``: for a further try they are known. ``closely``: each step of the run is looked at.
    ``others``: what graphs of the same function depend on, of calls of other sizes or values.
    """
    try:
        with _uncollected():
            inputs = Inputs.of(args, kwargs)
            shared = None if closely or seeds.alone else _serving(others, inputs)
            seeds.alone = False
            read = None if shared else Before(roots, pytree.tree_leaves((args, kwargs)), seeds)
    except NotProved as error:
        return function(*args, **kwargs), error
    watch = Watch(read.kept.kept if read and closely and Steps.possible() else None, seeds.divides)
    recorder = kind(watch, _names(roots[0], len(inputs.tensors)), inputs.tensors)
    _state.compiling = getattr(_state, "compiling", 0) + 1
    try:
        with recorder:
            with watch:
                result = function(*args, **kwargs)
            numbers = recorder.whole.numbers
            try:
                given = [*tensors_of(result, watch.is_new)]
            except RecursionError:
                given, watch.reason = [], watch.reason or NotProved("what is returned holds itself", own=True)
            recorder.stop([*given, *(kept for _, kept in numbers.values())])
    finally:
        _state.compiling -= 1
    dependencies = None
    try:
        with _uncollected():
            if watch.reason is not None:
                raise watch.reason
            if shared is not None and not shared.cover(watch, inputs.tensors):
                raise NotProved(OTHERWISE, passing=True)
            dependencies = shared or Dependencies(roots, watch, inputs.tokens, cast("Before", read))
            if any(id(tensor) in dependencies.tokens.tensors for tensor in inputs.tensors):
                raise NotProved(HELD, passing=True)
            if Inputs.of(args, kwargs, keep=False).token != inputs.token:
                told = "the run changes what it reads: an attribute, a list, or how a tensor lies in memory"
                raise NotProved(told, passing=True, own=True)
            if read is not None:
                dependencies.check_closures()
                read.check(
                    dependencies, dependencies.ran(), read.after_roots(), watch.inner.keys() - watch.codes.keys()
                )
            return result, _captured(recorder, dependencies, inputs, result, watch.is_new)
    except NotProved as error:
        if recorder.whole.divided:
            seeds.divides, error = False, NotProved(error.reason, passing=True, final=False, own=error.own)
        seeds.alone = shared is not None
        seeds.codes.update(watch.codes)
        seeds.reads.update(watch.steps.reads if watch.steps is not None else {})
        if dependencies is not None:
            seeds.functions.update((id(function), function) for function in dependencies.ran())
            seeds.classes.update(dependencies.classes)
        # Whose frames hold the run's tensors, and lead back to it.
        return result, error.with_traceback(None)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Python's collector waits: what is made for a graph stays, and to look it through each time takes about a fifth of
    all that a capture takes."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _serving(others: Iterable[Dependencies], inputs: Inputs) -> Dependencies | None:
    """Of other graphs what they depend on, if it is as it was: where this run reads no more, nothing has to be looked
    at again."""
    if not inputs.tokens.is_plain():
        return None
    return next((each for each in others if each.serves(inputs.tensors)), None)


def _names(function: Any, count: int) -> list[str]:
    code = getattr(getattr(function, "forward", function), "__code__", None)
    names = [n for n in code.co_varnames[: code.co_argcount] if n != "self"] if code is not None else []
    return names if len(names) == count else [f"arg{k}" for k in range(count)]


def _captured(
    recorder: Any, dependencies: Dependencies, inputs: Inputs, result: Any, is_new: Callable[[Any], bool | None]
) -> Capture:
    known = {**dependencies.tokens.tensors, **inputs.tokens.tensors}
    held = {**dependencies.tokens.kept, **inputs.tokens.kept}
    given = {id(tensor): k for k, tensor in enumerate(inputs.tensors)}

    def place(tensor: Tensor) -> tuple[str, Any]:
        if id(tensor) in given:
            return "input", given[id(tensor)]
        if id(tensor) in known:
            return "value", tensor
        check_plain(tensor)
        return "output", recorder.place(tensor)

    numbers = recorder.whole.numbers
    makers = Makers(place, held, is_new)
    leaves, spec = pytree.tree_flatten(result)
    results: list[tuple[str, Any]] = []
    for leaf in leaves:
        if is_a(leaf, Tensor):
            results.append(place(leaf))
        elif id(leaf) in numbers:
            results.append(("number", place(numbers[id(leaf)][1])[1]))
        elif is_a(leaf, PLAIN) or id(leaf) in held:
            results.append(("value", leaf))
        else:
            results.append(("made", makers.of(leaf)))
    _refuse_held_containers(result, held)
    for tensor in (tensor for call in recorder.whole.calls for tensor in call.tensors):
        if id(tensor) not in given and id(tensor) not in known:
            check_plain(tensor)
    recorder.whole.finish(held, is_new, dependencies.read_names())
    module = recorder.finish(dependencies, known)
    if recorder.changed and (catcher := dependencies.catches()):
        told = f"{catcher} goes on after errors, and what is written or drawn before them stays so"
        raise NotProved(told, own=catcher == "__exit__")  # of a context, which most do not
    outlines = [(x.dtype, tuple(x.shape), x.device) for x in inputs.tensors]
    return Capture(module, results, spec, dependencies, recorder.changed, inputs.tokens.kept, outlines)


def _refuse_held_containers(result: Any, held: dict[int, Any]) -> None:
    if is_a(result, (list, dict)) and id(result) in held:
        raise NotProved("a list or dict is returned that the program holds", own=True)
    items = [item for _, item in pairs_of(result)] if is_a(result, dict) else []
    for item in items_of(result) if is_a(result, (list, tuple)) else items:
        _refuse_held_containers(item, held)

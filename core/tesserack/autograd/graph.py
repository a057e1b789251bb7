"""The recorded graph: nodes, hooks on saved tensors."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from tesserack import _native
from tesserack._native import Node, Tensor

__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]


class GradientEdge(NamedTuple):
    """A place in the recorded graph: the gradient of result ``output_nr`` of ``node``.

    ``autograd.grad`` and ``autograd.backward`` take it wherever they take a tensor with that history, which need not
    be alive any more. ``ownership_token`` is what keeps the node; ``None`` where the node keeps itself.
    """

    node: Node
    output_nr: int
    ownership_token: Node | None = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Where the gradient of a tensor arrives. ``RuntimeError`` if it requires none.

    >>> import tesserack as ts
    >>> x = ts.tensor(3.0, requires_grad=True)
    >>> edge = get_gradient_edge(x * x)
    >>> ts.autograd.grad(edge, x, ts.tensor(1.0))
    (tensor(6.),)
    """
    if not tensor.requires_grad:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    node = tensor.grad_fn
    if node is None:  # of a leaf: what stands before an operation on it
        with _native.enable_grad():
            view: Any = tensor.view_as(tensor)
        node = view.grad_fn.next_functions[0][0]
    keeper = getattr(node, "_keeper", None)  # of a function in Python, whose context does not keep its graph
    return GradientEdge(node, int(tensor.output_nr), node if keeper is None else keeper())


def after(node: Any) -> Iterator[Any]:
    """The nodes that a node hands gradients to."""
    return (following for following, _ in node.next_functions if following is not None)


def below(roots: Iterable[Any]) -> list[Any]:
    """The nodes that gradients come to from these, each after all that it leads to."""
    found: list[Any] = []
    seen: set[Any] = set()
    stack = [(node, False) for node in roots]
    while stack:
        node, done = stack.pop()
        if done:
            found.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((following, False) for following in after(node))
    return found


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Count one change in place more of a tensor, or of each of several, that something else has written to.

    >>> import tesserack as ts
    >>> x = ts.ones(1)
    >>> increment_version(x)
    >>> x._version
    1
    """
    for one in (tensor,) if isinstance(tensor, Tensor) else tensor:
        _native._increment_version(one)


class saved_tensors_hooks:
    """Context manager: operations recorded inside keep ``pack_hook(tensor)`` instead of the tensors they save, and get
    them back by ``unpack_hook``. With this, saved tensors can be moved, compressed or computed again.

    >>> import tesserack as ts
    >>> x = ts.tensor(3.0, requires_grad=True)
    >>> with ts.autograd.graph.saved_tensors_hooks(lambda t: t.tolist(), lambda v: ts.tensor(v)):
    ...     y = x * x
    >>> y.backward()
    >>> x.grad
    tensor(6.)
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        _native._push_saved_tensors_hooks(self.pack_hook, self.unpack_hook)
        _entered.hooks.append(self)

    def __exit__(self, *exc: object) -> None:
        _entered.hooks.pop()
        _native._pop_saved_tensors_hooks()


class _Entered(threading.local):
    """The hooks of this thread, the innermost last."""

    def __init__(self) -> None:
        self.hooks: list[saved_tensors_hooks] = []


_entered = _Entered()


def innermost_hooks() -> saved_tensors_hooks | None:
    """The hooks that a tensor saved now goes through: those who look at a few tensors pass the others on to them."""
    return _entered.hooks[-1] if _entered.hooks else None


class save_on_cpu(saved_tensors_hooks):
    """Context manager: tensors saved for backward wait in host memory and return to their device when needed."""

    def __init__(self, pin_memory: bool = False, device_type: str = "") -> None:
        def pack(tensor: Tensor) -> tuple[Any, Tensor]:
            copy = tensor.detach().to("cpu", copy=True)
            return tensor.device, copy

        def unpack(packed: tuple[Any, Tensor]) -> Tensor:
            device, copy = packed
            return copy.to(device)

        super().__init__(pack, unpack)


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Context manager: using saved-tensor hooks inside raises ``RuntimeError(error_message)``."""
    outer = getattr(_disabled, "message", None)
    _disable(error_message)
    try:
        yield
    finally:
        _disable(outer)


_disabled = threading.local()


def _disable(message: str | None) -> None:
    _native._disable_saved_tensors_hooks(message)
    _disabled.message = message


def hooks_are_enabled() -> bool:
    """Whether saved-tensor hooks may be used here."""
    return getattr(_disabled, "message", None) is None


class _Kept:
    """A saved tensor that may be written to, in the context that it was saved in."""

    def __init__(self, context: _MutationContext, tensor: Tensor) -> None:
        self.context = context
        self._handle = _native._keep_tensor(tensor)
        context._kept.add(self)

    @property
    def copied(self) -> bool:
        return bool(_native._is_copied(self._handle))

    def value(self) -> Tensor:
        if self.context is not getattr(_mutations, "current", None):
            raise AssertionError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph was "
                "originally recorded."
            )
        return _native._kept_value(self._handle)  # type: ignore[no-any-return]


class _MutationContext:
    """What :func:`allow_mutation_on_saved_tensors` gives: ``cloned`` are the saved tensors it had to copy so far."""

    def __init__(self) -> None:
        self._kept: weakref.WeakSet[_Kept] = weakref.WeakSet()

    @property
    def cloned(self) -> list[_Kept]:
        return [kept for kept in self._kept if kept.copied]

    def clear(self) -> None:
        """Forget them."""
        self._kept.clear()


_mutations = threading.local()


@contextlib.contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[_MutationContext]:
    """Context manager: tensors saved for backward inside may be modified in place; backward, inside too, sees their old
    values. They are copied when that happens, which ``len(context.cloned)`` counts.

    ``RuntimeError`` within another such context; ``AssertionError`` for a backward outside.

    >>> import tesserack as ts
    >>> with allow_mutation_on_saved_tensors():
    ...     x = ts.ones(2, requires_grad=True)
    ...     y = x.clone()
    ...     z = (y * y).sum()
    ...     _ = y.zero_()
    ...     z.backward()
    >>> x.grad
    tensor([2., 2.])
    """
    if getattr(_mutations, "current", None) is not None:
        raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
    context = _mutations.current = _MutationContext()
    _native._watch_writes(True)
    try:
        with saved_tensors_hooks(lambda tensor: _Kept(context, tensor), _Kept.value):
            yield context
    finally:
        _native._watch_writes(False)
        _mutations.current = None
        context.clear()


class _Arrived:
    """The gradients that reached one backward's hooks; held by that backward alone, so a failed one leaves nothing."""

    def __init__(self, run: int, nodes: Sequence[Any]) -> None:
        self.run = run
        self.grads: list[Tensor | None] = [None] * len(nodes)
        self.left = sum(map(_native._will_run, nodes))


class _MultiGradHook:
    def __init__(self, tensors: Sequence[Tensor], fn: Callable[..., Any], first_only: bool) -> None:
        self._fn = fn
        self._first_only = first_only
        self._nodes = [get_gradient_edge(t).node for t in tensors]
        self._current = threading.local()
        self._handles = [t.register_hook(partial(self._arrive, k)) for k, t in enumerate(tensors)]

    def _arrive(self, k: int, grad: Tensor | None) -> None:
        arrived: _Arrived | None = getattr(self._current, "ref", lambda: None)()
        run = _native._current_run()
        if arrived is None or arrived.run != run:
            arrived = _Arrived(run, [] if self._first_only else self._nodes)
            self._current.ref = weakref.ref(arrived)
            _native._queue_callback(partial(self._forget, arrived))
            if self._first_only:
                self._fn(grad)
        if self._first_only:
            return
        arrived.grads[k] = grad
        arrived.left -= 1
        if arrived.left == 0:
            self._fn(arrived.grads)

    def _forget(self, arrived: _Arrived) -> None:
        """At the end of the backward, which holds what arrived until then."""

    def remove(self) -> None:
        """Take the hook off all tensors."""
        for handle in self._handles:
            handle.remove()

    def __enter__(self) -> _MultiGradHook:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[..., Any], *, mode: str = "all") -> _MultiGradHook:
    """Call ``fn`` once in each backward that reaches any of the tensors; returns a handle with ``remove()``.

    ``mode="all"``: ``fn(grads)`` as soon as all that it reaches are there, with None for the others. ``mode="any"``:
    ``fn(grad)`` at the first gradient. What ``fn`` returns is ignored. ``ValueError`` for another mode.

    >>> import tesserack as ts
    >>> x, y = (ts.ones(2, requires_grad=True) for _ in range(2))
    >>> handle = register_multi_grad_hook((x, y), lambda grads: print([g is None for g in grads]))
    >>> (x * 2).sum().backward()
    [False, True]
    """
    if mode not in ("all", "any"):
        raise ValueError(f"register_multi_grad_hook: expected mode to be 'all' or 'any', got {mode!r}")
    return _MultiGradHook(tensors, fn, mode == "any")

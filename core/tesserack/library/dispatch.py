"""How a call finds its kernel.

>>> import tesserack as ts
>>> print(ts.dispatch.explain("relu", ts.ones(2, requires_grad=True)))  # doctest: +ELLIPSIS
relu(Tensor self) -> Tensor
...
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tesserack import _native
from tesserack._native import Tensor
from tesserack._native import _Call as Call
from tesserack.backends._discovery import entry_points, none_in, plugins_enabled

ANSWERS = "tesserack.libraries"

__all__ = [
    "Call",
    "Key",
    "decompositions",
    "explain",
    "get_key",
    "key_names",
    "keys",
    "load_library",
    "lowering",
    "register_key",
    "schemas",
    "table",
]

Kernel = Callable[..., Any]


class _Library:
    """A library by its canonical path; no lock is held but its own while it sets itself up."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.stamp: tuple[int, int, int] | None = None  # what the file was when it was loaded
        self.answered = False  # by an installed package, in its stead


_libraries: dict[str, _Library] = {}


class Key:
    """A dispatch key registered by :func:`register_key`: kernels that calls come to on their way to a backend.

    A kernel is called with a :class:`Call` and the operator's arguments, all by position; it returns the results, its
    own or those of ``call.redispatch(*args)``, which goes on with the keys after this one. What a kernel itself
    computes does not come back to its key; what it redispatches does.

    >>> import tesserack as ts
    >>> counter = ts.dispatch.register_key("DocCounter", before="Autograd")
    >>> names = []
    >>> @counter.fallback
    ... def count(call, *args):
    ...     names.append(call.op)
    ...     return call.redispatch(*args)
    >>> with counter.enabled():
    ...     _ = ts.ones(2) + 1
    >>> names
    ['ones', 'add']
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<dispatch key {self.name}>"

    def kernel(self, op: str) -> Callable[[Kernel], Kernel]:
        """Decorator: use the function for one overload (``"sum.dim"``) at this key. ``RuntimeError`` if unknown."""

        def register(function: Kernel) -> Kernel:
            _native._set_kernel(op, self.name, function, _owner(function))
            return function

        return register

    def fallback(self, function: Kernel) -> Kernel:
        """Use the function for every operator without a kernel of its own at this key. Usable as a decorator."""
        _native._set_kernel(None, self.name, function, _owner(function))
        return function

    @contextlib.contextmanager
    def enabled(self, mode: bool = True) -> Iterator[Key]:
        """Within it, this thread's calls come to the key."""
        before = _native._enable_key(self.name, mode)
        try:
            yield self
        finally:
            _native._enable_key(self.name, before)


def _owner(function: Kernel) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"


def register_key(name: str, *, before: str | None = None, after: str | None = None) -> Key:
    """A new functionality key, considered right before or after an existing one.

    Keys are considered in the order of :func:`key_names`: user modes first, autograd last, then the backends.

    Raises:
        ValueError: unless exactly one of ``before`` and ``after`` names an existing key.
        RuntimeError: if the name is taken, or no place is left next to the key.
    """
    if (before is None) == (after is None):
        raise ValueError(
            f"register_key: expected exactly one of before= and after=, got before={before!r}, after={after!r}"
        )
    _native._register_key(name, before or after, before is not None)
    return Key(name)


def get_key(name: str) -> Key:
    """The functionality key of that name, whoever registered it.

    Raises:
        ValueError: if there is none, with the nearest name there is.

    >>> get_key("Autograd")
    <dispatch key Autograd>
    """
    known = key_names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"keys are {', '.join(known)}"
        raise ValueError(f"dispatch: no key named {name!r}; {hint}")
    return Key(name)


def load_library(path: str | os.PathLike[str]) -> None:
    """Open a native library and have it register its dispatch keys, kernels and operators.

    The library exports ``tesserack_plugin``, see ``tesserack/abi.h``. Its operators are then
    ``tesserack.ops.<namespace>.<name>``, its keys :func:`get_key` of their names. A library is loaded once: calling
    this again does nothing. What it registers stays until the process ends.

    An installed package may answer for a library that was built for something else: an entry point of the group
    ``tesserack.libraries``, named as the end of the path without suffixes (``"acme/_C"``), is a function that registers
    the same operators. It is called, once, and the file is not opened.

    Raises:
        RuntimeError: the file is no such library, is built for another ABI, has changed since it was loaded, or its
            setup failed (other classes, too, as it says).
    """
    real = os.path.realpath(path)
    library = _libraries.setdefault(real, _Library())
    with library.lock:
        if library.answered or _answer(real):
            library.answered = True
            return
        stat = os.stat(real) if os.path.exists(real) else None
        found = (stat.st_ino, stat.st_mtime_ns, stat.st_size) if stat else None
        if library.stamp is None:
            _native._load_library(real)
            library.stamp = found
        elif library.stamp != found:
            raise RuntimeError(f"library: {real} has changed since it was loaded; restart to load it anew")


def _answer(path: str) -> bool:
    """Whether an installed package registers what the library at this path would."""
    if not plugins_enabled() or none_in(ANSWERS):
        return False
    folder, name = os.path.split(path)
    stem = os.path.join(folder, name.partition(".")[0])
    found = [point for point in entry_points(ANSWERS) if stem.endswith("/" + point.name)]
    if len(found) > 1:
        told = ", ".join(str(point.dist and point.dist.name) for point in found)
        raise RuntimeError(f"library: {path} is answered for by several packages: {told}; uninstall all but one")
    for point in found:
        point.load()()
    return bool(found)


def key_names() -> list[str]:
    """The functionality keys, in the order calls consider them."""
    return _native._keys()  # type: ignore[no-any-return]


def schemas(name: str) -> list[str]:
    """The schemas of all overloads of an operator. ``RuntimeError`` for unknown names."""
    found = [
        record["schema"]
        for record in _native._operators()
        if name in (record["name"], record["base"], record["python_name"])
    ]
    if not found:
        raise RuntimeError(f"dispatch: no operator named {name!r}")
    return found


def table(name: str) -> list[tuple[str, str]]:
    """The keys an overload (``"sum.dim"``) has kernels for, in the order they are considered, and who registered them.

    Functionality keys first, then the loaded backends that bring their own kernel for the operator; on the others its
    declaration runs.
    """
    return _native._kernel_table(name)  # type: ignore[no-any-return]


def keys(tensor: Tensor) -> list[str]:
    """The keys a tensor brings to a call in this thread now, in the order they are considered."""
    return _native._keys_of(tensor)  # type: ignore[no-any-return]


def explain(op: Any, *args: Any) -> str:
    """The path a call of an operator with these arguments would take, as text.

    ``op`` is a name, such as ``"add"``, or the function itself.
    """
    name = op if isinstance(op, str) else op.__name__
    lines = schemas(name)[:1]
    tensors = [a for a in args if isinstance(a, Tensor)]
    considered: list[str] = []
    for tensor in tensors:
        considered += [key for key in keys(tensor) if key not in considered]
    record = next(r for r in _native._operators() if name in (r["name"], r["base"], r["python_name"]))
    known = dict(table(record["name"]))
    for key in considered:
        lines.append(f"  {key}: {_step(key, known.get(key), record)}")
    if not tensors:
        lines.append("  no tensor arguments: the operator's own body runs")
    return "\n".join(lines)


def lowering(name: str) -> dict[str, Any]:
    """What an overload (``"sum.dim"``) is computed by, as its declaration says; the same on every device.

    Returns:
        ``kind``: "pointwise", "primitive", "data-dependent", "composite", "view", "answer" or "opaque". Of a primitive
        with a kernel, ``kernel``: a dict of its ``name``, of ``operands`` and ``parameters`` (pairs of an argument's
        name and how the kernel wants it), of the numbers of those parameters that are ``changing`` from call to call
        in what is otherwise the same call, and of how many ``results`` it fills; else None. ``decomposes``: whether it
        is made of other operators where a device has no such kernel. ``code``: why it is neither, else None.
        ``asks``: kernels that its code, or that of its parts, asks for, and does without where a device has none.

    Raises:
        RuntimeError: if there is no such operator.

    >>> lowering("softmax")["kernel"]["operands"]
    [('self', 'contiguous result')]
    """
    for record in _native._operators():
        if record["name"] == name:
            words = _native._facts().get(record["base"], "").split()
            asks = [word.removeprefix("kernel:") for word in words if word.startswith("kernel:")]
            return {**{key: record[key] for key in ("kind", "kernel", "decomposes", "code")}, "asks": asks}
    raise RuntimeError(f"dispatch: no operator named {name!r}")


class _Watch(threading.local):
    """Of a thread: the operator whose decomposition runs in place of its kernel, and what that called."""

    name = ""
    inside = False
    parts: list[str]


_watch = _Watch()


@functools.cache
def _decompositions_key() -> Key:
    """Asked for when first needed, since keys are few."""
    key = register_key("Decompositions", before="Autograd")

    @key.fallback
    def see(call: Call, *args: Any) -> Any:
        if _watch.inside:
            _watch.parts.append(call.op)
            with key.enabled(False):
                return call.redispatch(*args)
        if call.op != _watch.name:
            return call.redispatch(*args)
        _watch.inside = True
        try:
            made = call.decompose(*args)
        finally:
            _watch.inside = False
        return call.redispatch(*args) if made is NotImplemented else made

    return key


@contextlib.contextmanager
def decompositions(name: str) -> Iterator[list[str]]:
    """Within it, this thread's calls of the overload run its decomposition, as on a device without its kernel.

    Yields the names of the operators that it called, in order. On the meta device, too, where nothing is computed.

    >>> import tesserack as ts
    >>> with decompositions("softmax") as parts:
    ...     _ = ts.empty(2, 3, device="meta").softmax(1)
    >>> parts
    ['amax', 'sub', 'exp', 'sum.dim', 'div']
    """
    key, before = _decompositions_key(), _watch.name
    _watch.name, _watch.parts = name, []
    try:
        with key.enabled():
            yield _watch.parts
    finally:
        _watch.name = before


def _step(key: str, owner: str | None, record: dict[str, Any]) -> str:
    if key == "Autograd":
        if not record["differentiable"]:
            return "not differentiable: nothing is recorded"
        return "traced through: its parts are recorded" if record["traced"] else "a node is recorded, then the next key"
    if record["kernel"] and _native._is_loaded(key):
        kernel, otherwise = (
            record["kernel"]["name"],
            "the decomposition" if record["decomposes"] else "the cpu's kernel",
        )
        if kernel in _native._backend_kernels(key):
            return f"the kernel {kernel!r}; if it declines, {otherwise}"
        return f"{otherwise}: the backend has no kernel {kernel!r}"
    if owner is not None:
        return f"kernel registered by {owner}"
    if "::" in record["base"]:
        return f"the operator's own function, defined by {record['origin']}"
    if record["view"]:
        return "a view: metadata only, no kernel"
    if record["pointwise"]:
        return "the backend's pointwise kernel runs the operator's expression"
    if _native._is_loaded(key) and record["base"] in _native._backend_kernels(key):
        return "the backend's own kernel; if it declines, the operator's body"
    return f"the operator's body, on other kernels: the backend has none named {record['base']!r}"

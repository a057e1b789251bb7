"""``compile`` and what belongs to it: graphs run in the place of functions wherever they are proved to do what these
do; a compiler that a program brings along is given them.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tesserack.jit._compile import capture, compiled, watch
from tesserack.jit._compile.backends import PLAIN, list_backends, lookup_backend, register_backend
from tesserack.jit._compile.options import check_options
from tesserack.jit._compile.report import explain
from tesserack.jit._compile.stance import SetStance as set_stance
from tesserack.nn.modules.module import Module, check_compile_options

__all__ = [
    "OptimizedModule",
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "cudagraph_mark_step_end",
    "disable",
    "explain",
    "get_default_backend",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe",
    "list_backends",
    "load_cache_artifacts",
    "lookup_backend",
    "nested_compile_region",
    "register_backend",
    "reset",
    "save_cache_artifacts",
    "set_default_backend",
    "set_enable_guard_collectives",
    "set_stance",
    "skip_all_guards_unsafe",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
    "substitute_in_graph",
    "wrap_numpy",
]


class OptimizedModule(Module):
    """What ``compile`` makes of a module: it runs as ``_orig_mod``, whose attributes it shows, and its state dict says
    ``_orig_mod.`` before every name, as files written beside PyTorch's do.
    """

    def __init__(self, mod: Module, dynamo_ctx: Any = None) -> None:
        super().__init__()
        self.add_module("_orig_mod", mod)
        self.__dict__["_compiled"] = dynamo_ctx

    @property
    def dynamo_ctx(self) -> Any:
        """What runs the module's calls; None for the module itself. PyTorch's name, which packages look for."""
        return self.__dict__["_compiled"]

    @property
    def training(self) -> bool:
        """Whether the module trains."""
        return bool(self._orig_mod.training)

    @training.setter
    def training(self, value: bool) -> None:
        if "_orig_mod" in self.__dict__.get("_modules", ()):
            self._orig_mod.training = value

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """A call of the module, by its compiler if it has one."""
        call = self.__dict__.get("_compiled")
        if call is None or call.plain:
            return self.__dict__["_modules"]["_orig_mod"](*args, **kwargs)
        return call.quick(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        module = self.__dict__.get("_modules", {}).get("_orig_mod")
        if module is None:
            raise AttributeError(f"'OptimizedModule' object has no attribute {name!r}", name=name, obj=self)
        return module if name == "_orig_mod" else getattr(module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        inside = "_orig_mod" in self.__dict__.get("_modules", ()) and not hasattr(type(self), name)
        if inside and name not in self.__dict__:
            setattr(self._orig_mod, name, value)
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def __len__(self) -> int:
        return len(self._orig_mod)

    def __bool__(self) -> bool:
        return True

    def __reduce__(self) -> Any:
        return type(self), (self._orig_mod,)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})


def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """The function, as one whose runs are graphs; a module within an ``OptimizedModule``, which names it ``_orig_mod``,
    in its state dict too. Without one, a decorator.

    The first call writes down what it does; later ones run the graph without Python, with the same results bit by
    bit, and the same gradients. Each call checks shapes, dtypes, devices, settings and objects that the function read;
    what is new gets a graph of its own once it was met twice (twelve times where runs had to be looked at step by
    step), up to a limit, and until then runs as plain Python. Training steps are such functions, too: backward passes,
    steps of optimizers and schedules, checkpoints and functions with gradients of their own stand whole in the graph,
    and run as Python each time. Where it is not proved that a graph repeats what the function does
    (it prints, sets attributes, reads values, asks the clock), it runs as plain Python: :func:`explain` tells the
    line. ``fullgraph`` raises instead, but for what only changes Python's own objects. Functions of fewer than eight
    operators run as plain Python, too, where that is as quick: their first graph is measured.

    A ``backend`` that is a function, or one that :func:`register_backend` has named, is called with the graph of a
    run, a :class:`tesserack.fx.GraphModule` of ATen's operators with parameters as its attributes, and with the
    tensors of the call; what it returns runs from then on, given these tensors, and returns the graph's results.

    Graphs are of fixed sizes, and a further one is made in milliseconds. ``dynamic=True`` says that sizes vary: as many
    as 64 sizes get graphs, instead of eight. ``mode`` and ``options`` are the compiler's.
    ``RuntimeError`` for ``mode`` together with ``options``, and for a mode or an option that PyTorch's does not have;
    ``AssertionError`` for what cannot be called; ``InvalidBackend`` for an unknown name;
    ``BackendCompilerFailed`` where the compiler raises.

    >>> import tesserack as ts
    >>> def count(gm, example_inputs):
    ...     print(sum(node.op == "call_function" for node in gm.graph.nodes), "steps")
    ...     return gm.forward
    >>> compile(lambda x: x.relu() + 1, backend=count)(ts.tensor([-1.0])).item()
    2 steps
    1.0
    """
    check_compile_options(mode=mode, options=options)
    backend = get_default_backend() if backend is None else backend
    check_options(backend, mode, options)
    if model is None:
        return functools.partial(
            compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable
        )
    if not callable(model):
        raise AssertionError(f"compile: A callable function is expected, but {type(model)} is provided.")
    if disable:
        return model
    given: dict[str, Any] = {
        k: v for k, v in (("mode", mode), ("options", options)) if v is not None and backend not in PLAIN
    }
    if isinstance(model, Module):
        call = compiled_call(model, whole=True, backend=backend, fullgraph=fullgraph, dynamic=dynamic, **given)
        return OptimizedModule(model, call)
    return compiled.wrap(model, backend, fullgraph, given, bool(dynamic))


def compiled_call(
    module: Module,
    *,
    whole: bool = False,
    backend: str | Callable[..., Any] | None = None,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    disable: bool = False,
    **options: Any,
) -> Any:
    """What runs a module's calls by a compiler; None where they run as they are. ``whole``: with the ``__call__`` that
    its class may have, not just the part of it that is every module's.
    """
    backend = get_default_backend() if backend is None else backend
    check_options(backend, **options)
    if disable:
        return None
    lookup_backend(backend)

    def call(*args: Any, **kwargs: Any) -> Any:
        return module._call_plainly(args, kwargs)

    def call_own(*args: Any, **kwargs: Any) -> Any:
        return module(*args, **kwargs)

    own = whole and type(module).__call__ is not Module.__call__
    given = {k: v for k, v in options.items() if v is not None}
    return compiled.Compiled(call_own if own else call, [module], backend, fullgraph, given, bool(dynamic))


_state = threading.local()  # what this thread is in the middle of


@contextlib.contextmanager
def exporting() -> Iterator[None]:
    """Within it this thread exports a program."""
    before, _state.exporting = is_exporting(), True
    try:
        yield
    finally:
        _state.exporting = before


def is_compiling() -> bool:
    """Whether this thread makes a graph of a program: a run is captured, or :func:`is_exporting`."""
    return capture.seen() or is_exporting()


def is_dynamo_compiling() -> bool:
    """Whether a run is captured."""
    return capture.seen()


def is_exporting() -> bool:
    """Whether this thread is in :func:`tesserack.export.export`."""
    return getattr(_state, "exporting", False)


def disable(fn: Callable[..., Any] | None = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The function, whose calls are no part of graphs: what calls it runs as plain Python; without one, a decorator.

    A module or class stays as it is.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if isinstance(fn, (Module, type)) or not callable(fn):
        return fn
    told = f"{getattr(fn, '__qualname__', fn)} is disabled" + (f": {reason}" if reason else "")

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        watch.tell(told)
        if not capture.compiling():
            return fn(*args, **kwargs)
        with capture.unseen():
            return fn(*args, **kwargs)

    call.__dict__["_torchdynamo_disable"] = True
    return call


def allow_in_graph(fn: Any) -> Any:
    """The function, or the functions of a list, whose code is trusted to only compute."""
    for each in fn if isinstance(fn, (list, tuple)) else (fn,):
        watch.trust(each)
    return fn


def assume_constant_result(fn: Any) -> Any:
    """The function, whose code is trusted to return the same whenever it is called."""
    watch.trust(fn)
    return fn


def substitute_in_graph(original_fn: Any, **options: Any) -> Callable[[Any], Any]:
    """A decorator that changes nothing: what runs is the original."""
    return lambda function: function


def reset() -> None:
    """Have every compiled function forget its graphs."""
    compiled.reset()


def cudagraph_mark_step_begin() -> None:
    """Nothing: there are no graphs to begin."""


def cudagraph_mark_step_end() -> None:
    """Nothing: there are no graphs to end."""


_defaults: dict[str, Any] = {"backend": "inductor"}


def get_default_backend() -> str | Callable[..., Any]:
    """What ``compile`` has as its ``backend`` where none is given."""
    return _defaults["backend"]  # type: ignore[no-any-return]


def set_default_backend(backend: str | Callable[..., Any] | None) -> None:
    """Have ``compile`` take this backend where none is given; None is the usual one. ``InvalidBackend`` for an unknown
    name.
    """
    lookup_backend(backend or "inductor")
    _defaults["backend"] = backend or "inductor"


def nested_compile_region(fn: Any = None, **options: Any) -> Any:
    """The function itself, which is part of the graphs of what calls it; without one, a decorator."""
    return fn if fn is not None else lambda function: function


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors by one of NumPy's arrays: it is given arrays of the tensors' values, and what it returns
    becomes tensors. It runs as plain Python, and no gradient passes.

    >>> import numpy, tesserack as ts
    >>> wrap_numpy(numpy.cumsum)(ts.ones(3))
    tensor([1., 2., 3.])
    """
    from tesserack import Tensor, as_tensor
    from tesserack.utils import _pytree as pytree

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map(
            lambda x: x.detach().cpu().numpy() if isinstance(x, Tensor) else x, (args, kwargs)
        )
        return pytree.tree_map(lambda x: as_tensor(x) if hasattr(x, "__array__") else x, fn(*args, **kwargs))

    return call


def save_cache_artifacts() -> tuple[bytes, Any] | None:
    """None: nothing is kept between processes."""
    return None


def load_cache_artifacts(serialized_artifacts: bytes) -> Any:
    """None: nothing is kept between processes."""
    return None


def set_enable_guard_collectives(enabled: bool) -> bool:
    """Nothing: ranks look for their graphs each by itself. Returns that it was off."""
    return False


def keep_portable_guards_unsafe(guard_entries: Any) -> list[bool]:
    """That every guard is kept: none is ever left out here."""
    return [True for _ in guard_entries]


keep_tensor_guards_unsafe = skip_all_guards_unsafe = keep_portable_guards_unsafe
skip_guard_on_all_nn_modules_unsafe = skip_guard_on_globals_unsafe = keep_portable_guards_unsafe
skip_guard_on_inbuilt_nn_modules_unsafe = keep_portable_guards_unsafe

"""Base classes of datapipes, with their functional forms: ``pipe.map(fn)`` is ``Mapper(pipe, fn)``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar

from tesserack.utils.data.datapipes._iterating import one_at_a_time
from tesserack.utils.data.dataset import Dataset, IterableDataset

__all__ = ["DFIterDataPipe", "DataChunk", "IterDataPipe", "MapDataPipe"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class _Functional:
    """Attributes that are functional forms of other pipes, and how pipes print."""

    functions: ClassVar[dict[str, Callable[..., Any]]]

    def __getattr__(self, name: str) -> Any:
        if name in type(self).functions:
            return functools.partial(type(self).functions[name], self)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    @classmethod
    def register_function(cls, function_name: str, function: Callable[..., Any]) -> None:
        """Make ``pipe.function_name(...)`` call ``function(pipe, ...)``."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(
        cls, function_name: str, cls_to_register: Any, enable_df_api_tracing: bool = False
    ) -> None:
        """Make ``pipe.function_name(...)`` build ``cls_to_register(pipe, ...)``; ``Exception`` if the name is taken."""
        if function_name in cls.functions:
            raise Exception(f"Unable to add DataPipe function name {function_name} as it is already taken")

        @functools.wraps(cls_to_register, updated=())
        def build(source: Any, *args: Any, **options: Any) -> Any:
            return cls_to_register(source, *args, **options)

        cls.functions[function_name] = build

    def __repr__(self) -> str:
        return str(type(self).__qualname__)

    __str__ = __repr__

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *type(self).functions]

    def __getstate__(self) -> dict[str, Any]:
        hook = type(self).getstate_hook
        return hook(self.__dict__) if hook is not None else self.__dict__

    def __reduce_ex__(self, *args: Any, **kwargs: Any) -> Any:
        hook = type(self).reduce_ex_hook
        if hook is not None:
            try:
                return hook(self)
            except NotImplementedError:
                pass
        return super().__reduce_ex__(*args, **kwargs)

    getstate_hook: Callable[[Any], Any] | None = None
    reduce_ex_hook: Callable[[Any], Any] | None = None

    @classmethod
    def set_getstate_hook(cls, hook_fn: Callable[[Any], Any] | None) -> None:
        """Let ``hook_fn(state)`` make what is pickled of a pipe; ``RuntimeError`` if another hook is set."""
        if cls.getstate_hook is not None and hook_fn is not None:
            raise RuntimeError("Attempt to override existing getstate_hook")
        cls.getstate_hook = None if hook_fn is None else staticmethod(hook_fn)

    @classmethod
    def set_reduce_ex_hook(cls, hook_fn: Callable[[Any], Any] | None) -> None:
        """Let ``hook_fn(pipe)`` stand for ``__reduce_ex__``; ``RuntimeError`` if another hook is set."""
        if cls.reduce_ex_hook is not None and hook_fn is not None:
            raise RuntimeError("Attempt to override existing reduce_ex_hook")
        cls.reduce_ex_hook = None if hook_fn is None else staticmethod(hook_fn)


class IterDataPipe(_Functional, IterableDataset[T_co]):
    """A stream of samples: subclasses define ``__iter__``, and ``reset()`` if they keep anything between samples.

    At most one iterator is valid: a newer one ends it. The iterator of a pipe whose class defines ``__next__`` may be
    the pipe itself.

    >>> from tesserack.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper(range(6)).filter(lambda n: n % 2 == 1).map(lambda n: n * n).batch(2))
    [[1, 9], [25]]
    """

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}
    _valid_iterator_id: int | None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__iter__" in cls.__dict__:
            cls.__iter__ = one_at_a_time(cls.__dict__["__iter__"])  # type: ignore[method-assign]

    def __iter__(self) -> Iterator[T_co]:
        return self

    def __add__(self, other: Any) -> Any:
        return type(self).functions["concat"](self, other)

    def reset(self) -> None:
        """Called before each iteration."""


class DFIterDataPipe(IterDataPipe[T_co]):
    """A stream of data frames."""

    def _is_dfpipe(self) -> bool:
        return True


class MapDataPipe(_Functional, Dataset[T_co]):
    """Samples by index or key: subclasses define ``__getitem__``, and ``__len__`` if they have a length.

    >>> from tesserack.utils.data.datapipes.map import SequenceWrapper
    >>> list(SequenceWrapper([1, 2, 3]).map(lambda n: -n).batch(2))
    [[-1, -2], [-3]]
    """

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __add__(self, other: Any) -> Any:
        return type(self).functions["concat"](self, other)


class DataChunk(list[T]):
    """A batch as datapipes make it: a list that knows how to print.

    >>> DataChunk([1, 2]).as_str("  ")
    '  [1, 2]'
    """

    def __init__(self, items: Any) -> None:
        items = list(items)
        super().__init__(items)
        self.items = items

    def as_str(self, indent: str = "") -> str:
        """The elements in brackets after ``indent``."""
        return f"{indent}[{', '.join(str(item) for item in self)}]"

    def raw_iterator(self) -> Iterator[T]:
        """The elements themselves."""
        yield from self.items

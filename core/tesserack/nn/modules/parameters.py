"""Lists and dictionaries of parameters."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tesserack import Tensor
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import Parameter

__all__ = ["ParameterDict", "ParameterList"]


def _as_parameter(value: Any) -> Any:
    """Plain tensors become parameters, as both containers promise."""
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _summary(key: Any, value: Any, name: str = "") -> str:
    if not isinstance(value, Tensor):
        return f"  ({key}): Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    size = "x".join(str(length) for length in value.shape)
    place = "" if value.device.type in ("cpu", "meta") else f" ({value.device})"
    return f"  ({key}): {kind} containing: [{name or value.dtype} of size {size}{place}]"


class ParameterList(Module):
    """A list of parameters; tensors put into it become parameters.

    >>> from tesserack import nn, zeros
    >>> weights = nn.ParameterList([zeros(2), zeros(3)])
    >>> [tuple(w.shape) for w in weights], len(list(weights.parameters()))
    ([(2,), (3,)], 2)
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def _name(self, position: Any) -> str:
        index = operator.index(position)
        if not -self._size <= index < self._size:
            raise IndexError(f"ParameterList: index {index} is out of range for {self._size} entries")
        return str(index % self._size)

    def __getitem__(self, position: int | slice) -> Any:
        if isinstance(position, slice):
            return type(self)(self[i] for i in range(*position.indices(self._size)))
        return getattr(self, self._name(position))

    def __setitem__(self, position: int, value: Any) -> None:
        setattr(self, self._name(position), _as_parameter(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(self._size))

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: a list computes nothing."""
        raise RuntimeError("ParameterList should not be called.")

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def append(self, value: Any) -> ParameterList:
        """Add one entry at the end; returns the list."""
        name = str(self._size)
        self._size += 1
        setattr(self, name, _as_parameter(value))
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add several entries at the end; returns the list."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(f"ParameterList.extend: expected an iterable of tensors, got {type(values).__name__}")
        for value in list(values):
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(_summary(i, value) for i, value in enumerate(self))


class ParameterDict(Module):
    """A dictionary of parameters in insertion order; tensors put into it become parameters.

    >>> from tesserack import nn, zeros
    >>> scales = nn.ParameterDict({"a": zeros(2)})
    >>> scales["b"] = zeros(3)
    >>> list(scales.keys()), [name for name, _ in scales.named_parameters()]
    (['a', 'b'], ['a', 'b'])
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: it has no forward."""
        raise RuntimeError("ParameterDict should not be called.")

    def __getitem__(self, key: str) -> Any:
        self._check_key(key)
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        self._check_key(key)
        if key not in self._keys:
            self._check_name(key, "parameter", self._parameters)
        setattr(self, key, _as_parameter(value))
        self._keys[key] = None

    @staticmethod
    def _check_key(key: Any) -> None:
        if not isinstance(key, str):
            raise TypeError(f"ParameterDict: expected a string as a key, got {type(key).__name__}")

    def __or__(self, other: ParameterDict) -> ParameterDict:
        both = self.copy()
        both.update(other)
        return both

    def __ror__(self, other: ParameterDict) -> ParameterDict:
        both = other.copy()
        both.update(self)
        return both

    def __ior__(self, other: ParameterDict) -> ParameterDict:
        self.update(other)
        return self

    @staticmethod
    def fromkeys(keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A dictionary of ``default`` under every key."""
        return ParameterDict((key, default) for key in keys)

    def __delitem__(self, key: str) -> None:
        self._check_key(key)
        del self._keys[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def get(self, key: str, default: Any = None) -> Any:
        """The value under ``key``, or ``default``."""
        return self[key] if key in self._keys else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value under ``key``, which becomes ``default`` if it is absent."""
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: str) -> Any:
        """Remove the value under ``key`` and return it."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove and return the last pair."""
        key = next(reversed(self._keys), None)
        if key is None:
            raise KeyError("ParameterDict.popitem: the dictionary is empty")
        return key, self.pop(key)

    def clear(self) -> None:
        """Remove everything."""
        for key in list(self._keys):
            del self[key]

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._keys.keys()

    def values(self) -> Iterable[Any]:
        """The parameters."""
        return (self[key] for key in self._keys)

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and parameters."""
        return ((key, self[key]) for key in self._keys)

    def copy(self) -> ParameterDict:
        """A new dictionary with the same parameters."""
        return ParameterDict(OrderedDict(self.items()))

    def update(self, parameters: Any) -> None:
        """Add or replace values from a mapping, by name unless it is an OrderedDict, or from (name, value) pairs."""
        mapping = isinstance(parameters, (Mapping, ParameterDict))
        pairs = parameters.items() if mapping else parameters
        if not isinstance(pairs, Iterable):
            raise TypeError(f"ParameterDict.update: expected a mapping or pairs, got {type(parameters).__name__}")
        ordered = isinstance(parameters, (OrderedDict, ParameterDict)) or not mapping
        for key, value in pairs if ordered else sorted(pairs, key=lambda pair: pair[0]):
            self[key] = value

    def extra_repr(self) -> str:
        """One line for each; of the tensor's class in older days, as PyTorch prints it here and not for lists."""
        lines = ((key, value, value.type() if isinstance(value, Tensor) else "") for key, value in self.items())
        return "\n".join(_summary(*line) for line in lines)

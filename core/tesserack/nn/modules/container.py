"""Modules that hold other modules."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, overload

from tesserack.nn.modules.module import Module, indented

__all__ = ["ModuleDict", "ModuleList", "Sequential"]

Self = TypeVar("Self", bound="_NumberedModules")


class _NumberedModules(Module):
    """Modules under the names "0", "1", ...: what Sequential and ModuleList share."""

    def _position(self, position: Any) -> int:
        """An integer position, negative ones counted from the end."""
        size = len(self)
        index = operator.index(position)
        if not -size <= index < size:
            raise IndexError(f"{type(self).__name__}: index {index} is out of range for {size} modules")
        return index % size

    def _index(self, position: Any) -> str:
        """The name at a position."""
        return list(self._modules)[self._position(position)]

    def _get_abs_string_index(self, idx: Any) -> str:
        return str(self._position(idx))

    def _get_item_by_idx(self, iterator: Iterable[Any], idx: Any) -> Any:
        """Of as many things as there are modules, the one at a position."""
        return list(iterator)[self._position(idx)]

    def _refill(self, modules: Iterable[Module]) -> None:
        modules = list(modules)
        self._modules.clear()
        for i, module in enumerate(modules):
            self.add_module(str(i), module)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __contains__(self, module: object) -> bool:
        return any(own is module for own in self._modules.values())

    def __setitem__(self, position: int, module: Module) -> None:
        setattr(self, self._index(position), module)

    def __delitem__(self, position: int | slice) -> None:
        kept = list(self._modules.values())
        if isinstance(position, slice):
            del kept[position]
        else:
            self._index(position)
            del kept[operator.index(position)]
        self._refill(kept)

    def append(self: Self, module: Module) -> Self:
        """Add a module at the end; returns the container."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self: Self, index: int, module: Module) -> Self:
        """Put a module before position ``index``; returns the container."""
        if not isinstance(module, Module):
            raise AssertionError(f"{type(self).__name__}.insert: expected a Module, got {type(module).__name__}")
        modules = list(self._modules.values())
        if not -len(modules) <= index <= len(modules):
            raise IndexError(f"{type(self).__name__}.insert: index {index} is out of range for {len(modules)} modules")
        modules.insert(index, module)
        self._refill(modules)
        return self

    def extend(self: Self, modules: Iterable[Module]) -> Self:
        """Add all of ``modules`` at the end; returns the container."""
        if not isinstance(modules, Iterable):
            raise TypeError(
                f"{type(self).__name__}.extend: expected an iterable of modules, got {type(modules).__name__}"
            )
        for module in list(modules):
            self.append(module)
        return self

    def pop(self, key: int | slice) -> Any:
        """Remove and return the module at position ``key``."""
        taken = self[key]  # type: ignore[index]
        del self[key]
        return taken

    def __iadd__(self: Self, modules: Iterable[Module]) -> Self:
        return self.extend(modules)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]


class Sequential(_NumberedModules):
    """Runs its modules one after the other, each on the output of the one before.

    Takes modules, or one ordered dict of named modules. Slices are Sequentials that share the modules.

    >>> from tesserack import nn, ones
    >>> net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> net[:2]
    Sequential(
      (0): Linear(in_features=4, out_features=3, bias=True)
      (1): ReLU()
    )
    >>> tuple(net(ones(5, 4)).shape)
    (5, 2)
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        named = args[0] if len(args) == 1 and isinstance(args[0], OrderedDict) else enumerate(args)
        for name, module in dict(named).items():
            self.add_module(str(name), module)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input

    @overload
    def __getitem__(self, position: int) -> Module: ...
    @overload
    def __getitem__(self, position: slice) -> Sequential: ...
    def __getitem__(self, position: int | slice) -> Module:
        if isinstance(position, slice):
            return type(self)(OrderedDict(list(self._modules.items())[position]))
        return self._modules[self._index(position)]  # type: ignore[no-any-return]

    def __add__(self, other: Sequential) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(f"Sequential + other: expected a Sequential, got {type(other).__name__}")
        return Sequential(*self, *other)

    def __mul__(self, times: int) -> Sequential:
        if not isinstance(times, int):
            raise TypeError(f"Sequential * n: expected an int, got {type(times).__name__}")
        if times <= 0:
            raise ValueError(f"Sequential * n: expected n > 0, got {times}")
        return Sequential(*(list(self) * times))

    __rmul__ = __mul__

    def __imul__(self, times: int) -> Sequential:
        return self.extend(list(self * times)[len(self) :])


class ModuleList(_NumberedModules):
    """A list of modules whose parameters are registered; it has no ``forward`` of its own.

    >>> from tesserack import nn
    >>> layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
    >>> len(layers), len(list(layers.parameters()))
    (3, 6)
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    @overload
    def __getitem__(self, position: int) -> Module: ...
    @overload
    def __getitem__(self, position: slice) -> ModuleList: ...
    def __getitem__(self, position: int | slice) -> Module:
        if isinstance(position, slice):
            return type(self)(list(self._modules.values())[position])
        return self._modules[self._index(position)]  # type: ignore[no-any-return]

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __repr__(self) -> str:
        """Runs of equal modules are shown once, with their count."""
        runs: list[tuple[int, int, str]] = []
        for i, text in enumerate(map(repr, self)):
            if runs and runs[-1][2] == text:
                runs[-1] = (runs[-1][0], i, text)
            else:
                runs.append((i, i, text))
        if not runs:
            return f"{self._get_name()}()"
        lines = []
        for first, last, text in runs:
            label = f"({first})" if first == last else f"({first}-{last})"
            count = "" if first == last else f"{last - first + 1} x "
            lines.append(indented(f"{label}: {count}{text}"))
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"


class ModuleDict(Module):
    """A dictionary of modules whose parameters are registered, in insertion order.

    >>> from tesserack import nn
    >>> heads = nn.ModuleDict({"a": nn.Linear(2, 1), "b": nn.Linear(2, 3)})
    >>> list(heads), heads["b"].out_features
    (['a', 'b'], 3)
    """

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]  # type: ignore[no-any-return]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Remove all modules."""
        self._modules.clear()

    def pop(self, key: str) -> Module:
        """Remove the module under ``key`` and return it."""
        return self._modules.pop(key)  # type: ignore[no-any-return]

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def items(self) -> Iterable[tuple[str, Module]]:
        """Names and modules."""
        return self._modules.items()

    def values(self) -> Iterable[Module]:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add or replace modules from a mapping or from pairs."""
        pairs = modules.items() if isinstance(modules, (Mapping, ModuleDict)) else modules
        if not isinstance(pairs, Iterable):
            raise TypeError(f"ModuleDict.update: expected a mapping or pairs, got {type(modules).__name__}")
        for i, pair in enumerate(pairs):
            if not isinstance(pair, Iterable):
                raise TypeError(f"ModuleDict.update: expected (name, module) pairs, item {i} is {pair!r}")
            if len(pair := tuple(pair)) != 2:
                raise ValueError(f"ModuleDict.update: expected (name, module) pairs, item {i} is {pair!r}")
            self[pair[0]] = pair[1]

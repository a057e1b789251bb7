"""Walking a tree of modules: parameters, buffers and modules with their dotted names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from tesserack import Tensor
from tesserack.nn.modules._registry import Registry
from tesserack.nn.parameter import Parameter

if TYPE_CHECKING:
    from tesserack.nn.modules.module import Module

Self = TypeVar("Self", bound="TraversalMixin")


class TraversalMixin:
    """The iterators over a module tree, and access by dotted name."""

    _parameters: Registry
    _buffers: Registry
    _modules: Registry

    def named_modules(
        self, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module (named ``prefix``) and all below it, parents first; a shared module is yielded once."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self  # type: ignore[misc]
        for name, module in self._modules.items():
            if module is not None:
                below = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, below, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below it, each once unless told otherwise."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly below this one."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """The modules directly below this one, without names."""
        for _, module in self.named_children():
            yield module

    def _named_members(
        self,
        members_of: Callable[[Any], Any],
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        walk = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for module_prefix, module in walk:
            for name, member in members_of(module):
                if member is None or id(member) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(member))
                yield (f"{module_prefix}.{name}" if module_prefix else name), member

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Parameters with their dotted names; one that is shared appears once, under its first name.

        >>> from tesserack import nn
        >>> [name for name, _ in nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1, bias=False)).named_parameters()]
        ['0.weight', '0.bias', '1.weight']
        """
        return self._named_members(lambda module: module._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """What an optimizer takes: the parameters of this module and, with ``recurse``, of all below it."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Buffers with their dotted names."""
        return self._named_members(lambda module: module._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers of this module and, with ``recurse``, of all below it."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def apply(self: Self, fn: Callable[[Module], Any]) -> Self:
        """Call ``fn`` on every module below, children first, then on this one; returns this module."""
        for module in self.children():
            module.apply(fn)
        fn(self)  # type: ignore[arg-type]
        return self

    def get_submodule(self, target: str) -> Module:
        """The module at a dotted path; ``""`` is this one. Raises ``AttributeError`` naming the part that is absent."""
        module: Any = self
        for name in target.split(".") if target else ():
            found = module._modules.get(name) if isinstance(module, TraversalMixin) else None
            if found is None:
                raise AttributeError(f"{type(module).__name__} has no attribute `{name}` (get_submodule of {target!r})")
            module = found
        return module  # type: ignore[no-any-return]

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Replace the module at a dotted path, which must exist up to its last part, and with ``strict`` whole.

        Raises ``ValueError`` for an empty path or what is no module, ``AttributeError`` where the path leads nowhere.
        """
        parent, _, name = target.rpartition(".")
        if not name:
            raise ValueError("set_submodule: expected a path such as 'features.0', got an empty one")
        owner = self.get_submodule(parent)
        if strict and name not in owner._modules:
            raise AttributeError(f"set_submodule: {type(owner).__name__} has no module {name!r} (in {target!r})")
        setattr(owner, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path, for example ``"0.weight"``."""
        return self._get_member(target, "_parameters", "parameter")  # type: ignore[no-any-return]

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path."""
        return self._get_member(target, "_buffers", "buffer")  # type: ignore[no-any-return]

    def _get_member(self, target: str, registry: str, kind: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        member = getattr(module, registry).get(name)
        if member is None:
            if not hasattr(module, name):
                raise AttributeError(f"{type(module).__name__} has no attribute `{name}` (get_{kind} of {target!r})")
            what = "an nn.Parameter" if kind == "parameter" else f"a {kind}"
            raise AttributeError(
                f"get_{kind}: `{name}` is not {what} (in {target!r}), but {getattr(module, name)!r:.60}"
            )
        return member

"""Where a tracer is: in which submodule."""

from __future__ import annotations

from typing import Any

from tesserack.fx._compatibility import compatibility

__all__ = ["Scope", "ScopeContextManager"]


@compatibility(is_backward_compatible=False)
class Scope:
    """The path and the class of a module that is being traced."""

    def __init__(self, module_path: str, module_type: Any) -> None:
        self.module_path, self.module_type = module_path, module_type


@compatibility(is_backward_compatible=False)
class ScopeContextManager:
    """Within it, a scope says what another one does."""

    def __init__(self, scope: Scope, current_scope: Scope) -> None:
        self._before = (scope.module_path, scope.module_type)
        self._scope = scope
        scope.module_path, scope.module_type = current_scope.module_path, current_scope.module_type

    def __enter__(self) -> Scope:
        return self._scope

    def __exit__(self, *exc: object) -> None:
        self._scope.module_path, self._scope.module_type = self._before

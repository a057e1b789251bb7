"""Types of results, from the schemas of operators and the annotations of layers."""

from __future__ import annotations

import inspect
from typing import Any

from tesserack import nn
from tesserack.fx.interpreter import Transformer
from tesserack.fx.operator_schemas import get_signature_for_torch_op
from tesserack.fx.proxy import Proxy
from tesserack.nn.modules.module import Module

__all__ = ["AnnotateTypesWithSchema"]


class AnnotateTypesWithSchema(Transformer):
    """Gives values that operators, functions and layers compute the type that these say to return."""

    def __init__(
        self, module: Module, annotate_functionals: bool = True, annotate_modules: bool = True,
        annotate_get_attrs: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(module)  # type: ignore[arg-type]
        self.annotate_functionals, self.annotate_modules = annotate_functionals, annotate_modules
        self.annotate_get_attrs = annotate_get_attrs

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A call, typed by the overload that fits."""
        kind = _of_function(target, args, kwargs) if self.annotate_functionals else None
        return _typed(super().call_function(target, args, kwargs), kind)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A call of a layer, typed by its ``forward``."""
        module = self.fetch_attr(target)
        known = self.annotate_modules and getattr(nn, type(module).__name__, None) is type(module)
        found = inspect.signature(type(module).forward).return_annotation if known else None
        kind = found if isinstance(found, type) and found is not inspect.Signature.empty else None
        return _typed(super().call_module(target, args, kwargs), kind)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """An attribute, of its own type."""
        kind = type(self.fetch_attr(target)) if self.annotate_get_attrs else None
        return _typed(super().get_attr(target, args, kwargs), kind)


def _of_function(target: Any, args: Any, kwargs: Any) -> Any:
    if getattr(target, "__module__", None) == "_operator":
        return None
    for signature in get_signature_for_torch_op(target) or ():
        try:
            signature.bind(*args, **kwargs)
        except TypeError:
            continue
        return signature.return_annotation
    return None


def _typed(proxy: Any, kind: Any) -> Any:
    if isinstance(proxy, Proxy) and kind is not None and proxy.node.type is None:
        proxy.node.type = kind
    return proxy

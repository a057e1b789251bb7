"""What makes a module lazy: its parameters take their shapes from the first input."""

from __future__ import annotations

from typing import Any

from tesserack.nn.parameter import is_lazy

__all__ = ["LazyModuleMixin"]


class LazyModuleMixin:
    """Put before a module class; the subclass makes uninitialised parameters and defines ``initialize_parameters``.

    ``initialize_parameters`` gets what ``forward`` gets, the first time, and materialises them; the module then becomes
    an instance of ``cls_to_become`` if that is set. A state dict that holds values initialises as well. Run a dry
    forward before making an optimizer.
    """

    cls_to_become: type[Any] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        module: Any = self
        self._load_hook = module._register_load_state_dict_pre_hook(_materialize_from, with_module=True)
        self._initialize_hook = module.register_forward_pre_hook(_infer_parameters, with_kwargs=True)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Materialise the parameters for this input; a subclass defines it."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def _take_sizes(self) -> None:
        """The numbers that the shapes of the parameters say, where those come from a state dict."""

    def has_uninitialized_params(self) -> bool:
        """Whether some parameter or buffer has no shape yet."""
        module: Any = self
        return any(is_lazy(t) for table in (module._parameters, module._buffers) for t in table.values())

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        module: Any = self
        for name, tensor in module._own_state():
            destination[prefix + name] = tensor if is_lazy(tensor) or keep_vars else tensor.detach()

    def _load_tensor(self, name: str, tensor: Any, key: str, value: Any, *rest: Any) -> None:
        if not (is_lazy(tensor) and is_lazy(value)):  # nothing to load from one that has no values either
            super()._load_tensor(name, tensor, key, value, *rest)  # type: ignore[misc]

    def _replicate_for_data_parallel(self) -> Any:
        raise RuntimeError(
            "Modules with uninitialized parameters can't be used with `DataParallel`. Run a dummy forward pass to "
            "correctly initialize the modules"
        )


def _materialize_from(module: Any, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
    for table in (module._parameters, module._buffers):
        for name, tensor in table.items():
            value = state_dict.get(prefix + name)
            if is_lazy(tensor) and value is not None and not is_lazy(value):
                tensor.materialize(value.shape)
    if not module.has_uninitialized_params():
        module._take_sizes()


def _infer_parameters(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
    module.initialize_parameters(*args, **(kwargs or {}))
    if module.has_uninitialized_params():
        raise RuntimeError(f"module {module._get_name()} has not been fully initialized")
    module._initialize_hook.remove()
    module._load_hook.remove()
    del module._initialize_hook, module._load_hook
    if module.cls_to_become is not None:
        module.__class__ = module.cls_to_become

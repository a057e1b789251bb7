"""A layer that lies, and computes, in another process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tesserack.distributed import rpc
from tesserack.distributed.rpc import RRef
from tesserack.nn import Module
from tesserack.nn.parameter import Parameter
from tesserack.utils.futures import Future

__all__ = ["RemoteModule"]


def _place(remote_device: str) -> tuple[Any, str]:
    """Worker and device of ``worker1/cpu``, ``rank:1/cpu`` or ``worker1``."""
    worker, _, device = str(remote_device).partition("/")
    if not worker:
        raise ValueError(f"RemoteModule: expected a place like 'worker1/cpu' or 'rank:1/cpu', got {remote_device!r}")
    return (int(worker[5:]) if worker.startswith("rank:") else worker), device or "cpu"


def _made(kind: type, args: Any, kwargs: Any, device: str) -> Module:
    made: Any = kind(*args, **kwargs)
    if not isinstance(made, Module):
        raise ValueError(f"Expect `module_cls(*args, **kwargs)` returns an instance of <class nn.Module>, got {made!r}")
    return made.to(device)


def _parameters(module: RRef[Module], recurse: bool) -> list[RRef[Parameter]]:
    return [RRef(parameter) for parameter in module.local_value().parameters(recurse)]


class RemoteModule(Module):
    """A module made by ``module_cls(*args, **kwargs)`` in the worker that ``remote_device`` names, such as
    ``"worker1/cpu"``; calls run there.

    Gradients flow within ``distributed.autograd.context()``. What is the module's there, its parameters as
    :meth:`remote_parameters` say; other methods of modules raise ``ValueError``.

    >>> import tesserack as ts
    >>> from tesserack.distributed.rpc._begin import alone
    >>> with alone() as name:
    ...     there = RemoteModule(f"{name}/cpu", ts.nn.Linear, args=(3, 2))
    ...     there(ts.ones(4, 3)).shape, len(there.remote_parameters())
    (tesserack.Size([4, 2]), 2)
    """

    def __init__(
        self,
        remote_device: str,
        module_cls: type[Module],
        args: tuple[Any, ...] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(module_cls, type):
            raise ValueError(f"RemoteModule: expected a class of modules, got {module_cls!r}")
        self.on, self.device = _place(remote_device)
        self.is_device_map_set = False
        given = (module_cls, tuple(args or ()), dict(kwargs or {}), self.device)
        self.module_rref: RRef[Module] = rpc.rpc_sync(self.on, _referred, args=given)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives."""
        return self.module_rref.rpc_sync().forward(*args, **kwargs)

    def forward_async(self, *args: Any, **kwargs: Any) -> Future[Any]:
        """A future of it."""
        return self.module_rref.rpc_async().forward(*args, **kwargs)  # type: ignore[no-any-return]

    def remote_parameters(self, recurse: bool = True) -> list[RRef[Parameter]]:
        """References to the module's parameters, for ``DistributedOptimizer``."""
        return rpc.rpc_sync(self.on, _parameters, args=(self.module_rref, recurse))  # type: ignore[no-any-return]

    def get_module_rref(self) -> RRef[Module]:
        """A reference to the module."""
        return self.module_rref

    def train(self, mode: bool = True) -> RemoteModule:
        """Set the module there to training."""
        if "module_rref" in self.__dict__:
            self.module_rref.rpc_sync().train(mode)
        self.training = mode
        return self

    def extra_repr(self) -> str:
        """Where it is."""
        return f"on={self.on!r}, device={self.device!r}"


def _referred(kind: type, args: Any, kwargs: Any, device: str) -> RRef[Module]:
    return RRef(_made(kind, args, kwargs, device))


def _unsupported(name: str) -> Any:
    def method(self: RemoteModule, *args: Any, **kwargs: Any) -> Any:
        raise ValueError(f"Method `{name}` not supported for RemoteModule")

    method.__name__ = name
    method.__doc__ = f"``ValueError``: a module elsewhere has no ``{name}``."
    return method


for _name in (
    "add_module", "apply", "bfloat16", "buffers", "children", "cpu", "cuda", "double", "float", "half",
    "load_state_dict", "modules", "named_buffers", "named_children", "named_modules", "named_parameters", "parameters",
    "register_backward_hook", "register_buffer", "register_forward_hook", "register_forward_pre_hook",
    "register_parameter", "requires_grad_", "share_memory", "state_dict", "to", "type", "zero_grad",
):  # fmt: skip
    setattr(RemoteModule, _name, _unsupported(_name))

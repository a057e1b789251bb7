"""Data-parallel training without a wrapper: the module stays itself, under its own names."""

from __future__ import annotations

from typing import Any

from tesserack.distributed._composable._swapped import swapped
from tesserack.nn import Module
from tesserack.nn.parallel.distributed import DistributedDataParallel

__all__ = ["DDP", "replicate"]


class DDP:
    """What a replicated module can do more."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's, of which ``backward`` reduces the gradients."""
        wrapper: DistributedDataParallel = self.__dict__["_replicated_by"]
        call = super().forward  # type: ignore[misc]
        return wrapper.around(call, args, kwargs)

    def set_requires_gradient_sync(self, requires_gradient_sync: bool) -> None:
        """Whether backwards of forwards from now on reduce gradients."""
        self.__dict__["_replicated_by"].require_backward_grad_sync = requires_gradient_sync

    def register_comm_hook(self, *args: Any, **kwargs: Any) -> None:
        """As of ``DistributedDataParallel``."""
        self.__dict__["_replicated_by"].register_comm_hook(*args, **kwargs)


def replicate(module: Module, ignored_modules: Any = None, device_mesh: Any = None, **kwargs: Any) -> Module:
    """Average gradients over ranks that hold copies of a module, which is returned; options are those of
    ``DistributedDataParallel``. ``ValueError`` for one that is replicated already.

    >>> import tesserack as ts
    >>> ts.distributed.init_process_group(store=ts.distributed.HashStore(), rank=0, world_size=1)
    >>> layer = replicate(ts.nn.Linear(2, 1))
    >>> layer(ts.ones(4, 2)).sum().backward()
    >>> layer.bias.grad
    tensor([4.])
    >>> ts.distributed.destroy_process_group()
    """
    ignored = {id(p) for each in ignored_modules or () for p in each.parameters()}
    names = [name for name, p in module.named_parameters() if id(p) in ignored]
    if names:
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, names)
    wrapper = DistributedDataParallel(module, device_mesh=device_mesh, **kwargs)
    swapped(module, DDP, "DDP")
    module.__dict__["_replicated_by"] = wrapper
    return module

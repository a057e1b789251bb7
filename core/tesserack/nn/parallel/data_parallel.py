"""A batch over the devices of one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tesserack.nn.modules.module import Module
from tesserack.nn.parallel.parallel_apply import parallel_apply
from tesserack.nn.parallel.replicate import replicate
from tesserack.nn.parallel.scatter_gather import gather, scatter_kwargs

__all__ = ["DataParallel", "data_parallel"]


class DataParallel(Module):
    """``module`` over several devices: the batch is cut along ``dim``, computed by replicas and joined again.

    Without ``device_ids``, or with a single one, it simply calls the module, as PyTorch's does on one device. The
    module
    is in ``module``, so names in ``state_dict`` begin with ``module.``.

    >>> from tesserack import nn, ones
    >>> model = nn.DataParallel(nn.Linear(2, 1))
    >>> tuple(model(ones(3, 2)).shape), list(model.state_dict())
    ((3, 1), ['module.weight', 'module.bias'])
    """

    module: Module

    def __init__(
        self, module: Module, device_ids: Sequence[Any] | None = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        self.module = module
        self.dim = dim
        self.device_ids = list(device_ids) if device_ids is not None else []
        self.output_device = output_device if output_device is not None else next(iter(self.device_ids), None)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if len(self.device_ids) < 2:
            return self.module(*inputs, **kwargs)
        rows, named = self.scatter(inputs, kwargs, self.device_ids)
        if not rows:
            return self.module(*inputs, **kwargs)
        if len(rows) == 1:
            return self.module(*rows[0], **named[0])
        replicas = self.replicate(self.module, self.device_ids[: len(rows)])
        return self.gather(self.parallel_apply(replicas, rows, named), self.output_device)

    def replicate(self, module: Module, device_ids: Sequence[Any]) -> list[Module]:
        """See :func:`replicate`."""
        return replicate(module, device_ids)

    def scatter(self, inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, device_ids: Sequence[Any]) -> Any:
        """The arguments of each replica."""
        return scatter_kwargs(inputs, kwargs, device_ids, self.dim)

    def parallel_apply(self, replicas: Sequence[Any], inputs: Sequence[Any], kwargs: Any) -> list[Any]:
        """See :func:`parallel_apply`."""
        return parallel_apply(replicas, inputs, kwargs, self.device_ids[: len(replicas)])

    def gather(self, outputs: Any, output_device: Any) -> Any:
        """See :func:`gather`."""
        return gather(outputs, output_device, self.dim)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """:class:`DataParallel` as a function.

    >>> from tesserack import nn, ones
    >>> tuple(data_parallel(nn.Linear(2, 1), ones(4, 2), ["cpu", "cpu"]).shape)
    (4, 1)
    """
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*given, **(module_kwargs or {}))

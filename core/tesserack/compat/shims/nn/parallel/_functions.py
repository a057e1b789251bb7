"""``torch.nn.parallel._functions``: the steps of DataParallel as functions with gradients."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor
from tesserack.autograd import Function
from tesserack.nn.parallel import comm, scatter_gather

__all__ = ["Broadcast", "Gather", "ReduceAddCoalesced", "Scatter"]


class _Step(Function):
    """Its gradients are those of the operations that it is made of."""

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Call it; there is nothing to save for a backward pass."""
        return cls.forward(None, *args, **kwargs)


class Broadcast(_Step):
    """Tensors to every device: all of the first, then all of the second..."""

    @staticmethod
    def forward(ctx: Any, target_gpus: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Gradients are added up on the devices of the inputs."""
        return tuple(tensor for row in comm.broadcast_coalesced(inputs, target_gpus) for tensor in row)


class ReduceAddCoalesced(_Step):
    """Sums of gradients from several devices."""

    @staticmethod
    def forward(ctx: Any, destination: Any, num_inputs: int, *grads: Tensor) -> tuple[Tensor, ...]:
        """Of each ``num_inputs`` tensors, those in the same places are added."""
        rows = [grads[k : k + num_inputs] for k in range(0, len(grads), num_inputs)]
        return comm.reduce_add_coalesced(rows, destination)  # type: ignore[no-any-return]


class Scatter(_Step):
    """The parts of a tensor on the devices."""

    @staticmethod
    def forward(ctx: Any, target_gpus: Any, chunk_sizes: Any, dim: int, input: Tensor) -> tuple[Tensor, ...]:
        """Gradients are joined on the device of the input."""
        return comm.scatter(input, target_gpus, chunk_sizes, dim)  # type: ignore[no-any-return]


class Gather(_Step):
    """Tensors of several devices as one."""

    @staticmethod
    def forward(ctx: Any, target_device: Any, dim: int, *inputs: Tensor) -> Tensor:
        """Gradients go back in parts."""
        return scatter_gather.gather(inputs, target_device, dim)  # type: ignore[no-any-return]

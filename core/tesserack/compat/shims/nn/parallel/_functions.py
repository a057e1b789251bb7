"""``torch.nn.parallel._functions``: the steps of DataParallel as functions with gradients."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor
from tesserack.nn.parallel import comm, scatter_gather

__all__ = ["Broadcast", "Gather", "ReduceAddCoalesced", "Scatter"]


class Broadcast:
    """Tensors to every device: all of the first, then all of the second..."""

    @staticmethod
    def apply(target_gpus: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Gradients are added up on the devices of the inputs."""
        return tuple(tensor for row in comm.broadcast_coalesced(inputs, target_gpus) for tensor in row)


class ReduceAddCoalesced:
    """Sums of gradients from several devices."""

    @staticmethod
    def apply(destination: Any, num_inputs: int, *grads: Tensor) -> tuple[Tensor, ...]:
        """Of each ``num_inputs`` tensors, those in the same places are added."""
        rows = [grads[k : k + num_inputs] for k in range(0, len(grads), num_inputs)]
        return comm.reduce_add_coalesced(rows, destination)  # type: ignore[no-any-return]


class Scatter:
    """The parts of a tensor on the devices."""

    @staticmethod
    def apply(target_gpus: Any, chunk_sizes: Any, dim: int, input: Tensor) -> tuple[Tensor, ...]:
        """Gradients are joined on the device of the input."""
        return comm.scatter(input, target_gpus, chunk_sizes, dim)  # type: ignore[no-any-return]


class Gather:
    """Tensors of several devices as one."""

    @staticmethod
    def apply(target_device: Any, dim: int, *inputs: Tensor) -> Tensor:
        """Gradients go back in parts."""
        return scatter_gather.gather(inputs, target_device, dim)  # type: ignore[no-any-return]

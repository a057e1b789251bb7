"""``torch.distributed.tensor.device_mesh``: another name of :mod:`tesserack.distributed.device_mesh`."""

from tesserack.distributed.device_mesh import DeviceMesh, init_device_mesh

__all__ = ["DeviceMesh", "init_device_mesh"]

"""Modules over several devices of one process, as programs written for PyTorch's DataParallel expect them."""

from tesserack.nn.parallel import comm
from tesserack.nn.parallel.data_parallel import DataParallel, data_parallel
from tesserack.nn.parallel.parallel_apply import parallel_apply
from tesserack.nn.parallel.replicate import replicate
from tesserack.nn.parallel.scatter_gather import gather, scatter

__all__ = ["DataParallel", "comm", "data_parallel", "gather", "parallel_apply", "replicate", "scatter"]

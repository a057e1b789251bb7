"""``torch.distributed.checkpoint``: of one process, whose states are whole already."""

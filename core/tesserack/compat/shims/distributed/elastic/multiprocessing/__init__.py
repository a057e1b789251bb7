"""``torch.distributed.elastic.multiprocessing``."""

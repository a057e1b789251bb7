"""``torch.distributed.elastic.utils``."""

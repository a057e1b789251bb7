"""``torch.distributed.elastic``, as far as programs that are launched take it."""

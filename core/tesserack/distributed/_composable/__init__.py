"""Where ``fully_shard`` was at first: ``torch.distributed._composable``."""

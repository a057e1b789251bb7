"""Parts of ``torch.nn.parallel``."""

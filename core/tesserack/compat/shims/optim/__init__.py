"""Private parts of ``torch.optim``."""

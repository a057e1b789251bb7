"""Private parts of ``torch.utils``."""

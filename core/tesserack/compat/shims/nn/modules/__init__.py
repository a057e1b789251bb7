"""Private parts of ``torch.nn``."""

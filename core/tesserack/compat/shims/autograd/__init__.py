"""Parts of ``torch.autograd``."""

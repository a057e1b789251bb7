"""``torch.testing._internal``: what the tests of other packages are written with, of PyTorch's own test tools."""

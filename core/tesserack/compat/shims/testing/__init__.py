"""Private parts of ``torch.testing``, which the tests of other packages are written with."""

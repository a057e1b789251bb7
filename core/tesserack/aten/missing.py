"""What is raised for a name of PyTorch's that Tesserack does not have."""

__all__ = ["MissingNameError"]


class MissingNameError(NotImplementedError, AttributeError):
    """A name of PyTorch's that Tesserack does not have was used."""

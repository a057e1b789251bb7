"""Two simulated devices behind ``abi.h``; nothing here imports the core."""

from pathlib import Path


def library() -> Path:
    """Where the library is."""
    return Path(__file__).with_name("libtesserack_zeta.so")

"""Calls that use the kernels a card may have beside the required ones."""

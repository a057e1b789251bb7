"""Layers that lie in other processes."""

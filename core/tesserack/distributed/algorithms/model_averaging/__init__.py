"""Means of parameters over ranks, every so many steps."""
